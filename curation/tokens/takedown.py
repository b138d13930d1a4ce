"""A manifest without the documents of a list: a new directory beside the old one.

What may live here: the work behind `curation takedown LIST MANIFEST --output DIR`, for packed
files, shards, provenance and the manifest. The texts below them are a documents run.

The pieces of a listed document are deleted from their rows, the rest of a row moves left, and
padding fills it; rows stay where they are, so that the order, its parts and every sample number
mean what they did. Files that hold nothing of a listed document are linked, not copied.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.tokens.claim import claim
from curation.tokens.deletion import holds, without
from curation.tokens.packed import DamagedFile, batches, read_table, write_table
from curation.tokens.sharding import write_rows
from manifests.hashing import keys, salt
from manifests.records import digest_of
from manifests.rows import Rows
from manifests.tokens import NAME, SPLITS, File, Manifest, Source, Split

MARK = "takedown.json"


class Listed(Protocol):
    """Which documents are to go: ids (32 hex digits) and URLs as a person wrote them."""

    ids: frozenset[str]
    urls: frozenset[str]

    def entries(self, id: str, url: str | None) -> list[str]:
        """The entries of the list that a document is meant by; none where it is not listed."""
        ...


@dataclass
class _Gone:
    """What was taken out of some files of rows."""

    rows: list[int] = field(default_factory=list)  # by number in the file(s)
    pieces: int = 0
    copies: int = 0
    tokens: int = 0


@dataclass
class _Found:
    """Listed documents of one split of a source: by the number of the file that has pieces of
    them, their ids."""

    source: Source
    split: str
    files: dict[int, list[str]] = field(default_factory=dict)

    @property
    def held(self) -> Split:
        return self.source.splits[self.split]

    def documents(self) -> set[str]:
        return {name for names in self.files.values() for name in names}


def takedown(manifest: Manifest, listed: Listed, output: Path) -> dict[str, Any]:
    """Makes a directory like that of the manifest, without the listed documents.

    The same command goes on where it was stopped. Raises NotOurs where the directory holds
    something else, DamagedFile where a file is not what the manifest says.
    """
    entries = sorted({*listed.ids, *listed.urls})
    said = {"schema": 1, "previous": manifest.digest, "list": digest_of(entries)}
    claim(output, MARK, said)
    found, met = _find(manifest, listed)
    names = sorted(set().union(*(one.documents() for one in found)))
    fresh: dict[str, File] = {}
    total, samples = _Gone(), []
    sources = {source.name: source for source in manifest.sources}
    for one in found:
        gone = _rewrite_split(manifest, one, output, fresh)
        own = sources[one.source.name]
        held = _less(manifest, one, gone, fresh)
        sources[own.name] = replace(own, splits={**own.splits, one.split: held})
        total.pieces += gone.pieces
        total.copies += gone.copies
        total.tokens += gone.tokens
        if one.split == "train":
            samples += _samples(manifest, one.source.name, np.array(gone.rows, np.int64))
    shards = _rewrite_shards(manifest, names, sorted(samples), output, fresh)
    linked = _link_others(manifest, output, fresh)
    made = replace(
        manifest,
        sources=tuple(_realised(list(sources.values()), shards)),
        shards=shards,
        corpus=None,
        takedown={
            **{"previous": manifest.digest, "ids": digest_of(names)},
            **{"documents": len(names), "copies": total.copies, "tokens": total.tokens},
            "samples": len(samples),
        },
        directory=output,
    )
    made.save(output / NAME)
    return {
        **{"output": str(output), "manifest": made.digest, "previous": manifest.digest},
        **{"documents": len(names), "copies": total.copies},
        **{"pieces": total.pieces, "tokens": total.tokens},
        "samples": sorted(samples),
        **{"rewritten": sorted(fresh), "linked": linked},
        "not_found": [entry for entry in entries if entry not in met],
    }


# ---------------------------------------------------------------- finding


def _find(manifest: Manifest, listed: Listed) -> tuple[list[_Found], set[str]]:
    """Where listed documents are, and the entries of the list that mean one."""
    found, met = [], set[str]()
    for source in manifest.sources:
        for split in SPLITS:
            one = _Found(source, split)
            numbers = {_window(file): n for n, file in enumerate(one.held.files)}
            for window, name, entries in _looked_for(manifest, one.held, listed):
                met |= entries
                one.files.setdefault(numbers[window], []).append(name)
            found += [one] if one.files else []
    return found, met


def _looked_for(
    manifest: Manifest, held: Split, listed: Listed
) -> Iterator[tuple[int, str, set[str]]]:
    """Window, id and entries of each listed document of a split, once for each window.

    An id tells its window; for a URL all provenance is read. The other copies of what is found lie
    in windows that its id tells, too.
    """
    files = {_window(file): file for file in held.provenance}
    ids = sorted(listed.ids)
    left = set(files) if listed.urls else {_home(manifest, held, name, 0) for name in ids}
    seen = set[int]()
    while wanted := sorted((left & set(files)) - seen):
        for window in wanted:
            seen.add(window)
            table = read_table(manifest, files[window], ["id", "url", "copies"])
            if not listed.urls:
                table = table.filter(pc.is_in(table["id"], value_set=pa.array(ids, pa.string())))
            for row in table.to_pylist():
                if entries := listed.entries(row["id"], row["url"]):
                    yield window, row["id"], set(entries)
                    copies = range(row["copies"])
                    left |= {_home(manifest, held, row["id"], copy) for copy in copies}


def _window(file: File) -> int:
    return int(Path(file.path).stem.removeprefix("part-"))


def _home(manifest: Manifest, held: Split, name: str, copy: int) -> int:
    """The window of a copy of a document."""
    key = int(keys(salt(manifest.seed, "packing"), _words([name]), copy)[0])
    return key >> (64 - held.window_bits)


def _words(names: list[str]) -> np.ndarray:
    """Ids of 32 hex digits as (n, 2) uint64."""
    data = b"".join(bytes.fromhex(name) for name in names)
    return np.frombuffer(data, ">u8").astype(np.uint64).reshape(-1, 2)


# ---------------------------------------------------------------- rewriting


def _rewrite_split(manifest: Manifest, one: _Found, output: Path, fresh: dict[str, File]) -> _Gone:
    """The packed files and provenance of a split that have listed documents, without them."""
    gone = _Gone()
    begins = np.cumsum([0, *(file.rows for file in one.held.files)]).tolist()
    for number, names in sorted(one.files.items()):
        packed, provenance = one.held.files[number], one.held.provenance[number]
        fresh[packed.path] = _rewrite(manifest, packed, names, output, gone, begins[number])
        table = read_table(manifest, provenance)
        kept = table.filter(pc.invert(pc.is_in(table["id"], value_set=pa.array(names))))
        fresh[provenance.path] = write_table(output, provenance.path, kept)
    return gone


def _rewrite(
    manifest: Manifest, file: File, names: list[str], output: Path, gone: _Gone, first: int
) -> File:
    """A file of rows without these documents; `first`: the number of its first row."""
    ids, facts = _words(names), manifest.tokenizer
    pad = facts.eos if facts.pad is None else facts.pad

    def parts() -> Iterator[Rows]:
        place = first
        for rows in batches(manifest, file):
            pieces = holds(rows, ids)
            row_of = np.repeat(np.arange(len(rows)), np.diff(rows.starts))
            gone.rows += (place + np.unique(row_of[pieces])).tolist()
            gone.pieces += int(pieces.sum())
            gone.copies += int((rows.offsets[pieces] == 0).sum())
            gone.tokens += int(rows.lengths[pieces].sum())
            place += len(rows)
            yield without(rows, pieces, pad)

    return write_rows(output / file.path, parts(), manifest.names, output)[1]


def _less(manifest: Manifest, one: _Found, gone: _Gone, fresh: Mapping[str, File]) -> Split:
    """What a split is without them."""
    held, documents = one.held, len(one.documents())
    tokens = held.tokens - gone.tokens
    return replace(
        held,
        documents=held.documents - documents,
        copies=held.copies - gone.copies,
        tokens=tokens,
        pieces=held.pieces - gone.pieces,
        fill=tokens / (held.rows * manifest.sequence_length),
        files=tuple(fresh.get(file.path, file) for file in held.files),
        provenance=tuple(fresh.get(file.path, file) for file in held.provenance),
    )


# ---------------------------------------------------------------- samples


def _samples(manifest: Manifest, name: str, rows: np.ndarray) -> list[int]:
    """The samples that are these rows of a source, in all epochs."""
    order, source = manifest.order(), manifest.names.index(name)
    draws = int(order.draws(manifest.samples)[source])
    epochs = -(-draws // manifest.sources[source].train.rows)
    found = [order.sample_of(source, epoch, rows) for epoch in range(epochs)]
    samples = np.concatenate([np.empty(0, np.int64), *found])
    inside: list[int] = samples[(samples >= 0) & (samples < manifest.samples)].tolist()
    return inside


def _rewrite_shards(
    manifest: Manifest, names: list[str], samples: list[int], output: Path, fresh: dict[str, File]
) -> tuple[File, ...]:
    """The shards, those among them that hold a listed document without it.

    Raises DamagedFile where one holds such documents at other samples than the order says.
    """
    begins = np.cumsum([0, *(file.rows for file in manifest.shards)])
    wanted = np.array(samples, np.int64)
    shard_of = np.searchsorted(begins, wanted, side="right") - 1
    for number in np.unique(shard_of).tolist():
        file, gone = manifest.shards[number], _Gone()
        fresh[file.path] = _rewrite(manifest, file, names, output, gone, int(begins[number]))
        if gone.rows != wanted[shard_of == number].tolist():
            raise DamagedFile(f"{manifest.directory / file.path}: its rows are not those samples")
    return tuple(fresh.get(file.path, file) for file in manifest.shards)


def _realised(sources: list[Source], shards: tuple[File, ...]) -> Iterator[Source]:
    tokens = {s.name: sum(file.tokens.get(s.name, 0) for file in shards) for s in sources}
    total = sum(tokens.values())
    for source in sources:
        yield replace(source, realised=tokens[source.name] / total if total else 0.0)


# ---------------------------------------------------------------- linking


def _link_others(manifest: Manifest, output: Path, fresh: Mapping[str, File]) -> int:
    """Links (else copies) every file of the manifest that was not written anew; how many."""
    held = [source.splits[split] for source in manifest.sources for split in SPLITS]
    files = [file for split in held for file in (*split.files, *split.provenance)]
    others = [file for file in (*files, *manifest.shards) if file.path not in fresh]
    for file in others:
        _link(manifest.directory / file.path, output / file.path, file.bytes)
    facts = manifest.tokenizer
    _link(manifest.directory / facts.path, output / facts.path, facts.bytes)
    return len(others) + 1


def _link(source: Path, target: Path, size: int) -> None:
    if not source.is_file() or source.stat().st_size != size:
        raise DamagedFile(f"{source}: not the file that the manifest names")
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        os.link(source, beside)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, beside)
    os.replace(beside, target)
