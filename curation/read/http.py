"""HTTP messages as crawlers store them: header fields, and bodies with their codings undone.

What may live here: parsing that forgives what browsers forgive, and decoding that is bounded and
says what it noticed. No WARC.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache

import brotli
import zstandard

from curation.read.inflate import GZIP, RAW, ZLIB, InflateError, inflater

MAX_BODY = 32 << 20  # bytes of a decoded body

_STATUS = re.compile(rb"\s*(?:HTTP(?:/[\d.]*)?|ICY)[ \t]+(\d{3})(?!\d)[^\n]*(?:\n|\Z)")
_FOLD = re.compile(r"\r?\n[ \t]+")
_BLANK = re.compile(rb"\n\r?\n")
_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
_STEP = 64  # bytes fed at a time when a damaged stream is read as far as it goes

Fields = dict[str, str]


class TooLarge(ValueError):
    """A body larger than allowed once decoded."""


class Undecodable(ValueError):
    """A body whose coding cannot be undone. The message names the coding."""


def parse_fields(lines: bytes) -> Fields:
    """Header lines as a dict by lower-case name; of a name that repeats the values are joined by
    ", ". UTF-8, else Latin-1. Lines that are no field are passed over."""
    try:
        text = lines.decode()
    except UnicodeDecodeError:
        text = lines.decode("latin-1")
    if "\n " in text or "\n\t" in text:
        text = _FOLD.sub(" ", text)
    fields: Fields = {}
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            name, value = name.strip().lower(), value.strip()
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


def split_message(block: bytes | memoryview) -> tuple[int, Fields, bytes] | None:
    """Status, header fields and raw body of a response; None if it has no status line or its
    header does not end. Interim responses (1xx) before it are passed over."""
    at = 0
    while True:
        status = _STATUS.match(block, at)
        blank = _BLANK.search(block, status.end() - 1) if status else None
        if status is None or blank is None:
            return None
        at = blank.end()
        if not (status[1].startswith(b"1") and _STATUS.match(block, at)):
            break
    fields = parse_fields(bytes(block[status.end() : blank.start() + 1]))
    return int(status[1]), fields, bytes(block[at:])


@lru_cache(1024)
def media_type(content_type: str) -> tuple[str, str | None]:
    """Type and charset label of a Content-Type, of the last if there are several; "" if none."""
    found, charset = "", None
    for value in content_type.split(","):
        kind, _, parameters = value.partition(";")
        kind = kind.strip().lower()
        if "/" not in kind:
            continue
        if kind != found:
            found, charset = kind, None
        for parameter in parameters.split(";"):
            name, _, label = parameter.partition("=")
            label = label.strip().strip("\"'").strip()
            if name.strip().lower() == "charset" and label:
                charset = label
                break
    return found, charset


def looks_plain(body: bytes) -> bool:
    """Whether the first 1,024 bytes could be text: no binary data byte (WHATWG MIME sniffing, 3),
    or a byte order mark."""
    return body.startswith(_BOMS) or _BINARY.search(body, 0, 1024) is None


def decode_body(
    body: bytes, transfer: str, content: str, notes: list[str], limit: int = MAX_BODY
) -> bytes:
    """The body without its transfer and content codings (values of the two header fields).

    Adds to `notes`: `chunked_lies` and `encoding_lies` (the coding is named but not applied, or
    applied but not named), `encoding_unknown` (a label that is no coding), `body_cut` (the coded
    body ends early: what is there was decoded), `body_damaged` (decoded up to the damage). Raises
    Undecodable, or TooLarge above `limit` bytes.
    """
    for coding in reversed(_codings(transfer)):
        body = _unchunk(body, notes) if coding == "chunked" else _undo(coding, body, notes, limit)
    for coding in reversed(_codings(content)):
        body = _undo(coding, body, notes, limit)
    if body.startswith(b"\x1f\x8b\x08"):
        notes.append("encoding_lies")
        body = _inflate(body, (GZIP,), notes, limit)
    if len(body) > limit:
        raise TooLarge(f"{len(body)} bytes")
    return body


def _codings(value: str) -> Sequence[str]:
    if not value:
        return ()
    return [name for part in value.split(",") if (name := part.partition(";")[0].strip().lower())]


def _unchunk(body: bytes, notes: list[str]) -> bytes:
    """RFC 9112, 7.1, leniently: bare line feeds, a missing last chunk, chunks that never were."""
    parts: list[bytes] = []
    at = 0
    while header := _CHUNK.match(body, at):
        size = int(header[1], 16)
        start = header.end()
        if size == 0:
            return b"".join(parts)
        end = start + size
        parts.append(body[start:end])
        if end > len(body):
            notes.append("body_cut")
            return b"".join(parts)
        line_end = _LINE_END.match(body, end)
        if line_end is None:
            if end < len(body):
                notes.append("body_damaged")
                return b"".join(parts)
            at = end
            break
        at = line_end.end()
    if at == 0:
        notes.append("chunked_lies")
        return body
    notes.append("body_cut" if at == len(body) else "body_damaged")
    return b"".join(parts)


def _undo(coding: str, body: bytes, notes: list[str], limit: int) -> bytes:
    if not body or coding in ("identity", "none", "chunked"):
        return body
    if coding in ("gzip", "x-gzip"):
        if body.startswith(b"\x1f\x8b"):
            return _inflate(body, (GZIP,), notes, limit)
    elif coding == "deflate":
        if body.startswith(b"\x1f\x8b"):
            return _inflate(body, (GZIP,), notes, limit)
        if not looks_plain(body) or (body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0):
            return _inflate(body, (ZLIB, RAW), notes, limit)
    elif coding == "br":
        return _unbrotli(body, notes, limit)
    elif coding == "zstd":
        if body.startswith(b"\x28\xb5\x2f\xfd"):
            return _unzstd(body, notes, limit)
    elif looks_plain(body):
        notes.append("encoding_unknown")
        return body
    return _as_is(coding, body, notes)


def _as_is(coding: str, body: bytes, notes: list[str]) -> bytes:
    if not looks_plain(body):
        raise Undecodable(coding)
    notes.append("encoding_lies")
    return body


def _inflate(body: bytes, wbits: Sequence[int], notes: list[str], limit: int) -> bytes:
    """gzip members, a zlib stream or raw deflate: the first of `wbits` that fits.

    Bytes after the end of the stream are passed over, as browsers do.
    """
    for bits in wbits:
        try:
            return _inflate_as(bits, body, notes, limit)
        except InflateError:
            continue
    for bits in wbits:
        data = _salvage(zlib.decompressobj(bits).decompress, body, limit)
        if data:
            notes.append("body_damaged")
            return data
    raise Undecodable("gzip" if GZIP in wbits else "deflate")


def _inflate_as(bits: int, body: bytes, notes: list[str], limit: int) -> bytes:
    data = b""
    while True:
        stream = inflater(bits)
        data += stream.decompress(body, limit + 1 - len(data))
        if len(data) > limit:
            raise TooLarge(f"more than {limit} bytes")
        if not stream.eof:
            notes.append("body_cut")
            return data
        body = stream.unused_data
        if bits != GZIP or not body.startswith(b"\x1f\x8b"):
            return data


def _unbrotli(body: bytes, notes: list[str], limit: int) -> bytes:
    decoder = brotli.Decompressor()
    try:
        data: bytes = decoder.process(body, output_buffer_limit=limit + 1)
        while len(data) <= limit and (held := decoder.process(b"", output_buffer_limit=limit + 1)):
            data += held  # of a stream that is cut, output comes buffer by buffer
    except brotli.error:
        if looks_plain(body):
            return _as_is("br", body, notes)
        data = _salvage(brotli.Decompressor().process, body, limit)
        if not data:
            raise Undecodable("br") from None
        notes.append("body_damaged")
        return data
    if len(data) > limit:
        raise TooLarge(f"more than {limit} bytes")
    if not decoder.is_finished():
        if looks_plain(body):
            return _as_is("br", body, notes)
        notes.append("body_cut")
    return data


def _unzstd(body: bytes, notes: list[str], limit: int) -> bytes:
    decoder = zstandard.ZstdDecompressor()
    try:
        data = decoder.stream_reader(body, read_across_frames=True).read(limit + 1)
        if len(data) > limit:
            raise TooLarge(f"more than {limit} bytes")
        first = decoder.decompressobj()
        first.decompress(body)
        if not first.eof:
            notes.append("body_cut")
        return data
    except zstandard.ZstdError:
        data = _salvage(decoder.decompressobj().decompress, body, limit)
        if not data:
            raise Undecodable("zstd") from None
        notes.append("body_damaged")
        return data


def _salvage(step: Callable[[bytes], bytes], body: bytes, limit: int) -> bytes:
    """What a decoder gives before it meets the damage; nothing if that is no text."""
    parts: list[bytes] = []
    size = 0
    for at in range(0, len(body), _STEP):
        try:
            parts.append(step(body[at : at + _STEP]))
        except (zlib.error, brotli.error, zstandard.ZstdError):
            break
        size += len(parts[-1])
        if size > limit:
            raise TooLarge(f"more than {limit} bytes")
    data = b"".join(parts)
    return data if looks_plain(data) else b""
