"""Where the records of a WARC file begin and end, whatever happened to the file.

What may live here: gzip members, record boundaries, and finding the way again after damage. No
knowledge of record types or HTTP.

A file is *plain* or a row of gzip members (told by its bytes, never by its name). The bytes that
records lie in, the plain file or one inflated member, are a *content*. Three rules decide:

* A declared Content-Length is right when a separator and then the next record, or the end of the
  content, follow it. A nested archive inside such a block is never looked at.
* When it is wrong, the record ends where its member ends if the file keeps one record per member,
  else before the next line that is a WARC version and is followed by a header line.
* A member that does not inflate costs its own records; reading goes on at the next gzip header
  that inflates to a WARC version.

The file is read once, forward; memory is bounded by a small multiple of `max_record`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from curation.read.inflate import GZIP, InflateError, inflater

MAX_RECORD = 64 << 20  # bytes of a block, inflated
MAX_HEADER = 1 << 20  # bytes of a record header
PIECE = 16 << 10  # bytes inflated at a time: at most 17 MB of output
CHUNK = 256 << 10  # bytes read at a time
WHOLE = 4 << 20  # bytes of a member up to which it is inflated before it is looked at

_MAGIC = b"\x1f\x8b"
_DEFLATED = b"\x1f\x8b\x08"
_CRLF2 = b"\r\n\r\n"
_LENGTH = re.compile(rb"(?i)\ncontent-length[ \t]*:\s*(\d{1,18})\s")
_BLANK = re.compile(rb"\n\r?\n")
_LINE_ENDS = re.compile(rb"[\r\n]*")
_SEPARATOR = re.compile(rb"(?:\r\n\r\n|\n\n)(?=WARC/|\Z)")
_BOUNDARY = re.compile(rb"\n(?=WARC/\d\.\d{1,4}[ \t]*\r?\n[A-Za-z][A-Za-z-]{0,99}[ \t]*:)")
_REACH = 256  # bytes within which a boundary is recognised


@dataclass(slots=True)
class Frame:
    """One record: its place in the file, its header lines, its block.

    `file[offset:offset + length]` is the record with its separator, or its gzip member. Records
    that share a member have its offset, and None as their length. `problem` is None, or
    `bad_length` (the block is whole although the declared length was wrong), or why there is no
    block: `truncated`, `bad_member`, `bad_header`, `too_large`.
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


def frames(stream: BinaryIO, max_record: int = MAX_RECORD) -> Iterator[Frame | Gap]:
    """The records of a WARC file, plain or gzip, and the gaps between them, in order.

    `max_record`: bytes; a larger block is passed over (`too_large`). Never raises for what the file
    holds; errors of the stream itself pass through.
    """
    head = b""
    while len(head) < CHUNK and (chunk := stream.read(CHUNK)):
        head += chunk
    read = _gzip_frames if _is_gzip(head) else _plain_frames
    lead = 0  # bytes before the first record
    found = False
    for item in read(stream, head, max_record):
        if not found:
            if isinstance(item, Gap) or (item.problem == "bad_header" and not item.header):
                lead = item.offset + (item.length or 0)
                continue
            found = True
            if lead:
                yield Gap(0, lead, "garbage")
        yield item
    if lead and not found:
        yield Gap(0, lead, "not_warc")


class _Content(Protocol):
    """Bytes read on demand: `buffer` holds those from content offset `start` on.

    `ended` is "" while there may be more, then `eof` (of a plain file, which may be cut), `end` (of
    a member whose checksum holds), `cut` or `corrupt`.
    """

    buffer: bytearray
    start: int
    ended: str

    def more(self) -> bool:
        """Append to the buffer; False, and `ended` set, when there is nothing left."""


class _Plain:
    """A plain file as a content."""

    def __init__(self, stream: BinaryIO, head: bytes) -> None:
        self.stream = stream
        self.buffer = bytearray(head)
        self.start = 0
        self.ended = ""

    def more(self) -> bool:
        chunk = self.stream.read(CHUNK)
        if not chunk:
            self.ended = "eof"
        self.buffer += chunk
        return bool(chunk)


class _Window:
    """The bytes of a gzip file from the first byte of the current member on."""

    def __init__(self, stream: BinaryIO, head: bytes) -> None:
        self.stream = stream
        self.bytes = bytearray(head)
        self.start = 0  # file offset of bytes[0]

    def need(self, count: int) -> bool:
        """Whether `count` bytes are there, after reading as far as needed."""
        while len(self.bytes) < count:
            chunk = self.stream.read(CHUNK)
            if not chunk:
                return False
            self.bytes += chunk
        return True

    def drop(self, count: int) -> None:
        del self.bytes[:count]
        self.start += count


