"""Parquet tables as documents.

What may live here: which columns become which fields, streamed by row group.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from curation.document import DOCUMENT_SCHEMA, SCHEMA_VERSION, RawBatch, RawDocument
from curation.read.identity import of_native, of_row
from curation.read.tally import Tally
from curation.storage import InputError

_ROWS = 1024  # rows converted at a time
_KEPT = ("date", "source", "crawl", "license", "language", "metadata")
_NUMBERS = frozenset(("warc_offset", "warc_length"))
_PLACE = ("warc_file", "warc_offset", "warc_length")
#: Of our own documents alone: another table may mean something else by these names.
_OWN = {"language_score": pa.float64(), "duplicate_count": pa.int64()}
_SCHEMA_KEY = b"gristmill.schema"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ParquetOptions:
    """How Parquet files are read.

    `text`, `id`, `url`: names of the columns; only the text must be there. `source`: of documents
    that name none; part of their id.
    """

    text: str = "text"
    id: str = "id"
    url: str = "url"
    source: str | None = None


def read_parquet(
    stream: BinaryIO, path: str, tally: Tally, options: ParquetOptions
) -> Iterator[RawDocument | RawBatch]:
    """The rows of a Parquet file; `stream` must seek. Columns of the document schema are kept.

    Of our own documents also ids, language scores and counts (at least 1) are kept: what stood for
    five documents stands for five. Raises InputError if there is no text column of strings, or if
    the file has a version of our schema that is not known. A file that is damaged or cut is a
    problem in the tally, and so is a row group (offset: its first row).
    """
    try:
        table = pq.ParquetFile(stream)
    except (pa.ArrowException, OSError) as error:
        tally.problem("not_parquet", 0, " ".join(str(error).split())[:200])
        return
    schema = table.schema_arrow
    own = _is_own(schema, path)
    if options.text not in schema.names:
        raise InputError(f"{path} has no column {options.text}: {', '.join(schema.names)}")
    if not _is_text(schema.field(options.text).type):
        found = schema.field(options.text).type
        raise InputError(f"{path}: column {options.text} is {found}, not string")
    doubled = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if doubled:
        raise InputError(f"{path} has two columns called {doubled[0]}")
    wanted = {options.text, options.id, options.url, *_KEPT, *_PLACE, *(_OWN if own else ())}
    columns = [name for name in schema.names if name in wanted]
    row = 0
    for group in range(table.num_row_groups):
        first, rows = row, table.metadata.row_group(group).num_rows
        try:
            for batch in table.iter_batches(_ROWS, row_groups=[group], columns=columns):
                batch = _with_numbers(batch) if own else batch
                if (whole := _whole_batch(batch, path, row, own, options)) is not None:
                    row += len(whole)
                    tally.keep(len(whole))
                    yield whole
                    continue
                for values in _rows(batch):
                    document = _document(values, path, row, own, options, tally)
                    row += 1
                    if document is not None:
                        yield document
        except (pa.ArrowException, OSError) as error:
            tally.problem("bad_row_group", first, " ".join(str(error).split())[:200])
            for _ in range(first + rows - row):
                tally.skip("bad_row_group")
            row = first + rows


def _is_own(schema: pa.Schema, path: str) -> bool:
    """Whether the file has our document schema, and so ids that are to be kept."""
    name = (schema.metadata or {}).get(_SCHEMA_KEY)
    if name is None:
        return False
    if name != f"documents/{SCHEMA_VERSION}".encode():
        raise InputError(f"{path} has schema {name.decode(errors='replace')}, which is not known")
    return all(field.name in schema.names for field in DOCUMENT_SCHEMA)


def _with_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Our own documents with their numbers as they are meant: a count is at least 1."""
    for name, kind in _OWN.items():
        column = batch[name].cast(kind)
        if name == "duplicate_count":
            column = pc.max_element_wise(column, pa.scalar(1, kind))  # which passes nulls over
        batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    return batch


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _whole_batch(
    batch: pa.RecordBatch, path: str, row: int, own: bool, options: ParquetOptions
) -> RawBatch | None:
    """The rows from number `row` on as they are, if they are what most are: valid strings, whole
    numbers, no metadata. None where a value needs a closer look."""
    names = batch.schema.names
    if "metadata" in names and batch["metadata"].null_count < len(batch):
        return None
    roles = {options.text, options.id, options.url}
    if len(roles) < 3 or roles & {*_KEPT, *_PLACE, *_OWN}:
        return None
    columns: dict[str, Any] = {
        n: batch[n] if n in _OWN else _plain(batch[n], n) for n in names if n != "metadata"
    }
    if any(c is None for c in columns.values()) or columns[options.text].null_count:
        return None
    size = len(batch)
    source = columns.pop("source", pa.nulls(size, pa.string()))
    source = pc.if_else(pc.equal(source, ""), None, source)
    if options.source is not None:
        source = pc.fill_null(source, options.source)
    native = columns.pop(options.id, pa.nulls(size, pa.string()))
    ids = [
        (name if own else of_native(origin, name)) if name else of_row(path, row + i)
        for i, (name, origin) in enumerate(zip(native.to_pylist(), source.to_pylist(), strict=True))
    ]
    text = columns.pop(options.text).cast(pa.large_string())
    url = columns.pop(options.url, pa.nulls(size, pa.string()))
    kinds = pa.array(["text/plain"] * size)
    own_columns = {"id": pa.array(ids), "text": text, "url": url, "source": source}
    return RawBatch({**columns, **own_columns, "media_type": kinds})


