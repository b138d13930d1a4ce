"""Tables of a run on disk: their schemas, and a writer whose bytes do not depend on batches.

What may live here: Parquet writing and reading for the engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.document import DOCUMENT_SCHEMA
from manifests.files import AtomicFile
from manifests.records import Output

ROW_GROUP_BYTES = 32 << 20  # of column data before encoding
ROW_GROUP_ROWS = 65_536
ZSTD_LEVEL = 3

#: Columns whose values are hardly ever the same: a dictionary of them costs time and space.
_DIFFERENT = frozenset(
    ("row", "id", "text", "url", "words", "bytes", "warc_offset", "warc_length", "metadata")
)

TEXT_SCHEMA = pa.schema(
    [("row", pa.int64()), ("kept", pa.bool_()), ("words", pa.int64()), *DOCUMENT_SCHEMA],
    metadata={"gristmill.schema": "text/2"},
)

#: Texts as they were before the first edit, of the documents that an edit has changed.
ORIGINALS_SCHEMA = pa.schema(
    [("row", pa.int64()), ("text", pa.large_string())],
    metadata={"gristmill.schema": "originals/1"},
)

_SIGNALS_HEAD = [
    ("unit", pa.int32()),  # ordinal of the input in run.json
    ("row", pa.int64()),  # ordinal of the document in its unit
    ("id", pa.string()),
    ("url", pa.string()),
    ("source", pa.string()),
    ("crawl", pa.string()),
    ("language", pa.string()),
    ("warc_offset", pa.int64()),
    ("warc_length", pa.int64()),
    ("words", pa.int64()),  # of the text it left with; null before extraction
    ("bytes", pa.int64()),  # of the text it left with, else of the payload
    ("reached", pa.string()),  # the last stage it entered
    ("decision", pa.string()),  # kept | dropped | failed
    ("reason", pa.string()),  # rule or error class, within the stage `reached`
]


def signals_schema(types: Mapping[str, pa.DataType]) -> pa.Schema:
    """One row per document that entered the segment: head, then a column per signal."""
    return pa.schema(
        [*_SIGNALS_HEAD, *sorted(types.items())], metadata={"gristmill.schema": "signals/1"}
    )


class TableWriter:
    """Writes a Parquet file whose row groups are cut by rows alone: same rows, same bytes.

    A row group ends with the row that brings its data to ROW_GROUP_BYTES, or at ROW_GROUP_ROWS. A
    file is full with the row group that brings it to `limit` bytes.
    """

    def __init__(self, path: Path, schema: pa.Schema, limit: int | None = None) -> None:
        self._file = AtomicFile(path)
        self._sink = pa.PythonFile(self._file, mode="w")
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            use_dictionary=[name for name in schema.names if name not in _DIFFERENT],
        )
        self.schema = schema
        self._limit = limit
        self._pending: list[pa.Table] = []
        self._bytes = 0
        self._rows = 0
        self.rows = 0
        self.cpu = 0.0  # seconds of this process spent encoding

    @property
    def full(self) -> bool:
        """Whether the next row belongs into another file."""
        return self._limit is not None and not self._pending and self._file.size >= self._limit

    def write(self, table: pa.Table) -> pa.Table:
        """Writes rows until the file is full; returns those that are left."""
        table = table.select(self.schema.names).cast(self.schema)
        while len(table) and not (self.rows and self.full):
            # The number of rows that still fit: the first that reaches a bound ends the group.
            sizes = self._bytes + np.cumsum(row_bytes(table))
            fits = int(np.searchsorted(sizes, ROW_GROUP_BYTES)) + 1
            fits = min(fits, ROW_GROUP_ROWS - self._rows, len(table))
            self._pending.append(table.slice(0, fits))
            self.rows += fits
            self._bytes, self._rows = int(sizes[fits - 1]), self._rows + fits
            if self._bytes >= ROW_GROUP_BYTES or self._rows == ROW_GROUP_ROWS:
                self._flush()
            table = table.slice(fits)
        return table

    def _flush(self) -> None:
        start = time.process_time()
        if self._pending:
            # Contiguous columns: the pages must not know of the batches either.
            group = pa.concat_tables(self._pending).combine_chunks()
            self._writer.write_table(group, row_group_size=max(len(group), 1))
        self._pending, self._bytes, self._rows = [], 0, 0
        self.cpu += time.process_time() - start

    def close(self, run: Path) -> Output:
        """Commits the file; its entry for the receipt, with the path relative to the run."""
        self._flush()
        self._writer.close()
        self._file.commit()
        path = self._file.path.relative_to(run)
        return Output(str(path), self._file.size, self.rows, self._file.digest)

    def discard(self) -> None:
        self._writer.is_open = False  # else it would write its footer when it is collected
        self._file.discard()


def row_bytes(table: pa.Table) -> np.ndarray:
    """Bytes of data in each row: string lengths, 8 for any other column."""
    total = np.full(len(table), 0, dtype=np.int64)
    for column in table.columns:
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            total += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        else:
            total += 8
    return total


def write_table(path: Path, table: pa.Table, run: Path) -> Output:
    """Writes one whole table."""
    writer = TableWriter(path, table.schema)
    try:
        writer.write(table)
        return writer.close(run)
    except BaseException:
        writer.discard()
        raise


def read_batches(
    path: Path,
    schema_name: str,
    columns: Sequence[str] | None = None,
    encoded: Sequence[str] = (),
    where: tuple[str, pa.Array] | None = None,
) -> Iterator[pa.Table]:
    """A file of the run by row groups. Raises ValueError where its schema is not the named one.

    `encoded` are columns of strings that come as dictionary arrays, which is how they are stored.
    `where`: only the rows in which this column has one of these values; it is read first, and the
    other columns only of the row groups that have such rows.
    """
    with pq.ParquetFile(path, read_dictionary=list(encoded)) as file:
        found = (file.schema_arrow.metadata or {}).get(b"gristmill.schema", b"").decode()
        if found != schema_name:
            raise ValueError(f"{path}: schema {found or 'unknown'!r}, {schema_name!r} is wanted")
        for group in range(file.num_row_groups):
            if where is None:
                yield file.read_row_group(group, columns=columns)
                continue
            name, values = where
            hits = pc.is_in(file.read_row_group(group, columns=[name])[name], value_set=values)
            if pc.any(hits).as_py():
                yield file.read_row_group(group, columns=columns).filter(hits)
