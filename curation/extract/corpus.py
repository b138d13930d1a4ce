"""Texts and pages to train on: from files and runs, through the readers.

What may live here: which reader a file has, and what is refused. No text is cleaned here but for
what no text may hold: train on what a run kept, where cleaning is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import isfile, join
from typing import Any, Literal

from curation.document import RawDocument
from curation.extract.decode import decode, sanitise
from curation.read import SUFFIXES, read
from curation.read.tally import Tally
from curation.storage import InputError, list_inputs

#: Kinds of files whose documents are texts.
_TEXTS = ("parquet", "jsonl", "text", "wet")


def texts(
    patterns: Sequence[str], tally: Tally, per: Literal["file", "paragraph", "line"] = "file"
) -> Iterator[str]:
    """The texts of files, globs, directories, URLs and finished runs, in order of path.

    JSONL (field `text`), Parquet (column `text`), WET, and text files, which are cut into documents
    by `per`. `tally` counts what is skipped. Raises InputError for what is missing, has no such
    texts, or cannot be read to its end.
    """
    places = [_documents_of(pattern) for pattern in patterns]
    for raw in _documents(places, tally, _TEXTS, {"text": {"per": per}}):
        text = raw.text
        if text is None:
            text = decode(raw.content or b"", raw.charset, "text/plain").text
        yield sanitise(text)[0]


def pages(patterns: Sequence[str], tally: Tally) -> Iterator[RawDocument]:
    """The captured pages of WARC files, as `texts`."""
    return _documents(patterns, tally, ("warc",), {})


def _documents(
    patterns: Sequence[str], tally: Tally, kinds: Sequence[str], options: dict[str, dict[str, Any]]
) -> Iterator[RawDocument]:
    for file in list_inputs(patterns, [suffix for kind in kinds for suffix in SUFFIXES[kind]]):
        kind = next((k for k in kinds if file.path.endswith(SUFFIXES[k])), None)
        if kind is None:
            raise InputError(f"{file.path}: no file of the kinds {', '.join(kinds)}")
        mine = Tally()
        yield from read(kind, file.path, mine, options.get(kind))
        tally.documents += mine.documents
        tally.records += mine.records
        tally.skipped += mine.skipped
        if mine.incomplete:
            reasons = ", ".join(mine.problem_counts)
            raise InputError(f"{file.path}: cannot be read to its end ({reasons})")


def _documents_of(pattern: str) -> str:
    """The files of a run's result, where a run is named."""
    return join(pattern, "documents") if isfile(join(pattern, "run.json")) else pattern
