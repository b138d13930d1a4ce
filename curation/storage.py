"""Where inputs lie and how their bytes are read: local paths, URLs, object stores.

What may live here: listing and opening inputs, and lists of paths. No formats; what happens on the
network lies in `transfer`.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import os
import re
import threading
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from curation.transfer import (
    PATIENCE,
    READ,
    HttpObject,
    Missing,
    Patience,
    Resumed,
    StoreObject,
    TransferError,
    attempt_on,
    one_line,
    persist,
    probe,
    version_of,
)

#: Where a list of paths points to that lies on this machine and whose files do not.
COMMON_CRAWL = "https://data.commoncrawl.org/"
LISTS = (".paths", ".paths.gz")
MAX_LIST = 256 << 20  # bytes of a list of paths, inflated
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
#: A URL with a password before its host, also where the password itself holds odd characters.
_PASSWORD = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*?:[^/?#]*@")
PROBES = 16  # questions about sizes that are asked at once
#: A wrong name of a server is seldom cured by waiting, and a person waits for the listing.
LISTING = replace(PATIENCE, silent=3)


class InputError(ValueError):
    """An input that is not there or cannot be used as asked: one line that names it."""


class MissingInput(InputError):
    """There is no such input."""


@dataclass(frozen=True, order=True)
class InputFile:
    """A file to read. `size` in bytes, None where a server does not tell.

    `version` tells one state of the file from another: mtime in ns of a local file, else the etag
    or the time of change that the store reports ("" where it reports none).
    """

    path: str
    size: int | None
    version: str


def list_inputs(
    patterns: Sequence[str],
    suffixes: Sequence[str],
    limit: int | None = None,
    *,
    patience: Patience = LISTING,
    progress: Callable[[int, int], None] | None = None,
) -> list[InputFile]:
    """The files that paths, globs, directories, URLs and lists of paths stand for, sorted by path,
    each once; with `limit` only the first of them.

    A directory stands for the files in it, at any depth, whose name has one of `suffixes` and which
    are not hidden; without `suffixes` for itself, as a tree of files (on this machine only); a glob
    for all that it matches, directories in the same way; a list (`.paths`, `.paths.gz`) for what
    its lines name. Local paths are kept relative if given so. Sizes that a server must be asked for
    are asked for at last, `PROBES` at once, and `progress` is called with how many are known and
    how many are wanted. Raises InputError for what
    is missing or matches nothing.
    """
    found: dict[str, InputFile] = {}
    asked: dict[str, str] = {}  # by URL: the place in a list that names it
    for pattern, origin in _expanded(patterns, patience):
        with _named_by(origin):
            path = _local_path(pattern)
            if path is not None:
                files = [_local_file(path)] if origin else _list_local(path, tuple(suffixes))
            elif origin or _is_http(pattern):
                asked.setdefault(pattern, origin)
                continue
            else:
                files = _list_store(pattern, tuple(suffixes), patience)
        for file in sorted(files):
            key = file.path if "://" in file.path else os.path.abspath(file.path)
            found[key] = min(found.get(key, file), file)
    wanted = sorted({*found, *asked})[:limit]
    unknown = [key for key in wanted if key not in found]
    for number, file in enumerate(_probed(unknown, asked, patience), 1):
        found[unknown[number - 1]] = file
        if progress:
            progress(number, len(unknown))
    return sorted({found[key] for key in wanted})


def _probed(
    urls: Sequence[str], origins: Mapping[str, str], patience: Patience
) -> Iterator[InputFile]:
    """The files behind URLs, in order. The first that fails ends the listing, pauses included."""
    over = threading.Event()

    def sleep(seconds: float) -> None:
        while seconds > 0:
            if over.is_set():
                raise TransferError("given up")
            patience.sleep(min(seconds, 1))
            seconds -= 1

    def ask(url: str) -> InputFile:
        with _named_by(origins[url]):
            return _stat(url, replace(patience, sleep=sleep))

    pool = ThreadPoolExecutor(PROBES)
    try:
        yield from pool.map(ask, urls)
    finally:
        over.set()
        pool.shutdown(wait=False, cancel_futures=True)


def same_input(file: InputFile, patience: Patience = PATIENCE) -> bool:
    """Whether an input is still what was listed: its size and version. False where it is gone.

    Raises InputError where that cannot be found out.
    """
    try:
        now = _stat(file.path, patience)
    except MissingInput:
        return False
    return (now.size, now.version) == (file.size, file.version)


def open_input(path: str, start: int = 0, patience: Patience = PATIENCE) -> BinaryIO:
    """The bytes of an input from `start` to the last, streamed: no local copy, no seeking.

    Raises InputError if the input cannot be opened. A transfer is resumed where it was interrupted;
    if it ends early in spite of that, `read` raises OSError: it is never taken for the end of the
    file.
    """
    _refuse_password(path)
    local = _local_path(path)
    if local is not None:
        try:
            file = io.FileIO(local)
            file.seek(start)
            return io.BufferedReader(file)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingInput(f"no such file: {path}") from None
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
    source = HttpObject(path, patience) if _is_http(path) else StoreObject(*_filesystem(path), path)
    try:
        return cast(BinaryIO, Resumed(source, start, patience).open())
    except TransferError as error:
        raise _as_input_error(error) from None


def is_local(path: str) -> bool:
    """Whether an input lies in this machine's file system, where it can be read in any order."""
    return _local_path(path) is not None


