"""JSON lines as documents.

What may live here: one JSON object per line, its fields, and strings that no encoding can hold.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from curation.document import RawDocument
from curation.read.identity import of_native, of_row
from curation.read.lines import Decompressed, lines
from curation.read.tally import Tally

_ESCAPED = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class JsonlOptions:
    """How JSON lines are read.

    `text`, `id`, `url`: names of the fields. `source`: of documents that name none; part of their
    id. `max_record`: bytes of a line.
    """

    text: str = "text"
    id: str = "id"
    url: str = "url"
    source: str | None = None
    max_record: int = 128 << 20


def read_jsonl(
    stream: BinaryIO, path: str, tally: Tally, options: JsonlOptions
) -> Iterator[RawDocument]:
    """The objects of a JSONL file as documents."""
    for row, value, text in objects(stream, tally, options.text, options.max_record):
        yield _document(value, text, path, row, options)


def objects(
    stream: BinaryIO, tally: Tally, field: str, longest: int
) -> Iterator[tuple[int, dict[str, Any], str]]:
    """The objects of a JSONL file that have a text under `field`: row, object, text.

    The file is plain, gzip or Zstandard; a line is at most `longest` bytes. Offsets are of the
    content.
    """
    content = Decompressed(stream)
    row = -1
    offset = 0
    for offset, line in lines(content, longest):
        if line is None:
            tally.skip("truncated" if content.damage else "too_large")
            continue
        if not line.strip():
            continue
        row += 1
        try:
            value = json.loads(_decoded(line, tally))
        except (ValueError, RecursionError) as error:
            tally.skip("bad_json")
            tally.problem("bad_json", offset, str(error)[:200], incomplete=False)
            continue
        text = value.get(field) if isinstance(value, dict) else None
        if not isinstance(text, str):
            tally.skip("no_text")
            continue
        if _ESCAPED.search(line):
            cleaned = _clean(value)
            if cleaned != value:
                tally.notes["surrogates"] += 1
                value, text = cleaned, cleaned[field]
        tally.keep()
        yield row, value, text
    if content.damage:
        tally.problem(content.damage, offset)


def _document(
    value: dict[str, Any], text: str, path: str, row: int, options: JsonlOptions
) -> RawDocument:
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else None

    def field(name: str) -> str | None:
        found = value.get(name)
        return found if isinstance(found, str) else None

    native = value.get(options.id)
    source = field("source") or options.source
    known = isinstance(native, str | int) and native != ""
    url = field(options.url)
    if url is None and metadata is not None and isinstance(metadata.get("url"), str):
        url = metadata["url"]
    return RawDocument(
        id=of_native(source, str(native)) if known else of_row(path, row),
        text=text,
        media_type="text/plain",
        url=url,
        date=field("date"),
        source=source,
        crawl=field("crawl"),
        license=field("license"),
        language=field("language"),
        metadata=metadata,
    )


def _decoded(line: bytes, tally: Tally) -> str | bytes:
    """The line as `json.loads` must have it: bytes would let lone surrogates through."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\x00" in line[:4]:
            return line  # UTF-16 or UTF-32, which json tells apart
        tally.notes["invalid_utf8"] += 1
        return line.decode(errors="replace")


def _clean(value: Any) -> Any:
    """The value with U+FFFD for every lone surrogate in a string or a key."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value
