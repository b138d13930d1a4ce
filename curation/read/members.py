"""Archives that are a row of compressed members: gzip members, Zstandard frames.

What may live here: the bytes of a file or of one member as a *content*, and finding the next member
after damage. What a record is, is told by a `Grammar`.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Protocol

import zstandard

from curation.read.grammar import Grammar
from curation.read.inflate import GZIP, InflateError, inflater

CHUNK = 256 << 10  # bytes read at a time
_STEP = 512  # bytes decoded at a time to see how a member begins
_MAX_DICTIONARY = 16 << 20  # bytes of a Zstandard dictionary, as stored and as used

_DAMAGE = (InflateError, zstandard.ZstdError)


class Content(Protocol):
    """Bytes read on demand: `buffer` holds those from content offset `start` on.

    `ended` is "" while there may be more, then `eof` (of a plain file, which may be cut), `end` (of
    a member whose checksum holds), `cut` or `corrupt`.
    """

    buffer: bytearray
    start: int
    ended: str

    def more(self) -> bool:
        """Append to the buffer; False, and `ended` set, when there is nothing left."""

    def join(self) -> bool:
        """Go on beyond the end, where the rest of a record that is cut by it may follow."""


class Plain:
    """A plain file, from file offset `start` on, as a content. `data`: what was read of it."""

    def __init__(self, stream: BinaryIO, data: bytes, start: int) -> None:
        self.stream = stream
        self.buffer = bytearray(data)
        self.start = start
        self.ended = ""

    def more(self) -> bool:
        chunk = self.stream.read(CHUNK)
        if not chunk:
            self.ended = "eof"
        self.buffer += chunk
        return bool(chunk)

    def join(self) -> bool:
        return False


class Codec(Protocol):
    """A compressed format of members.

    `search`: the bytes by which a member with content is found again. `piece`: bytes decoded at a
    time, so few that their output is bounded by some 32 MB. `look`: bytes of a member that are
    enough to see how its content begins.
    """

    search: bytes
    piece: int
    look: int

    def begins(self, head: bytes | bytearray) -> bool:
        """Whether a member begins with these 4 bytes."""

    def decoder(self) -> Any:
        """An object with `decompress`, `eof` and `unused_data`; only the last one is in use."""


class Gzip:
    """RFC 1952."""

    search = b"\x1f\x8b\x08"
    piece = 16 << 10
    look = 16 << 10

    def begins(self, head: bytes | bytearray) -> bool:
        return head.startswith(b"\x1f\x8b")

    def decoder(self) -> Any:
        return inflater(GZIP)


class Zstd:
    """RFC 8878. Skippable frames are members without content; one of them holds the dictionary.

    The dictionary (of the archiving community's specification of WARC in Zstandard) lies in a frame
    of type 0x184D2A5D before the frames that need it, and may be compressed itself.
    """

    search = b"\x28\xb5\x2f\xfd"
    piece = 1 << 10
    look = 136 << 10  # a block, and the header

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()

    def begins(self, head: bytes | bytearray) -> bool:
        return head.startswith(self.search) or _is_skippable(head)

    def starts_file(self, head: bytes) -> bool:
        """Whether a file that begins with `head` is in this format."""
        if not _is_skippable(head):
            return head.startswith(self.search)
        size = int.from_bytes(head[4:8], "little")
        following = head[8 + size : 12 + size]
        return self.begins(following) if following else size <= _MAX_DICTIONARY

    def decoder(self) -> Any:
        return self.decompressor.decompressobj()

    def learn(self, window: Window) -> None:
        """Take over the dictionary if the window begins with one; a damaged one is passed over."""
        if not window.need(8) or window.bytes[:4] != b"\x5d\x2a\x4d\x18":
            return
        size = int.from_bytes(window.bytes[4:8], "little")
        if size > _MAX_DICTIONARY or not window.need(8 + size):
            return
        data = bytes(window.bytes[8 : 8 + size])
        try:
            if data.startswith(self.search):
                stream = zstandard.ZstdDecompressor().stream_reader(data)
                data = stream.read(_MAX_DICTIONARY)
            known = zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_FULLDICT)
            self.decompressor = zstandard.ZstdDecompressor(dict_data=known)
        except zstandard.ZstdError:
            return


def _is_skippable(head: bytes | bytearray) -> bool:
    return head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50


class Window:
    """The bytes of a file of members from the first byte of the current member on."""

    def __init__(self, stream: BinaryIO, data: bytes, start: int) -> None:
        self.stream = stream
        self.bytes = bytearray(data)
        self.start = start  # file offset of bytes[0]

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


class Member:
    """One member, decoded, as a content. The window begins at its first byte.

    At most `keep` compressed bytes stay in the window, for finding the way again.
    """

    def __init__(self, members: Members, keep: int) -> None:
        self.members = members
        self.window = members.window
        self.piece = members.codec.piece
        self.keep = keep
        self.decoder = members.codec.decoder()
        self.offset = members.window.start
        self.fed = 0  # index in the window of the next byte to decode
        self.buffer = bytearray()
        self.start = 0
        self.ended = ""

    def decode(self) -> bytes:
        """The next piece of output; empty, and `ended` set, when there is none."""
        window, output = self.window, b""
        while not output and not self.ended:
            if self.fed > self.keep:
                window.drop(self.fed)
                self.fed = 0
            window.need(self.fed + self.piece)
            piece = window.bytes[self.fed : self.fed + self.piece]
            if not piece:
                self.ended = "cut"
                break
            try:
                output = self.decoder.decompress(piece)
            except _DAMAGE:
                self.ended = "corrupt"
                break
            self.fed += len(piece)
            if self.decoder.eof:
                self.fed -= len(self.decoder.unused_data)
                self.ended = "end"
        return output

    def more(self) -> bool:
        output = self.decode()
        self.buffer += output
        return bool(output)

    def join(self) -> bool:
        if self.ended != "end" or not self.members.goes_on(self.fed):
            return False
        self.decoder = self.members.codec.decoder()
        self.ended = ""
        return True


class Members:
    """A file as a row of members: what is at the window's beginning, and what comes next."""

    def __init__(self, window: Window, codec: Codec, grammar: Grammar) -> None:
        self.window = window
        self.codec = codec
        self.grammar = grammar

    def here(self) -> bool:
        """Whether the window begins with a member."""
        if isinstance(self.codec, Zstd):
            self.codec.learn(self.window)
        return self.window.need(2) and self.codec.begins(self.window.bytes[:4])

    def open(self, keep: int) -> Member:
        return Member(self, keep)

    def goes_on(self, at: int) -> bool:
        """Whether a member begins at index `at` of the window that does not begin with a record."""
        self.window.need(at + self.codec.look)
        data = self.window.bytes[at : at + self.codec.look]
        beginning = self._beginning(data) if self.codec.begins(data[:4]) else b""
        return bool(beginning) and not self.grammar.begins.match(beginning)

    def find(self, skip: int = 0, stop: int | None = None) -> bool:
        """Move the window to the next member that begins with a record, searched from index `skip`
        on; False, and the window at the file's end, or anywhere when none begins before file offset
        `stop`."""
        window, search, at = self.window, self.codec.search, skip
        while stop is None or window.start + at < stop:
            at = window.bytes.find(search, at)
            if at >= 0:
                if stop is not None and window.start + at >= stop:
                    return False
                window.need(at + self.codec.look)
                if self._begins_record(window.bytes[at : at + self.codec.look]):
                    window.drop(at)
                    return True
                at += 1
            else:
                window.drop(max(0, len(window.bytes) - len(search) + 1))
                at = 0
                if not window.need(len(window.bytes) + 1):
                    window.drop(len(window.bytes))
                    return False
        return False

    def _begins_record(self, data: bytes | bytearray) -> bool:
        return self.grammar.begins.match(self._beginning(data)) is not None

    def _beginning(self, data: bytes | bytearray) -> bytes:
        """The first bytes of the content of a member that begins with `data`; empty if damaged."""
        decoder, output = self.codec.decoder(), b""
        for at in range(0, len(data), _STEP):
            try:
                output += decoder.decompress(data[at : at + _STEP])
            except _DAMAGE:
                break
            if decoder.eof or len(output) >= self.grammar.head:
                break
        return output

    def leave(self, member: Member) -> str:
        """Move the window past a member that did not decode to its end; what was wrong with it.

        When the file ended inside it, it is taken for damaged, and not for truncated, only if whole
        members follow from within it to the very end of the file: decoding ran on through them.
        """
        window, search = self.window, self.codec.search
        skip = 1 if window.start == member.offset else 0
        if member.ended == "corrupt":
            self.find(skip)
            return "bad_member"
        data = window.bytes
        at = data.find(search, skip)
        while at >= 0:
            if self._begins_record(data[at : at + self.codec.look]) and self._members_fill(at):
                window.drop(at)
                return "bad_member"
            at = data.find(search, at + 1)
        window.drop(len(data))
        return "truncated"

    def _members_fill(self, at: int) -> bool:
        """Whether whole members fill the window from index `at` to its end."""
        data = self.window.bytes
        while at < len(data):
            decoder = self.codec.decoder()
            while not decoder.eof:
                piece = data[at : at + self.codec.piece]
                try:
                    decoder.decompress(piece)
                except _DAMAGE:
                    return False
                if not piece:
                    return False
                at += len(piece)
            at -= len(decoder.unused_data)
        return True
