"""The plain Python of `estimate` and `kernels`: slow, and meant to be read.

What may live here: modified Kneser-Ney over dictionaries of n-grams, and what each kernel means.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

Gram = tuple[str, ...]


def estimate(
    sentences: Sequence[Sequence[str]], order: int, fallback: Sequence[float]
) -> dict[Gram, tuple[float, float]]:
    """Log10 of probability and of backoff weight (0 where it has none) of every n-gram."""
    padded = [["<s>", *sentence, "</s>"] for sentence in sentences]
    raw = [_ngrams(padded, n) for n in range(1, order + 1)]
    vocabulary = {"<unk>"} | {word for (word,) in raw[0]} - {"<s>"}
    probability: dict[Gram, float] = {(): 1 / len(vocabulary)}
    backoff: dict[Gram, float] = {}
    for n in range(1, order + 1):
        counts = _adjusted(raw, n)
        discounts = _discounts(counts, raw, n, fallback)
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
    probability["<s>",] = 1.0  # it is never predicted
    del probability[()]
    return {
        gram: (math.log10(p), math.log10(backoff.get(gram, 1.0))) for gram, p in probability.items()
    }


def _ngrams(padded: list[list[str]], n: int) -> Counter[Gram]:
    """How often each n-gram stands there; `<s>` alone is none."""
    grams = Counter(tuple(line[i : i + n]) for line in padded for i in range(len(line) - n + 1))
    del grams["<s>",]
    return grams


def _adjusted(raw: list[Counter[Gram]], n: int) -> Counter[Gram]:
    if n == len(raw):
        return Counter(raw[n - 1])
    before = Counter(gram[1:] for gram in raw[n])
    return Counter(
        {g: count if g[0] == "<s>" else before[g] for g, count in raw[n - 1].items()}
    )


def _discounts(
    counts: Counter[Gram], raw: list[Counter[Gram]], n: int, fallback: Sequence[float]
) -> list[float]:
    """Chen and Goodman 1998, equation 26; `fallback` where it cannot be had."""
    seen = Counter(counts)
    if n < len(raw):
        last = _last(raw, n)
        seen[last] = raw[n - 1][last]
    of = Counter(seen.values())
    if of[1] and of[2] and of[3]:
        y = of[1] / (of[1] + 2 * of[2])
        found = [k - (k + 1) * y * of[k + 1] / of[k] for k in (1, 2, 3)]
        if all(0 <= discount <= k for k, discount in enumerate(found, 1)):
            return [0, *found]
    return [0, *fallback]


def _last(raw: list[Counter[Gram]], n: int) -> Gram:
    raise NotImplementedError


def sorted_places(tokens: Sequence[int], order: int) -> list[int]:
    """The places of the tokens in order of the `order` tokens that end there, last token first;
    before the first place comes the last."""
    return sorted(range(len(tokens)), key=lambda i: [tokens[i - back] for back in range(order)])
