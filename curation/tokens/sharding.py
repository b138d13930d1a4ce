"""Sharding: packed rows on their way to the shards, and both as Parquet files.

What may live here: the two passes. `scatter` takes the rows of some packed files, all of one
source, and stores each as often as samples want it, in the order of the samples: a run file.
`gather` reads of every run file the range of one shard, which is contiguous, and merges them.
Nothing is sorted that is larger than a group of packed files, and nothing is read at random places
but the rows of a group in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifests.arrays import load_array, save_array, save_chunks
from manifests.files import AtomicFile
from manifests.order import Order
from manifests.records import Output
from manifests.rows import PARQUET, ROW_GROUP, Rows, from_table, schema, to_table
from manifests.tokens import File

CHUNK = 4 << 20  # bytes of tokens that are read or written at a time

#: The arrays of a run file beside `samples` and `tokens`: those of `Rows`.
_FIELDS = ("starts", "lengths", "offsets", "ids", "sources")


class ShardError(ValueError):
    """Run files that do not hold every sample of a shard exactly once."""


def write_rows(
    path: Path, parts: Iterable[Rows], names: Sequence[str], run: Path
) -> tuple[Output, File]:
    """Writes rows (at least one part, which may be empty) as Parquet; the facts of the file for a
    receipt and for the manifest, with the path relative to `run`.

    `names`: the sources in the order of their ordinals. The bytes depend on the rows alone and not
    on the parts in which they come.
    """
    count, tokens = 0, np.zeros(len(names), np.int64)
    with _Hashed(path) as file:
        writer = None
        for group in _regrouped(parts):
            if writer is None:
                kind = schema(group.tokens.shape[1], group.tokens.dtype.name)
                writer = pq.ParquetWriter(pa.PythonFile(file, mode="w"), kind, **PARQUET)
            writer.write_table(to_table(group, names), row_group_size=ROW_GROUP)
            count += len(group)
            np.add.at(tokens, group.sources, group.filled())
        if writer is None:
            raise ValueError(f"{path}: no rows, not even an empty part")
        writer.close()
    place = str(path.relative_to(run))
    counted = {name: n for name, n in zip(names, tokens.tolist(), strict=True) if n}
    return (
        Output(place, file.size, count, file.digest),
        File(place, count, file.size, file.sha256, counted),
    )


class _Hashed(AtomicFile):
    """An atomic file that knows the SHA-256 of its bytes, too."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._sha256 = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def write(self, data: Any) -> int:
        self._sha256.update(data)
        return super().write(data)


def _regrouped(parts: Iterable[Rows]) -> Iterator[Rows]:
    """The same rows, ROW_GROUP at a time; one empty group where there are none."""
    rest: Rows | None = None
    for part in parts:
        rows = part if rest is None or not len(rest) else Rows.join([rest, part])
        whole = len(rows) // ROW_GROUP * ROW_GROUP
        for first in range(0, whole, ROW_GROUP):
            yield rows.take(np.arange(first, first + ROW_GROUP))
        rest = rows.take(np.arange(whole, len(rows)))
    if rest is not None:
        yield rest


