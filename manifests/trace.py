"""From a sample to the documents in it, and from a document to every sample that holds of it.

What may live here: finding. A document is found by arithmetic: its key says the window, the window
one packed file and one file of provenance; nothing else is read. Only a URL is looked for in all
files of provenance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from manifests.hashing import keys, salt
from manifests.order import Order
from manifests.reader import Files, changed
from manifests.tokens import SPLITS, File, Manifest, ManifestError, Split, SplitName

#: A sample, the epoch of its source, the shard that has it, and the row there.
Sample = tuple[int, int, str | None, int | None]


@dataclass(frozen=True)
class Piece:
    """A piece of a document in a row: `length` tokens from the row's token `start` on, which are
    those of the document from `offset` on. `provenance`: the document's row there."""

    id: str
    start: int
    length: int
    offset: int
    provenance: dict[str, Any] | None


@dataclass(frozen=True)
class Sequence:
    """A sample: where its row lies in the packed files and in the shards, and what is in it. `row`
    counts through the files of the source, `file_row` and `shard_row` from the start of a file.
    `shard` and `shard_row` are None where no shard has it."""

    sample: int
    source: str
    epoch: int
    row: int
    file: str
    file_row: int
    shard: str | None
    shard_row: int | None
    tokens: np.ndarray  # (sequence_length,)
    pieces: tuple[Piece, ...]

    @property
    def padding(self) -> int:
        """Tokens at the end that belong to no document."""
        return len(self.tokens) - sum(piece.length for piece in self.pieces)


@dataclass(frozen=True)
class Place:
    """A piece of a document where it was packed, and the samples that are its row."""

    split: SplitName
    source: str
    copy: int
    file: str
    file_row: int
    row: int
    piece: int  # of the row, from 0
    offset: int  # of its first token in the document
    length: int  # tokens
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Found:
    """A document of a manifest and all its places, those of each copy in order of the document."""

    id: str
    provenance: dict[str, Any]
    places: tuple[Place, ...]


def sequence(manifest: Manifest, sample: int, order: Order | None = None) -> Sequence:
    """A sample of the shards, with the origin of its pieces; or with `order`, that of another
    mixture, any sample of it, which the shards have only where it is the same there.

    Raises ManifestError where there is no such sample, and for damaged files, by name.
    """
    if sample < 0 or (order is None and sample >= manifest.samples):
        raise ManifestError(f"no sample {sample}; there are {manifest.samples:,}, from 0 on")
    own = manifest.order().locate(np.array([sample]))
    sources, epochs, numbers = located = order.locate(np.array([sample])) if order else own
    source, row = manifest.sources[int(sources[0])], int(numbers[0])
    packed, shards = Files(manifest, source.train.files), Files(manifest, manifest.shards)
    file, file_row = packed.place(row)
    written = sample < manifest.samples and all(map(np.array_equal, located, own))
    shard, shard_row = _in_shards(shards, sample) if written else (None, None)
    rows = packed.take(np.array([row])) if shard is None else shards.take(np.array([sample]))
    ids = [f"{high:016x}{low:016x}" for high, low in rows.ids.tolist()]
    origin = {}
    if provenance := _of_window(source.train.provenance, window_number(file)):
        origin = {entry["id"]: entry for entry in _provenance(manifest, provenance, "id", ids)}
    starts = np.cumsum([0, *rows.lengths.tolist()]).tolist()
    pieces = zip(ids, starts, rows.lengths.tolist(), rows.offsets.tolist(), strict=False)
    return Sequence(
        sample=sample,
        source=source.name,
        epoch=int(epochs[0]),
        row=row,
        file=file.path,
        file_row=file_row,
        shard=shard,
        shard_row=shard_row,
        tokens=rows.tokens[0],
        pieces=tuple(Piece(*piece, origin.get(piece[0])) for piece in pieces),
    )


def document(manifest: Manifest, wanted: str) -> list[Found]:
    """The documents with this id (32 hex digits), or this URL: none where there are none.

    Raises ManifestError for damaged files, by name.
    """
    by_id = re.fullmatch(r"[0-9a-f]{32}", wanted)
    found: dict[str, tuple[dict[str, Any], list[Place]]] = {}
    for split in SPLITS:
        for ordinal, source in enumerate(manifest.sources):
            part = source.splits[split]
            known = _by_id(manifest, part, wanted) if by_id else _by_url(manifest, part, wanted)
            for entry in known:
                _, places = found.setdefault(entry["id"], (entry, []))
                places += _places(manifest, split, ordinal, entry)
    return [Found(name, entry, tuple(places)) for name, (entry, places) in found.items()]


def window_of(manifest: Manifest, split: Split, name: str, copy: int) -> int:
    """The window of a copy of a document, by its id (32 hex digits)."""
    words = np.array([[int(name[:16], 16), int(name[16:], 16)]], dtype=np.uint64)
    return int(
        window_of_keys(keys(salt(manifest.seed, "packing"), words, copy), split.window_bits)[0]
    )


