"""Content codings, transfer codings and gzip members as bytes that depend on their input alone.

No compression library promises the same bytes from one version to the next, so every format is
written here in its uncompressed form (deflate's stored blocks, Brotli's uncompressed meta-blocks,
Zstandard's raw blocks). Any decoder reads them. Only byte framing may live here.
"""

import zlib
from collections.abc import Iterator


def _pieces(data: bytes, size: int) -> Iterator[tuple[bytes, bool]]:
    """Pieces of at most `size` bytes and whether each is the last; one empty piece for no data."""
    for start in range(0, max(len(data), 1), size):
        yield data[start : start + size], start + size >= len(data)


def deflate(data: bytes) -> bytes:
    """Raw deflate (RFC 1951, 3.2.4)."""
    return b"".join(
        bytes([last])
        + len(piece).to_bytes(2, "little")
        + (len(piece) ^ 0xFFFF).to_bytes(2, "little")
        + piece
        for piece, last in _pieces(data, 0xFFFF)
    )


def zlib_stream(data: bytes) -> bytes:
    """RFC 1950: what `Content-Encoding: deflate` means."""
    return b"\x78\x01" + deflate(data) + zlib.adler32(data).to_bytes(4, "big")


def gzip_member(data: bytes) -> bytes:
    """RFC 1952, without name and time, operating system unknown."""
    return (
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
        + deflate(data)
        + zlib.crc32(data).to_bytes(4, "little")
        + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
    )


def brotli(data: bytes) -> bytes:
    """RFC 7932, 9.2: window bits (first block only), ISLAST, MNIBBLES, MLEN - 1, ISUNCOMPRESSED."""
    if not data:
        return b"\x06"
    out = bytearray()
    for piece, _ in _pieces(data, 1 << 16):
        header = (len(piece) - 1) << 3 | 1 << 19
        out += (header << 1 if not out else header).to_bytes(3, "little") + piece
    return bytes(out) + b"\x03"


def zstd(data: bytes) -> bytes:
    """RFC 8878: a single-segment frame of raw blocks with a four-byte content size, no checksum."""
    return (
        b"\x28\xb5\x2f\xfd\xa0"
        + len(data).to_bytes(4, "little")
        + b"".join(
            (len(piece) << 3 | last).to_bytes(3, "little") + piece
            for piece, last in _pieces(data, 1 << 17)
        )
    )


def chunked(data: bytes, size: int = 1000) -> bytes:
    """RFC 9112, 7.1."""
    return (
        b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece, _ in _pieces(data, size) if piece)
        + b"0\r\n\r\n"
    )
