"""How much of a text repeats: duplicated lines, paragraphs and n-grams (Rae et al. 2021, Table A1).

What may live here: the counts behind the repetition rules by each of three definitions, kernels
and their plain reference.

The paper names what is measured and not how. The definitions, named as those of words:

`unicode` (as RedPajama v2, which however counts the first occurrence of an n-gram as well). Lines
are those that are not blank, trimmed; paragraphs are runs of them. A duplicate is a line, paragraph
or n-gram that occurred before. Characters are those of lines (or words) alone, and every one counts
once: in the most common n-gram wherever it occurs, 0 where none occurs twice; in duplicates of
n-grams. Words are compared without regard to case.

`datatrove`. Lines are what lies between runs of newlines, paragraphs between runs of two or more in
the stripped text, white space and all. Characters are divided by those of the whole text. An n-gram
of 2 to 4 words counts with its spaces, as often as it occurs (also where it overlaps itself, and
where no n-gram occurs twice: a short text has little else). Those of 5 to 10 words are met in a
walk that steps over each duplicate, so that the first occurrence does not count. Words are compared
as they are written. In the original two n-grams are also equal when their words run together to the
same letters ("ab c", "a bc"); here they are not.

`dolma`. Lines are what lies between newlines, blank ones too; all that occur more than once count,
the first one as well. Characters of words (white-space separated), n-grams that overlap as often as
they occur, divided by those of all n-grams from 5 words on. Those of lines have white space, and
are divided by those of words. No paragraphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curation.text.characters import table
from curation.text.view import Definition, TextView, offsets_of, share

#: Lengths in words for which the most common n-gram counts, and those for which all duplicates do.
TOP_NGRAMS = (2, 3, 4)
DUPLICATED_NGRAMS = (5, 6, 7, 8, 9, 10)


@dataclass(frozen=True)
class Pieces:
    """Lines or paragraphs of a batch; those of document `d` are `offsets[d]:offsets[d + 1]`."""

    offsets: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    lengths: NDArray[np.int32]  # code points


@dataclass(frozen=True)
class Duplicates:
    """Per document, int64."""

    pieces: NDArray[np.int64]
    duplicates: NDArray[np.int64]  # that repeat an earlier piece
    chars: NDArray[np.int64]  # code points of these
    every: NDArray[np.int64]  # that occur more than once, the first one included
    every_chars: NDArray[np.int64]  # code points of these
    total: NDArray[np.int64]  # code points of all pieces


def lines_and_paragraphs(view: TextView) -> tuple[Pieces, Pieces]:
    """The lines and paragraphs of the text view."""
    from curation.text.repetition.kernels import find_paragraphs

    lines, paragraphs = (_Room(view, len(view.data)) for _ in range(2))
    found = find_paragraphs(*_texts(view), *lines.columns, *paragraphs.columns)
    return lines.pieces(found[0]), paragraphs.pieces(found[1])


def between_newlines(
    view: TextView, runs: int | None = None, blank: bool = True, stripped: bool = False
) -> Pieces:
    """What lies between newlines, or between runs of at least so many.

    `blank` says whether pieces of white space count, `stripped` whether white space at both ends of
    a document is left out first. A document without text is one empty piece.
    """
    from curation.text.repetition import kernels

    data, begins, ends, classes = _texts(view)
    if stripped:
        starts, stops = np.empty_like(begins), np.empty_like(ends)
        kernels.strip(data, begins, ends, classes, starts, stops)
        begins, ends = starts, stops
    room = _Room(view, len(data) + len(view))
    return room.pieces(
        kernels.split(
            data, begins, ends, classes, runs or 1, runs is not None, blank, *room.columns
        )
    )


def duplicates(pieces: Pieces) -> Duplicates:
    """How many pieces of each document occur more than once."""
    from curation.text.repetition.kernels import count_duplicates

    counts = np.diff(pieces.offsets)
    slots, repeated = _slots(counts), np.empty(counts.max(initial=0), np.int32)
    found = [np.empty(len(counts), np.int64) for _ in range(5)]
    count_duplicates(pieces.offsets, pieces.hashes, pieces.lengths, slots, repeated, *found)
    return Duplicates(counts, *found)


def longest_runs(pieces: Pieces) -> NDArray[np.int64]:
    """The most equal pieces in a row in each document, 0 where it has none."""
    from curation.text.repetition.kernels import find_longest_runs

    longest = np.empty(len(pieces.offsets) - 1, np.int64)
    find_longest_runs(pieces.offsets, pieces.hashes, longest)
    return longest


def ngram_shares(view: TextView, definition: Definition) -> dict[int, NDArray[np.float64]]:
    """By n: the share of characters in the most common n-gram (2 to 4) or in duplicated ones (5 to
    10) of each document, NaN where it has fewer words."""
    from curation.text.repetition import kernels

    words = view.words_of(definition)
    counts = np.diff(words.offsets)
    most = int(counts.max(initial=0))
    counting = {"unicode": kernels.ONCE, "datatrove": kernels.DATATROVE, "dolma": kernels.DOLMA}
    shape = (len(view), kernels.LAST - kernels.FIRST + 1)
    chars, totals = np.empty(shape, np.int64), np.empty(shape, np.int64)
    kernels.count_ngrams(
        words.offsets,
        words.hashes,
        words.lengths,
        counting[definition],
        np.empty(most, np.uint64),
        *(np.empty(most, np.int32) for _ in range(3)),
        _slots(counts),
        chars,
        totals,
    )
    if definition == "datatrove":
        totals[:] = view.mark_totals.code_points[:, None]
    shares = share(chars, totals)
    shares[chars < 0] = np.nan
    return {n: shares[:, n - kernels.FIRST] for n in (*TOP_NGRAMS, *DUPLICATED_NGRAMS)}


def line_shares(view: TextView, definition: Definition) -> Mapping[str, NDArray[np.float64]]:
    """Shares of duplicated lines and paragraphs, and of their characters; NaN where there are none
    (and for paragraphs by Dolma)."""
    if definition == "dolma":
        lines = duplicates(between_newlines(view))
        none = np.full(len(view), np.nan)
        return {
            "dup_line_fraction": share(lines.every, lines.pieces),
            "dup_paragraph_fraction": none,
            "dup_line_chars": share(lines.every_chars, view.words_of("dolma").code_points()),
            "dup_paragraph_chars": none,
        }
    if definition == "datatrove":
        lines = duplicates(between_newlines(view, runs=1))
        paragraphs = duplicates(between_newlines(view, runs=2, stripped=True))
        line_total = paragraph_total = view.mark_totals.code_points
    else:
        lines, paragraphs = map(duplicates, lines_and_paragraphs(view))
        line_total, paragraph_total = lines.total, paragraphs.total
    return {
        "dup_line_fraction": share(lines.duplicates, lines.pieces),
        "dup_paragraph_fraction": share(paragraphs.duplicates, paragraphs.pieces),
        "dup_line_chars": share(lines.chars, line_total),
        "dup_paragraph_chars": share(paragraphs.chars, paragraph_total),
    }


class _Room:
    """Arrays for the pieces of a batch that a kernel fills."""

    def __init__(self, view: TextView, most: int) -> None:
        self._counts = np.empty(len(view), np.int64)
        self._hashes = np.empty(most, np.uint64)
        self._lengths = np.empty(most, np.int32)

    @property
    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int32]]:
        return self._counts, self._hashes, self._lengths

    def pieces(self, found: int) -> Pieces:
        return Pieces(offsets_of(self._counts), self._hashes[:found], self._lengths[:found])


def _texts(
    view: TextView,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]:
    return view.data, view.begins, view.ends, table()


def _slots(counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Room for the hash table of the longest document (`kernels.room_for`)."""
    most = int(counts.max(initial=1))
    return np.empty(max(16, 1 << (2 * most - 1).bit_length()), np.int32)
