"""Two texts beside each other, with what both have marked.

What may live here: layout of pairs for a terminal. Words that stand for each other share a line, so
that the eye can go across; long stretches are shortened in the middle. Where two columns have no
room, the texts stand one above the other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice, zip_longest

import numpy as np
import wcwidth
from numpy.typing import NDArray

from curation.inspect.passages import Block, Worded, aligned, shared
from curation.inspect.terminal import Terminal, one_line

LEAST = 40  # columns of a text
SEPARATOR = " │ "
MARKS = ("⟦", "⟧")  # around shared passages where there is no bold
BOLD = ("\x1b[1m", "\x1b[0m")
CONTEXT = 200  # columns that are left at each end of a long stretch
LEFT_OUT = 10  # words between that are worth to be left out
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
    one, other = map(Worded.of, texts)
    marks = zip((one, other), shared(one, other), strict=True)
    left, right = (_Side(words, mark, not terminal.bold) for words, mark in marks)
    stretches = partial(_stretches, left, right, aligned(one, other))
    width = (terminal.width - len(SEPARATOR)) // 2
    if width >= LEAST:
        head = ([Piece(titles[0])], [Piece(titles[1])])
        rows = [head, *_cut(_rows(stretches(), width))]
        return [_across(row, width, terminal.bold) for row in rows]
    width = max(terminal.width, LEAST)
    above = _rows((Stretch(s.left, [], s.locked) for s in stretches()), width)
    below = _rows((Stretch([], s.right, s.locked) for s in stretches()), width)
    return [
        titles[0],
        *(_shown(line, terminal.bold) for line, _ in _cut(above)),
        titles[1],
        *(_shown(line, terminal.bold) for _, line in _cut(below)),
    ]


# ---------------------------------------------------------------- what is shown


@dataclass(frozen=True)
class _Side:
    """One of the texts: a piece for each word. `marked`: with MARKS around shared passages.

    Signs between two words belong to the first, but for those that touch the second alone, such as
    an opening quote. A text without words is one piece.
    """

    words: Worded
    shared: NDArray[np.bool_]
    marked: bool

    def __len__(self) -> int:
        return max(len(self.words), 1)

    def stretch(self, start: int, stop: int) -> list[Piece]:
        """The pieces [start, stop); of a long stretch both ends, and how many words lie between."""
        first = start + self._room(range(start, stop))
        last = stop - self._room(range(stop - 1, first - 1, -1))
        if last - first < LEFT_OUT:
            return [self._piece(i) for i in range(start, stop)]
        end = replace(self._piece(first - 1, closes=True), newline=True)
        note = Piece(f"... {last - first:,} words ...", newline=True)
        return [
            *(self._piece(i) for i in range(start, first - 1)),
            *(end, note, self._piece(last, opens=True)),
            *(self._piece(i) for i in range(last + 1, stop)),
        ]

    def _room(self, order: range) -> int:
        """How many pieces, in this order, fill CONTEXT."""
        columns = 0
        for count, i in enumerate(order):
            if columns >= CONTEXT:
                return count
            piece = self._piece(i)
            columns += wcwidth.width(piece.text) + piece.space
        return len(order)

    def _piece(self, i: int, opens: bool = False, closes: bool = False) -> Piece:
        """One piece; `opens`, `closes`: what stands before or after it is left out."""
        raw = self.words.text[self._cut(i) : self._cut(i + 1)]
        end = raw[len(raw.rstrip()) :]
        text = one_line(raw) or "(no text)"
        shared = bool(len(self.shared) and self.shared[i])
        if shared and self.marked:
            opens = opens or i == 0 or not self.shared[i - 1]
            closes = closes or i + 1 == len(self) or not self.shared[i + 1]
            text = MARKS[0] * opens + text + MARKS[1] * closes
        return Piece(text, shared, bool(end), "\n" in end)

    def _cut(self, i: int) -> int:
        """Where piece `i` begins."""
        if i == 0 or i == len(self):
            return len(self.words.text) if i else 0
        between = self.words.text[self.words.stops[i - 1] : self.words.starts[i]]
        sign = re.search(r"(?<=\s)\S*$", between)
        return self.words.starts[i] - (len(sign[0]) if sign else 0)


def _stretches(left: _Side, right: _Side, blocks: list[Block]) -> Iterator[Stretch]:
    """Both texts: what they have in common, in order, and what lies between."""
    i = j = 0
    for block in [*blocks, Block(len(left), len(right), 0)]:
        if i < block.left or j < block.right:
            small = max(block.left - i, block.right - j) <= SMALL
            yield Stretch(left.stretch(i, block.left), right.stretch(j, block.right), small)
        i, j = block.left + block.length, block.right + block.length
        yield Stretch(left.stretch(block.left, i), right.stretch(block.right, j), True)


# ---------------------------------------------------------------- where it is shown


def _rows(stretches: Iterable[Stretch], width: int) -> Iterator[Row]:
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
