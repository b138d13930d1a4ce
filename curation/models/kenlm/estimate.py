"""Estimating n-gram models: interpolated modified Kneser-Ney, in memory.

What may live here: from lines of words to the probability and backoff of every n-gram. The numbers
are those of lmplz (Heafield et al. 2013, "Scalable Modified Kneser-Ney Language Model Estimation",
section 3), in its order and in its float32 arithmetic; how they are written is in `arpa.py` and
`binary.py`. Without pruning.

All n-grams come from one sort: the places of the corpus, in order of the `order` tokens that end
there, last token first. The places of one n-gram are then neighbours, whatever its length.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from curation.models.kenlm.kernels import Ints, Longs, compare_neighbours, extend_order

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

#: The first ids of every vocabulary, as in KenLM.
SPECIAL = ("<unk>", "<s>", "</s>")
UNKNOWN, BEGIN, END = range(len(SPECIAL))

#: Words and ends of sentences of the largest corpus that is estimated here; beyond it lmplz, which
#: works on disk.
MAX_WORDS = 50_000_000
TOO_MANY = f"more than {MAX_WORDS:,} words: lmplz is wanted (make lmplz), or fewer words"

#: KenLM is compiled for orders up to this (KENLM_MAX_ORDER).
MAX_ORDER = 6

#: Discounts of lmplz --discount_fallback, for adjusted counts 1, 2, 3 and more.
FALLBACK = (0.5, 1.0, 1.5)

_WORD = re.compile("[^\0\t\n\r ]+")  # what lmplz takes for a word


class EstimationError(ValueError):
    """A corpus that no model can be estimated from; the message is one line."""


class _Vocabulary(dict[str, int]):
    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


@dataclass(frozen=True)
class Corpus:
    """A text as ids of words.

    `tokens`: `<unk>` once, so that it is an n-gram too, then each sentence with `<s>` before it and
    `</s>` after it. `vocabulary`: the word of each id, in order of first appearance. `words`: their
    number, without `<s>` and `</s>`.
    """

    tokens: Ints
    vocabulary: tuple[str, ...]
    words: int

    @classmethod
    def of(cls, lines: Iterable[str]) -> Corpus:
        """The corpus of these lines, a sentence each; an empty line is one, too, as for lmplz.

        The words `<unk>`, `<s>`, `</s>` in a text are passed over (lmplz --skip_symbols). Raises
        EstimationError where there are no lines, or more than MAX_WORDS words.
        """
        vocabulary = _Vocabulary((word, number) for number, word in enumerate(SPECIAL))
        tokens = array("i", [UNKNOWN])
        sentences = 0
        for line in lines:
            tokens.append(BEGIN)
            found = _WORD.findall(line)
            tokens.extend([i for i in map(vocabulary.__getitem__, found) if i > END])
            tokens.append(END)
            sentences += 1
            if len(tokens) - 1 - sentences > MAX_WORDS:
                raise EstimationError(TOO_MANY)
        if not sentences:
            raise EstimationError("no text to estimate a model from")
        words = len(tokens) - 1 - 2 * sentences
        return cls(np.frombuffer(tokens, np.int32), tuple(vocabulary), words)


@dataclass(frozen=True)
class Grams:
    """The n-grams of one order, by their ids, last word first.

    `ends`: where in the tokens each ends, somewhere. `lower`: its last n-1 words, as an index into
    the n-grams of the order before. `probability` and `backoff`: log10; a backoff is 0 where the
    n-gram is no `context`: does not begin a longer one. `suffix`: whether it ends a longer one.
    """

    order: int
    ends: Ints
    lower: Ints
    probability: Floats
    backoff: Floats
    context: Flags
    suffix: Flags


class Estimate:
    """The model of a corpus, n-grams of one order after the other.

    `sizes`: number of n-grams of each order. Memory: about 140 bytes for each word (order 5,
    English; bench/judges_estimator.py), so 7 GB for MAX_WORDS.
    """

    def __init__(
        self, corpus: Corpus, order: int, fallback: tuple[float, float, float] | None = None
    ) -> None:
        """`fallback`: discounts of the orders for which the corpus gives none; by default such a
        corpus is refused (see `grams`)."""
        if not 1 <= order <= MAX_ORDER:
            raise EstimationError(f"order {order}: 1 to {MAX_ORDER} is wanted")
        self.corpus = corpus
        self.order = order
        self._fallback = fallback
        self._places = _sorted(corpus.tokens, len(corpus.vocabulary), order)
        self._depths = np.empty(corpus.tokens.size, np.uint8)
        self._shared = np.empty(corpus.tokens.size, np.uint8)
        compare_neighbours(corpus.tokens, self._places, order, self._depths, self._shared)
        self.sizes = [int(np.count_nonzero(self._first(n))) for n in range(1, order + 1)]

    def grams(self) -> Iterator[Grams]:
        """The n-grams of order 1, 2, ... Raises EstimationError where discounts cannot be had."""
        tokens, places = self.corpus.tokens, self._places
        uniform = np.float32(1 / np.float32(len(self.corpus.vocabulary) - 1))  # without <s>
        probability = np.array([uniform])
        # Which n-gram of the order before ends at a place (by `places`, by the place itself).
        group, ending = np.zeros((2, tokens.size), np.int32)
        known: Grams | None = None
        for order in range(1, self.order + 1):
            first = self._first(order)
            starts = np.flatnonzero(first).astype(np.int32)
            counts = self._adjusted(order, starts)
            discounts = self._discounts(order, counts, starts)
            if order == 1:
                counts[[UNKNOWN, BEGIN]] = 0
            ends, lower = places[starts], group[starts]
            context = ending[ends - 1]
            totals, gammas = _normalised(context, counts, discounts, probability.size)
            if known is not None:
                yield _extended(known, totals, gammas, lower)
            found = _discounted(counts, discounts) / totals[context]
            probability = found + gammas[context] * probability[lower]
            if order == 1:
                probability[BEGIN] = 1  # it is never predicted
            logs = np.minimum(_log10(probability), np.float32(0))
            no = np.zeros(ends.size, bool)
            known = Grams(order, ends, lower, logs, np.zeros_like(logs), no, no)
            group = np.cumsum(first, dtype=np.int32)
            group -= 1
            ending[places] = group
        assert known is not None
        yield known

    def _first(self, order: int) -> Flags:
        """Which places, in order, are the first of an n-gram."""
        return (self._depths >= order) & (self._shared < order)

    def _adjusted(self, order: int, starts: Ints) -> Longs:
        """The adjusted count of each n-gram: how many different words stand before it; how often it
        stands there if it begins with `<s>` or is of the highest order."""
        one = np.where(self._depths > order, self._shared <= order, self._depths == order)
        counts: Longs = np.add.reduceat(one, starts, dtype=np.int64)
        return counts

    def _discounts(self, order: int, counts: Longs, starts: Ints) -> Floats:
        """What is taken from adjusted counts of 0, 1, 2, and 3 and more (Chen and Goodman 1998,
        equation 26)."""
        if order < self.order and self._depths[-1] >= order:
            # lmplz counts the last of the n-grams by how often it stands there, so we do.
            counts = counts.copy()
            counts[-1] = self._depths.size - starts[-1]
        if order == 1:
            counts = counts[END:]
        n = np.bincount(counts[counts < 5], minlength=5).astype(np.float32)
        for count in (1, 2, 3):
            if not n[count]:
                return self._instead(order, f"no {order}-gram has adjusted count {count}")
        y = n[1] / (n[1] + 2 * n[2])
        found = [np.float32(k) - np.float32(k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3)]
        for count, discount in enumerate(found, 1):
            if not 0 <= discount <= count:
                problem = f"the discount of {order}-grams with adjusted count {count} is"
                return self._instead(order, f"{problem} {discount:.3g}")
        return np.array([0, *found], np.float32)

    def _instead(self, order: int, problem: str) -> Floats:
        if self._fallback is None:
            raise EstimationError(
                f"too little text for Kneser-Ney ({problem}): "
                "more text is wanted, or --discount-fallback"
            )
        return np.array([0, *self._fallback], np.float32)


def _sorted(tokens: Ints, vocabulary: int, order: int) -> Ints:
    """All places, in order of the `order` tokens that end there, last token first."""
    sizes = np.bincount(tokens, minlength=vocabulary)
    starts = np.cumsum(sizes) - sizes
    places = np.arange(tokens.size, dtype=np.int32)
    result = np.empty_like(places)
    for _ in range(order):
        extend_order(tokens, starts.copy(), places, result)
        places, result = result, places
    return places


def _discounted(counts: Longs, discounts: Floats) -> Floats:
    return counts.astype(np.float32) - discounts[np.minimum(counts, 3)]


def _normalised(
    context: Ints, counts: Longs, discounts: Floats, contexts: int
) -> tuple[Floats, Floats]:
    """Of each context the sum of the counts after it, and the share that discounts leave to lower
    orders (0 and NaN where it is none)."""
    totals = np.bincount(context, counts, contexts).astype(np.float32)
    left = np.zeros(contexts, np.float32)
    for count in (1, 2, 3):
        which = counts >= 3 if count == 3 else counts == count
        left += discounts[count] * np.bincount(context[which], minlength=contexts).astype(
            np.float32
        )
    with np.errstate(invalid="ignore"):
        return totals, left / totals


def _log10(numbers: Floats) -> Floats:
    """Discounts of 0 may leave nothing: lmplz then writes -inf, which KenLM refuses to read."""
    result: Floats = np.log10(np.maximum(numbers, np.finfo(np.float32).tiny))
    return result


def _extended(grams: Grams, totals: Floats, gammas: Floats, suffixes: Ints) -> Grams:
    """The n-grams, now that those of the next order are known."""
    context = totals > 0
    backoff = np.where(context, _log10(gammas), np.float32(0))
    suffix = np.zeros_like(context)
    suffix[suffixes] = True
    return replace(grams, backoff=backoff, context=context, suffix=suffix)
