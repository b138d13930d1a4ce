"""Readers: files of a known kind as raw documents, every record accounted for.

What may live here: the one function `read` and the table of kinds. Each format has a file of its
own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, BinaryIO, NamedTuple, cast

from pydantic import ValidationError

from curation.document import RawBatch, RawDocument
from curation.read.books import BooksOptions, read_books
from curation.read.code import CodeOptions, read_code
from curation.read.datatrove import DatatroveOptions, read_datatrove
from curation.read.framing import read_head
from curation.read.jsonl import JsonlOptions, read_jsonl
from curation.read.latex import LatexOptions, read_latex
from curation.read.mediawiki import MediawikiOptions, read_mediawiki
from curation.read.parquet import ParquetOptions, read_parquet
from curation.read.span import WHOLE, Entry, Span, SpanReader
from curation.read.tally import Problem, Tally
from curation.read.text import TextOptions, read_text
from curation.read.trees import Unpacked, walk
from curation.read.warc import WarcOptions, read_warc, read_wet
from curation.storage import InputError, is_local, open_input

__all__ = ["KINDS", "SUFFIXES", "Entry", "Kind", "Problem", "Span", "Tally", "read"]


class Kind(NamedTuple):
    """A kind of input: how it is read, its options, the names of its files.

    `splits`: whether byte ranges of its files can be read. `tree`: whether a directory, an archive
    or a file by itself is one input, out of which files are read.
    """

    reader: Callable[..., Iterator[Any]]
    options: type
    suffixes: tuple[str, ...]
    splits: bool = False
    tree: bool = False


_WARC = (".warc", ".warc.gz", ".warc.zst", ".arc", ".arc.gz")
_JSONL = tuple(
    f".{name}{end}" for name in ("jsonl", "ndjson", "json") for end in ("", ".gz", ".zst")
)
_DUMP = tuple(f".xml{end}" for end in ("", ".gz", ".bz2", ".xz", ".zst"))

KINDS: Mapping[str, Kind] = {
    "warc": Kind(read_warc, WarcOptions, _WARC, splits=True),
    "wet": Kind(read_wet, WarcOptions, (".wet", ".wet.gz"), splits=True),
    "parquet": Kind(read_parquet, ParquetOptions, (".parquet",)),
    "jsonl": Kind(read_jsonl, JsonlOptions, _JSONL),
    "datatrove": Kind(read_datatrove, DatatroveOptions, _JSONL),
    "text": Kind(read_text, TextOptions, (".txt", ".txt.gz", ".txt.zst")),
    "mediawiki": Kind(read_mediawiki, MediawikiOptions, _DUMP),
    "code": Kind(read_code, CodeOptions, (), tree=True),
    "latex": Kind(read_latex, LatexOptions, (), tree=True),
    "books": Kind(read_books, BooksOptions, (), tree=True),
}

#: What names of files end in, by kind: which files of a directory are read. None for trees.
SUFFIXES: Mapping[str, tuple[str, ...]] = {name: kind.suffixes for name, kind in KINDS.items()}


def read(
    kind: str,
    path: str,
    tally: Tally,
    options: Mapping[str, Any] | None = None,
    span: Span | None = None,
) -> Iterator[RawDocument]:
    """The documents of one file, in order; see `read_raw`."""
    return _one_by_one(read_raw(kind, path, tally, options, span))


def _one_by_one(found: Iterator[RawDocument | RawBatch]) -> Iterator[RawDocument]:
    for raw in found:
        if isinstance(raw, RawBatch):
            yield from raw.one_by_one()
        else:
            yield raw


def read_raw(
    kind: str,
    path: str,
    tally: Tally,
    options: Mapping[str, Any] | None = None,
    span: Span | None = None,
) -> Iterator[RawDocument | RawBatch]:
    """The documents of one file, in order, one by one or several at once; `tally` is filled while
    they are taken.

    `options` are fields of the kind's options class. With a `span`, the documents of the records
    that begin in that byte range, for kinds that split. After the last document the file (the
    range) has been read to its end, and `tally.digest` and `tally.bytes` are set. What is wrong
    inside the file is counted and never raised. Raises InputError for an unknown kind or option, a
    span of a kind that does not split, and a file that cannot be used at all; OSError when reading
    fails.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of input: {kind} (known: {', '.join(KINDS)})")
    if span is not None and not KINDS[kind].splits:
        raise InputError(f"input of kind {kind}: byte ranges of its files cannot be read")
    try:
        chosen = KINDS[kind].options(**(options or {}))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InputError(f"input of kind {kind}: option {name}: {first['msg']}") from None
    if KINDS[kind].tree:
        return _read_tree(kind, path, tally, chosen)
    return _read(kind, path, tally, chosen, span or WHOLE)


def _read(
    kind: str, path: str, tally: Tally, options: Any, span: Span
) -> Iterator[RawDocument | RawBatch]:
    reader, splits = KINDS[kind].reader, KINDS[kind].splits
    with closing(open_input(path, span.start)) as opened:
        stream = SpanReader(opened, span)
        try:
            if kind == "parquet":
                with _seekable(path, stream) as file:
                    yield from reader(file, path, tally, options)
            elif splits:
                yield from reader(stream, path, tally, options, span, _head(path, span))
            else:
                yield from reader(stream, path, tally, options)
            stream.drain()
            tally.digest = stream.digest
        finally:
            tally.bytes = stream.bytes  # how far it came, also where it could not be read on


def _read_tree(kind: str, path: str, tally: Tally, options: Any) -> Iterator[RawDocument]:
    reader = KINDS[kind].reader
    if is_local(path) and os.path.isdir(path):
        yield from reader(partial(walk, path, tally), path, tally, options)
        return
    with closing(open_input(path)) as opened:
        stream = SpanReader(opened, WHOLE)
        try:
            archive = Unpacked(cast(BinaryIO, stream), path, tally, partial(_seekable, path))
            yield from reader(archive.files, path, tally, options)
            stream.drain()
            tally.digest = stream.digest
        finally:
            tally.bytes = stream.bytes


def _head(path: str, span: Span) -> bytes:
    """The first bytes of a file of which a later range is read."""
    if span.start == 0:
        return b""
    with closing(open_input(path)) as stream:
        head, error = read_head(stream)
        if error is not None:
            raise error
        return head


@contextmanager
def _seekable(path: str, stream: SpanReader | BinaryIO) -> Iterator[BinaryIO]:
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
