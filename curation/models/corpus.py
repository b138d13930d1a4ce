"""Texts to train on: from files and runs, through the project's readers.

What may live here: which reader a file has, and what is refused. No text is cleaned here but for
what no text may hold: train on what a run kept, where cleaning is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import isfile, join
from typing import Literal

from curation.document import RawDocument
from curation.extract.decode import decode, sanitise
from curation.read import SUFFIXES, read
from curation.read.tally import Tally
from curation.storage import InputError, list_inputs

#: Kinds of files whose documents are texts.
_KINDS = ("parquet", "jsonl", "text", "wet")


def texts(
    patterns: Sequence[str], tally: Tally, per: Literal["file", "paragraph", "line"] = "file"
) -> Iterator[str]:
    """The texts of files, globs, directories, URLs and finished runs, in order of path.

    JSONL (field `text`), Parquet (column `text`), WET, and text files, which are cut into documents
    by `per`. `tally` counts what is skipped. Raises InputError for what is missing, has no such
    texts, or cannot be read to its end.
    """
    suffixes = [suffix for kind in _KINDS for suffix in SUFFIXES[kind]]
    for file in list_inputs([_documents_of(pattern) for pattern in patterns], suffixes):
        kind = next((k for k in _KINDS if file.path.endswith(SUFFIXES[k])), None)
        if kind is None:
            raise InputError(f"{file.path}: neither JSONL, Parquet, WET nor text (of pages: a run)")
        mine = Tally()
        options = {"per": per} if kind == "text" else {}
        yield from map(_text, read(kind, file.path, mine, options))
        tally.documents += mine.documents
        tally.records += mine.records
        tally.skipped += mine.skipped
        if mine.incomplete:
            reasons = ", ".join(mine.problem_counts)
            raise InputError(f"{file.path}: cannot be read to its end ({reasons})")


def _documents_of(pattern: str) -> str:
    """The files of a run's result, where a run is named."""
    return join(pattern, "documents") if isfile(join(pattern, "run.json")) else pattern


def _text(raw: RawDocument) -> str:
    text = raw.text
    if text is None:
        text = decode(raw.content or b"", raw.charset, "text/plain").text
    return sanitise(text)[0]