# ---------------------------------------------------------------- lists of paths


class Line(NamedTuple):
    """A line of a list of paths, and where it stands, for a person: `<list>:<number>`."""

    path: str
    place: str


def read_list(path: str, patience: Patience = LISTING) -> list[Line]:
    """The lines of a list of paths, plain or gzip, but for blank ones.

    Raises InputError that names the list, and the line where one is at fault; MissingInput where
    there is no such list.
    """
    with closing(open_input(path, patience=patience)) as stream:
        try:
            data = b""
            while len(data) < MAX_LIST and (piece := stream.read(READ)):
                data += piece
            if data.startswith(b"\x1f\x8b"):
                data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_LIST)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{path}: damaged: {one_line(error)}") from None
        except OSError as error:
            raise InputError(one_line(error)) from None
    if len(data) >= MAX_LIST:
        raise InputError(f"{path}: longer than a list of paths can be ({MAX_LIST} bytes)")
    lines: list[Line] = []
    for number, raw in enumerate(data.split(b"\n"), 1):
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError:
            raise InputError(f"{path}:{number}: not UTF-8, and so no path") from None
        if not line.isprintable():
            raise InputError(f"{path}:{number}: no path: {line[:80]!r}")
        if line:
            lines.append(Line(line, f"{path}:{number}"))
    if not lines:
        raise InputError(f"{path}: this list names no file")
    return lines


def _expanded(patterns: Sequence[str], patience: Patience) -> Iterator[Line]:
    """The patterns, each list among them replaced by what its lines name; those have a place."""
    for pattern in patterns:
        _refuse_password(pattern)
        if not pattern.endswith(LISTS) or glob.has_magic(pattern):
            yield Line(pattern, "")
            continue
        for line in read_list(pattern, patience):
            with _named_by(line.place):
                resolved = _resolved(pattern, line.path)
                _refuse_password(resolved)
            yield Line(resolved, line.place)


def _resolved(listing: str, line: str) -> str:
    """The path that a line of a list stands for.

    A list that comes over a network cannot name files of this machine: what has no scheme lies on
    its own server. Raises InputError for other schemes than that of the list, http(s) and s3.
    """
    folder = _local_path(listing)
    if folder is not None:
        if os.path.isabs(line) or _SCHEME.match(line):
            return line
        beside = os.path.join(os.path.dirname(folder), line)
        return beside if os.path.exists(beside) else COMMON_CRAWL + line
    scheme, _, rest = listing.partition("://")
    named = _SCHEME.match(line)
    if not named:
        return f"{scheme}://{rest.partition('/')[0]}/{line.lstrip('/')}"
    if named[1].lower() not in (scheme, "http", "https", "s3"):
        raise InputError(f"a list from elsewhere cannot name {line[:200]}")
    return line


@contextmanager
def _named_by(place: str) -> Iterator[None]:
    """Puts the place in a list, if any, before what is wrong with what stands there."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{place}: {error}" if place else str(error)) from None


# ---------------------------------------------------------------- reading


class HashingReader:
    """A stream that takes the digest and the count of all bytes read through it."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.bytes = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self._digest.update(data)
        self.bytes += len(data)
        return data

    def drain(self) -> None:
        """Read what is left, so that digest and count are of the whole file."""
        while self.read(1 << 20):
            pass

    @property
    def digest(self) -> str:
        """blake2b of the bytes read so far, 32 hex digits."""
        return self._digest.hexdigest()

    def close(self) -> None:
        self.stream.close()


# ---------------------------------------------------------------- places


def _local_path(path: str) -> str | None:
    if path.startswith("file:"):
        return urllib.request.url2pathname(urllib.parse.urlsplit(path).path)
    return None if "://" in path else path


def _refuse_password(path: str) -> None:
    """Raises InputError, without the password, for a URL that holds one: paths of inputs are
    written into run.json, receipts and documents."""
    found = _PASSWORD.match(path)
    if found:
        shown = f"{found[1]}...@{path.rpartition('@')[2]}"
        raise InputError(f"{shown[:200]}: no password in a URL, it would be written into documents")


def _is_http(path: str) -> bool:
    return path.startswith(("http://", "https://"))


def _stat(path: str, patience: Patience) -> InputFile:
    """Size and version of one file, whatever its name. Raises InputError; MissingInput."""
    local = _local_path(path)
    if local is not None:
        return _local_tree(local) if os.path.isdir(local) else _local_file(local)
    try:
        if _is_http(path):
            entity = probe(path, patience)
            return InputFile(path, entity.size, entity.version)
        filesystem, inner = _filesystem(path)
        return _store_file(
            filesystem,
            persist(path, lambda: attempt_on(path, lambda: filesystem.info(inner)), patience),
        )
    except TransferError as error:
        raise _as_input_error(error) from None


