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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.tokens.claim import NotOurs, claim
from curation.tokens.deletion import holds, without
from curation.tokens.packed import batches, read_table, write_table
from curation.tokens.sharding import write_rows
from manifests.card import card
from manifests.files import file_digest, write_bytes
from manifests.records import digest_of
from manifests.rows import Rows
from manifests.tokens import NAME, SPLITS, Corpus, File, Manifest, ManifestError, Source, Split
from manifests.trace import window_number, window_of

MARK = "takedown.json"


class Listed(Protocol):
    """Which documents are to go: ids (32 hex digits) and URLs as a person wrote them."""

    @property
    def ids(self) -> frozenset[str]: ...

    @property
    def urls(self) -> frozenset[str]: ...

    def entries(self, id: str, url: str | None) -> list[str]:
        """The entries of the list that a document is meant by; none where it is not listed."""
        ...


@dataclass
class _Gone:
    """What was taken out of some files of rows."""

    rows: list[int] = field(default_factory=list)  # their numbers
    pieces: int = 0
    copies: int = 0
    tokens: int = 0


@dataclass
class _Hits:
    """Listed documents of one split of a source, and the windows that have copies of them."""

    ids: set[str] = field(default_factory=set)
    windows: set[int] = field(default_factory=set)


#: Of a file of the corpus that has other rows now: by old row the new one.
Moved = Mapping[str, np.ndarray]


def takedown(
    manifest: Manifest,
    listed: Listed,
    output: Path,
    remake: Callable[[Path], Corpus] | None = None,
) -> dict[str, Any]:
    """Makes a directory like that of the manifest, without the listed documents.

    `remake` makes the corpus without them at a path and says what it is; without it the new
    manifest has none. The same command goes on where it was stopped. Raises NotOurs where the
    directory holds something else, ManifestError where a file is not what the manifest says.
    """
    entries = sorted({*listed.ids, *listed.urls})
    said = {"schema": 1, "previous": manifest.digest, "list": digest_of(entries)}
    if output.resolve().is_relative_to(manifest.directory.resolve()):
        raise NotOurs(f"{output}: lies in the run that the manifest is of; choose another")
    claim(output, MARK, said)
    corpus = remake(output / "corpus") if remake else None
    hits, met = _find(manifest, listed)
    names = sorted(set().union(*(hit.ids for hit in hits.values())))
    fresh: dict[str, File] = {}
    gone = {place: _rewrite_packed(manifest, place, hits[place], output, fresh) for place in hits}
    samples = sorted(
        sample
        for (source, split), taken in gone.items()
        if split == "train"
        for sample in _samples(manifest, source, np.array(taken.rows, np.int64))
    )
    shards = _rewrite_shards(manifest, names, samples, output, fresh)
    _rewrite_provenance(manifest, hits, _moved(manifest, corpus, output), output, fresh)
    linked = _link_others(manifest, output, fresh)
    total = {
        "documents": len(names),
        "copies": sum(taken.copies for taken in gone.values()),
        "pieces": sum(taken.pieces for taken in gone.values()),
        "tokens": sum(taken.tokens for taken in gone.values()),
    }
    made = replace(
        manifest,
        sources=tuple(_sources(manifest, hits, gone, fresh, shards)),
        shards=shards,
        corpus=corpus,
        takedown={
            **{"previous": manifest.digest, "ids": digest_of(names), **total},
            "samples": len(samples),
        },
        directory=output,
    )
    write_bytes(output / "card.md", card(made).encode())
    made.save(output / NAME)
    return {
        **{"output": str(output), "manifest": made.digest, "previous": manifest.digest, **total},
        **{"ids": names, "samples": samples, "rewritten": sorted(fresh), "linked": linked},
        "rows": {
            source: sorted(taken.rows)
            for (source, split), taken in gone.items()
            if split == "train" and taken.rows
        },
        "found": sorted(met),
        "not_found": [entry for entry in entries if entry not in met],
    }


# ---------------------------------------------------------------- finding

Place = tuple[str, str]  # a source by name, and one of its splits