class _Member:
    """One gzip member, inflated, as a content. The window begins at its first byte.

    At most `keep` compressed bytes stay in the window, for finding the way again.
    """

    def __init__(self, window: _Window, keep: int) -> None:
        self.window = window
        self.keep = keep
        self.inflater = inflater(GZIP)
        self.offset = window.start
        self.fed = 0  # index in the window of the next byte to inflate
        self.buffer = bytearray()
        self.start = 0
        self.ended = ""

    def inflate(self) -> bytes:
        """The next piece of output; empty, and `ended` set, when there is none."""
        window, output = self.window, b""
        while not output and not self.ended:
            if self.fed > self.keep:
                window.drop(self.fed)
                self.fed = 0
            window.need(self.fed + PIECE)
            piece = window.bytes[self.fed : self.fed + PIECE]
            if not piece:
                self.ended = "cut"
                break
            try:
                output = self.inflater.decompress(piece)
            except InflateError:
                self.ended = "corrupt"
                break
            self.fed += len(piece)
            if self.inflater.eof:
                self.fed -= len(self.inflater.unused_data)
                self.ended = "end"
        return output

    def more(self) -> bool:
        output = self.inflate()
        self.buffer += output
        return bool(output)


def _plain_frames(stream: BinaryIO, head: bytes, max_record: int) -> Iterator[Frame | Gap]:
    return iter(_Records(_Plain(stream, head), False, max_record))


def _gzip_frames(stream: BinaryIO, head: bytes, max_record: int) -> Iterator[Frame | Gap]:
    window = _Window(stream, head)
    single = False  # whether the member before held one record: this file keeps one per member
    while window.need(1):
        if not window.need(2) or window.bytes[:2] != _MAGIC:
            start = window.start
            _find_member(window)
            yield Gap(start, window.start - start, "garbage")
            continue
        member = _Member(window, max_record)
        offset = member.offset
        data = _inflate_whole(member)
        frame = _only_record(data, offset, max_record) if member.ended == "end" else None
        if frame is not None:
            single = True
            window.drop(member.fed)
            frame.length = window.start - offset
            yield frame
            continue
        member.buffer += data
        del data
        held: Frame | Gap | None = None
        shared = False
        for item in _Records(member, single, max_record):
            if held is not None:
                shared = True
                yield _in_member(held, offset, None)
            held = item
        if member.ended == "end":
            window.drop(member.fed)
            if held is not None:
                single = not shared
                yield _in_member(held, offset, None if shared else window.start - offset)
            continue
        if held is not None:
            yield _in_member(held, offset, None)
        problem = _leave_member(window, member)
        yield Frame(offset, window.start - offset, b"", b"", None, problem)


def _is_gzip(head: bytes) -> bool:
    """Whether the file has members: by its first bytes, or where they are damaged by the next."""
    if head.startswith((_MAGIC, b"WARC/")):
        return head.startswith(_MAGIC)
    at = head.find(_DEFLATED)
    while at >= 0:
        if _begins_record(head[at : at + PIECE]):
            return True
        at = head.find(_DEFLATED, at + 1)
    return False


def _in_member(item: Frame | Gap, offset: int, length: int | None) -> Frame | Gap:
    """The item of a member's content with its place in the file; `length` None if it shares."""
    if isinstance(item, Frame):
        item.offset, item.length = offset, length
        return item
    if length is not None:  # a member that is no record at all
        return Frame(offset, length, b"", b"", None, "bad_header")
    return Gap(offset, 0, item.reason)


def _inflate_whole(member: _Member) -> bytes:
    """The member's output, all of it unless it is large."""
    data = member.inflate()
    if member.ended:
        return data
    parts, size = [data], len(data)
    while size < WHOLE and (data := member.inflate()):
        parts.append(data)
        size += len(data)
    return b"".join(parts)


def _only_record(data: bytes, offset: int, max_record: int) -> Frame | None:
    """The fast path: a member that is exactly one record as the standard has it."""
    blank = _BLANK.search(data)
    if blank is None or not data.startswith(b"WARC/") or not data.endswith(_CRLF2):
        return None
    body = blank.end()
    length = _LENGTH.search(data, 0, body)
    declared = int(length[1]) if length else 0
    if length is None or declared > max_record or body + declared + 4 != len(data):
        return None
    return Frame(offset, None, data[:body], memoryview(data)[body:-4], declared)


def _find_member(window: _Window, skip: int = 0) -> None:
    """Move the window to the next member that begins with a WARC version, or to the file's end."""
    at = skip
    while True:
        at = window.bytes.find(_DEFLATED, at)
        if at >= 0:
            window.need(at + PIECE)
            if _begins_record(window.bytes[at : at + PIECE]):
                window.drop(at)
                return
            at += 1
        else:
            at = max(0, len(window.bytes) - 2)
            window.drop(at)
            at = 0
            if not window.need(len(window.bytes) + 1):
                window.drop(len(window.bytes))
                return


def _begins_record(piece: bytes | bytearray) -> bool:
    try:
        return inflater(GZIP).decompress(piece, 5) == b"WARC/"
    except InflateError:
        return False


