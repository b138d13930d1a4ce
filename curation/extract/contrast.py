"""Texts to learn quality from, out of pages alone: prose, and what lies around it.

What may live here: `contrast`. No label is needed: the rules of extraction have made them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from curation.document import Documents, RawDocument
from curation.extract.stage import Extract

#: Characters from which a line is prose: a sentence or two. (80 and 200 do as well: docs/quality.)
LINE = 120
#: Characters of prose from which a page counts as having some, and of the rest.
PROSE, REST = 800, 200
#: Characters after which a new text is begun: with whole pages on both sides, a classifier learns
#: less (0.80 instead of 0.85 of ROC-AUC on DCLM's judgements).
PROSE_PIECE, REST_PIECE = 2500, 1200
_PAGES = 64


class Sides(NamedTuple):
    """What one page gives: pieces of prose, and of what is not its main content."""

    prose: list[str]
    rest: list[str]


def contrast(pages: Iterable[RawDocument]) -> Iterator[Sides]:
    """The long lines of the main content of each page, and the lines outside it: menus, teasers,
    forms, notices. Short lines of the main content are on neither side.

    Every page gives both sides, so that a classifier cannot tell them by subject or language.
    Pages that cannot be extracted give nothing. Resiliparse gives both: a page's main content and
    all of its text by the same rules.
    """
    main, whole = (
        Extract.model_validate({"engine": "resiliparse", "main_content": only})
        for only in (True, False)
    )
    waiting = iter(pages)
    while batch := list(islice(waiting, _PAGES)):
        docs = Documents(
            {
                "content": pa.array([page.content for page in batch], pa.large_binary()),
                "text": pa.array([page.text for page in batch], pa.large_string()),
                "charset": pa.array([page.charset for page in batch], pa.string()),
                "media_type": pa.array([page.media_type for page in batch], pa.string()),
            }
        )
        texts = (stage.edit(docs).text.to_pylist() for stage in (main, whole))
        for content, everything in zip(*texts, strict=True):
            yield _sides(content or "", everything or "")


def _sides(content: str, everything: str) -> Sides:
    inside = _lines(content)
    known = set(inside)
    return Sides(
        _pieces([line for line in inside if len(line) > LINE], PROSE, PROSE_PIECE),
        _pieces([line for line in _lines(everything) if line not in known], REST, REST_PIECE),
    )


def _lines(text: str) -> list[str]:
    return [stripped for line in text.split("\n") if (stripped := line.strip())]


def _pieces(lines: list[str], least: int, size: int) -> list[str]:
    """Lines joined to texts of just over `size` characters, the last one of at least `REST`; none
    where all lines together have fewer than `least`."""
    if sum(map(len, lines)) < least:
        return []
    pieces: list[str] = []
    begun: list[str] = []
    for line in lines:
        begun.append(line)
        if sum(map(len, begun)) > size:
            pieces.append("\n".join(begun))
            begun = []
    last = "\n".join(begun)
    return [*pieces, last] if len(last) >= REST else pieces