def _find(manifest: Manifest, listed: Listed) -> tuple[dict[Place, _Hits], set[str]]:
    """Where listed documents are, and the entries of the list that mean one."""
    hits: dict[Place, _Hits] = {}
    met = set[str]()
    for source in manifest.sources:
        for split in SPLITS:
            found = _Hits()
            for row in _looked_for(manifest, source.splits[split], listed):
                if entries := listed.entries(row["id"], row["url"]):
                    met.update(entries)
                    found.ids.add(row["id"])
                    found.windows.update(
                        window_of(manifest, source.splits[split], row["id"], copy)
                        for copy in range(row["copies"])
                    )
            if found.ids:
                hits[source.name, split] = found
    return hits, met


def _looked_for(manifest: Manifest, held: Split, listed: Listed) -> Iterator[dict[str, Any]]:
    """Provenance of the documents of a split that may be listed. An id tells its window, which is
    that of its first copy; for a URL all provenance is read."""
    ids = sorted(listed.ids)
    own = {window_of(manifest, held, name, 0) for name in ids}
    for file in held.provenance:
        if listed.urls or window_number(file) in own:
            table = read_table(manifest, file, ["id", "url", "copies"])
            if not listed.urls:
                table = table.filter(pc.is_in(table["id"], value_set=pa.array(ids, pa.string())))
            yield from table.to_pylist()


def _words(names: Sequence[str]) -> np.ndarray:
    """Ids of 32 hex digits as (n, 2) uint64."""
    data = b"".join(bytes.fromhex(name) for name in names)
    return np.frombuffer(data, ">u8").astype(np.uint64).reshape(-1, 2)


# ---------------------------------------------------------------- rows


