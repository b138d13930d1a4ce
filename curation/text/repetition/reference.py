"""The plain Python of `kernels`: slow, and meant to be read.

What may live here: the counts of `curation.text.repetition`, by each definition, over `str`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby

from curation.text import reference
from curation.text.datatrove import reference as datatrove


def lines(text: str, definition: str) -> list[str]:
    if definition == "unicode":
        return [line.text for line in reference.lines(text)]
    return re.split("\n+", text) if definition == "datatrove" else text.split("\n")


def paragraphs(text: str, definition: str) -> list[tuple[str, ...]]:
    """Each paragraph as its lines."""
    if definition == "datatrove":
        return [(piece,) for piece in re.split("\n{2,}", text.strip())]
    found: list[tuple[str, ...]] = []
    for line in reference.lines(text):
        found = [*found, (line.text,)] if line.paragraph else [*found[:-1], (*found[-1], line.text)]
    return found


def duplicates(pieces: Sequence[Hashable], every: bool) -> Iterator[int]:
    """Places of the pieces that occurred before, or (`every`) that occur more than once."""
    counts = Counter(pieces)
    for i, piece in enumerate(pieces):
        if counts[piece] > 1 and (every or piece in pieces[:i]):
            yield i


def words(text: str, definition: str) -> list[tuple[str, int]]:
    """What words are compared by, and their length."""
    if definition == "unicode":
        found = [word.text for word in reference.words(text)]
        return [("".join(map(reference.fold, word)), len(word)) for word in found]
    tokens = datatrove.words(text) if definition == "datatrove" else text.split()
    return [(word, len(word)) for word in tokens]


def ngram_share(text: str, definition: str, n: int) -> float | None:
    """The share of characters in the most common n-gram (n < 5) or in duplicated ones."""
    found = words(text, definition)
    lengths = [length for _, length in found]
    grams = [tuple(word for word, _ in found[i : i + n]) for i in range(len(found) - n + 1)]
    if not grams:
        return None
    if definition == "datatrove":
        chars = _top(grams, lengths) if n < 5 else _walk(grams, lengths)
        return chars / len(text)
    if definition == "dolma" and n >= 5:
        weights = [sum(lengths[i : i + n]) for i in range(len(grams))]
        return sum(weights[i] for i in duplicates(grams, True)) / sum(weights)
    if definition == "dolma":
        (_, count), *_ = Counter(grams).most_common(1)
        first = grams.index(Counter(grams).most_common(1)[0][0])
        return count * sum(lengths[first : first + n]) / sum(lengths)
    (top, count), *_ = Counter(grams).most_common(1)
    places = [
        i
        for i, gram in enumerate(grams)
        if (gram == top and count > 1 if n < 5 else gram in grams[:i])
    ]
    covered = {i + k for i in places for k in range(n)}
    return sum(lengths[i] for i in covered) / sum(lengths)


def _top(grams: list[tuple[str, ...]], lengths: list[int]) -> int:
    """Occurrences of the most common n-gram, times its length with spaces between the words."""
    [(top, count)] = Counter(grams).most_common(1)
    first, n = grams.index(top), len(top)
    return count * (sum(lengths[first : first + n]) + n - 1)


def _walk(grams: list[tuple[str, ...]], lengths: list[int]) -> int:
    """Characters of the n-grams that a walk has met before; it steps over each."""
    met: set[tuple[str, ...]] = set()
    i = chars = 0
    while i < len(grams):
        if grams[i] in met:
            n = len(grams[i])
            chars += sum(lengths[i : i + n])
            i += n
        else:
            met.add(grams[i])
            i += 1
    return chars


def longest_run(pieces: Sequence[Hashable]) -> int:
    """The most equal pieces in a row."""
    return max((len(list(run)) for _, run in groupby(pieces)), default=0)
