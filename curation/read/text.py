"""Text files as documents.

What may live here: cutting a text file into files, paragraphs or lines. Decoding is the business of
extraction: documents are bytes of type text/plain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from curation.document import RawDocument
from curation.read.identity import of_row
from curation.read.lines import Decompressed, lines
from curation.read.tally import Tally


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TextOptions:
    """How text files are read.

    `per`: what a document is; paragraphs are separated by blank lines. `max_body`: bytes of a
    document.
    """

    per: Literal["file", "paragraph", "line"] = "file"
    max_body: int = 32 << 20


def read_text(
    stream: BinaryIO, path: str, tally: Tally, options: TextOptions
) -> Iterator[RawDocument]:
    """The documents of a text file, plain, gzip or Zstandard. Blank pieces are no records."""
    content = Decompressed(stream)
    row = -1
    for piece in _pieces(content, options):
        if piece is None:
            tally.skip("truncated" if content.damage else "too_large")
        elif options.per == "file" and not piece.strip():
            tally.skip("empty")
        elif piece.strip():
            row += 1
            tally.keep()
            yield RawDocument(id=of_row(path, row), content=piece, media_type="text/plain")
    if content.damage:
        tally.problem(content.damage, 0)


def _pieces(content: Decompressed, options: TextOptions) -> Iterator[bytes | None]:
    """The bytes of each document; None for one too large, or cut off by the end of the file."""
    if options.per == "line":
        for _, line in lines(content, options.max_body):
            yield line
        return
    parts: list[bytes] = []
    size = 0
    separator = b"\n" if options.per == "paragraph" else b""

    def piece() -> bytes | None:
        return separator.join(parts) if size <= options.max_body else None

    def add(part: bytes | None) -> None:
        nonlocal size
        size += options.max_body + 1 if part is None else len(part) + len(separator)
        if size > options.max_body:
            parts.clear()
        else:
            parts.append(part or b"")

    if options.per == "file":
        for data in content:
            add(data)
        yield None if content.damage else piece()
        return
    for _, line in lines(content, options.max_body):
        if line is not None and not line.strip():
            if size:
                yield piece()
            parts.clear()
            size = 0
        else:
            add(line)
    if size:
        yield None if content.damage else piece()
