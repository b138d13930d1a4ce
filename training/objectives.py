"""From packed rows to what the model sees and predicts: stateless transforms, a mask kind each.

What may live here: the objectives (how spans are drawn and written stands in training/spans.py).
What one draws belongs to (seed, sample, place in the row), so a row gives the same whatever rank,
step or batch it is in, and another when it is read again. Labels never cross the pieces of a row,
padding, which is said by the lengths alone, is never predicted, and special tokens are never masked
or drawn.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from manifests.hashing import below, mix64
from manifests.rows import Rows
from manifests.tokens import Tokenizer
from training import config as knobs
from training.config import ConfigError
from training.layout import IGNORED, Layout, MaskKind, Micro, before, layout_of_pieces, spread, sums
from training.spans import Spans, stream

#: Shares of the predicted tokens that are seen as the mask token, and as any token (J. Devlin et
#: al., BERT, 2019).
MASKED, OTHER = 0.8, 0.1


class Objective:
    """An objective for a tokenizer. Raises ConfigError, in one line, where the tokenizer lacks a
    special token that it wants."""

    def __init__(self, objective: knobs.Objective, tokenizer: Tokenizer, seed: int) -> None:
        self.knobs, self.seed = objective, seed
        if objective.kind == "mlm" and tokenizer.mask is None:
            raise ConfigError("objective.kind: mlm wants a mask token; the tokenizer has none")
        if objective.kind == "span" and len(tokenizer.sentinels) < 2:
            said = f"the tokenizer has {len(tokenizer.sentinels)}"
            raise ConfigError(f"objective.kind: span wants at least 2 sentinels; {said}")
        self.mask = tokenizer.mask
        self.ordinary = ordinary(tokenizer)
        fill = tokenizer.eos if tokenizer.pad is None else tokenizer.pad
        self.spans = Spans(objective, np.array(tokenizer.sentinels, np.int64), fill, seed)

    def length(self, length: int) -> int:
        """Tokens of the rows that come out for packed rows of `length`. Raises ConfigError where
        no document in them is long enough for anything to be predicted."""
        if self.knobs.kind != "span":
            return length
        if not self.spans.noise(np.array([length]))[1].any():
            least = math.ceil(self.knobs.span_length / self.knobs.mask_share)
            raise ConfigError(
                f"objective.span_length: nothing is predicted of documents of fewer than {least:,} "
                f"tokens (span_length / mask_share); rows have {length:,}"
            )
        return self.spans.length(length)

    def __call__(self, rows: Rows, samples: np.ndarray) -> Micro:
        """A micro-batch of rows; `samples` (int64) are their numbers."""
        samples = np.asarray(samples, dtype=np.int64)
        match self.knobs.kind:
            case "causal":
                return causal(rows, samples)
            case "mlm":
                return self._mlm(rows, samples)
            case "prefix":
                return self._prefix(rows, samples)
            case "span":
                written, lengths, prefixes = self.spans(rows, samples, self.ordinary)
                return _following(written, lengths, prefixes, rows, samples)

    def _mlm(self, rows: Rows, samples: np.ndarray) -> Micro:
        """Each ordinary token is predicted with probability `mask_share`, at its own place."""
        assert self.mask is not None  # __init__ has looked
        length = rows.tokens.shape[1]
        places = np.arange(length, dtype=np.uint64)
        share = np.uint64(below(self.knobs.mask_share))
        picked = mix64(stream(self.seed, "mlm", samples)[:, None] ^ places) < share
        picked &= self.ordinary[rows.tokens] & (places < rows.filled().astype(np.uint64)[:, None])
        row, place = np.nonzero(picked)
        tokens = rows.tokens.astype(np.int64)
        own = tokens[row, place]
        labels = np.full(tokens.shape, IGNORED, np.int64)
        labels[row, place] = own
        choices = np.flatnonzero(self.ordinary)
        other = mix64(stream(self.seed, "mlm other", samples)[row] ^ places[place])
        how = mix64(stream(self.seed, "mlm as", samples)[row] ^ places[place])
        seen = np.where(
            how < np.uint64(below(MASKED + OTHER)), choices[other % np.uint64(len(choices))], own
        )
        tokens[row, place] = np.where(how < np.uint64(below(MASKED)), self.mask, seen)
        layout = layout_of_pieces(np.diff(rows.starts), rows.lengths, length, "both")
        return _micro(tokens, labels, layout, rows, samples)

    def _prefix(self, rows: Rows, samples: np.ndarray) -> Micro:
        """The next token after a prefix: of 0 to n - 1 of the n tokens of a piece, all equally
        likely."""
        counts = np.diff(rows.starts)
        begins = before(counts, rows.lengths)
        streams = np.repeat(stream(self.seed, "prefix", samples), counts)
        draws = mix64(streams ^ begins.astype(np.uint64))
        prefixes = (draws % np.maximum(rows.lengths, 1).astype(np.uint64)).astype(np.int64)
        return _following(rows.tokens.astype(np.int64), rows.lengths, prefixes, rows, samples)


def causal(rows: Rows, samples: np.ndarray) -> Micro:
    """The next token of the same piece."""
    return _following(rows.tokens.astype(np.int64), rows.lengths, None, rows, samples)


def ordinary(tokenizer: Tokenizer) -> np.ndarray:
    """Which entries of the vocabulary are no special tokens: (size,) bool."""
    found = np.ones(tokenizer.size, bool)
    named = (tokenizer.eos, tokenizer.bos, tokenizer.pad, tokenizer.mask)
    found[[token for token in named if token is not None]] = False
    found[[*tokenizer.sentinels, *tokenizer.special.values()]] = False
    return found


def _following(
    tokens: np.ndarray,
    lengths: np.ndarray,
    prefixes: np.ndarray | None,
    rows: Rows,
    samples: np.ndarray,
) -> Micro:
    """The next token of the same piece, but for those that are in its prefix."""
    counts, length = np.diff(rows.starts), tokens.shape[1]
    kind: MaskKind = "causal" if prefixes is None else "prefix"
    layout = layout_of_pieces(counts, lengths, length, kind, prefixes)
    labels = np.empty(tokens.shape, np.int64)
    labels[:, :-1] = tokens[:, 1:]
    labels[:, -1] = IGNORED
    if layout.prefix is not None:
        np.copyto(labels[:, :-1], IGNORED, where=layout.prefix.numpy()[:, 1:])
    row = np.arange(len(counts)) * length
    ends = np.repeat(row, counts) + before(counts, lengths) + lengths
    filled = sums(counts, lengths)
    labels.reshape(-1)[ends - 1] = IGNORED
    labels.reshape(-1)[spread(row + filled, length - filled)] = IGNORED
    return _micro(tokens, labels, layout, rows, samples)


def _micro(
    tokens: np.ndarray, labels: np.ndarray, layout: Layout, rows: Rows, samples: np.ndarray
) -> Micro:
    return Micro(
        tokens=torch.from_numpy(tokens),
        labels=torch.from_numpy(labels),
        layout=layout,
        sources=torch.from_numpy(rows.sources.astype(np.int64)),
        samples=torch.from_numpy(samples),
    )
