"""Files of lines, plain or compressed, as pieces of bytes.

What may live here: undoing the compression of a whole file, and cutting a stream into lines. A file
that is cut or damaged ends early and says so; it does not raise.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import zstandard

from curation.read.inflate import GZIP, InflateError, inflater

_CHUNK = 1 << 20  # bytes read at a time
_HEAD = 10  # bytes by which a compression is told

_DAMAGES = (InflateError, zstandard.ZstdError, lzma.LZMAError, OSError, EOFError)  # bz2: OSError


class _Coding(NamedTuple):
    """A compression: a decoder of one member, and the bytes that it is given at a time.

    The fewer, the less can come out at once: bzip2 makes up to 900 kB of 45 bytes, xz 7,000 of one.
    """

    start: Callable[[], Any]
    piece: int


def _coding(head: bytes) -> _Coding | None:
    """The compression of a file that begins with `head`, None for a plain one."""
    if head.startswith(b"\x1f\x8b"):
        return _Coding(lambda: inflater(GZIP), 16 << 10)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _Coding(zstandard.ZstdDecompressor().decompressobj, 16 << 10)
    # A block of bzip2 begins with the digits of pi, the end of a file with those of its root.
    if head.startswith(b"BZh") and head[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"):
        return _Coding(bz2.BZ2Decompressor, 1 << 10)
    if head.startswith(b"\xfd7zXZ\x00"):
        return _Coding(lzma.LZMADecompressor, 1 << 10)
    return None


class Decompressed:
    """The content of a file, told by its first bytes: gzip, Zstandard, bzip2, xz (all members of
    them), or plain.

    `damage` is None, or `truncated` or `bad_member` once the content has ended too early.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        head = b""
        while len(head) < _HEAD and (chunk := self.stream.read(_CHUNK)):
            head += chunk
        coding = _coding(head)
        if coding is not None:
            yield from self._members(head, coding)
            return
        while head:
            yield head
            head = self.stream.read(_CHUNK)

    def _members(self, data: bytes, coding: _Coding) -> Iterator[bytes]:
        while data or (data := self.stream.read(_CHUNK)):
            if not data.strip(b"\0"):  # padding, as gzip itself allows
                data = b""
                continue
            decoder = coding.start()
            while not decoder.eof:
                if not data and not (data := self.stream.read(_CHUNK)):
                    self.damage = "truncated"
                    return
                piece, data = data[: coding.piece], data[coding.piece :]
                try:
                    output = decoder.decompress(piece)
                except _DAMAGES:
                    self.damage = "bad_member"
                    return
                if output:
                    yield output
            data = decoder.unused_data + data


def lines(content: Decompressed, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Offset (in bytes of the content) and bytes of each line, without its line feed.

    A line longer than `limit` bytes is passed over and given as None. A last line without a line
    feed counts, unless the content ended too early: then it is given as None too.
    """
    offset, size = 0, 0
    parts: list[bytes] = []  # of the line that is not yet ended

    def ended() -> bytes | None:
        return b"".join(parts) if size <= limit else None

    for data in content:
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            size += end - at
            if parts:
                parts.append(data[at:end])
                line = ended()
                parts.clear()
            else:
                line = data[at:end] if size <= limit else None
            yield offset, line
            offset += size + 1
            size = 0
            at = end + 1
        size += len(data) - at
        if size <= limit:
            parts.append(data[at:])
        else:
            parts.clear()
    if size:
        yield offset, None if content.damage else ended()
