"""Byte ranges of files: who owns which records, and where reading can go on.

What may live here: `Span`, `Entry`, and the stream that digests a range. No formats.

A range owns the items (records, members, gaps) that *begin* in it, and reads past its end to finish
the last. Ranges need not know of each other: one that is not told where its first item begins
looks for it. A nested archive can look like a boundary, so whoever joins the ranges compares what
each found (`Tally.first`) with where the one before it ended (`Tally.next`), and reads a range
again from the true entry where they differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

from curation.storage import HashingReader


@dataclass(frozen=True, slots=True)
class Entry:
    """A place between two items of a file, from which reading goes on as if from the start.

    `offset`: bytes; where the next record, member or gap begins. `single`: of files of members,
    whether the one before held one record, which tells how a wrong length is read.
    """

    offset: int
    single: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes from `start` up to `stop` (None: to the end), and where reading is to begin.

    Without an `entry`, that is 0 for a range that starts there, else what looking finds.
    """

    start: int
    stop: int | None
    entry: Entry | None = None


WHOLE = Span(0, None)


class SpanReader:
    """A stream that takes the digest and the count of those bytes that lie in a span.

    `stream` begins at `span.start`; what is read beyond `span.stop` is given, and not counted.
    """

    def __init__(self, stream: BinaryIO, span: Span) -> None:
        self.stream = stream
        self.inside = HashingReader(stream)
        self.size = None if span.stop is None else span.stop - span.start

    def read(self, size: int = -1) -> bytes:
        if self.size is None:
            return self.inside.read(size)
        left = self.size - self.inside.bytes
        if left <= 0:
            return self.stream.read(size)
        return self.inside.read(left if size < 0 else min(size, left))

    def drain(self) -> None:
        """Read what is left of the span, so that digest and count are of all of it."""
        while self.size is None or self.inside.bytes < self.size:
            if not self.read(1 << 20):
                return

    @property
    def bytes(self) -> int:
        return self.inside.bytes

    @property
    def digest(self) -> str:
        """blake2b of the bytes of the span read so far, 32 hex digits."""
        return self.inside.digest
