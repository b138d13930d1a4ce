"""Lists of domains: what they look like, and how millions of names are held.

What may live here: finding the files of a list, and `DomainList`, its names as sorted hashes with a
label each, 9 bytes a name, memory-mapped from a cache and so shared between processes.

Names are 64-bit hashes. Among 5 million the chance that a host which is not listed is taken for one
that is, is 5e6 / 2**64 = 3e-13 a look-up: in a crawl of 3 billion pages and 10 billion look-ups it
happens once in 370 crawls.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curation import models
from curation.filters.urls import Addresses, kernels, versions
from manifests.files import AtomicFile

#: UT1's categories of which RefinedWeb takes the domains (arXiv 2306.01116, G.1).
CATEGORIES = (
    *("adult", "agressif", "arjel", "chat", "dating"),
    *("ddos", "filehosting", "gambling", "mixed_adult", "phishing"),
)

_FORM = 1  # of compiled lists: bumped when keys change
_CHUNK = 8 << 20  # bytes of a list taken apart at once
_TAR = (".tar", ".tar.gz", ".tgz")


class ListError(ValueError):
    """A list of domains is not one; the message is one line."""


@dataclass(frozen=True)
class Source:
    """A file of a list. `label`: the category of its names, unless it is an archive whose folders
    tell."""

    name: str  # as the run records it
    path: Path
    label: str
    archive: bool = False


def sources(name: str, categories: tuple[str, ...] | None) -> list[Source]:
    """The files of a list given by path or by name. Raises ModelNotFound, ListError.

    A list is a file of names, one a line; a folder with files `domains*` and `urls*`, or with a
    folder of such for each category, as UT1 has it; or a tar archive of these.
    """
    path = models.find(name)
    label = PurePath(name).name.split(".")[0]
    if not path.is_dir():
        return [Source(name, path, label, path.name.endswith(_TAR))]
    if files := _files(path):
        return [Source(f"{name}/{file.name}", file, label) for file in files]
    there = [folder.name for folder in sorted(path.iterdir()) if _files(folder)]
    return [
        Source(f"{name}/{category}/{file.name}", file, category)
        for category in _wanted(path, there, categories)
        for file in _files(path / category)
    ]


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*")) if path.is_file() and _is_part(path.name)]


def _is_part(name: str) -> bool:
    """Whether a file of UT1 has names: beside them lie expressions, and squidGuard's databases."""
    return name.startswith(("domains", "urls")) and not name.endswith(".db")


def _wanted(path: Path, there: Sequence[str], asked: tuple[str, ...] | None) -> list[str]:
    """The categories to be read: those asked for, which must be there; by default of RefinedWeb's
    those that are."""
    missing = sorted({*(asked or ())} - {*there})
    found = [category for category in there if category in (asked or CATEGORIES)]
    if missing or not found:
        known = ", ".join(there) or "none"
        raise ListError(f"{path}: no category {', '.join(missing or CATEGORIES)} (has {known})")
    return found


@dataclass(frozen=True)
class DomainList:
    """The names of a list: keys (ascending, see `kernels.hash_entries`), and the place of each
    one's label in `labels`."""

    keys: NDArray[np.uint64]
    places: NDArray[np.uint8]
    labels: tuple[str, ...]

    def find(self, addresses: Addresses) -> pa.Array:
        """The label of the most specific entry that each address falls under (string), or null.

        A host falls under itself and under its parents down to the registrable domain. It does not
        fall under a public suffix: a list with `github.io` is about that host, not about the sites
        of others there. `.github.io` or `*.github.io` means them too. `name/path` is the beginning
        of an address on just this host, ending where a part of it does, in any case.
        """
        found = np.full(len(addresses), -1, np.int64)
        if len(self.keys):
            starts = addresses.registrable
            kernels.look_up(addresses.data, addresses.spans, starts, self.keys, self.places, found)
        return pa.array(self.labels, pa.string()).take(pa.array(found, mask=found < 0))

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.keys.nbytes + self.places.nbytes


@lru_cache(maxsize=16)
def inline(entries: tuple[str, ...]) -> DomainList:
    """The list of these entries. Raises ListError for one that is none."""
    for entry in entries:
        if os.path.isfile(entry):
            raise ListError(f"{entry!r} is a file: give it alone, not in a list")
        if _compile(entry.encode())[1:] != (1, 1):
            raise ListError(f"{entry!r} is neither a domain nor a URL")
    return _join([("", "\n".join(entries).encode())], "entries")


def load(found: Sequence[Source], categories: tuple[str, ...] | None) -> DomainList:
    """The names of these files, read once per process, compiled once per machine.

    Raises ListError.
    """
    digests = tuple(models.digest(source.path) for source in found)
    return _load_once(tuple(found), categories, digests)