def _plain(column: pa.Array, name: str) -> pa.Array | None:
    """A column as valid strings, or as numbers that a place can be; None where it is neither."""
    if name in _NUMBERS:
        if not pa.types.is_integer(column.type):
            return None
        try:
            found = column.cast(pa.int64())
        except pa.ArrowInvalid:
            return None
        return None if (pc.min(found).as_py() or 0) < 0 else found
    if not _is_text(column.type):
        return None
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        return column.cast(pa.large_binary()).cast(pa.large_string())  # which looks at the bytes
    except pa.ArrowInvalid:
        return None


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows as dicts; strings come as bytes, since a file may hold what is not UTF-8."""
    columns: list[list[Any]] = []
    for column in batch.columns:
        if _is_text(column.type):
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            column = column.cast(pa.large_binary())
        columns.append(column.to_pylist())
    names = batch.schema.names
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _document(
    values: dict[str, Any],
    path: str,
    row: int,
    own: bool,
    options: ParquetOptions,
    tally: Tally,
) -> RawDocument | None:
    damaged = False

    def string(name: str) -> str | None:
        nonlocal damaged
        value = values.get(name)
        if value is None:  # most columns of most tables
            return None
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                damaged = True
                return value.decode(errors="replace")
        if isinstance(value, datetime.date):  # of which datetime is one
            return value.isoformat()
        return str(value)

    text = string(options.text)
    if text is None:
        tally.skip("no_text")
        return None
    native = string(options.id)
    source = string("source") or options.source
    identity = of_native(source, native) if native else of_row(path, row)
    document = RawDocument(
        id=native if own and native else identity,
        text=text,
        media_type="text/plain",
        url=string(options.url),
        date=string("date"),
        source=source,
        crawl=string("crawl"),
        license=string("license"),
        language=string("language"),
        language_score=values.get("language_score"),
        duplicate_count=values.get("duplicate_count", 1),
        warc_file=string("warc_file"),
        warc_offset=_whole(values.get("warc_offset")),
        warc_length=_whole(values.get("warc_length")),
        metadata=_metadata(values.get("metadata"), string("metadata")),
    )
    if damaged:
        tally.notes["invalid_utf8"] += 1
    tally.keep()
    return document


def _whole(value: Any) -> int | None:
    """A place in a file; None for what is no number that a place can be."""
    if value is None:  # cheaper than an exception for each row
        return None
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < 1 << 63 else None


def _metadata(value: Any, text: str | None) -> dict[str, Any] | None:
    """A struct, a map or a JSON object; anything else is kept under the name of the column."""
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, bytes) and text:
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {"metadata": text}
    return {"metadata": value}
