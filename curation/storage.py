"""Where inputs lie and how their bytes are read: local paths, URLs, object stores.

What may live here: listing and opening inputs; atomic writes. No formats.
"""

from __future__ import annotations

import glob
import hashlib
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any, BinaryIO, cast

# ---------------------------------------------------------------- reading

USER_AGENT = "gristmill"
TIMEOUT = 60  # seconds without a byte from a server


class InputError(ValueError):
    """An input that is not there or cannot be used as asked: one line that names it."""


@dataclass(frozen=True, order=True)
class InputFile:
    """A file to read. `size` in bytes, None where a server does not tell.

    `version` tells one state of the file from another: mtime in ns of a local file, else the etag
    or the time of change that the store reports ("" where it reports none).
    """

    path: str
    size: int | None
    version: str


def list_inputs(patterns: Sequence[str], suffixes: Sequence[str]) -> list[InputFile]:
    """The files that paths, globs, directories and URLs stand for, sorted by path, each once.

    A directory stands for the files in it, at any depth, whose name has one of `suffixes` and which
    are not hidden; a glob for all that it matches, directories in the same way. Local paths are
    kept relative if given so. Raises InputError for what is missing or matches nothing.
    """
    found: dict[str, InputFile] = {}
    urls: list[str] = []
    for pattern in patterns:
        path = _local_path(pattern)
        if path is not None:
            files = _list_local(path, tuple(suffixes))
        elif pattern.startswith(("http://", "https://")):
            urls.append(pattern)
            continue
        else:
            files = _list_remote(pattern, tuple(suffixes))
        for file in sorted(files):
            key = file.path if "://" in file.path else os.path.abspath(file.path)
            found[key] = min(found.get(key, file), file)
    with ThreadPoolExecutor(16) as pool:
        for file in pool.map(_probe, sorted(set(urls))):
            found[file.path] = file
    return sorted(found.values())


def same_input(file: InputFile) -> bool:
    """Whether an input is still what was listed: its size and version. False where it is gone."""
    try:
        [now] = list_inputs([file.path], ())
    except InputError:
        return False
    return (now.size, now.version) == (file.size, file.version)


def open_input(path: str, start: int = 0) -> BinaryIO:
    """The bytes of an input from offset `start` to the end, streamed: no local copy.

    Raises InputError if the input cannot be opened. A transfer that ends early raises OSError from
    `read`; it is never taken for the end of the file.
    """
    local = _local_path(path)
    if local is not None:
        try:
            file = open(local, "rb")  # noqa: SIM115
            file.seek(start)
            return file
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
    if path.startswith(("http://", "https://")):
        response = _request(path)
        if response.status != 200:
            response.close()
            raise InputError(f"cannot read {path}: HTTP status {response.status}")
        return cast(BinaryIO, _Response(response))
    return open_seekable(path)


def open_seekable(path: str) -> BinaryIO:
    """An input for formats that are read from their end: seeks where its store can.

    Raises InputError if the input cannot be opened.
    """
    local = _local_path(path)
    if local is not None:
        return open_input(path)
    filesystem, inner = _filesystem(path)
    try:
        return cast(BinaryIO, filesystem.open(inner, "rb"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {_one_line(error)}") from None


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


class _Response:
    """An HTTP body that does not pass a broken connection off as the end of the file."""

    def __init__(self, response: Any) -> None:
        self.response = response
        length = response.headers.get("Content-Length")
        self.left = int(length) if length and length.isdigit() else None

    def read(self, size: int = -1) -> bytes:
        data: bytes = self.response.read(None if size < 0 else size)
        if self.left is not None:
            self.left -= len(data)
            if self.left > 0 and (not data or size < 0):
                raise OSError(f"{self.response.url}: connection ended {self.left} bytes early")
        return data

    def close(self) -> None:
        self.response.close()

    def __enter__(self) -> _Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _local_path(path: str) -> str | None:
    if path.startswith("file:"):
        return urllib.request.url2pathname(urllib.parse.urlsplit(path).path)
    return None if "://" in path else path


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _list_local(path: str, suffixes: tuple[str, ...]) -> list[InputFile]:
    if os.path.isfile(path):
        return [_local_file(path)]
    if os.path.isdir(path):
        files = [_local_file(name) for name in _walk(path, suffixes)]
        if not files:
            raise InputError(f"no {' or '.join(suffixes)} file in directory {path}")
        return files
    if not glob.has_magic(path):
        raise InputError(f"no such file: {path}")
    names: list[str] = []
    for match in glob.glob(path, recursive=True):
        if os.path.isdir(match):
            names += _walk(match, suffixes)
        elif not _is_special(match):
            names.append(match)
    if not names:
        raise InputError(f"nothing matches {path}")
    return [_local_file(name) for name in names]


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
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    return InputFile(os.path.normpath(path), status.st_size, str(status.st_mtime_ns))


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        import fsspec

        return cast("tuple[Any, str]", fsspec.core.url_to_fs(url))
    except (ImportError, ValueError) as error:
        raise InputError(f"cannot open {url}: {_one_line(error)}") from None


def _list_remote(url: str, suffixes: tuple[str, ...]) -> list[InputFile]:
    filesystem, inner = _filesystem(url)
    try:
        if filesystem.isfile(inner):
            names, what = [inner], "no such file"
        elif filesystem.isdir(inner):
            names, what = filesystem.find(inner), f"no {' or '.join(suffixes)} file in"
            names = [name for name in names if _wanted(name[len(inner) :], suffixes)]
        elif glob.has_magic(inner):
            names, what = filesystem.glob(inner), "nothing matches"
            names = [name for name in names if filesystem.isfile(name)]
        else:
            names, what = [], "no such file"
        if not names:
            raise InputError(f"{what}: {url}" if what == "no such file" else f"{what} {url}")
        return [_remote_file(filesystem, name) for name in names]
    except OSError as error:
        raise InputError(f"cannot list {url}: {_one_line(error)}") from None


def _wanted(name: str, suffixes: tuple[str, ...]) -> bool:
    hidden = any(part.startswith(".") for part in name.split("/"))
    return name.endswith(suffixes) and not hidden


def _remote_file(filesystem: Any, name: str) -> InputFile:
    info = filesystem.info(name)
    keys = (
        "ETag",
        "etag",
        "md5Hash",
        "generation",
        "LastModified",
        "last_modified",
        "mtime",
        "created",
    )
    version = next((str(info[key]) for key in keys if info.get(key)), "")
    return InputFile(filesystem.unstrip_protocol(name), info.get("size"), version)


def _request(url: str, **headers: str) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT, **headers})
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        raise InputError(f"cannot read {url}: HTTP status {error.code}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(f"cannot read {url}: {' '.join(str(reason).split())}") from None


def _probe(url: str) -> InputFile:
    """Size and version of a URL by asking for its first byte: what every server answers."""
    with _request(url, Range="bytes=0-0") as response:
        headers: Message = response.headers
        total = headers.get("Content-Length", "")
        if response.status == 206:
            total = headers.get("Content-Range", "").rpartition("/")[2]
        version = headers.get("ETag") or headers.get("Last-Modified") or ""
        return InputFile(url, int(total) if total.isdigit() else None, version)
