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
from collections.abc import Iterator
from contextlib import contextmanager
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
    if not force and (here := _here(entry, to)) is not None:
        return here
    if not entry.files:
        raise FetchFailed(f"nobody publishes it: {entry.command}")
    target = Path(os.path.abspath(to or models.directories()[0])) / entry.name
    before = _identity(target)
    with _staging(target) as place:
        if _identity(target) == before:  # nobody else has fetched it while we waited
            for file in entry.files:
                _download(_mirrored(file.url), file, place / file.name, patience)
            (_put_directory if entry.settings is not None else _put_file)(entry, place, target)
        shutil.rmtree(place)
    return target


def _here(entry: Entry, to: Path | None) -> Path | None:
    """Where a model lies already, if it does. Raises FetchFailed if it is not the published one."""
    if to is not None:
        path = to / entry.name
        if not path.exists():
            return None
    else:
        try:
            path = models.find(entry.name)
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
            path.unlink(missing_ok=True)
    try:
        _verify(path, file)
    except FetchFailed:
        path.unlink()
        raise


def _transfer(url: str, file: File, path: Path, patience: Patience) -> None:
    """The bytes of an object, from those on that are at `path`.

    Beside it lies what the server told of the object, so that no other version is joined to it.
    Raises Unfit where what is there is of another version.
    """
    note = path.with_name(path.name + ".entity")
    known = _noted(note, url) if path.exists() else None
    start = path.stat().st_size if path.exists() and (known or file.sha256) else 0
    source = HttpObject(url, patience, known if start else None)
    with (
        open(path, "ab" if start else "wb", buffering=0) as out,
        Resumed(source, start, patience) as stream,
    ):
        stream.open()
        assert source.entity is not None
        if file.size is not None and source.size not in (None, file.size):
            raise FetchFailed(f"{url}: {source.size} bytes, not the {file.size} that are known")
        _room(path, (source.size or 0) - start)
        if not start:
            note.write_text(json.dumps({"url": url, **asdict(source.entity)}))
        progress = _Progress(file.name, source.size)
        try:
            while piece := stream.read(1 << 20):
                out.write(piece)
                progress.at(stream.offset)
        finally:
            progress.end()
        os.fsync(out.fileno())


def _noted(note: Path, url: str) -> Entity | None:
    """What a server told of an object whose transfer was stopped; None where it can have become
    another one unseen."""
    try:
        found = json.loads(note.read_bytes())
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


def _put_file(entry: Entry, place: Path, target: Path) -> None:
    """One plain file; beside it its digest, where the table has none."""
    [file] = entry.files
    if file.sha256 is None:
        found = models.digest(place / file.name)
        line = f"{found}  {target.name}\n"  # as `sha256sum --check` reads it
        target.with_name(target.name + ".sha256").write_text(line)
        _say_recorded(file, found, target.with_name(target.name + ".sha256"))
    os.replace(place / file.name, target)


def _put_directory(entry: Entry, place: Path, target: Path) -> None:
    """A directory with a card, which names the digest of each file."""
    said: dict[str, Any] = {
        "kind": entry.kind,
        "language": entry.language,
        "license": entry.license,
        "source": f"{entry.source}: {', '.join(file.url for file in entry.files[:2])}"
        + (", ..." if len(entry.files) > 2 else ""),
    }
    with card.new(target, **said) as (directory, settings):
        settings.update(entry.settings or {})
        for file in entry.files:
            if entry.archive:
                settings["archive"] = {"url": file.url, "sha256": models.digest(place / file.name)}
                _unpack(place / file.name, directory)
            else:
                os.replace(place / file.name, directory / file.name)
    for file in entry.files:
        if file.sha256 is None:
            found = settings["archive"]["sha256"] if entry.archive else None
            found = found or card.read(target).files[file.name]
            _say_recorded(file, found, target / card.NAME)


def _say_recorded(file: File, sha256: str, path: Path) -> None:
    _say(f"nobody has published a digest of {file.url}: sha256 {sha256}, recorded in {path}")


# ---------------------------------------------------------------- archives


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


def _unpack(archive: Path, directory: Path) -> None:
    """The regular files of a tar.gz, below `directory`. Raises FetchFailed for a hostile one.

    Links are left out (UT1's are second names of its categories); a path that leads out, a device,
    a second file of the same name or a name of ours is refused, as are too many bytes or members.
    """
    links = 0
    try:
        with (
            gzip.open(archive) as plain,
            tarfile.open(
                fileobj=_Bounded(plain, UNPACKED),  # type: ignore[call-overload]
                mode="r|",
            ) as tar,
        ):
            for number, member in enumerate(tar):
                if number >= MEMBERS:
                    raise FetchFailed(f"more than {MEMBERS} members")
                if member.issym() or member.islnk():
                    links += 1
                elif member.isreg():
                    _extract(tar, member, directory)
                elif not member.isdir():
                    raise FetchFailed(f"{member.name!r} is no file")
    except FetchFailed as error:
        raise FetchFailed(f"{archive.name}: {error}") from None
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, ValueError) as error:
        raise FetchFailed(f"{archive.name}: damaged: {error}") from None
    if links:
        _say(f"{archive.name}: {links} links left out")


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    """One regular file of an archive."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in member.name:
        raise FetchFailed(f"{member.name!r} leads out of it")
    target = directory / path
    if target == directory / card.NAME or target.exists():
        raise FetchFailed(f"{member.name!r} has a name that is taken")
    content = tar.extractfile(member)
    assert content is not None
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

    def end(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
