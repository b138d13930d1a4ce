"""Fetching models: from where they are published to this machine, whole and verified.

What may live here: downloads that go on where they were stopped, unpacking, and putting a model in
its place. What has arrived of a model lies in a hidden directory beside its place, `.NAME.fetch`,
until all of it is there and is what it should be; then the model appears at once. Whoever fetches
holds a lock on that directory: a second one waits, and then finds the model.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
import sys
import tarfile
import time
import urllib.parse
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from curation import models
from curation.models import card
from curation.models.table import Entry, File
from curation.transfer import Entity, HttpObject, Patience, Resumed, Unfit

PATIENCE = Patience(failures=6, silent=3, longest=10)  # somebody waits: half a minute at most
ANEW = 3  # times that a file is begun anew at most, as it changes while it is fetched
EVERY = 5.0  # seconds between lines of progress where nobody watches a terminal
UNPACKED = 4 * 10**9  # bytes that an archive may unpack to; UT1's all categories are far below
MEMBERS = 100_000  # of an archive


class FetchFailed(OSError):
    """A model could not be fetched: one line that says why."""


def fetch(
    entry: Entry, to: Path | None = None, *, force: bool = False, patience: Patience = PATIENCE
) -> Path:
    """Makes sure that a model is here, and returns its path.

    It goes into `to`, else into the first of `models.directories()`; without `to` it is looked for
    everywhere first. `force` fetches it also where it is. What is here is held against the digests
    of the table. Raises FetchFailed, TransferError, or OSError of the disk.
    """
    target = Path(os.path.abspath(to or models.directories()[0])) / entry.name
    before = _identity(target)
    if not force and (here := _here(entry, target if to else None)) is not None:
        return here
    if not entry.files:
        raise FetchFailed(f"nobody publishes it: {entry.command}")
    with _staging(target) as place:
        if _identity(target) == before:  # nobody else has fetched it while we waited
            for file in entry.files:
                _download(_mirrored(file.url), file, place / file.name, patience)
            _put(entry, place, target)
        shutil.rmtree(place)
    return target


def _here(entry: Entry, place: Path | None) -> Path | None:
    """Where a model lies already: at `place`, or anywhere. Raises FetchFailed if it is not the
    published one."""
    try:
        path = models.find(place or entry.name)
    except models.ModelNotFound:
        return None
    if path.is_file() and entry.settings is None:
        _verify(path, entry.files[0], "; --force fetches it anew")
        return path
    try:
        models.digest(path)
    except card.CardError as error:
        raise FetchFailed(f"{error}; --force fetches it anew") from None
    return path


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """The hidden directory beside `target`, locked; whoever empties it of its work removes it."""
    place = target.with_name(f".{target.name}.fetch")
    waited = False
    while True:
        place.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(place, os.O_RDONLY)
        except FileNotFoundError:  # just removed by who has ended
            continue
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waited:
                    _say(f"{target}: another process fetches it; waiting")
                waited = True
                fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                mine = os.path.samestat(os.fstat(handle), place.stat())
            except FileNotFoundError:
                mine = False
            if mine:
                yield place
                return
        finally:
            os.close(handle)


# ---------------------------------------------------------------- one file


def _mirrored(url: str) -> str:
    """The address to ask: GRISTMILL_MODELS_MIRROR stands for scheme and host, if it is set."""
    mirror = os.environ.get("GRISTMILL_MODELS_MIRROR", "").rstrip("/")
    return mirror + urllib.parse.urlsplit(url).path if mirror else url


def _download(url: str, file: File, path: Path, patience: Patience) -> None:
    """Fetches a file to `path`, going on with what is there of it, and verifies it.

    Raises FetchFailed, with the file removed, where its digest or size is not that of the table.
    """
    for attempt in range(ANEW):
        try:
            _transfer(url, file, path, patience)
            break
        except Unfit:
            if attempt == ANEW - 1:
                raise
            _forget(path)
    try:
        _verify(path, file)
    except FetchFailed:
        _forget(path)
        raise


def _transfer(url: str, file: File, path: Path, patience: Patience) -> None:
    """The bytes of an object, from those on that are at `path`.

    Beside it lies what the server told of the object, so that no other version is joined to it.
    Raises Unfit where what is there is of another version.
    """
    known = _noted(path, url)
    start = path.stat().st_size if known else 0
    source = HttpObject(url, patience, known)
    with Resumed(source, start, patience) as stream:
        stream.open()
        assert source.entity is not None
        if file.size is not None and source.size not in (None, file.size):
            raise FetchFailed(f"{url}: {source.size} bytes, not the {file.size} that are known")
        _room(path, (source.size or 0) - start)
        if not start:
            _forget(path)
            _note(path).write_text(json.dumps({"url": url, **asdict(source.entity)}))
        progress = _Progress(file.name, source.size)
        with open(path, "ab", buffering=0) as out, closing(progress):
            while piece := stream.read(1 << 20):
                out.write(piece)
                progress.at(stream.offset)
            os.fsync(out.fileno())


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".entity")


def _forget(path: Path) -> None:
    """Removes what there is of a file; its note last, without which it is not gone on with."""
    path.unlink(missing_ok=True)
    _note(path).unlink(missing_ok=True)


def _noted(path: Path, url: str) -> Entity | None:
    """What a server told of an object of which there is a part; None where it can have become
    another one unseen."""
    try:
        path.stat()
        found = json.loads(_note(path).read_bytes())
        entity = Entity(found["size"], found["etag"], found["modified"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return entity if entity.version and found["url"] == url else None


def _room(path: Path, wanted: int) -> None:
    """Says before a long transfer that there is no room for it. Raises FetchFailed."""
    free = shutil.disk_usage(path.parent).free
    if wanted > free:
        raise FetchFailed(f"{path.parent}: {_mb(wanted)} are wanted, {_mb(free)} are free")


def _verify(path: Path, file: File, hint: str = "") -> None:
    """Holds a file against size and digest of the table. Raises FetchFailed."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise FetchFailed(f"{path}: {size} bytes, {file.size} are known{hint}")
    if file.sha256 is not None and (found := models.digest(path)) != file.sha256:
        raise FetchFailed(f"{path}: sha256 {found}, {file.sha256} is known{hint}")


