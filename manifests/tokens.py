"""The manifest of a tokens run: what its files are, in what order they are read, and where from.

What may live here: the dataclasses of `manifest.json`, reading, writing and their digest. The file
is canonical JSON; its `digest` is BLAKE2b-128 of everything else in it. Paths are relative to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from manifests import typed
from manifests.files import write_bytes
from manifests.order import ALGORITHM, BLOCK, VERSION, Deal, Order
from manifests.records import canonical, digest_of

KIND, SCHEMA = "tokens", 1
NAME = "manifest.json"

SplitName = Literal["train", "validation"]
SPLITS: tuple[SplitName, SplitName] = ("train", "validation")


class ManifestError(ValueError):
    """A manifest, or a file of one, that is missing, damaged or not understood. One line."""


@dataclass(frozen=True)
class File:
    """A file of a manifest: its path relative to it, its size, the SHA-256 of its bytes, its rows,
    and of packed rows the tokens of each source in them, padding not counted."""

    path: str
    rows: int
    bytes: int
    sha256: str
    tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Split:
    """The training or validation part of a source. `documents` counts distinct ones, `copies` those
    that were packed, repetitions included; `tokens` the ones of all copies, EOS (and BOS) included;
    `fill` is tokens / (rows * sequence_length), 0 where there are no rows. The window of a copy is
    the top `window_bits` bits of its key; a packed file and one of provenance, in the order of
    windows, belong to each window that has documents, and are named by its number."""

    documents: int
    copies: int
    tokens: int
    pieces: int
    rows: int
    fill: float
    window_bits: int
    files: tuple[File, ...]
    provenance: tuple[File, ...]


@dataclass(frozen=True)
class Source:
    """A source. `weight`: the share of non-padding tokens wanted over the whole run; `realised`:
    the share it has of the samples; `epochs`: how often its rows are gone through, and
    `max_epochs`: the cap that this was held against. `upstream`: the run or files it was made of
    (kind, name, digest, ...)."""

    name: str
    license: str | None
    weight: float
    realised: float
    epochs: float
    max_epochs: float
    upstream: Mapping[str, Any]
    splits: Mapping[str, Split]

    @property
    def train(self) -> Split:
        return self.splits["train"]


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer: a file that `tokenizers` loads, `size` entries of vocabulary, and the ids of
    its special tokens (null where it has none)."""

    path: str
    sha256: str
    bytes: int
    size: int
    eos: int
    bos: int | None
    pad: int | None
    mask: int | None
    sentinels: tuple[int, ...]
    special: Mapping[str, int]


@dataclass(frozen=True)
class Packing:
    """How documents were packed into rows."""

    algorithm: Literal["best_fit", "concat"]
    version: int


@dataclass(frozen=True)
class Mixture:
    """From a sample on: the shares of tokens wanted, and the parts of 2**32 of the samples by which
    each source gets them."""

    from_sample: int
    weights: Mapping[str, float]
    parts: Mapping[str, int]


@dataclass(frozen=True)
class Dealing:
    """How samples are dealt (manifests/order.py), how many there are, and the mixtures."""

    algorithm: str
    version: int
    block: int
    samples: int
    mixture: tuple[Mixture, ...]


@dataclass(frozen=True)
class Validation:
    """How validation was set apart: a share of the documents, or a whole source; `overlap`: what
    n-grams of it are still in the training documents, where that was looked for."""

    share: float | None
    source: str | None
    overlap: Mapping[str, Any] | None


@dataclass(frozen=True)
class Corpus:
    """The documents run below the tokens: its place, digest, and what its stats.json says."""

    path: str
    digest: str
    stats: Mapping[str, Any]