def _leave_member(window: _Window, member: _Member) -> str:
    """Move the window past a member that did not inflate to its end; what was wrong with it.

    When the file ended inside it, it is taken for damaged, and not for truncated, only if whole
    members follow from within it to the very end of the file: inflating ran on through them.
    """
    skip = 1 if window.start == member.offset else 0
    if member.ended == "corrupt":
        _find_member(window, skip)
        return "bad_member"
    data = window.bytes
    at = data.find(_DEFLATED, skip)
    while at >= 0:
        if _begins_record(data[at : at + PIECE]) and _members_fill(data, at):
            window.drop(at)
            return "bad_member"
        at = data.find(_DEFLATED, at + 1)
    window.drop(len(data))
    return "truncated"


def _members_fill(data: bytearray, at: int) -> bool:
    """Whether whole members fill `data` from `at` to its end."""
    while at < len(data):
        member = inflater(GZIP)
        while not member.eof:
            piece = data[at : at + PIECE]
            try:
                member.decompress(piece)
            except InflateError:
                return False
            if not piece:
                return False
            at += len(piece)
        at -= len(member.unused_data)
    return True


class _Records:
    """The records of a content, placed by content offsets.

    `single`: the content holds one record, whatever its Content-Length says. Of a member that does
    not inflate to its end, the last item is left out: the caller reports the member.
    """

    def __init__(self, content: _Content, single: bool, max_record: int) -> None:
        self.content = content
        self.buffer = content.buffer
        self.single = single
        self.max_record = max_record
        self.unseparated = False  # the file ended without the separator after the last record

    def __iter__(self) -> Iterator[Frame | Gap]:
        while (item := self._next()) is not None:
            if self.content.ended in ("cut", "corrupt") and not self.buffer:
                return
            yield item
        if self.unseparated:
            yield Gap(self.content.start, 0, "truncated")

    def _have(self, count: int) -> bool:
        """Whether the buffer holds `count` bytes, after reading as far as needed."""
        while len(self.buffer) < count:
            if self.content.ended or not self.content.more():
                return False
        return True

    def _drop(self, count: int) -> None:
        del self.buffer[:count]
        self.content.start += count

    def _boundary(self, at: int, keep: bool) -> int:
        """Index of the next version line from `at` on, else of the end.

        Without `keep`, what was searched is dropped and the index is 0; with it, the search ends
        where the buffer grows too large.
        """
        while True:
            if self.single:
                at = len(self.buffer)
            elif found := _BOUNDARY.search(self.buffer, at):
                at = found.end()
                break
            else:
                at = max(at, len(self.buffer) - _REACH)
            if keep and len(self.buffer) > self.max_record + MAX_HEADER:
                return len(self.buffer)
            if not keep:
                self._drop(at)
                at = 0
            if not self._have(len(self.buffer) + 1):
                at = len(self.buffer)
                break
        if not keep:
            self._drop(at)
            at = 0
        return at

    def _header_end(self) -> int:
        """Index of the first byte after the header's blank line; 0 if there is none."""
        at = 0
        while True:
            if found := _BLANK.search(self.buffer, at):
                return found.end()
            at = max(0, len(self.buffer) - 2)
            if at > MAX_HEADER or not self._have(len(self.buffer) + 1):
                return 0

    def _next(self) -> Frame | Gap | None:
        content, buffer = self.content, self.buffer
        while self._have(1) and (blank := _LINE_ENDS.match(buffer)) and blank.end():
            self._drop(blank.end())
        if not buffer:
            return None
        start = content.start
        self._have(5)
        if not buffer.startswith(b"WARC/"):
            self._boundary(0, keep=False)
            return Gap(start, content.start - start, "garbage")
        body = self._header_end()
        header, length = bytes(buffer[:body]), _LENGTH.search(buffer, 0, body)
        if length is None:
            self._boundary(body, keep=False)
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

    def _block(self, body: int, declared: int) -> tuple[int, int, str | None]:
        """Where the block and the record end in the buffer, and what is wrong with the record."""
        content, buffer = self.content, self.buffer
        end = body + declared
        self._have(end + 9)
        if end <= len(buffer):
            if separator := _SEPARATOR.match(buffer, end):
                return end, separator.end(), None
            separated = not self.single and buffer.startswith(_CRLF2, end)
            if separated and not _BOUNDARY.search(buffer, body - 1, end):
                return end, end + 4, None  # and garbage follows
            left = buffer[end : end + 4]
            last = content.ended and len(left) < 4 and not left.strip(b"\r\n")
            if last and not buffer.endswith(_CRLF2):
                self.unseparated = content.ended == "eof"
                return end, len(buffer), None
        record_end = self._boundary(body - 1, keep=True)
        if record_end - body > self.max_record:
            return record_end, record_end, "too_large"
        if record_end == len(buffer) < end and content.ended == "eof":
            return record_end, record_end, "truncated"
        block_end = record_end
        for line_ends in (_CRLF2, b"\n\n", b"\r\n", b"\n"):
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
        self._have(9)
        if separator := _SEPARATOR.match(buffer):
            self._drop(separator.end())
        elif self.single:
            self._boundary(0, keep=False)
        return "too_large"