# ---------------------------------------------------------------- into place


def _put(entry: Entry, place: Path, target: Path) -> None:
    """What has arrived in `place`, at `target`: one plain file, or a directory with a card."""
    ready = place / "ready"
    if entry.settings is None:
        [file] = entry.files
        os.replace(place / file.name, ready)
    else:
        _make_directory(entry, place, ready)
    if target.is_dir() or ready.is_dir():  # of which one cannot take the other's place at once
        shutil.rmtree(place / "old", ignore_errors=True)  # of a fetch that was killed just here
        with suppress(FileNotFoundError):
            os.rename(target, place / "old")
    os.replace(ready, target)
    for file in entry.files:
        if file.sha256 is None:
            _say(
                f"no digest of {file.url} is published; {target / card.NAME} has that of what came"
            )


def _make_directory(entry: Entry, place: Path, ready: Path) -> None:
    """A directory with a card, which names the digest of each file, and that of an archive."""
    urls = ", ".join(file.url for file in entry.files[:2]) + ", ..." * (len(entry.files) > 2)
    said: dict[str, Any] = {"kind": entry.kind, "language": entry.language}
    said |= {"license": entry.license, "source": f"{entry.source}: {urls}"}
    with card.new(ready, **said) as (directory, settings):
        settings.update(entry.settings or {})
        for file in entry.files:
            path = place / file.name
            if entry.archive:
                settings["archive"] = models.digest(path)
                _unpack(path, entry.archive, directory)
            else:
                _share(path, directory / file.name)


def _share(path: Path, name: Path) -> None:
    """Another name of a file, so that it stays where it has arrived until all is done."""
    try:
        os.link(path, name)
    except OSError:  # a file system without such names
        os.replace(path, name)


# ---------------------------------------------------------------- archives


#: What reading a damaged archive raises.
_DAMAGED = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError)


class _Bounded:
    """A stream that ends with an error after so many bytes."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        self._stream, self._left = stream, limit

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise FetchFailed("unpacks to more than any list has")
        return data


def _unpack(archive: Path, folder: str, directory: Path) -> None:
    """The regular files in a folder of a tar.gz, into `directory`. Raises FetchFailed.

    Links are left out (UT1's are second names of its categories). A path that leads out, a device,
    a name that is taken, and more bytes or members than any list has are refused.
    """
    links = 0
    try:
        with (
            gzip.open(archive) as plain,
            tarfile.open(fileobj=_Bounded(plain, UNPACKED), mode="r|") as tar,  # type: ignore[call-overload]
        ):
            for number, member in enumerate(tar):
                if number >= MEMBERS:
                    raise FetchFailed(f"more than {MEMBERS:,} members")
                links += member.issym() or member.islnk()
                if member.isreg():
                    _extract(tar, member, folder, directory)
                elif not (member.isdir() or member.issym() or member.islnk()):
                    raise FetchFailed(f"{member.name!r} is no file")
        if not any(directory.iterdir()):
            raise FetchFailed(f"no files in {folder}/")
    except FetchFailed as error:
        _forget(archive)
        raise FetchFailed(f"{archive.name}: {error}") from None
    except (*_DAMAGED, FileExistsError, NotADirectoryError) as error:
        _forget(archive)
        raise FetchFailed(f"{archive.name}: damaged: {error}") from None
    if links:
        _say(f"{archive.name}: {links} links left out")


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: str, directory: Path) -> None:
    """One regular file of an archive, if it lies in the folder that is wanted."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\0" in member.name:
        raise FetchFailed(f"{member.name!r} leads out of it")
    if path.parts[:1] != (folder,) or len(path.parts) < 2:
        return
    target = directory.joinpath(*path.parts[1:])
    if target == directory / card.NAME or target.exists():
        raise FetchFailed(f"{member.name!r}: the name is taken")
    content = tar.extractfile(member)
    assert content is not None  # of a regular file
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "xb") as out:
        shutil.copyfileobj(content, out, 1 << 20)


# ---------------------------------------------------------------- what is said


def _say(line: str) -> None:
    print(f"curation: {line}", file=sys.stderr, flush=True)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


class _Progress:
    """One live line on a terminal, a plain line every few seconds elsewhere."""

    def __init__(self, name: str, size: int | None) -> None:
        self._name, self._size = name, size
        self._live = sys.stderr.isatty()
        self._said = time.monotonic()

    def at(self, offset: int) -> None:
        now = time.monotonic()
        if now - self._said < (0.2 if self._live else EVERY):
            return
        self._said = now
        of = f" of {_mb(self._size)}" if self._size else ""
        start, end = ("\r\x1b[K", "") if self._live else ("", "\n")
        print(f"{start}{self._name}: {_mb(offset)}{of}", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