@dataclass(frozen=True)
class Manifest:
    """Token shards, packed files, their order and their origin. Row i of the concatenated shards is
    sample i; row r of a source counts through its packed files."""

    name: str
    seed: int
    recipe: Mapping[str, Any]
    recipe_digest: str
    sequence_length: int
    dtype: Literal["uint16", "uint32"]
    max_docs_per_row: int
    packing: Packing
    tokenizer: Tokenizer
    dealing: Dealing
    sources: tuple[Source, ...]
    shards: tuple[File, ...]
    validation: Validation
    corpus: Corpus | None
    takedown: Mapping[str, Any] | None = None
    directory: Path = field(default=Path("."), compare=False)

    # ------------------------------------------------------------ file

    @staticmethod
    def load(path: Path | str) -> Manifest:
        """The manifest at a path, or in a directory. Raises ManifestError, in one line, where there
        is none, where it is of another kind or schema, or not what its digest says."""
        place = Path(path)
        place = place / NAME if place.is_dir() else place
        try:
            record = json.loads(place.read_bytes())
        except OSError as error:
            raise ManifestError(f"{place}: {error.strerror or error}") from None
        except ValueError:
            raise ManifestError(f"{place}: no JSON; the file is damaged") from None
        if not isinstance(record, dict) or record.pop("kind", None) != KIND:
            raise ManifestError(f"{place}: no manifest of kind {KIND}")
        if (schema := record.pop("schema", None)) != SCHEMA:
            raise ManifestError(f"{place}: schema {schema!r}; this version reads {SCHEMA}")
        said = record.pop("digest", None)
        found = digest_of({"kind": KIND, "schema": SCHEMA, **record})
        if said != found:
            raise ManifestError(f"{place}: says digest {said}, its content has {found}")
        try:
            record["dealing"] = record.pop("order", None)
            manifest = typed.build(Manifest, record)
        except ValueError as error:
            raise ManifestError(f"{place}: {error}") from None
        return replace(manifest, directory=place.parent)

    def save(self, path: Path) -> None:
        """Writes the file, whole or not at all."""
        write_bytes(path, canonical(self.record()) + b"\n")

    def record(self) -> dict[str, Any]:
        """What stands in the file."""
        return {**self._content, "digest": self.digest}

    @cached_property
    def digest(self) -> str:
        """32 hex digits that belong to everything in the manifest."""
        return digest_of(self._content)

    @property
    def _content(self) -> dict[str, Any]:
        record = typed.plain(self)
        record["order"] = record.pop("dealing")
        return {"kind": KIND, "schema": SCHEMA, **record}

    # ------------------------------------------------------------ use

    @property
    def names(self) -> list[str]:
        """The sources in the order of their ordinals."""
        return [source.name for source in self.sources]

    @property
    def samples(self) -> int:
        """How many rows the shards have."""
        return self.dealing.samples

    def source(self, name: str) -> Source:
        """The source of this name. Raises ManifestError where there is none."""
        for source in self.sources:
            if source.name == name:
                return source
        raise ManifestError(f"no source {name!r}; there are {', '.join(self.names)}")

    def deals(self) -> list[Deal]:
        """The mixtures, as the order takes them; a source that one does not name gets nothing."""
        return [
            Deal(entry.from_sample, tuple(entry.parts.get(name, 0) for name in self.names))
            for entry in self.dealing.mixture
        ]

    def order(self, deals: Sequence[Deal] | None = None) -> Order:
        """The order of the samples; with other deals the order of another mixture of the same rows.

        Raises ManifestError where this version has another order than the manifest was made with.
        """
        said = (self.dealing.algorithm, self.dealing.version, self.dealing.block)
        if said != (ALGORITHM, VERSION, BLOCK):
            own = f"{ALGORITHM} version {VERSION} of blocks of {BLOCK}"
            raise ManifestError(
                "order {} version {} of blocks of {}; ".format(*said) + f"here: {own}"
            )
        rows = [source.train.rows for source in self.sources]
        return Order(self.seed, self.names, rows, self.deals() if deals is None else deals)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of `manifest.json` (docs/manifest.schema.json is this)."""
    schema = typed.json_schema(Manifest)
    own = schema["properties"]
    own["order"] = own.pop("dealing")
    text = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gristmill tokens manifest",
        **schema,
        "properties": {"kind": {"const": KIND}, "schema": {"const": SCHEMA}, **own, "digest": text},
        "required": [
            *("kind", "schema"),
            *("order" if name == "dealing" else name for name in schema["required"]),
            "digest",
        ],
    }
