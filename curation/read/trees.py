"""Trees of files: a directory, an archive, or a single file, as names and bytes.

What may live here: walking over what a tree holds, one file after the other, and the bounds that
keep a hostile archive harmless. Nothing is written to disk, so that no name can lead anywhere; what
a file is, its reader knows.

An archive is told by its bytes: zip, or tar, plain or compressed. Files of a directory come folder
by folder, sorted; those of an archive in its order. Links are never followed.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO, NamedTuple, cast

from curation.read.lines import Decompressed
from curation.read.tally import Tally
from curation.storage import tree_entries

#: What an archive may expand to: so many times its own size, and that much in any case. Source code
#: shrinks to about a fifth; zeros by gzip to a thousandth.
MAX_RATIO = 200
MAX_ALWAYS = 1 << 30  # bytes
_MAX_FIELDS = 1 << 20  # bytes of a long name, or of other fields, before a file in a tar

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst")
#: What is a zip archive, and one file all the same.
_ONE_FILE = (".epub",)
#: What `tarfile` and `zipfile` raise for bytes that are not as they should be; not OSError, which
#: is the stream's own.
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    ValueError,
    ArithmeticError,
    LookupError,
    NotImplementedError,
    RecursionError,
    EOFError,
)


class File(NamedTuple):
    """A file of a tree. `name` is its path in the tree; bytes that are no UTF-8 are surrogates."""

    name: str
    data: bytes

    @property
    def shown(self) -> str:
        """The name as text that any encoding can hold."""
        return readable(self.name)


def readable(name: str) -> str:
    """A name with U+FFFD for what is no UTF-8."""
    return os.fsencode(name).decode("utf-8", "replace")


#: Tells of a name and a size in bytes under which reason the file is skipped unread, or None.
Refuse = Callable[[str, int], str | None]
#: What a reader of trees is given: the files, but for those that it refuses.
Files = Callable[[Refuse], Iterator[File]]


def walk(root: str, tally: Tally, refuse: Refuse) -> Iterator[File]:
    """The files of a directory. Those that are not given are counted as skipped, by reason.

    At the end `tally.bytes` has the bytes of all files, and `tally.digest` is that of their names,
    sizes and, where they were read, bytes. A file that cannot be read is a problem of the tree.
    """
    state = hashlib.blake2b(digest_size=16)
    for name, entry in tree_entries(root):
        reason, data, size = None, b"", 0
        if entry.is_symlink():
            reason = "link"
        elif hidden(name):
            reason = "hidden"
        elif not entry.is_file(follow_symlinks=False):
            reason = "not_a_file"
        else:
            size = entry.stat(follow_symlinks=False).st_size
            reason = refuse(name, size)
        if reason is None:
            try:
                with open(entry.path, "rb") as file:
                    data = file.read(size)
            except OSError as error:
                reason = "unreadable"
                tally.problem("unreadable", 0, f"{readable(name)}: {error.strerror}")
        state.update(os.fsencode(f"{name}\0{size}\0{reason or ''}\n") + data)
        tally.bytes += size
        if reason is None:
            yield File(name, data)
        else:
            tally.skip(reason)
    tally.digest = state.hexdigest()


def hidden(name: str) -> bool:
    """Whether a name, or a folder on the way to it, begins with a dot; or macOS put it there."""
    parts = name.split("/")
    return any(
        part == "__MACOSX" or (part.startswith(".") and part not in (".", "..")) for part in parts
    )


class Unpacked:
    """The files of an archive, or a single file, plain or compressed.

    `open_again` gives the same bytes as a file that can be read in any order, which zip needs.
    """

    def __init__(
        self,
        stream: BinaryIO,
        name: str,
        tally: Tally,
        open_again: Callable[[BinaryIO], AbstractContextManager[BinaryIO]],
    ) -> None:
        self.stream = _Ahead(stream, 4)
        self.name = name
        self.tally = tally
        self.open_again = open_again

    def files(self, refuse: Refuse) -> Iterator[File]:
        """The files, in order; those that are not given are counted as skipped, by reason."""
        if self.stream.head.startswith(_ZIP) and not self.name.lower().endswith(_ONE_FILE):
            with self.open_again(cast(BinaryIO, self.stream)) as file:
                yield from _zip(file, self.tally, refuse)
            return
        content = _Content(cast(BinaryIO, self.stream))
        if _begins_tar(content.head):
            yield from _tar(content, self.tally, refuse)
        else:
            yield from self._single(content, refuse)

    def _single(self, content: _Content, refuse: Refuse) -> Iterator[File]:
        """A file by itself; its size is known only when it has been read."""
        name = without_coding(os.path.basename(self.name))
        data, reason = b"", None
        while reason is None and (piece := content.read(1 << 20)):
            data += piece
            reason = refuse(name, len(data))
        reason = reason or refuse(name, len(data))
        if content.damage:
            self.tally.problem(content.damage, content.stored)
            reason = reason or content.damage
        if reason is None:
            yield File(name, data)
        else:
            self.tally.skip(reason)


def is_archive(name: str) -> bool:
    """Whether a file of a tree is an archive or compressed, by its name."""
    return name.lower().endswith(_ARCHIVES)


def inside(file: File, tally: Tally, refuse: Refuse) -> Iterator[File]:
    """The files of an archive that is itself a file of a tree, with their paths below its name.

    Damage in it is a problem, and the tree is complete all the same. Archives in it are not opened.
    """

    @contextmanager
    def again(_: BinaryIO) -> Iterator[BinaryIO]:
        yield io.BytesIO(file.data)

    inner = Tally()
    archive = Unpacked(io.BytesIO(file.data), file.name, inner, again)
    found = 0
    for member in archive.files(refuse):
        found += 1
        yield File(f"{file.name}/{member.name}", member.data)
    for reason, count in inner.skipped.items():
        tally.records += count
        tally.skipped[reason] += count
    for problem in inner.problems:
        tally.problem(problem.reason, 0, f"{file.shown}: {problem.detail}", incomplete=False)
    if not found and not inner.records:
        tally.skip("empty")


def without_coding(name: str) -> str:
    """A name without the ending of a compression."""
    stem, dot, end = name.rpartition(".")
    return stem if dot and end.lower() in ("gz", "bz2", "xz", "zst") else name


class _Ahead:
    """A stream of which the first bytes (`head`) have been looked at."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self.stream = stream
        self.head = self._ahead = b""
        while len(self.head) < size and (piece := stream.read(size - len(self.head))):
            self.head = self._ahead = self.head + piece
        self.bytes = 0  # given so far

    def read(self, size: int = -1) -> bytes:
        if self._ahead:
            cut = len(self._ahead) if size < 0 else size
            data, self._ahead = self._ahead[:cut], self._ahead[cut:]
            data += self.stream.read(-1) if size < 0 else b""
        else:
            data = self.stream.read(size)
        self.bytes += len(data)
        return data


