"""The plain Python of `estimate` and `kernels`: slow, and meant to be read.

What may live here: modified Kneser-Ney over dictionaries of n-grams, and what each kernel means.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

Gram = tuple[str, ...]

TINY = float(np.finfo(np.float32).tiny)


def estimate(
    sentences: Sequence[Sequence[str]], order: int, fallback: Sequence[float]
) -> dict[Gram, tuple[float, float]]:
    """Log10 of probability and of backoff (0 where it has none) of every n-gram."""
    padded = [("<s>", *sentence, "</s>") for sentence in sentences]
    raw = [_ngrams(padded, n) for n in range(1, order + 1)]
    last = _last(padded, order)
    probability: dict[Gram, float] = {(): 1 / (len(raw[0]) + 1)}  # of <unk>, too, but not of <s>
    backoff: dict[Gram, float] = {}
    for n in range(1, order + 1):
        counts = _adjusted(raw, n)
        seen = dict(counts)
        if n < order and n <= len(last):  # a slip of lmplz
            seen[last[-n:]] = raw[n - 1][last[-n:]]
        discounts = _discounts(seen.values()) or [0, *fallback]
        following: dict[Gram, list[int]] = defaultdict(list)
        for gram, count in counts.items():
            following[gram[:-1]].append(count)
        for context, found in following.items():
            backoff[context] = sum(discounts[min(count, 3)] for count in found) / sum(found)
        if n == 1:
            counts["<unk>",] = 0
        for gram, count in counts.items():
            context = gram[:-1]
            own = (count - discounts[min(count, 3)]) / sum(following[context])
            probability[gram] = own + backoff[context] * probability[gram[1:]]
        if n == 1:
            probability["<s>",] = 1.0  # it is never predicted
    del probability[()]
    return {
        gram: (math.log10(max(p, TINY)), math.log10(max(backoff.get(gram, 1.0), TINY)))
        for gram, p in probability.items()
    }


def _ngrams(padded: Sequence[Gram], n: int) -> Counter[Gram]:
    """How often each n-gram stands in the text; `<s>` alone is none."""
    grams = Counter(line[i : i + n] for line in padded for i in range(len(line) - n + 1))
    del grams["<s>",]
    return grams


def _last(padded: Sequence[Gram], order: int) -> Gram:
    """The last of the n-grams of this order, or shorter ones from `<s>` on, when they are sorted by
    last word, then the one before, ...; a word goes after those that appeared before it."""
    numbers = {word: i for i, word in enumerate(dict.fromkeys(("<s>", "</s>", *sum(padded, ()))))}
    ends = [line[max(0, i - order) : i] for line in padded for i in range(2, len(line) + 1)]
    return max(ends, key=lambda gram: [numbers[word] for word in reversed(gram)])


def _adjusted(raw: list[Counter[Gram]], n: int) -> dict[Gram, int]:
    """How many words stand before an n-gram; how often it stands in the text if it begins with
    `<s>` or is of the highest order."""
    if n == len(raw):
        return dict(raw[n - 1])
    before = Counter(gram[1:] for gram in raw[n])
    return {g: count if g[0] == "<s>" else before[g] for g, count in raw[n - 1].items()}


def _discounts(counts: Iterable[int]) -> list[float] | None:
    """Chen and Goodman 1998, equation 26; None where it cannot be had. In float32, as in lmplz:
    whether a discount is in range may hang on it."""
    of = Counter(counts)
    if not (of[1] and of[2] and of[3]):
        return None
    n = [np.float32(of[count]) for count in range(5)]
    y = n[1] / (n[1] + 2 * n[2])
    found = [np.float32(k) - np.float32(k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3)]
    inside = all(0 <= discount <= k for k, discount in enumerate(found, 1))
    return [0.0, *map(float, found)] if inside else None


def extend_order(tokens: Sequence[int], places: Sequence[int]) -> list[int]:
    """The places after these, in order of their tokens, else in the order of these."""
    return sorted(((place + 1) % len(tokens) for place in places), key=tokens.__getitem__)


def longest(tokens: Sequence[int], place: int, order: int) -> list[int]:
    """The longest n-gram that ends at a place, last token first."""
    gram = [tokens[place]]
    while len(gram) < order and gram[-1] > 1:
        gram.append(tokens[place - len(gram)])
    return gram


def shared(first: Sequence[int], second: Sequence[int], order: int) -> int:
    """How many leading tokens of the second are those of the first; `order` where all are."""
    for i, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return i
    return order if len(first) >= len(second) else len(first)


def probe(hashes: Sequence[int], size: int) -> list[int]:
    """Slots in a table of this size: from hash modulo size on, the first that is free."""
    taken: list[int] = []
    for value in hashes:
        taken.append(next(s % size for s in range(value % size, size * 2) if s % size not in taken))
    return taken
