"""Samples of a manifest, from the shards or from the packed files: the same batches both ways.

What may live here: reading rows of Parquet by number, and the two readers. `Shards` reads what the
run wrote down: contiguous rows, and nothing else. `Live` reads the packed files, where the order
says that a sample lies; so it can take another mixture, and has no end. A reader may be used by
several threads at once. A file that is missing, damaged or not the manifest's is a ManifestError
that names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifests.files import sha256
from manifests.order import Deal
from manifests.rows import Rows, from_table
from manifests.tokens import File, Manifest, ManifestError

_OPEN = 128  # files whose footers are kept; 40 kB each, at 4,000 rows
_GROUPS = 16  # row groups that are kept; 256 kB each, at 2,048 tokens of 16 bits


class Shards:
    """The samples as the run wrote them down: sample i is row i of the concatenated shards."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._files = Files(manifest, manifest.shards)

    def batch(self, first: int, count: int) -> Rows:
        """Samples `first` to `first + count - 1`. Raises ManifestError where there are fewer."""
        return self._files.take(np.arange(first, first + count))

    def validation(self, source: str | None = None) -> Iterator[Rows]:
        """The validation rows of a source, or of all in their order: each once, some at a time."""
        return _validation(self.manifest, source)


class Live:
    """The same samples from the packed files of the sources; or, with other `deals`, those of
    another mixture of them. Raises ValueError for deals that cannot be dealt."""

    def __init__(self, manifest: Manifest, deals: Sequence[Deal] | None = None) -> None:
        self.manifest = manifest
        self.order = manifest.order(deals)
        self._files = [Files(manifest, source.train.files) for source in manifest.sources]

    def batch(self, first: int, count: int) -> Rows:
        """Samples `first` to `first + count - 1`."""
        sources, _, rows = self.order.locate(np.arange(first, first + count))
        wanted = [np.flatnonzero(sources == source) for source in range(len(self._files))]
        parts = [
            files.take(rows[places])
            for files, places in zip(self._files, wanted, strict=True)
            if len(places)
        ]
        if not parts:
            return _empty(self.manifest)
        return Rows.join(parts).take(np.argsort(np.concatenate(wanted), kind="stable"))

    def validation(self, source: str | None = None) -> Iterator[Rows]:
        """As that of `Shards`."""
        return _validation(self.manifest, source)


def open_reader(
    manifest: Manifest | Path | str, *, live: bool | None = None, digests: bool = False
) -> Shards | Live:
    """A reader of a manifest, which may be given by its path or its directory, once all files have
    been found to be there and of the right size; with `digests` also of the right bytes, which
    reads them. Of shards, where the run has written them, unless `live` says otherwise. Raises
    ManifestError."""
    if not isinstance(manifest, Manifest):
        manifest = Manifest.load(manifest)
    live = not manifest.shards if live is None else live
    for file in files_of(manifest, live):
        if problem := changed(manifest.directory, file, digests):
            raise ManifestError(problem)
    return Live(manifest) if live else Shards(manifest)


def files_of(manifest: Manifest, live: bool) -> list[File]:
    """The files of validation, and of training those that `Live` or else `Shards` reads."""
    files = [file for source in manifest.sources for file in source.splits["validation"].files]
    if live:
        return files + [file for source in manifest.sources for file in source.train.files]
    return files + list(manifest.shards)


def changed(directory: Path, file: File, digests: bool) -> str | None:
    """What is wrong with a file, in a line that begins with its path; None for nothing. Its bytes
    are looked at only with `digests`."""
    place = directory / file.path
    try:
        size = place.stat().st_size
        if size != file.bytes:
            return f"{file.path}: {size} bytes, the manifest says {file.bytes}"
        if digests and (found := sha256(place)) != file.sha256:
            return f"{file.path}: its bytes are not those of the manifest (SHA-256 {found})"
    except OSError as error:
        return f"{file.path}: {error.strerror or error}"
    return None


