"""WARC, ARC and WET records as documents.

What may live here: which records are documents, and what they tell about themselves. Framing lies
in `framing`, HTTP in `http`, the record lines of ARC in `arc`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from curation.document import RawDocument
from curation.read import arc
from curation.read.framing import MAX_RECORD, Frame, Frames, Gap
from curation.read.http import (
    MAX_BODY,
    Fields,
    TooLarge,
    Undecodable,
    decode_body,
    media_type,
    parse_fields,
    split_message,
)
from curation.read.span import WHOLE, Span
from curation.read.tally import Tally

HTML = ("text/html", "application/xhtml+xml")
TYPES = frozenset(
    (
        "warcinfo",
        "response",
        "resource",
        "request",
        "metadata",
        "revisit",
        "conversion",
        "continuation",
    )
)
_TYPE = re.compile(rb"(?i)\nwarc-type[ \t]*:[ \t]*([A-Za-z]+)[ \t]*\r?\n")
_HTML_START = re.compile(
    rb"(?i)<(?:!doctype\s+html|html|head|body|title|meta|script|h1|div|table|p|a|br|font|style)[\s>/]"
)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class WarcOptions:
    """How WARC files are read.

    `media_types`: which responses are documents, lower-case. `truncated`: whether to keep or drop
    documents known to be cut: by WARC-Truncated, by a body shorter than its Content-Length, by a
    coded body without an end. `max_record`, `max_body`: bytes of a record's block, and of a body
    once decoded.
    """

    media_types: tuple[str, ...] = HTML
    truncated: Literal["keep", "drop"] = "keep"
    max_record: int = MAX_RECORD
    max_body: int = MAX_BODY


class _Skip(Exception):
    """A record that is no document; the message is the reason."""


def read_warc(
    stream: BinaryIO,
    path: str,
    tally: Tally,
    options: WarcOptions,
    span: Span = WHOLE,
    head: bytes = b"",
) -> Iterator[RawDocument]:
    """The HTML responses of a WARC or ARC file, bodies decoded; all else is counted in `tally`.

    `stream`, `span` and `head` are those of `Frames`.
    """
    frames = Frames(stream, options.max_record, span, head)
    for frame, fields in _records(frames, tally, "response"):
        yield from _document(frame, fields, path, tally, options, _response)


def read_wet(
    stream: BinaryIO,
    path: str,
    tally: Tally,
    options: WarcOptions,
    span: Span = WHOLE,
    head: bytes = b"",
) -> Iterator[RawDocument]:
    """The plain texts (conversion records) of a WET file. Parameters as for `read_warc`."""
    frames = Frames(stream, options.max_record, span, head)
    for frame, fields in _records(frames, tally, "conversion"):
        yield from _document(frame, fields, path, tally, options, _conversion)


def _document(
    frame: Frame,
    fields: Fields,
    path: str,
    tally: Tally,
    options: WarcOptions,
    make: Callable[[Frame, Fields, WarcOptions], tuple[RawDocument, list[str]]],
) -> Iterator[RawDocument]:
    """The document that a record is, if it is one; counted either way."""
    try:
        document, notes = make(frame, fields, options)
    except _Skip as reason:
        tally.skip(str(reason))
        return
    document.warc_file, document.warc_offset = path, frame.offset
    document.warc_length = frame.length
    if notes:
        tally.notes.update(notes)
    tally.keep()
    yield document


def _records(frames: Frames, tally: Tally, wanted: str) -> Iterator[tuple[Frame, Fields]]:
    """The records of the wanted type; all others, and damage, are counted."""
    for frame in frames:
        tally.first = frames.first  # known also of a file that cannot be read to its end
        if isinstance(frame, Gap):
            tally.problem(frame.reason, frame.offset, f"{frame.length} bytes")
            continue
        if frame.problem in ("truncated", "bad_member", "bad_header"):
            tally.skip(frame.problem)
            damaged = frame.problem != "bad_header"
            tally.problem(frame.problem, frame.offset, incomplete=damaged)
            continue
        if frame.problem == "bad_length":
            detail = f"{frame.declared_length} bytes declared, {len(frame.block)} found"
            tally.problem("bad_length", frame.offset, detail, incomplete=False)
        is_arc = not frame.header.startswith(b"WARC/")
        name = arc.record_type(frame.header) if is_arc else _record_type(frame.header)
        if name != wanted:
            tally.skip(name if name in TYPES else "unknown_type")
            continue
        if frame.problem == "too_large":
            tally.skip("too_large")
            continue
        yield frame, (arc.record_fields if is_arc else parse_fields)(frame.header)
    tally.first, tally.next = frames.first, frames.next


def _record_type(header: bytes) -> str:
    kind = _TYPE.search(header)
    return kind[1].decode().lower() if kind else ""


def _response(frame: Frame, fields: Fields, options: WarcOptions) -> tuple[RawDocument, list[str]]:
    message = split_message(frame.block)
    if message is None:
        http = "application/http" in fields.get("content-type", "").lower()
        raise _Skip("bad_http_header" if http or frame.block[:5] == b"HTTP/" else "not_http")
    status, http_fields, raw = message
    if status != 200:
        family = status // 100
        raise _Skip(f"status_{family}xx" if 2 <= family <= 5 else "status_other")
    kind, charset = media_type(http_fields.get("content-type", ""))
    if kind and kind not in options.media_types:
        raise _Skip("content_type")
    notes = ["bad_length"] if frame.problem else []
    if not raw:
        raise _Skip("empty")
    try:
        body = decode_body(
            raw,
            http_fields.get("transfer-encoding", ""),
            http_fields.get("content-encoding", ""),
            notes,
            options.max_body,
        )
    except TooLarge:
        raise _Skip("too_large") from None
    except Undecodable:
        raise _Skip("content_encoding") from None
    if not body:
        raise _Skip("empty")
    if not kind:
        if "text/html" not in options.media_types or not _HTML_START.search(body, 0, 1024):
            raise _Skip("content_type")
        kind = "text/html"
        notes.append("content_type_missing")
    truncated = _truncated(fields, http_fields, len(raw), notes)
    if truncated:
        if options.truncated == "drop":
            raise _Skip(f"truncated_{truncated}")
        notes.append(f"truncated_{truncated}")
    return RawDocument(
        id=_identity(frame, fields),
        content=body,
        media_type=kind,
        charset=charset,
        url=_uri(fields),
        date=fields.get("warc-date"),
        metadata={"truncated": truncated} if truncated else None,
    ), notes


def _truncated(fields: Fields, http: Fields, size: int, notes: list[str]) -> str | None:
    """Why a capture is known to be cut: the crawler's reason, else `undeclared`; None if whole."""
    declared = http.get("content-length", "").partition(",")[0].strip()
    length = int(declared) if declared.isdecimal() and len(declared) < 19 else size
    if length != size and "transfer-encoding" not in http:
        notes.append("length_lies")
    reason = fields.get("warc-truncated")
    if reason is not None:
        reason = reason.lower()
        return reason if reason in ("length", "time", "disconnect") else "unspecified"
    cut = "body_cut" in notes or (length > size and "transfer-encoding" not in http)
    return "undeclared" if cut else None