def window_of_keys(keys: np.ndarray, bits: int) -> np.ndarray:
    """The windows (int64) of keys (uint64): their top bits."""
    if not bits:  # a shift by 64 is none
        return np.zeros(len(keys), np.int64)
    return (keys >> np.uint64(64 - bits)).astype(np.int64)


def _places(
    manifest: Manifest, split: SplitName, ordinal: int, entry: dict[str, Any]
) -> Iterator[Place]:
    """All pieces of all copies of a document. Copies that share a window are told apart by the
    order of their rows, which is all that there is between them."""
    source = manifest.sources[ordinal]
    part = source.splits[split]
    windows = [window_of(manifest, part, entry["id"], copy) for copy in range(entry["copies"])]
    for window in sorted(set(windows)):
        if (file := _of_window(part.files, window)) is None:
            continue
        copies = [copy for copy, own in enumerate(windows) if own == window]
        before = sum(other.rows for other in part.files if window_number(other) < window)
        times: dict[int, int] = {}
        for file_row, piece, offset, length in _pieces(manifest, file, entry["id"]):
            time = times[offset] = times.get(offset, -1) + 1
            row = before + file_row
            samples = _samples(manifest, ordinal, row) if split == "train" else ()
            copy = copies[min(time, len(copies) - 1)]
            where = (file.path, file_row, row, piece, offset, length)
            yield Place(split, source.name, copy, *where, samples)


def _pieces(manifest: Manifest, file: File, name: str) -> list[tuple[int, int, int, int]]:
    """Row, number in the row, offset and length of each piece of a document in a packed file, in
    order of offset and row."""
    table = _read(manifest, file, ["doc_ids", "doc_offsets", "doc_lengths"])
    ids, offsets, lengths = (column.combine_chunks() for column in table.columns)
    own = np.flatnonzero(pc.equal(ids.flatten(), pa.scalar(bytes.fromhex(name), pa.binary(16))))
    rows = ids.value_parent_indices().to_numpy()[own]
    in_row = own - (ids.offsets.to_numpy()[rows] - ids.offsets[0].as_py())
    others = (column.flatten().to_numpy()[own] for column in (offsets, lengths))
    where = (rows, in_row, *others)
    found = list(zip(*(column.tolist() for column in where), strict=True))
    return sorted(found, key=lambda piece: (piece[2], piece[0], piece[1]))


def _samples(manifest: Manifest, ordinal: int, row: int) -> tuple[Sample, ...]:
    """The samples that are a row, over all epochs, and where the shards have them."""
    epochs = np.arange(math.ceil(manifest.sources[ordinal].epochs) + 1)
    numbers = manifest.order().sample_of(ordinal, epochs, np.full(len(epochs), row)).tolist()
    shards = Files(manifest, manifest.shards)
    return tuple(
        (sample, epoch, *_in_shards(shards, sample))
        for epoch, sample in enumerate(numbers)
        if 0 <= sample < manifest.samples
    )


def _in_shards(shards: Files, sample: int) -> tuple[str | None, int | None]:
    """The shard that has a sample, and the row there; None where there are no shards."""
    if not len(shards):
        return None, None
    file, row = shards.place(sample)
    return file.path, row


def _by_id(manifest: Manifest, split: Split, name: str) -> list[dict[str, Any]]:
    file = _of_window(split.provenance, window_of(manifest, split, name, 0))
    return _provenance(manifest, file, "id", [name]) if file else []


def _by_url(manifest: Manifest, split: Split, url: str) -> list[dict[str, Any]]:
    """Once each, though a document stands in the provenance of every window that has a copy."""
    found = {}
    for file in split.provenance:
        for entry in _provenance(manifest, file, "url", [url]):
            found[entry["id"]] = entry
    return list(found.values())


def _provenance(
    manifest: Manifest, file: File, column: str, values: list[str]
) -> list[dict[str, Any]]:
    found = _read(manifest, file, [column])[column]
    if not pc.any(pc.is_in(found, pa.array(values, found.type))).as_py():
        return []
    table = _read(manifest, file, None)
    entries: list[dict[str, Any]] = table.filter(
        pc.is_in(table[column], pa.array(values, found.type))
    ).to_pylist()
    return entries


def _read(manifest: Manifest, file: File, columns: list[str] | None) -> pa.Table:
    if problem := changed(manifest.directory, file, digests=False):
        raise ManifestError(problem)
    try:
        return pq.read_table(manifest.directory / file.path, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise ManifestError(f"{file.path}: damaged: {str(error).splitlines()[0]}") from None


def window_number(file: File) -> int:
    """The window that a file belongs to: the number in its name, `part-00012.parquet`."""
    number = re.fullmatch(r"part-(\d+)\.parquet", PurePosixPath(file.path).name)
    if number is None:
        raise ManifestError(f"{file.path}: a name without the number of a window")
    return int(number[1])


def _of_window(files: tuple[File, ...], window: int) -> File | None:
    return next((file for file in files if window_number(file) == window), None)
