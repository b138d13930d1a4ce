"""Files of lines, plain or compressed, as pieces of bytes.

What may live here: undoing gzip and Zstandard of a whole file, and cutting a stream into lines. A
file that is cut or damaged ends early and says so; it does not raise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import zstandard

from curation.read.inflate import GZIP, InflateError, inflater

_CHUNK = 1 << 20  # bytes read at a time
_PIECE = 16 << 10  # bytes inflated at a time
_ZSTD = b"\x28\xb5\x2f\xfd"


class Decompressed:
    """The content of a file, told by its first bytes: gzip (all members), Zstandard, or plain.

    `damage` is None, or `truncated` or `bad_member` once the content has ended too early.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        head = b""
        while len(head) < 4 and (chunk := self.stream.read(_CHUNK)):
            head += chunk
        if head.startswith(b"\x1f\x8b"):
            yield from self._members(head, lambda: inflater(GZIP))
        elif head.startswith(_ZSTD):
            yield from self._members(head, zstandard.ZstdDecompressor().decompressobj)
        else:
            while head:
                yield head
                head = self.stream.read(_CHUNK)

    def _members(self, data: bytes, start: Any) -> Iterator[bytes]:
        while data or (data := self.stream.read(_CHUNK)):
            if not data.strip(b"\0"):  # padding, as gzip itself allows
                data = b""
                continue
            decoder = start()
            while not decoder.eof:
                if not data and not (data := self.stream.read(_CHUNK)):
                    self.damage = "truncated"
                    return
                piece, data = data[:_PIECE], data[_PIECE:]
                try:
                    output = decoder.decompress(piece)
                except (InflateError, zstandard.ZstdError):
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
