"""Readers: files of a known kind as raw documents, every record accounted for.

What may live here: the one function `read` and the table of kinds. Each format has a file of its
own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, BinaryIO, NamedTuple, cast

from pydantic import ValidationError

from curation.document import RawDocument
from curation.read.jsonl import JsonlOptions, read_jsonl
from curation.read.parquet import ParquetOptions, read_parquet
from curation.read.tally import Problem, Tally
from curation.read.text import TextOptions, read_text
from curation.read.warc import WarcOptions, read_warc, read_wet
from curation.storage import HashingReader, InputError, is_local, open_input

__all__ = ["KINDS", "SUFFIXES", "Kind", "Problem", "Tally", "read"]


class Kind(NamedTuple):
    """A kind of input: how it is read, its options, the names of its files."""

    reader: Callable[..., Iterator[RawDocument]]
    options: type
    suffixes: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    "warc": Kind(read_warc, WarcOptions, (".warc", ".warc.gz")),
    "wet": Kind(read_wet, WarcOptions, (".wet", ".wet.gz")),
    "parquet": Kind(read_parquet, ParquetOptions, (".parquet",)),
    "jsonl": Kind(
        read_jsonl,
        JsonlOptions,
        tuple(
            f".{name}{end}" for name in ("jsonl", "ndjson", "json") for end in ("", ".gz", ".zst")
        ),
    ),
    "text": Kind(read_text, TextOptions, (".txt", ".txt.gz", ".txt.zst")),
}

#: What names of files end in, by kind: which files of a directory are read.
SUFFIXES: Mapping[str, tuple[str, ...]] = {name: kind.suffixes for name, kind in KINDS.items()}


def read(
    kind: str, path: str, tally: Tally, options: Mapping[str, Any] | None = None
) -> Iterator[RawDocument]:
    """The documents of one file, in order; `tally` is filled while they are taken.

    `options` are fields of the kind's options class. After the last document the file has been read
    to its end, and `tally.digest` and `tally.bytes` are set. What is wrong inside the file is
    counted and never raised. Raises InputError for an unknown kind or option and for a file that
    cannot be used at all; OSError when reading fails.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of input: {kind} (known: {', '.join(KINDS)})")
    reader, make, _ = KINDS[kind]
    try:
        chosen = make(**(options or {}))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InputError(f"input of kind {kind}: option {name}: {first['msg']}") from None
    return _read(kind, reader, path, tally, chosen)


def _read(
    kind: str, reader: Callable[..., Iterator[RawDocument]], path: str, tally: Tally, options: Any
) -> Iterator[RawDocument]:
    with closing(HashingReader(open_input(path))) as stream:
        if kind == "parquet":
            with _seekable(path, stream) as file:
                yield from reader(file, path, tally, options)
        else:
            yield from reader(stream, path, tally, options)
        stream.drain()
        tally.digest, tally.bytes = stream.digest, stream.bytes


@contextmanager
def _seekable(path: str, stream: HashingReader) -> Iterator[BinaryIO]:
    """A file of a format that is read from its end. A remote one is copied to a nameless temporary
    file (in TMPDIR), so that it is transferred once; a local one is digested by itself."""
    if is_local(path):
        with open_input(path) as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
        copy.seek(0)
        yield cast(BinaryIO, copy)
