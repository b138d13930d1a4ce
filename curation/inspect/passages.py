"""What two texts have in common: shared passages, and which word of one stands for which of other.

What may live here: comparison of two texts for a person, in time linear in their length (but for
the sorting of anchors). What a step takes for a duplicate is decided in `curation.dedup`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curation.text.view import TextView

#: Words of a shingle, as near-deduplication compares them (RefinedWeb and FineWeb: 5 words).
SHINGLE = 5
ROUNDS = 4  # of looking for shingles that occur once: each takes time linear in the texts

BASE = np.uint64(0x9E3779B97F4A7C15)  # odd; 2**64 divided by the golden ratio

Shingle = tuple[int, ...]


@dataclass(frozen=True)
class Worded:
    """A text and its words (`curation.text.view`), by offsets in characters; `hashes` are of the
    words without regard to case."""

    text: str
    starts: list[int]
    stops: list[int]
    hashes: NDArray[np.uint64]

    @staticmethod
    def of(text: str) -> Worded:
        view = TextView(pa.array([text], pa.large_string()))
        begins = np.concatenate([[0], np.cumsum(view.data & 0xC0 != 0x80)])  # characters by byte
        words = view.words
        starts, stops = begins[words.starts], begins[words.stops]
        return Worded(text, starts.tolist(), stops.tolist(), words.hashes)

    def __len__(self) -> int:
        return len(self.hashes)

    def spans(self, marks: NDArray[np.bool_]) -> list[tuple[int, int]]:
        """The marked words as passages: [start, stop) in characters, one for each run of them."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], marks, [False]])))
        return [
            (self.starts[first], self.stops[last - 1])
            for first, last in zip(edges[::2], edges[1::2], strict=True)
        ]


@dataclass(frozen=True)
class Block:
    """`length` words of one text, from word `left` on, that are those of the other from `right`."""

    left: int
    right: int
    length: int


def shared(one: Worded, other: Worded) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For each word of either text, whether it is in a shingle that both texts have.

    Shingles are of SHINGLE words; of all words of the shorter text where it has fewer. They are
    compared by 64-bit hashes.
    """
    size = min(SHINGLE, len(one), len(other))
    left, right = _shingle_hashes(one.hashes, size), _shingle_hashes(other.hashes, size)
    return (
        _covered(np.isin(left, right), size, len(one)),
        _covered(np.isin(right, left), size, len(other)),
    )


def _shingle_hashes(hashes: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Polynomials of the words' hashes in an odd base, modulo 2**64."""
    count = len(hashes) - size + 1 if size else 0
    found = np.zeros(count, np.uint64)
    for i in range(size):
        found = found * BASE + hashes[i : i + count]
    return found


def _covered(hits: NDArray[np.bool_], size: int, words: int) -> NDArray[np.bool_]:
    """Which words stand in one of the shingles that are hit."""
    steps = np.zeros(words + 1, np.int64)
    steps[: len(hits)] += hits
    steps[size : size + len(hits)] -= hits
    return np.cumsum(steps)[:words] > 0


def aligned(one: Worded, other: Worded) -> list[Block]:
    """Equal passages in an order that both texts have, none of which overlap.

    As in a patience diff: what both begin and end with, and between these the longest chain of the
    shingles that occur once in each, each grown as far as the words are equal; then the same
    between the blocks of this chain, where more shingles occur once, and so on. A passage that
    stands elsewhere in the other text has no place in the chain.
    """
    return list(_aligned(one.hashes.tolist(), other.hashes.tolist(), 0, 0, ROUNDS))


def _aligned(a: list[int], b: list[int], left: int, right: int, rounds: int) -> Iterator[Block]:
    """The blocks of two runs of words that begin at words `left` and `right` of their texts."""
    most = min(len(a), len(b))
    head = next((i for i in range(most) if a[i] != b[i]), most)
    most -= head
    tail = next((i for i in range(most) if a[-1 - i] != b[-1 - i]), most)
    if head:
        yield Block(left, right, head)
    i, j = head, head
    ends = len(a) - tail, len(b) - tail
    chain = _chain(_anchors(a[i : ends[0]], b[j : ends[1]])) if rounds and most > tail else []
    for at, to in [*((x + head, y + head) for x, y in chain), ends]:
        if at < i or to < j:
            continue  # within the block before
        if chain:
            yield from _aligned(a[i:at], b[j:to], left + i, right + j, rounds - 1)
        length = 0
        while at + length < ends[0] and to + length < ends[1] and a[at + length] == b[to + length]:
            length += 1
        if length:
            yield Block(left + at, right + to, length)
        i, j = at + length, to + length
    if tail:
        yield Block(left + ends[0], right + ends[1], tail)


def _anchors(a: list[int], b: list[int]) -> Iterator[tuple[int, int]]:
    """Where the shingles stand that occur once in each text, in order of the first."""
    once = _once(b)
    for shingle, place in _once(a).items():
        if place >= 0 and (other := once.get(shingle, -1)) >= 0:
            yield place, other


def _once(hashes: list[int]) -> dict[Shingle, int]:
    """Each shingle's place; -1 for those that occur more than once."""
    places: dict[Shingle, int] = {}
    for place, shingle in enumerate(zip(*(hashes[i:] for i in range(SHINGLE)), strict=False)):
        places[shingle] = -1 if shingle in places else place
    return places


def _chain(pairs: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest chain of pairs that ascends in both places; the first ascends already."""
    ends: list[int] = []  # the least second place with which a chain of each length can end
    chains: list[int] = []  # the pair that it is
    before: list[int] = []  # of each pair, the one before it in its chain
    known = list(pairs)
    for i, (_, place) in enumerate(known):
        length = bisect_left(ends, place)
        before.append(chains[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        chains[length : length + 1] = [i]
    found = []
    at = chains[-1] if chains else -1
    while at >= 0:
        found.append(known[at])
        at = before[at]
    return found[::-1]