@lru_cache(maxsize=16)
def _load_once(
    found: tuple[Source, ...], categories: tuple[str, ...] | None, digests: tuple[str, ...]
) -> DomainList:
    parts = [(source.label, digest) for source, digest in zip(found, digests, strict=True)]
    identity = repr((_FORM, versions()["idna"], categories, parts))
    name = hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
    path = models.directories()[-1].parent / "lists" / f"{name}.arrow"
    with suppress(OSError, pa.ArrowException):
        return _open(path)
    chunks = (chunk for source in found for chunk in _chunks(source, categories))
    what = ", ".join(str(source.path) for source in found)
    try:
        names = _join(chunks, what)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise ListError(f"{what}: damaged: {error}") from None
    with suppress(OSError, RuntimeError):  # not writable; no home
        _write(path, names)
        return _open(path)
    return names


def _write(path: Path, names: DomainList) -> None:
    batch = pa.record_batch({"key": names.keys, "place": names.places})
    batch = batch.replace_schema_metadata({"labels": json.dumps(names.labels)})
    with AtomicFile(path) as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def _open(path: Path) -> DomainList:
    """A compiled list, of which only what is looked at is read."""
    with pa.memory_map(os.fspath(path)) as file:
        batch = pa.ipc.open_file(file).get_batch(0)
    labels = tuple(json.loads(batch.schema.metadata[b"labels"]))
    return DomainList(batch["key"].to_numpy(), batch["place"].to_numpy(), labels)


def _join(chunks: Iterable[tuple[str, bytes]], what: str) -> DomainList:
    """The names of labelled chunks of lists. A name with several labels has the first one.

    Lines that are neither domains nor URLs are passed over, as real lists have some; where they are
    most of `what`, ListError.
    """
    labels: dict[str, int] = {}
    keys, places = [np.empty(0, np.uint64)], [np.empty(0, np.uint8)]
    lines = good = 0
    for label, chunk in chunks:
        own, read, understood = _compile(chunk)
        lines, good = lines + read, good + understood
        keys.append(own)
        places.append(np.full(len(own), labels.setdefault(label, len(labels)), np.uint8))
        if len(labels) > 255:
            raise ListError(f"{what}: more than 255 categories")
    if good < lines / 2:
        raise ListError(f"{what}: of {lines:,} lines {good:,} have a domain or URL: no such list")
    joined, place = np.concatenate(keys), np.concatenate(places)
    order = np.argsort(joined)
    joined, place = joined[order], place[order]
    new = np.flatnonzero(np.concatenate([[True], joined[1:] != joined[:-1]])[: len(joined)])
    joined, place = joined[new], np.minimum.reduceat(place, new) if len(new) else place
    joined.flags.writeable = place.flags.writeable = False  # one type for kernels, mapped or not
    return DomainList(joined, place, tuple(labels))


def _compile(chunk: bytes) -> tuple[NDArray[np.uint64], int, int]:
    """The keys of the entries in whole lines; how many entries there are, and how many of them
    have a host."""
    data = np.frombuffer(chunk, np.uint8)
    room = int(np.count_nonzero(data <= kernels.SPACE)) + 1
    begins, ends = np.empty((2, room), np.int64)
    number = kernels.split_list(data, begins, ends)
    addresses = Addresses(data, begins[:number].copy(), ends[:number].copy())
    keys = np.empty(2 * number, np.uint64)
    used = kernels.hash_entries(addresses.data, addresses.spans, keys)
    return keys[:used].copy(), number, int(np.count_nonzero(addresses.found))


def _chunks(source: Source, categories: tuple[str, ...] | None) -> Iterator[tuple[str, bytes]]:
    """The content of a file, in whole lines, each with its label."""
    if not source.archive:
        with open(source.path, "rb") as file:
            yield from ((source.label, chunk) for chunk in _lines(file))
        return
    there = set()
    with tarfile.open(source.path, "r|*") as archive:
        for member in archive:
            inside = PurePath(member.name)
            category = inside.parent.name
            if not member.isfile() or not _is_part(inside.name):
                continue
            there.add(category)
            if category and category not in (categories or CATEGORIES):
                continue
            if content := archive.extractfile(member):
                yield from ((category or source.label, chunk) for chunk in _lines(content))
    if "" not in there:
        _wanted(source.path, sorted(there), categories)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """A file, which may be gzip, in chunks of whole lines."""
    plain = io.BufferedReader(file)  # type: ignore[type-var]
    packed = plain.peek(2)[:2] == b"\x1f\x8b"
    stream = gzip.GzipFile(fileobj=plain) if packed else plain
    rest = b""
    while chunk := stream.read(_CHUNK):
        chunk = rest + chunk
        end = chunk.rfind(b"\n") + 1 or len(chunk)
        yield chunk[:end].removeprefix(codecs.BOM_UTF8)
        rest = chunk[end:]
    yield rest
