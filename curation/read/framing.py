"""Where the records of an archive begin and end, whatever happened to the file.

What may live here: telling the format, and walking over a file or a byte range of it. Members lie
in `members`, records inside a content in `records`, what they look like in `grammar`.

A file is *plain*, or a row of gzip members or Zstandard frames (told by its bytes, never by its
name); its records are WARC or ARC. The bytes that records lie in, the plain file or one decoded
member, are a *content*. Three rules decide:

* A declared length is right when a separator and then the next record, or the end of the content,
  follow it. A nested archive inside such a block is never looked at.
* When it is wrong, the record ends where its member ends if the file keeps one record per member,
  else before the next line that begins a record.
* A member that does not decode costs its own records; reading goes on at the next one that begins
  with a record.

A record that its member cuts goes on in the next member, if that does not begin with a record and
its length is right then: some writers cut the compressed stream anywhere.

One fault is accepted: a wrong length that happens to end where a later record of the same content
ends takes the records between for a nested archive. Their bytes look exactly the same.

The file is read once, forward; memory is bounded by a small multiple of `max_record`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import BinaryIO, cast

from curation.read.grammar import ARC, WARC, Grammar
from curation.read.members import CHUNK, Codec, Gzip, Member, Members, Plain, Window, Zstd
from curation.read.records import Frame, Gap, Records, only_record
from curation.read.span import WHOLE, Entry, Span

__all__ = ["MAX_RECORD", "Frame", "Frames", "Gap", "read_head"]

MAX_RECORD = 64 << 20  # bytes of a block, decoded
_WHOLE_MEMBER = 4 << 20  # bytes of a member up to which it is decoded before it is looked at


class Frames:
    """The records of an archive, or those that begin in a span, and the gaps between, in order.

    `stream` begins at `span.start`. `head` is what `read_head` gives of the file; where the span
    starts at 0 it is read here. `max_record`: bytes; a larger block is passed over (`too_large`).
    Iterating (once) never raises for what the file holds; errors of the stream itself pass through.

    Then `first` is the entry where reading began, and `next` the one after the last item of the
    span; both None when looking found no item that begins in it. The range that starts at 0 owns
    all that lies before the first record of the file, and that record. Zstandard files are not
    split: that range owns them whole.
    """

    def __init__(
        self,
        stream: BinaryIO,
        max_record: int = MAX_RECORD,
        span: Span = WHOLE,
        head: bytes = b"",
    ) -> None:
        self.stream = stream
        self.max_record = max_record
        self.span = span
        self.head = head
        self.stop = math.inf if span.stop is None else span.stop
        self.first: Entry | None = None
        self.next: Entry | None = None

    def __iter__(self) -> Iterator[Frame | Gap]:
        start, entry = self.span.start, self.span.entry
        if start == 0:
            entry = Entry(0)
            self.head, error = read_head(self.stream)
            if error is not None:  # what has arrived is read first
                self.stream = cast(BinaryIO, _Broken(error))
        if entry is not None and entry.offset >= self.stop:
            self.first = self.next = entry
            return
        if entry is not None:
            _skip(self.stream, entry.offset - start)
        codec, grammar = _told(self.head)
        if isinstance(codec, Zstd):
            if start:
                return
            self.stop = math.inf
        data = b"" if start else self.head
        if codec is None:
            walk = self._plain(grammar, data, entry)
        else:
            window = Window(self.stream, data, entry.offset if entry else start)
            walk = self._members(Members(window, codec, grammar), entry)
        yield from walk if start else self._from_first_record(walk)

    def _from_first_record(self, walk: Iterator[Frame | Gap]) -> Iterator[Frame | Gap]:
        """Make one gap of all that comes before the first record."""
        stop, self.stop = self.stop, math.inf
        lead = 0
        for item in walk:
            if isinstance(item, Gap) or (item.problem == "bad_header" and not item.header):
                lead = item.offset + (item.length or 0)
                continue
            self.stop = stop
            if lead:
                yield Gap(0, lead, "garbage")
            yield item
            yield from walk
            return
        if lead:
            yield Gap(0, lead, "not_warc")

    def _plain(self, grammar: Grammar, data: bytes, entry: Entry | None) -> Iterator[Frame | Gap]:
        if entry is None:  # as if a line ended before the span; if not, the chain shows it
            content = Plain(self.stream, b"\n", self.span.start - 1)
        else:
            content = Plain(self.stream, data, entry.offset)
        records = Records(content, grammar, False, self.max_record)
        if entry is None and not records.seek(stop=self.stop):
            return
        self.first = entry or Entry(content.start)
        while records.begin() and content.start < self.stop:
            yield records.take()
        if records.unseparated:
            yield Gap(content.start, 0, "truncated")
        self.next = Entry(content.start)

    def _members(self, members: Members, entry: Entry | None) -> Iterator[Frame | Gap]:
        window = members.window
        if entry is None:
            if not members.find(stop=self.span.stop):
                return
            entry = Entry(window.start, single=True)
        self.first = entry
        single = entry.single
        while window.need(1) and window.start < self.stop:
            offset = window.start
            if not members.here():
                members.find()
                yield Gap(offset, window.start - offset, "garbage")
                continue
            member = members.open(self.max_record)
            data = _decode_whole(member)
            if member.ended == "end":
                frame = only_record(data, members.grammar, offset, self.max_record)
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
            for item in Records(member, members.grammar, single, self.max_record):
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
            problem = members.leave(member)
            yield Frame(offset, window.start - offset, b"", b"", None, problem)
        self.next = Entry(window.start, single)


def read_head(stream: BinaryIO) -> tuple[bytes, OSError | None]:
    """The first bytes of a file, at least 256 KiB if it has them: enough to tell its format; and
    the error that ended them earlier."""
    head = b""
    try:
        while len(head) < CHUNK and (chunk := stream.read(CHUNK)):
            head += chunk
    except OSError as error:
        return head, error
    return head, None


class _Broken:
    """A stream that could not be read further."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def read(self, size: int = -1) -> bytes:
        raise self.error