def _rewrite_packed(
    manifest: Manifest, place: Place, hits: _Hits, output: Path, fresh: dict[str, File]
) -> _Gone:
    """The packed files of a split that have copies of listed documents, without them."""
    source, split = place
    gone, first = _Gone(), 0
    for file in manifest.source(source).splits[split].files:
        if window_number(file) in hits.windows:
            fresh[file.path] = _rewrite(manifest, file, sorted(hits.ids), output, gone, first)
        first += file.rows
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

    Raises ManifestError where one holds such documents at other samples than the order says.
    """
    begins = np.cumsum([0, *(file.rows for file in manifest.shards)])
    wanted = np.array(samples if manifest.shards else [], np.int64)
    shard_of = np.searchsorted(begins, wanted, side="right") - 1
    for number in np.unique(shard_of).tolist():
        file, gone = manifest.shards[number], _Gone()
        fresh[file.path] = _rewrite(manifest, file, names, output, gone, int(begins[number]))
        if gone.rows != wanted[shard_of == number].tolist():
            raise ManifestError(f"{manifest.directory / file.path}: its rows are not those samples")
    return tuple(fresh.get(file.path, file) for file in manifest.shards)


# ---------------------------------------------------------------- provenance


def _moved(manifest: Manifest, corpus: Corpus | None, output: Path) -> Moved:
    """Where the texts lie now, of the files of the corpus that are not what they were.

    Raises ManifestError where the new corpus has other documents than the old one less some.
    """
    moved: dict[str, np.ndarray] = {}
    if corpus is None or manifest.corpus is None:
        return moved
    for old in sorted((manifest.directory / manifest.corpus.path / "documents").glob("*.parquet")):
        new = output / corpus.path / "documents" / old.name
        if new.exists() and (os.path.samefile(old, new) or file_digest(old) == file_digest(new)):
            continue
        ids = pq.read_table(old, columns=["id"])["id"]
        left = pq.read_table(new, columns=["id"])["id"] if new.exists() else ids.slice(0, 0)
        stays = pc.is_in(ids, value_set=left.combine_chunks())
        if not ids.filter(stays).equals(left):
            raise ManifestError(f"{new}: not the documents of the old corpus, less some")
        path = f"{manifest.corpus.path}/documents/{old.name}"
        moved[path] = np.cumsum(stays.to_numpy()) - 1
    return moved


def _rewrite_provenance(
    manifest: Manifest,
    hits: Mapping[Place, _Hits],
    moved: Moved,
    output: Path,
    fresh: dict[str, File],
) -> None:
    """The provenance of listed documents goes; that of others says where their texts lie now."""
    for source in manifest.sources:
        for split in SPLITS:
            hit = hits.get((source.name, split), _Hits())
            for file in source.splits[split].provenance:
                if not moved and window_number(file) not in hit.windows:
                    continue
                table = read_table(manifest, file)
                gone = pc.is_in(table["id"], value_set=pa.array(sorted(hit.ids), pa.string()))
                left = _located(table.filter(pc.invert(gone)), moved)
                if not left.equals(table):
                    fresh[file.path] = write_table(output, file.path, left)


def _located(table: pa.Table, moved: Moved) -> pa.Table:
    files, rows = table["file"], table["row"].to_numpy().copy()
    for path, fresh in moved.items():
        mine = pc.fill_null(pc.equal(files, path), False).to_numpy()
        rows[mine] = fresh[rows[mine]]
    column = table.schema.get_field_index("row")
    return table.set_column(column, table.schema.field(column), pa.array(rows))


# ---------------------------------------------------------------- the manifest


def _sources(
    manifest: Manifest,
    hits: Mapping[Place, _Hits],
    gone: Mapping[Place, _Gone],
    fresh: Mapping[str, File],
    shards: Sequence[File],
) -> Iterator[Source]:
    """What the sources are now. Shares are counted in the shards; where there are none, by draws
    and the average row, as the run counts them."""
    splits: dict[str, dict[str, Split]] = {}
    for source in manifest.sources:
        splits[source.name] = {
            split: _less(
                manifest,
                source.splits[split],
                len(hits[source.name, split].ids) if (source.name, split) in hits else 0,
                gone.get((source.name, split), _Gone()),
                fresh,
            )
            for split in SPLITS
        }
    tokens = {name: float(sum(f.tokens.get(name, 0) for f in shards)) for name in manifest.names}
    if not shards:
        draws = manifest.order().draws(manifest.samples).tolist()
        for name, drawn in zip(manifest.names, draws, strict=True):
            train = splits[name]["train"]
            tokens[name] = drawn * train.tokens / train.rows if train.rows else 0.0
    total = sum(tokens.values())
    for source in manifest.sources:
        share = tokens[source.name] / total if total else 0.0
        yield replace(source, realised=share, splits=splits[source.name])


def _less(
    manifest: Manifest, held: Split, documents: int, gone: _Gone, fresh: Mapping[str, File]
) -> Split:
    """What a split is without what went."""
    tokens, room = held.tokens - gone.tokens, held.rows * manifest.sequence_length
    return replace(
        held,
        documents=held.documents - documents,
        copies=held.copies - gone.copies,
        tokens=tokens,
        pieces=held.pieces - gone.pieces,
        fill=tokens / room if room else 0.0,
        files=tuple(fresh.get(file.path, file) for file in held.files),
        provenance=tuple(fresh.get(file.path, file) for file in held.provenance),
    )


# ---------------------------------------------------------------- linking


def _link_others(manifest: Manifest, output: Path, fresh: Mapping[str, File]) -> int:
    """Links (else copies) every file of the manifest that was not written anew; how many."""
    held = [source.splits[split] for source in manifest.sources for split in SPLITS]
    files = [file for part in held for file in (*part.files, *part.provenance)]
    others = [file for file in (*files, *manifest.shards) if file.path not in fresh]
    for file in others:
        _link(manifest.directory / file.path, output / file.path, file.bytes)
    facts = manifest.tokenizer
    _link(manifest.directory / facts.path, output / facts.path, facts.bytes)
    return len(others) + 1


def _link(source: Path, target: Path, size: int) -> None:
    if not source.is_file() or source.stat().st_size != size:
        raise ManifestError(f"{source}: not the file that the manifest names")
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        os.link(source, beside)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, beside)
    os.replace(beside, target)
