"""What a document is: the Arrow schema of documents, and the batch that stages are given.

What may live here: column names, schemas and their versions, the raw document that a reader yields,
and `Documents`. No stage, no file access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from curation.text.view import TextView

SCHEMA_VERSION = 1

#: The public columns of `documents/part-*.parquet`, in order (see docs/columns.md).
DOCUMENT_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.large_string()),
        ("url", pa.string()),
        ("date", pa.string()),
        ("source", pa.string()),
        ("crawl", pa.string()),
        ("license", pa.string()),
        ("language", pa.string()),
        ("language_score", pa.float64()),
        ("duplicate_count", pa.int64()),
        ("warc_file", pa.string()),
        ("warc_offset", pa.int64()),
        ("warc_length", pa.int64()),
        ("metadata", pa.string()),
    ],
    metadata={"gristmill.schema": f"documents/{SCHEMA_VERSION}"},
)


@dataclass(slots=True)
class RawDocument:
    """One document as a reader yields it: bytes still to be extracted, or text.

    Exactly one of `content` (HTML or plain bytes, still encoded) and `text` is set. `id` is 32 hex
    digits (DESIGN section 6): of the WARC-Record-ID, else of (URI, date, payload digest); for rows
    of tables of (source, native id), else of (path, row).
    """

    id: str
    content: bytes | None = None
    text: str | None = None
    media_type: str = "text/html"
    charset: str | None = None  # label from the HTTP header, as sent
    url: str | None = None
    date: str | None = None  # ISO 8601, as in WARC-Date
    source: str | None = None
    crawl: str | None = None
    license: str | None = None
    language: str | None = None
    language_score: float | None = None
    duplicate_count: int = 1  # documents that it stands for, itself included
    warc_file: str | None = None
    warc_offset: int | None = None  # bytes, of the (compressed) record in the file
    warc_length: int | None = None  # bytes, of the (compressed) record in the file
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Several raw documents at once, as a reader of tables may yield them: Arrow columns.

    `id` and `text` (large_string) without nulls; others are those fields of `RawDocument` that the
    table has. No document has `content`.
    """

    columns: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return len(self.columns["id"])

    def one_by_one(self) -> Iterator[RawDocument]:
        """The same documents as others yield them."""
        names, values = list(self.columns), [c.to_pylist() for c in self.columns.values()]
        for row in zip(*values, strict=True):
            yield RawDocument(**dict(zip(names, row, strict=True)))


def id_words(ids: pa.Array) -> np.ndarray:
    """Ids (32 hex digits) as two uint64 each, (documents, 2): in the same order."""
    data = bytes.fromhex("".join(ids.to_pylist()))
    return np.frombuffer(data, ">u8").reshape(-1, 2).astype(np.uint64)


class Documents:
    """A batch of documents: named Arrow columns of equal length, in order of `row`.

    Stages read columns and the text view; they never change a batch. `row` (int64) is a document's
    ordinal in its unit.
    """

    def __init__(self, columns: Mapping[str, pa.Array]) -> None:
        self.columns = dict(columns)
        lengths = {len(column) for column in self.columns.values()}
        if len(lengths) != 1:
            raise ValueError(f"columns of unequal length: {sorted(lengths)}")
        self._length = lengths.pop()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> pa.Array:
        return self.columns[name]

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    @property
    def text(self) -> pa.LargeStringArray:
        """The texts, never null once a document is extracted."""
        return self.columns["text"]

    @cached_property
    def view(self) -> TextView:
        """Words, lines and classes of the texts, computed once per batch."""
        return TextView(self.text)

    def replace(self, **columns: pa.Array) -> Documents:
        """A batch with these columns set instead; the view is kept unless `text` changes."""
        other = Documents({**self.columns, **columns})
        if "text" not in columns and "view" in self.__dict__:
            other.__dict__["view"] = self.view
        return other

    def take(self, mask: np.ndarray) -> Documents:
        """The documents where the boolean `mask` holds, in order."""
        if mask.all():
            return self
        indices = pa.array(np.flatnonzero(mask))
        return Documents({name: column.take(indices) for name, column in self.columns.items()})
