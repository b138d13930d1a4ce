"""Two texts beside each other, with what both have marked.

What may live here: layout of pairs for a terminal. Words that stand for each other share a line, so
that the eye can go across; long stretches are shortened in the middle. Where two columns have no
room, the texts stand one above the other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, zip_longest

import numpy as np
import wcwidth

from curation.inspect.passages import Worded, aligned, shared
from curation.inspect.terminal import Terminal, one_line

LEAST = 40  # columns of a text
SEPARATOR = " │ "
MARKS = ("⟦", "⟧")  # around shared passages where there is no bold
BOLD = ("\x1b[1m", "\x1b[0m")
LONG = 480  # columns of a stretch from which on it is shortened
CONTEXT = 180  # columns that are left at each of its ends
LEFT_OUT = 10  # words that it must spare at least
SMALL = 8  # words of a difference that does not end the line
ROWS = 40  # lines of a pair
#: Left-to-right mark: beside the separator it keeps a terminal that reorders right-to-left text
#: from taking both columns for one run of it.
LRM = "\u200e"


@dataclass(frozen=True)
class Piece:
    """A word as it is shown, with the signs that cling to it; `space`, `newline`: what follows."""

    text: str
    shared: bool = False
    space: bool = False
    newline: bool = False


@dataclass(frozen=True)
class Stretch:
    """Pieces of both texts. `locked`: they stand for each other one by one and share lines."""

    left: list[Piece]
    right: list[Piece]
    locked: bool


Line = list[Piece]
Row = tuple[Line, Line]


def beside(texts: tuple[str, str], titles: tuple[str, str], terminal: Terminal) -> list[str]:
    """The lines that show two texts under their titles, none wider than the terminal (or LEAST).

    Two columns where each has LEAST; else the left text, and below it the right one.
    """
    stretches = _compared(*texts)
    if not terminal.bold:
        stretches = _marked(stretches)
    width = (terminal.width - len(SEPARATOR)) // 2
    if width >= LEAST:
        head = ([Piece(titles[0])], [Piece(titles[1])])
        rows = [head, *_cut(_rows(stretches, width))]
        return [_across(row, width, terminal.bold) for row in rows]
    width = max(terminal.width, LEAST)
    above = [Stretch(s.left, [], False) for s in stretches]
    below = [Stretch([], s.right, False) for s in stretches]
    return [
        titles[0],
        *(_shown(line, terminal.bold) for line, _ in _cut(_rows(above, width))),
        titles[1],
        *(_shown(line, terminal.bold) for _, line in _cut(_rows(below, width))),
    ]


# ---------------------------------------------------------------- what is shown


def _compared(left: str, right: str) -> list[Stretch]:
    """Both texts in pieces, stretch by stretch: what they have in common, and what lies between."""
    one, other = Worded.of(left), Worded.of(right)
    marks = shared(one, other)
    a, b = _pieces(one, marks[0]), _pieces(other, marks[1])
    found: list[Stretch] = []
    i = j = 0
    for block in aligned(one, other):
        found += _between(a[i : block.left], b[j : block.right])
        i, j = block.left + block.length, block.right + block.length
        mine, theirs = a[block.left : i], b[block.right : j]
        found.append(Stretch(_shortened(mine), _shortened(theirs), True))
    return [*found, *_between(a[i:], b[j:])]


def _pieces(words: Worded, marks: Sequence[bool]) -> list[Piece]:
    """A piece for each word. Signs between two words belong to the first, but for those that touch
    the second alone, such as an opening quote."""
    cuts = [0]
    for stop, start in zip(words.stops, words.starts[1:], strict=False):
        sign = re.search(r"(?<=\s)\S*$", words.text[stop:start])
        cuts.append(start - len(sign[0]) if sign else start)
    raws = [words.text[i:j] for i, j in zip(cuts, [*cuts[1:], None], strict=True)]
    if not words.text.strip():
        return [Piece("(no text)")]
    pieces = []
    for raw, marked in zip(raws, marks or [False], strict=True):
        end = raw[len(raw.rstrip()) :]
        pieces.append(Piece(one_line(raw), marked, bool(end), "\n" in end))
    return pieces


def _between(left: list[Piece], right: list[Piece]) -> list[Stretch]:
    """What stands between two common passages."""
    if not left and not right:
        return []
    return [Stretch(_shortened(left), _shortened(right), max(len(left), len(right)) <= SMALL)]


def _shortened(pieces: list[Piece]) -> list[Piece]:
    """Both ends of a long stretch, and how many words stand between them."""
    columns = np.cumsum([_width([piece]) + piece.space for piece in pieces])
    if not pieces or columns[-1] <= LONG:
        return pieces
    start = int(np.searchsorted(columns, CONTEXT)) + 1
    stop = int(np.searchsorted(columns, columns[-1] - CONTEXT))
    if stop - start < LEFT_OUT:
        return pieces
    head = [*pieces[: start - 1], replace(pieces[start - 1], newline=True)]
    return [*head, Piece(f"... {stop - start:,} words ...", newline=True), *pieces[stop:]]


def _marked(stretches: list[Stretch]) -> list[Stretch]:
    """The same with MARKS where shared passages begin and end."""
    left = iter(_bracketed([piece for s in stretches for piece in s.left]))
    right = iter(_bracketed([piece for s in stretches for piece in s.right]))
    return [
        Stretch([next(left) for _ in s.left], [next(right) for _ in s.right], s.locked)
        for s in stretches
    ]


def _bracketed(pieces: list[Piece]) -> Iterator[Piece]:
    before = False
    for piece, after in zip(pieces, [*pieces[1:], None], strict=True):
        text = piece.text
        if piece.shared and not before:
            text = MARKS[0] + text
        if piece.shared and not (after and after.shared):
            text += MARKS[1]
        before = piece.shared
        yield replace(piece, text=text)


# ---------------------------------------------------------------- where it is shown


def _rows(stretches: list[Stretch], width: int) -> Iterator[Row]:
    """Lines of both texts. A locked stretch breaks both where either is full or ends a line; of any
    other, each text is filled by itself."""
    row: Row = ([], [])
    for stretch in stretches:
        if not stretch.locked:
            if any(row):
                yield row
            row = ([], [])
            sides = (
                [line for line, _ in _rows([Stretch(pieces, [], True)], width)]
                for pieces in (stretch.left, stretch.right)
            )
            for left, right in zip_longest(*sides):
                yield left or [], right or []
            continue
        for pair in zip_longest(stretch.left, stretch.right):
            for cells in zip_longest(*(_split(piece, width) for piece in pair)):
                fuller = [
                    [*line, cell] if cell else line for line, cell in zip(row, cells, strict=True)
                ]
                if any(_width(line) > width for line in fuller):
                    yield row
                    fuller = [[cell] if cell else [] for cell in cells]
                row = (fuller[0], fuller[1])
            if any(piece is not None and piece.newline for piece in pair):
                yield row
                row = ([], [])
    if any(row):
        yield row


def _split(piece: Piece | None, width: int) -> list[Piece]:
    """A piece in parts that each have room in a line."""
    if piece is None:
        return []
    if wcwidth.width(piece.text) <= width:
        return [piece]
    parts, part = [], ""
    for grapheme in wcwidth.iter_graphemes(piece.text):
        if wcwidth.width(part + grapheme) > width:
            parts.append(part)
            part = ""
        part += grapheme
    return [*(Piece(text, piece.shared) for text in parts), replace(piece, text=part)]


def _cut(rows: Iterator[Row]) -> list[Row]:
    """At most ROWS of them."""
    found = list(islice(rows, ROWS + 1))
    note = [Piece("...")]
    return found if len(found) <= ROWS else [*found[:ROWS], (note, note)]


def _width(line: Line) -> int:
    return wcwidth.width(_shown(line, bold=False))


def _shown(line: Line, bold: bool) -> str:
    """A line, with its shared passages in bold where that is wanted."""
    text = ""
    for marked, run in groupby(line, key=lambda piece: bold and piece.shared):
        passage = "".join(piece.text + " " * piece.space for piece in run)
        if marked:  # the space after it stays plain: at the end of a line there is none
            kept = passage.rstrip(" ")
            passage = kept.join(BOLD) + passage[len(kept) :]
        text += passage
    return text.rstrip(" ")


def _across(row: Row, width: int, bold: bool) -> str:
    left, right = (_shown(line, bold) for line in row)
    gap = " " * (width - _width(row[0]))
    separator = SEPARATOR
    if any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in left + right):
        separator = LRM + SEPARATOR + LRM
    return f"{left}{gap}{separator}{right}".rstrip(" ")