class Files:
    """Files of packed rows, one after the other: row r counts through them. Reads the row groups
    that hold what is wanted, and keeps the last few."""

    def __init__(self, manifest: Manifest, files: Sequence[File]) -> None:
        self._manifest, self._list = manifest, tuple(files)
        self._ends = np.cumsum([file.rows for file in files], dtype=np.int64)
        self._opened = lru_cache(_OPEN)(self._open)
        self._recent = lru_cache(_GROUPS)(self._read)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def place(self, row: int) -> tuple[File, int]:
        """The file that holds a row, and the row's number in it."""
        number = int(np.searchsorted(self._ends, row, side="right"))
        return self._list[number], row - int(self._ends[number]) + self._list[number].rows

    def take(self, rows: np.ndarray) -> Rows:
        """These rows, in this order. Raises ManifestError where there are fewer."""
        if not len(rows):
            return _empty(self._manifest)
        if rows.min() < 0 or rows.max() >= len(self):
            outside = int(rows.max() if rows.max() >= len(self) else rows.min())
            raise ManifestError(f"row {outside} of {len(self)} is wanted")
        sorted_ = bool((rows[1:] >= rows[:-1]).all())
        order = np.arange(len(rows)) if sorted_ else np.argsort(rows, kind="stable")
        ordered = rows[order]
        numbers = np.searchsorted(self._ends, ordered, side="right")
        parts = []
        for number in np.unique(numbers).tolist():
            own = ordered[numbers == number] - self._ends[number] + self._list[number].rows
            ends = self._opened(number).ends
            groups = np.searchsorted(ends, own, side="right")
            for group in np.unique(groups).tolist():
                begin = ends[group - 1] if group else 0
                parts.append(self._recent(number, group).take(own[groups == group] - begin))
        found = Rows.join(parts)
        return found if sorted_ else found.take(np.argsort(order))

    def groups(self) -> Iterator[Rows]:
        """All rows, a row group at a time."""
        for number in range(len(self._list)):
            for group in range(len(self._opened(number).ends)):
                yield self._read(number, group)

    def _open(self, number: int) -> _Opened:
        file = self._list[number]
        if problem := changed(self._manifest.directory, file, digests=False):
            raise ManifestError(problem)
        try:
            opened = pq.ParquetFile(self._manifest.directory / file.path, memory_map=True)
        except (OSError, pa.ArrowException) as error:
            raise _damaged(file, error) from None
        counts = [opened.metadata.row_group(g).num_rows for g in range(opened.num_row_groups)]
        if sum(counts) != file.rows:
            raise ManifestError(f"{file.path}: {sum(counts)} rows, the manifest says {file.rows}")
        return _Opened(opened, np.cumsum(counts, dtype=np.int64))

    def _read(self, number: int, group: int) -> Rows:
        opened, manifest = self._opened(number), self._manifest
        try:
            with opened.lock:
                table = opened.file.read_row_group(group, use_threads=False)
            rows = from_table(table, manifest.names)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise _damaged(self._list[number], error) from None
        if rows.tokens.shape[1] != manifest.sequence_length or rows.tokens.dtype != manifest.dtype:
            said = f"{rows.tokens.shape[1]} tokens of {rows.tokens.dtype}"
            raise ManifestError(f"{self._list[number].path}: rows of {said}")
        return rows


class _Opened:
    """An open file and the ends of its row groups. Arrow's reader is for one thread at a time."""

    def __init__(self, file: pq.ParquetFile, ends: np.ndarray) -> None:
        self.file, self.ends, self.lock = file, ends, Lock()


def _validation(manifest: Manifest, source: str | None) -> Iterator[Rows]:
    for one in [manifest.source(source)] if source else manifest.sources:
        yield from Files(manifest, one.splits["validation"].files).groups()


def _empty(manifest: Manifest) -> Rows:
    return Rows(
        np.empty((0, manifest.sequence_length), manifest.dtype),
        np.zeros(1, np.int64),
        np.empty(0, np.int32),
        np.empty(0, np.int64),
        np.empty((0, 2), np.uint64),
        np.empty(0, np.int16),
    )


def _damaged(file: File, error: Exception) -> ManifestError:
    first = str(error).strip().split("\n")[0] or type(error).__name__
    return ManifestError(f"{file.path}: damaged: {first}")