def _as_input_error(error: TransferError) -> InputError:
    return (MissingInput if isinstance(error, Missing) else InputError)(str(error))


def _list_local(path: str, suffixes: tuple[str, ...]) -> list[InputFile]:
    if os.path.isfile(path):
        return [_local_file(path)]
    if os.path.isdir(path) and not suffixes:
        return [_local_tree(path)]
    if os.path.isdir(path):
        files = [_local_file(name) for name in _walk(path, suffixes)]
        if not files:
            raise InputError(f"no {' or '.join(suffixes)} file in directory {path}")
        return files
    if not glob.has_magic(path):
        raise MissingInput(f"no such file: {path}")
    names: list[str] = []
    for match in glob.glob(path, recursive=True):
        if os.path.isdir(match):
            names += _walk(match, suffixes) if suffixes else [match]
        elif not _is_special(match):
            names.append(match)
    if not names:
        raise InputError(f"nothing matches {path}")
    return [_local_tree(name) if os.path.isdir(name) else _local_file(name) for name in names]


def _walk(root: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        raise InputError(f"cannot list {error.filename}: {error.strerror}")

    for folder, folders, names in os.walk(root, onerror=unreadable):
        if "run.json" in names and "segments" in folders:  # a run of ours, in its own input
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(suffixes) and not name.startswith(".") and not _is_special(path):
                yield path


def _is_special(path: str) -> bool:
    """Whether this is a pipe, a socket or a device: reading it may never end."""
    return os.path.exists(path) and not os.path.isfile(path)


def _local_file(path: str) -> InputFile:
    try:
        status = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        raise MissingInput(f"no such file: {path}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    return InputFile(os.path.normpath(path), status.st_size, str(status.st_mtime_ns))


def tree_entries(root: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What lies in a directory, at any depth, with its path from there: the same order every time.

    Neither links nor hidden directories are followed; both are given as they are. Raises OSError.
    """
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(root, folder)) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
        for entry in entries:
            name = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                folders.append(name + "/")
            else:
                yield name, entry


def _local_tree(path: str) -> InputFile:
    """A directory as an input: all its bytes, and what tells its state from any other."""
    size, state = 0, hashlib.blake2b(digest_size=16)
    try:
        for name, entry in tree_entries(path):
            if entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                size += found.st_size
                line = f"{name}\0{found.st_size}\0{found.st_mtime_ns}\n"
                state.update(os.fsencode(line))
    except OSError as error:
        raise InputError(f"cannot list {error.filename or path}: {error.strerror}") from None
    return InputFile(os.path.normpath(path), size, state.hexdigest())


def _filesystem(url: str) -> tuple[Any, str]:
    """The file system of a URL, as fsspec opens it, and the path in it."""
    try:
        import fsspec

        # Listings are not kept: an object is asked for twice in order to see whether it changed.
        return cast("tuple[Any, str]", fsspec.core.url_to_fs(url, use_listings_cache=False))
    except ImportError as error:
        if url.startswith(("s3://", "s3a://")):
            what = "reading from S3 needs s3fs: pip install 'gristmill[s3]'"
            raise InputError(f"cannot open {url}: {what}") from None
        raise InputError(f"cannot open {url}: {one_line(error)}") from None
    except ValueError as error:
        raise InputError(f"cannot open {url}: {one_line(error)}") from None


def _list_store(url: str, suffixes: tuple[str, ...], patience: Patience) -> list[InputFile]:
    filesystem, inner = _filesystem(url)

    def ask() -> list[Any]:
        """What is known of each file that the URL stands for."""
        if filesystem.isfile(inner):
            return [filesystem.info(inner)]
        if filesystem.isdir(inner):
            found = filesystem.find(inner, detail=True).values()
            found = [info for info in found if _wanted(info["name"][len(inner) :], suffixes)]
        elif glob.has_magic(inner):
            found = filesystem.glob(inner, detail=True).values()
            found = [info for info in found if info["type"] == "file"]
        else:
            raise FileNotFoundError
        # But for the etag, a store may tell other things of a file in a listing than by itself.
        return [info if "ETag" in info else filesystem.info(info["name"]) for info in found]

    try:
        files = persist(url, lambda: attempt_on(url, ask), patience)
    except TransferError as error:
        raise _as_input_error(error) from None
    if not files:
        what = "nothing matches" if glob.has_magic(inner) else f"no {' or '.join(suffixes)} file in"
        raise InputError(f"{what} {url}")
    return [_store_file(filesystem, info) for info in files]


def _wanted(name: str, suffixes: tuple[str, ...]) -> bool:
    hidden = any(part.startswith(".") for part in name.split("/"))
    return name.endswith(suffixes) and not hidden


def _store_file(filesystem: Any, info: Mapping[str, Any]) -> InputFile:
    path = filesystem.unstrip_protocol(info["name"])
    return InputFile(path, info.get("size"), version_of(info))