class _Content:
    """The bytes of a file, decompressed, as a stream; `head` are the first 512 of them.

    `damage` is None, or why it ended early: `truncated`, `bad_member`, `expands_too_far`. `stored`:
    the bytes of the file that were read so far.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._counted = _Ahead(stream, 0)
        self._content = Decompressed(cast(BinaryIO, self._counted))
        self._pieces = iter(self._content)
        self._ahead = bytearray()
        self._given = 0
        self._bomb = False
        self.head = self.read(tarfile.BLOCKSIZE)
        self._ahead[:0] = self.head

    def read(self, size: int) -> bytes:
        while len(self._ahead) < size and not self._bomb:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._ahead += piece
            self._given += len(piece)
            self._bomb = self._given > max(MAX_ALWAYS, MAX_RATIO * self.stored)
        data = bytes(self._ahead[:size])
        del self._ahead[:size]
        return data

    @property
    def stored(self) -> int:
        return self._counted.bytes

    @property
    def damage(self) -> str | None:
        return "expands_too_far" if self._bomb else self._content.damage


# ---------------------------------------------------------------- tar


def _begins_tar(head: bytes) -> bool:
    if head == bytes(tarfile.BLOCKSIZE):
        return True  # an archive of nothing
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def _tar(content: _Content, tally: Tally, refuse: Refuse) -> Iterator[File]:
    """The files of a tar archive. One that does not end with a block of zeros is cut or damaged.

    `tarfile` itself takes whatever is no header for the end.
    """
    last = bytearray()  # the block that was last looked at for a header

    class Header(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Header:
            last[:] = buf
            header = super().frombuf(buf, encoding, errors)
            if header.type in _FIELDS and header.size > _MAX_FIELDS:
                raise tarfile.HeaderError("fields that are too large")
            return header

    seen: set[str] = set()
    name, cut = "", False
    try:
        with tarfile.open(
            fileobj=cast(BinaryIO, content),
            mode="r|",
            tarinfo=Header,
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            while (header := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # or it would keep them all
                if header.isdir():
                    continue
                name = header.name.removeprefix("./")
                reason = _refused(header.isreg(), name, header.size, seen, refuse)
                if reason is not None:
                    tally.skip(reason)
                    continue
                try:
                    data = cast(BinaryIO, archive.extractfile(header)).read()
                except DAMAGE:
                    tally.skip("truncated")
                    raise
                yield File(name, data)
    except DAMAGE as error:
        cut = isinstance(error, tarfile.ReadError)
    while content.read(1 << 20):  # so that all of it has been seen to be whole
        pass
    if content.damage or cut or last != bytes(tarfile.BLOCKSIZE):
        cut |= len(last) < tarfile.BLOCKSIZE
        reason = content.damage or ("truncated" if cut else "bad_archive")
        tally.problem(reason, content.stored, f"after {readable(name)}" if name else "")


_FIELDS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def _refused(regular: bool, name: str, size: int, seen: set[str], refuse: Refuse) -> str | None:
    """Why a member of an archive is skipped unread; None where it is to be read."""
    if not regular:
        return "link"
    if hidden(name):
        return "hidden"
    if name in seen:
        return "repeated"
    seen.add(name)
    return refuse(name, size)


# ---------------------------------------------------------------- zip


def _zip(file: BinaryIO, tally: Tally, refuse: Refuse) -> Iterator[File]:
    """The files of a zip archive."""
    try:
        archive = zipfile.ZipFile(file)
    except DAMAGE as error:
        tally.problem("truncated", 0, str(error)[:200])
        return
    stored = file.seek(0, os.SEEK_END)
    given = 0
    seen: set[str] = set()
    for member in archive.infolist():
        name, data = member.filename, b""
        if name.endswith("/"):  # a folder; `is_dir` errs where there is no name
            continue
        regular = not stat.S_ISLNK(member.external_attr >> 16)
        reason = _refused(regular, name, member.file_size, seen, refuse)
        if reason is None and given + member.file_size > max(MAX_ALWAYS, MAX_RATIO * stored):
            tally.problem("expands_too_far", member.header_offset, f"before {name}")
            return
        if reason is None and member.flag_bits & 1:
            reason = "encrypted"
        if reason is None:
            try:
                with archive.open(member) as opened:
                    data = opened.read(member.file_size)
                given += len(data)
            except (*DAMAGE, OSError) as error:  # OSError: what bzip2 says of its bytes
                reason = "bad_member"
                detail = f"{name}: {error}"[:200]
                tally.problem("bad_member", member.header_offset, detail, incomplete=False)
        if reason is None:
            yield File(name, data)
        else:
            tally.skip(reason)
