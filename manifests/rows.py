"""Packed rows: the Arrow schema of packed files and shards, and the batch that readers give.

What may live here: `Rows` and its two forms, numpy arrays and Arrow tables. A row is exactly L
tokens of one source: pieces of documents one after the other, then padding. Where padding begins is
said by the sum of the pieces' lengths alone, never by a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

SCHEMA = "rows/1"

#: Rows of a row group of packed files and shards. Fewer make files larger and reading in order
#: slower; more are read for nothing where single rows are wanted (docs/tokens.d/manifest.md).
ROW_GROUP = 64

#: How `pyarrow.parquet` writes packed files and shards. Parquet has no integers of 16 bits: split
#: by bytes, the halves that are 0 pack away (docs/tokens.d/manifest.md has sizes and speeds).
PARQUET: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["source"],
    "column_encoding": {"tokens.list.element": "BYTE_STREAM_SPLIT"},
    "write_statistics": False,
}

_KEY = b"gristmill.schema"


@dataclass(frozen=True)
class Rows:
    """Some packed rows as flat arrays; the pieces of row i are `starts[i]` to `starts[i + 1]`."""

    tokens: np.ndarray  # (rows, L) uint16 or uint32
    starts: np.ndarray  # (rows + 1,) int64
    lengths: np.ndarray  # (pieces,) int32: tokens of each piece, the document's EOS included
    offsets: np.ndarray  # (pieces,) int64: first token of the piece inside its document
    ids: np.ndarray  # (pieces, 2) uint64: the document's id (32 hex digits) as two words
    sources: np.ndarray  # (rows,) int16: ordinal of the source in the manifest

    def __len__(self) -> int:
        return len(self.tokens)

    def filled(self) -> np.ndarray:
        """Tokens of each row that are no padding: int64."""
        ends = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        filled: np.ndarray = ends[self.starts[1:]] - ends[self.starts[:-1]]
        return filled

    def take(self, rows: np.ndarray) -> Rows:
        """These rows, in this order."""
        rows = np.asarray(rows, dtype=np.int64)
        counts = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(counts)])
        pieces = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], counts)
        return Rows(
            self.tokens[rows],
            starts,
            self.lengths[pieces],
            self.offsets[pieces],
            self.ids[pieces],
            self.sources[rows],
        )

    @staticmethod
    def join(parts: Sequence[Rows]) -> Rows:
        """Several batches (at least one) as one."""
        if len(parts) == 1:
            return parts[0]
        shifts = np.cumsum([0, *(len(part.lengths) for part in parts)])
        starts = [p.starts[:-1] + shift for p, shift in zip(parts, shifts[:-1], strict=True)]
        return Rows(
            np.concatenate([part.tokens for part in parts]),
            np.concatenate([*starts, shifts[-1:]]),
            np.concatenate([part.lengths for part in parts]),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.sources for part in parts]),
        )


def schema(length: int, dtype: str) -> pa.Schema:
    """Columns of packed files and shards; `dtype`: uint16 or uint32."""
    return pa.schema(
        [
            pa.field("tokens", pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), length)),
            pa.field("doc_lengths", pa.list_(pa.int32())),
            pa.field("doc_ids", pa.list_(pa.binary(16))),
            pa.field("doc_offsets", pa.list_(pa.int64())),
            pa.field("source", pa.string()),
        ],
        metadata={_KEY: SCHEMA.encode()},
    )


def to_table(rows: Rows, names: Sequence[str]) -> pa.Table:
    """Rows as a table; `names`: the sources in the order of their ordinals."""
    count, length = rows.tokens.shape
    kind = schema(length, rows.tokens.dtype.name)
    values = pa.array(np.ascontiguousarray(rows.tokens).reshape(-1))
    starts = pa.array(rows.starts.astype(np.int32))
    ids = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(rows.ids), [None, pa.py_buffer(rows.ids.astype(">u8").tobytes())]
    )
    named = pa.DictionaryArray.from_arrays(pa.array(rows.sources), pa.array(names, pa.string()))
    columns = [
        pa.FixedSizeListArray.from_arrays(values, length),
        pa.ListArray.from_arrays(starts, pa.array(rows.lengths.astype(np.int32))),
        pa.ListArray.from_arrays(starts, ids),
        pa.ListArray.from_arrays(starts, pa.array(rows.offsets.astype(np.int64))),
        named.cast(pa.string()) if count else pa.array([], pa.string()),
    ]
    return pa.table([c.cast(f.type) for c, f in zip(columns, kind, strict=True)], schema=kind)


def from_table(table: pa.Table, names: Sequence[str]) -> Rows:
    """A table of packed rows as arrays. Raises ValueError where it is none, or of an unknown
    schema or source."""
    said = (table.schema.metadata or {}).get(_KEY, b"").decode(errors="replace")
    if said != SCHEMA:
        raise ValueError(f"no packed rows: schema {said or 'none'}, {SCHEMA} is wanted")
    table = table.combine_chunks()
    tokens, lengths, ids, offsets, source = (
        column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for column in table.columns
    )
    length = table.schema.field("tokens").type.list_size
    starts = np.asarray(lengths.offsets, dtype=np.int64)
    begin, end = int(starts[0]), int(starts[-1])
    raw = ids.values.slice(begin, end - begin)
    words = np.frombuffer(raw.buffers()[1] or b"", dtype=np.uint8)
    words = words[16 * raw.offset : 16 * (raw.offset + len(raw))].view(">u8")
    ordinals = {name: ordinal for ordinal, name in enumerate(names)}
    encoded = source.dictionary_encode()
    unknown = [name for name in encoded.dictionary.to_pylist() if name not in ordinals]
    if unknown:
        raise ValueError(f"packed rows of {unknown[0]!r}, which is no source of the manifest")
    own = np.array([ordinals[name] for name in encoded.dictionary.to_pylist()], dtype=np.int16)
    return Rows(
        tokens.flatten().to_numpy(zero_copy_only=False).reshape(-1, length),
        starts - begin,
        lengths.values.slice(begin, end - begin).to_numpy(),
        offsets.flatten().to_numpy(),
        words.astype(np.uint64).reshape(-1, 2),
        own[encoded.indices.to_numpy()] if len(source) else np.empty(0, np.int16),
    )