def read_rows(path: Path, names: Sequence[str]) -> Iterator[Rows]:
    """The rows of a packed file or shard, some at a time. Raises ValueError that names the file."""
    with _opened(path) as file:
        length, dtype = _form(file)
        step = max(CHUNK // (ROW_GROUP * length * dtype.itemsize), 1)
        for first in range(0, file.num_row_groups, step):
            # Not `iter_batches`: it takes the whole file into memory.
            groups = range(first, min(first + step, file.num_row_groups))
            yield from_table(file.read_row_groups(groups, use_threads=False), names)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise ValueError(f"{path}: {error}") from error


def _form(file: pq.ParquetFile) -> tuple[int, np.dtype]:
    """How many tokens a row has, and their type."""
    kind = file.schema_arrow.field("tokens").type
    return kind.list_size, np.dtype(kind.value_type.to_pandas_dtype())


def scatter(
    order: Order,
    source: int,
    files: Sequence[tuple[int, Path]],
    samples: int,
    names: Sequence[str],
    stem: Path,
    run: Path,
) -> dict[str, Output]:
    """Stores the rows of packed files (at least one) in the order of the samples that want them.

    `files`: of each the number that its first row has among the rows of the source, and its place.
    Rows that none of the first `samples` wants are left out; a row of several epochs is stored once
    for each. Writes `<stem>.<array>.npy`. Memory is that of the rows of the files and of one CHUNK.
    """
    rows, numbers = _group(files, names)
    wanted, taken = _draws(order, source, numbers, samples)
    by_sample = np.argsort(wanted)
    wanted, taken = wanted[by_sample], taken[by_sample]
    length, dtype = rows.tokens.shape[1], rows.tokens.dtype
    step = max(CHUNK // (length * dtype.itemsize), 1)
    chunks = (rows.tokens[taken[at : at + step]] for at in range(0, len(taken), step))
    outputs = {
        "samples": save_array(_path(stem, "samples"), wanted, run),
        "tokens": save_chunks(_path(stem, "tokens"), dtype, (len(taken), length), chunks, run),
    }
    light = _light(rows).take(taken)
    for name in _FIELDS:
        outputs[name] = save_array(_path(stem, name), getattr(light, name), run)
    return outputs


def gather(stems: Sequence[Path], first: int, stop: int) -> Rows:
    """The samples from `first` to `stop`, in order, out of all run files (at least one).

    Memory is that of the rows, beside pages of memory-mapped files. Raises ShardError where a
    sample is not there exactly once.
    """
    places, ranges = [], []
    for stem in stems:
        samples = load_array(_path(stem, "samples"))
        begin, end = (int(at) for at in np.searchsorted(samples, [first, stop]))
        places.append(samples[begin:end] - first)
        ranges.append((begin, end))
    times = np.bincount(np.concatenate(places), minlength=stop - first)
    wrong = np.flatnonzero(times != 1)
    if len(wrong):
        at = int(wrong[0])
        raise ShardError(f"sample {first + at} is {times[at]} times in the run files")
    form = load_array(_path(stems[0], "tokens"))
    tokens = np.empty((stop - first, form.shape[1]), form.dtype)
    parts = (_range(stem, *bounds) for stem, bounds in zip(stems, ranges, strict=True))
    return _placed(zip(places, parts, strict=True), tokens)


def _path(stem: Path, name: str) -> Path:
    return stem.with_name(f"{stem.name}.{name}.npy")


def _group(files: Sequence[tuple[int, Path]], names: Sequence[str]) -> tuple[Rows, np.ndarray]:
    """The rows of several packed files, and their numbers in the source."""
    counts = []
    for _, path in files:
        with _opened(path) as file:
            counts.append(file.metadata.num_rows)
            length, dtype = _form(file)
    tokens = np.empty((sum(counts), length), dtype)
    numbers = [first + np.arange(n) for (first, _), n in zip(files, counts, strict=True)]

    def parts() -> Iterator[tuple[np.ndarray, Rows]]:
        at = 0
        for _, path in files:
            for rows in read_rows(path, names):
                yield np.arange(at, at + len(rows)), rows
                at += len(rows)

    return _placed(parts(), tokens), np.concatenate(numbers)


def _draws(
    order: Order, source: int, numbers: np.ndarray, samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Samples below `samples` that want one of these rows, and which of them it is."""
    wanted, taken = [], []
    epoch = 0
    more = len(numbers) > 0
    while more:
        found = order.sample_of(source, epoch, numbers)
        inside = np.flatnonzero((found >= 0) & (found < samples))
        wanted.append(found[inside])
        taken.append(inside)
        more = len(inside) == len(numbers)  # else all samples of the next epoch are too late
        epoch += 1
    none = np.empty(0, np.int64)
    return np.concatenate([none, *wanted]), np.concatenate([none, *taken])


def _range(stem: Path, begin: int, end: int) -> Rows:
    """Some neighbouring rows of a run file."""
    starts = np.asarray(load_array(_path(stem, "starts"))[begin : end + 1])
    pieces = slice(int(starts[0]), int(starts[-1]))
    lengths, offsets, ids = (
        np.asarray(load_array(_path(stem, name))[pieces]) for name in _FIELDS[1:4]
    )
    tokens = load_array(_path(stem, "tokens"))[begin:end]
    sources = np.asarray(load_array(_path(stem, "sources"))[begin:end])
    return Rows(tokens, starts - starts[0], lengths, offsets, ids, sources)


def _placed(parts: Iterable[tuple[np.ndarray, Rows]], tokens: np.ndarray) -> Rows:
    """All rows, each at its place in `tokens`, where its tokens are put: every place once."""
    places, light = [np.empty(0, np.int64)], [_light(_NOTHING)]
    for where, rows in parts:
        tokens[where] = rows.tokens
        places.append(where)
        light.append(_light(rows))
    order = np.argsort(np.concatenate(places))
    return replace(Rows.join(light).take(order), tokens=tokens)


def _light(rows: Rows) -> Rows:
    """The same without tokens: what is moved about is then the pieces alone."""
    return replace(rows, tokens=np.empty((len(rows), 0), np.uint16))


_NOTHING = Rows(
    np.empty((0, 0), np.uint16),
    np.zeros(1, np.int64),
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty((0, 2), np.uint64),
    np.empty(0, np.int16),
)