def _skip(stream: BinaryIO, count: int) -> None:
    while count > 0 and (chunk := stream.read(min(count, CHUNK))):
        count -= len(chunk)


def _told(head: bytes) -> tuple[Codec | None, Grammar]:
    """How the file is compressed, None if it is not, and what its records look like.

    By its first bytes, or where they are damaged by the first record that is found after them.
    """
    head = head[:CHUNK]
    gzip, zstd = Gzip(), Zstd()
    if zstd.starts_file(head):
        return zstd, WARC
    for grammar in (WARC, ARC):
        if grammar.begins.match(head):
            return None, grammar
    codecs: list[Codec] = [gzip] if gzip.begins(head[:4]) else [gzip, zstd]
    found: list[tuple[int, Codec | None, Grammar]] = []
    for grammar in (WARC, ARC):
        for codec in codecs:
            window = Window(io.BytesIO(), head, 0)
            if Members(window, codec, grammar).find():
                if window.start == 0:
                    return codec, grammar
                found.append((window.start, codec, grammar))
        if len(codecs) > 1 and (line := grammar.boundary.search(head)):
            found.append((line.end(), None, grammar))
    _, told, grammar = min(found, key=lambda item: item[0], default=(0, None, WARC))
    return (gzip if len(codecs) == 1 else told), grammar


def _in_member(item: Frame | Gap, offset: int, length: int | None) -> Frame | Gap:
    """The item of a member's content with its place in the file; `length` None if it shares."""
    if isinstance(item, Frame):
        item.offset, item.length = offset, length
        return item
    if length is not None:  # a member that is no record at all
        return Frame(offset, length, b"", b"", None, "bad_header")
    return Gap(offset, 0, item.reason)


def _decode_whole(member: Member) -> bytes:
    """The member's output, all of it unless it is large."""
    data = member.decode()
    if member.ended:
        return data
    parts, size = [data], len(data)
    while size < _WHOLE_MEMBER and (data := member.decode()):
        parts.append(data)
        size += len(data)
    return b"".join(parts)
