"""Records one after the other in a content: a plain file, or a member that is decoded.

What may live here: where records begin and end, whatever their lengths say. No compression, and no
knowledge of what records mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from curation.read.grammar import Grammar
from curation.read.members import Content

MAX_HEADER = 1 << 20  # bytes of a record header
_LINE_ENDS = re.compile(rb"[\r\n]*")


@dataclass(slots=True)
class Frame:
    """One record: its place in the file, its header lines, its block.

    `file[offset:offset + length]` is the record with its separator, or its member. Records that
    share a member have its offset, and None as their length. `problem` is None, or `bad_length`
    (the block is whole although the declared length was wrong), or why there is no block:
    `truncated`, `bad_member`, `bad_header`, `too_large`.
    """

    offset: int
    length: int | None
    header: bytes
    block: bytes | memoryview
    declared_length: int | None
    problem: str | None = None


@dataclass(slots=True)
class Gap:
    """Bytes that are no record.

    `reason` is `garbage`; or `not_warc`, of a whole file; or `truncated`, when the separator that
    follows the last record is missing or cut.
    """

    offset: int
    length: int
    reason: str


def only_record(data: bytes, grammar: Grammar, offset: int, max_record: int) -> Frame | None:
    """The fast path: the member at `offset` holds exactly one record as the standard has it."""
    end = grammar.header_end.search(data)
    if end is None or not grammar.begins.match(data):
        return None
    body = end.end()
    length = grammar.length.search(data, 0, body)
    declared = int(length[1]) if length else 0
    if length is None or declared > max_record:
        return None
    if body + declared > len(data) or not grammar.separator.fullmatch(data, body + declared):
        return None
    block = memoryview(data)[body : body + declared]
    return Frame(offset, None, data[:body], block, declared)


class Records:
    """The records of a content, placed by content offsets.

    `single`: the content holds one record, whatever its length says. Of a member that does not
    decode to its end, the last item is left out: the caller reports the member.
    """

    def __init__(self, content: Content, grammar: Grammar, single: bool, max_record: int) -> None:
        self.content = content
        self.buffer = content.buffer
        self.grammar = grammar
        self.single = single
        self.max_record = max_record
        self.unseparated = False  # the file ended without the separator after the last record

    def __iter__(self) -> Iterator[Frame | Gap]:
        while self.begin():
            item = self.take()
            if self.content.ended in ("cut", "corrupt") and not self.buffer:
                return
            yield item

    def begin(self) -> bool:
        """Move to where the next item begins; False at the end."""
        while self._have(1) and (blank := _LINE_ENDS.match(self.buffer)) and blank.end():
            self._drop(blank.end())
        return bool(self.buffer)

    def seek(self, at: int = 0, stop: float = math.inf) -> bool:
        """Move to the next record, searched from index `at` on; False, and all dropped, when there
        is none, or none begins before content offset `stop`."""
        while True:
            if self.single:
                at = len(self.buffer)
            elif found := self.grammar.boundary.search(self.buffer, at):
                self._drop(found.end())
                return self.content.start < stop
            else:
                at = max(at, len(self.buffer) - self.grammar.reach)
            self._drop(at)
            at = 0
            if self.content.start >= stop or not self._have(len(self.buffer) + 1):
                self._drop(len(self.buffer))
                return False

    def take(self) -> Frame | Gap:
        """The item that begins here, and move past it."""
        content, buffer, grammar = self.content, self.buffer, self.grammar
        start = content.start
        self._have(grammar.head)
        if not grammar.begins.match(buffer):
            self.seek()
            return Gap(start, content.start - start, "garbage")
        body = self._header_end()
        while not body and content.join():
            body = self._header_end()
        header, length = bytes(buffer[:body]), grammar.length.search(buffer, 0, body)
        if length is None:
            self.seek(max(body - 1, 0))
            cut = not body and not buffer and content.ended == "eof"
            problem = "truncated" if cut else "bad_header"
            return Frame(start, content.start - start, header or b"WARC/", b"", None, problem)
        declared = int(length[1])
        if declared > self.max_record and self._have(body + self.max_record):
            problem = self._pass_over(body + declared)
            return Frame(start, content.start - start, header, b"", declared, problem)
        block_end, end, found = self._block(body, declared)
        usable = found in (None, "bad_length")
        block = bytes(memoryview(buffer)[body:block_end]) if usable else b""
        self._drop(end)
        return Frame(start, end, header, block, declared, found)

    def _have(self, count: int) -> bool:
        """Whether the buffer holds `count` bytes, after reading as far as needed."""
        while len(self.buffer) < count:
            if self.content.ended or not self.content.more():
                return False
        return True

    def _drop(self, count: int) -> None:
        del self.buffer[:count]
        self.content.start += count

    def _header_end(self) -> int:
        """Index of the first byte after the header; 0 if it does not end."""
        at = 0
        while True:
            if found := self.grammar.header_end.search(self.buffer, at, MAX_HEADER):
                return found.end()
            at = max(0, len(self.buffer) - 2)
            if at >= MAX_HEADER or not self._have(len(self.buffer) + 1):
                return 0

    def _record_end(self, at: int) -> int:
        """Index of the next record, searched from index `at` on, else of the end; at most a bound,
        which makes the record too large."""
        bound = self.max_record + MAX_HEADER + 1
        limit = bound + self.grammar.reach
        while True:
            if not self.single:
                if found := self.grammar.boundary.search(self.buffer, at, limit):
                    return min(found.end(), bound)
                at = max(at, len(self.buffer) - self.grammar.reach)
            if len(self.buffer) >= limit or not self._have(len(self.buffer) + 1):
                return min(len(self.buffer), bound)

    def _block(self, body: int, declared: int) -> tuple[int, int, str | None]:
        """Where the block and the record end in the buffer, and what is wrong with the record."""
        content, buffer, grammar = self.content, self.buffer, self.grammar
        end = body + declared
        self._have(end + grammar.tail)
        member_end = math.inf
        if declared <= self.max_record:
            while len(buffer) < end and (before := len(buffer)) and content.join():
                member_end = min(member_end, before)
                self._have(end + grammar.tail)
        if end <= len(buffer):
            if separator := grammar.separator.match(buffer, end):
                return end, separator.end(), None
            firm = grammar.firm and not self.single and buffer.startswith(grammar.firm, end)
            if firm and not grammar.boundary.search(buffer, body - 1, end):
                return end, end + len(grammar.firm), None  # and garbage follows
            left = buffer[end : end + 4]
            last = content.ended and len(left) < 4 and not left.strip(b"\r\n")
            if last and not buffer.endswith(grammar.firm):
                self.unseparated = content.ended == "eof"
                return end, len(buffer), None
        record_end = int(min(self._record_end(body - 1), member_end))
        if record_end - body > self.max_record:
            return record_end, record_end, "too_large"
        if record_end == len(buffer) < end and content.ended == "eof":
            return record_end, record_end, "truncated"
        block_end = record_end
        for line_ends in grammar.line_ends:
            if buffer.endswith(line_ends, body, record_end):
                block_end -= len(line_ends)
                break
        return block_end, record_end, "bad_length"

    def _pass_over(self, end: int) -> str:
        """Drop a block that is too large, up to index `end` and its separator."""
        content, buffer = self.content, self.buffer
        stop = content.start + end
        while content.start < stop and self._have(1):
            self._drop(min(len(buffer), stop - content.start))
        if content.start < stop and content.ended == "eof":
            return "truncated"
        self._have(self.grammar.tail)
        if separator := self.grammar.separator.match(buffer):
            self._drop(separator.end())
        elif self.single:
            self.seek()
        return "too_large"
