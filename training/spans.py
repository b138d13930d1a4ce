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
from training.layout import before, spread

MULTIPLE = 16  # rows are filled up to a multiple of this, as kernels of matrix products like it

_BITS = 20  # of places, and of the draws that they are chosen by: rows of a million tokens


def stream(seed: int, purpose: str, samples: np.ndarray) -> np.ndarray:
    """64 bits that belong to a seed, a purpose and a sample: uint64. What is drawn at a place of
    the sample's row is `mix64(stream ^ place)`."""
    with np.errstate(over="ignore"):
        return mix64(samples.astype(np.uint64) + np.uint64(salt(seed, "objective", purpose)))


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
        width = rows.tokens.shape[1]
        tokens = rows.tokens[np.arange(width) < rows.filled()[:, None]].astype(np.int64)
        taken, piece, heads = self.taken(
            lengths, ordinary[tokens], samples[row], before(counts, lengths)
        )
        noise, spans = (np.bincount(of, minlength=len(row)) for of in (piece, piece[heads]))
        left, ahead = lengths - noise + spans, noise + spans + (spans > 0)
        length = self.length(width)
        begins = row * length + before(counts, left + ahead)
        written = np.full(len(counts) * length, self.fill, np.int64)
        number = before(noise, heads)  # at a head: which span of its piece begins
        sentinels = self.sentinels[number[heads]]
        place = spread(begins + left, noise) + number + heads
        written[place] = tokens[taken]
        written[place[heads] - 1] = sentinels
        written[(begins + left + ahead - 1)[spans > 0]] = self.sentinels[spans[spans > 0]]
        stays = np.ones(len(tokens), bool)
        stays[taken[~heads]] = False
        tokens[taken[heads]] = sentinels
        written[spread(begins, left)] = tokens[stays]
        return written.reshape(-1, length), left + ahead, left

    def taken(
        self, lengths: np.ndarray, ordinary: np.ndarray, samples: np.ndarray, begins: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which of all tokens are taken out (ascending numbers), the piece of each, and whether it
        is the first of a span (bool).

        `lengths`, `samples`, `begins`: of each piece, `begins` its first token's place in its row;
        `ordinary`: of each token, whether it may be taken. All ways to set the spans between the
        tokens that stay, and all lengths of spans that add up, are equally likely.
        """
        free = np.flatnonzero(ordinary)
        own = np.diff(np.searchsorted(free, np.cumsum(lengths)), prepend=0)
        noise, spans = self.noise(own)
        slots = np.where(spans > 0, own - noise + 1, 0)
        gaps = np.flatnonzero(self._chosen("gaps", slots, spans, samples, begins))
        gaps -= np.repeat(np.cumsum(slots) - slots, spans)  # tokens that stay before each span
        heads = spread(np.zeros(len(noise), np.int64), noise) == 0
        heads[~heads] = self._chosen(
            "breaks", np.maximum(noise - 1, 0), np.maximum(spans - 1, 0), samples, begins
        )
        taken = free[spread(np.cumsum(own) - own, noise) + gaps[np.cumsum(heads) - 1]]
        # A special token divides the span that it is in: of all spans the first ones are taken.
        piece = np.repeat(np.arange(len(noise)), noise)
        heads[1:] = (np.diff(taken) > 1) | (np.diff(piece) > 0)
        kept = before(noise, heads) + heads <= spans[piece]
        return taken[kept], piece[kept], heads[kept]

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
        places = spread(begins, slots).astype(np.uint64)
        keys = mix64(np.repeat(stream(self.seed, purpose, samples), slots) ^ places)
        keys >>= np.uint64(64 - _BITS)
        keys <<= np.uint64(_BITS)
        keys |= places
        keys |= np.repeat(np.arange(len(slots), dtype=np.uint64) << np.uint64(2 * _BITS), slots)
        some = wanted > 0
        bounds = np.zeros(len(slots), np.uint64)
        bounds[some] = np.sort(keys)[(np.cumsum(slots) - slots + wanted - 1)[some]] + np.uint64(1)
        chosen: np.ndarray = keys < np.repeat(bounds, slots)
        return chosen
