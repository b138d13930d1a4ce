"""Span corruption: spans of tokens are taken out, and predicted after what is left (T5).

What may live here: the numbers that objectives draw, how spans are drawn, and how pieces are
written without and with them (C. Raffel et al., Exploring the Limits of Transfer Learning with a
Unified Text-to-Text Transformer, 2020). A piece `a b c d e f` of which `b c` and `e` are taken is
written as `a <0> d <1> f`, which all of it may see, and `<0> b c <1> e <2>`, which is predicted.
"""

from __future__ import annotations

import numpy as np

from manifests.hashing import mix64, salt
from manifests.rows import Rows
from training import config as knobs
from training.layout import before, counted, sums

MULTIPLE = 16  # rows are filled up to a multiple of this, as kernels of matrix products like it

_BITS = 20  # of places, and of the draws that they are chosen by: rows of a million tokens


def drawn(seed: int, purpose: str, samples: np.ndarray, places: np.ndarray) -> np.ndarray:
    """64 random bits that belong to a seed, a purpose, a sample and a place in its row: uint64, of
    the shape that samples and places have together."""
    with np.errstate(over="ignore"):
        own = mix64(samples.astype(np.uint64) + np.uint64(salt(seed, "objective", purpose)))
    return mix64(own ^ places.astype(np.uint64))


class Spans:
    """Span corruption with the sentinels (ids, in their order) of a tokenizer."""

    def __init__(
        self, objective: knobs.Objective, sentinels: np.ndarray, fill: int, seed: int
    ) -> None:
        self.share, self.mean = objective.mask_share, objective.span_length
        self.sentinels, self.fill, self.seed = sentinels, fill, seed

    def length(self, length: int) -> int:
        """Tokens that suffice for a row of `length`, however it is divided into pieces: a span
        costs two sentinels, a piece that has some one more."""
        tokens = np.arange(1, length + 1)
        _, spans = self.noise(tokens)
        grown = length + int(length * float(((2 * spans + (spans > 0)) / tokens).max()))
        return -(-grown // MULTIPLE) * MULTIPLE

    def noise(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many of so many ordinary tokens are taken out, and in how many spans; both int64.

        None where mask_share is less than a mean span: many short pieces would otherwise make rows
        much longer. One sentinel is the last; where there are too few for the spans, there are
        fewer spans of the same mean length.
        """
        most = len(self.sentinels) - 1
        noise = np.floor(np.minimum(tokens * self.share, most * self.mean) + 0.5).astype(np.int64)
        spans = np.floor(noise / self.mean + 0.5).astype(np.int64)
        spans = np.minimum(spans, np.minimum(noise, tokens - noise + 1))
        spans[tokens * self.share < self.mean] = 0
        return np.where(spans > 0, noise, 0), spans

    def __call__(
        self, rows: Rows, samples: np.ndarray, ordinary: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The written rows (rows, length) int64, the lengths of their pieces, and how many tokens
        of each are seen and not predicted. `ordinary`: entries that may be taken out."""
        counts, lengths = np.diff(rows.starts), rows.lengths.astype(np.int64)
        row = np.repeat(np.arange(len(counts)), counts)
        tokens = rows.tokens[np.arange(rows.tokens.shape[1]) < rows.filled()[:, None]]
        taken, heads = self.taken(
            lengths, ordinary[tokens], samples[row], before(counts, rows.lengths)
        )
        length = self.length(rows.tokens.shape[1])
        left = lengths - sums(lengths, taken) + sums(lengths, heads)
        spans = sums(lengths, heads)
        ahead = sums(lengths, taken) + spans + (spans > 0)
        begins = row * length + before(counts, left + ahead)
        written = np.full(len(counts) * length, self.fill, np.int64)
        number = before(lengths, heads)  # at a head, which span of its piece it is
        visible = ~taken | heads
        place = np.repeat(begins, lengths) + before(lengths, visible)
        shown = np.where(heads, self.sentinels[np.where(heads, number, 0)], tokens)
        written[place[visible]] = shown[visible]
        place = np.repeat(begins + left, lengths) + before(lengths, taken) + number
        written[place[heads]] = self.sentinels[number[heads]]
        written[(place + heads)[taken]] = tokens[taken]
        last = (begins + left + ahead - 1)[spans > 0]
        written[last] = self.sentinels[spans[spans > 0]]
        return written.reshape(-1, length), left + ahead, left

    def taken(
        self, lengths: np.ndarray, ordinary: np.ndarray, samples: np.ndarray, begins: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which tokens are taken out, and which of them are the first of a span: both bool.

        `lengths`, `samples`, `begins`: of each piece, its first token's place in its row included;
        `ordinary`: of each token, whether it may be taken. All ways to set the spans between the
        tokens that stay, and all lengths of spans that add up, are equally likely.
        """
        own = sums(lengths, ordinary)
        noise, spans = self.noise(own)
        gaps = np.where(spans > 0, own - noise + 1, 0)
        chosen = self._chosen("gaps", gaps, spans, samples, begins)
        gap = counted(gaps)[chosen]  # of each span: how many tokens before it stay
        place = counted(noise)
        begin = place == 0
        begin[~begin] = self._chosen(
            "breaks", np.maximum(noise - 1, 0), np.maximum(spans - 1, 0), samples, begins
        )
        place += gap[np.cumsum(begin) - 1] + np.repeat(np.cumsum(own) - own, noise)
        taken = np.zeros(len(ordinary), bool)
        taken[np.flatnonzero(ordinary)[place]] = True
        # A special token divides the span that it is in; what is then too many is left in place.
        heads = taken & ~(np.roll(taken, 1) & (counted(lengths) > 0))
        taken &= before(lengths, heads) + heads <= np.repeat(spans, lengths)
        return taken, heads & taken

    def _chosen(
        self,
        purpose: str,
        slots: np.ndarray,
        wanted: np.ndarray,
        samples: np.ndarray,
        begins: np.ndarray,
    ) -> np.ndarray:
        """Which of the slots of each piece are chosen, `wanted` of them: those with the lowest
        draws (bool, one piece after the other)."""
        place = counted(slots)
        draws = drawn(
            self.seed, purpose, np.repeat(samples, slots), np.repeat(begins, slots) + place
        )
        low = draws >> np.uint64(64 - _BITS) << np.uint64(_BITS) | place.astype(np.uint64)
        piece = np.arange(len(slots), dtype=np.uint64) << np.uint64(2 * _BITS)
        keys = np.repeat(piece, slots) | low
        some = wanted > 0
        bounds = np.zeros(len(slots), np.uint64)
        bounds[some] = np.sort(keys)[(np.cumsum(slots) - slots + wanted - 1)[some]] + np.uint64(1)
        chosen: np.ndarray = keys < np.repeat(bounds, slots)
        return chosen