def _conversion(
    frame: Frame, fields: Fields, options: WarcOptions
) -> tuple[RawDocument, list[str]]:
    kind, charset = media_type(fields.get("content-type", ""))
    if kind != "text/plain":
        raise _Skip("content_type")
    if len(frame.block) > options.max_body:
        raise _Skip("too_large")
    if not frame.block:
        raise _Skip("empty")
    languages = fields.get("warc-identified-content-language")
    return RawDocument(
        id=_identity(frame, fields),
        content=bytes(frame.block),
        media_type=kind,
        charset=charset or "utf-8",
        url=_uri(fields),
        date=fields.get("warc-date"),
        metadata={"identified_language": languages} if languages else None,
    ), ["bad_length"] if frame.problem else []


def _uri(fields: Fields) -> str | None:
    """The target URI, without the brackets that wget puts around it."""
    return fields.get("warc-target-uri", "").strip("<> ") or None


def _identity(frame: Frame, fields: Fields) -> str:
    """32 hex digits: of the record id, else of URI, date and payload digest (of the block, where
    the record does not tell)."""
    name = fields.get("warc-record-id", "").strip("<> ")
    if not name:
        digest = fields.get("warc-payload-digest")
        if not digest:
            digest = hashlib.blake2b(frame.block, digest_size=16).hexdigest()
        name = "\0".join((_uri(fields) or "", fields.get("warc-date", ""), digest))
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
