"""From packed rows to what the model sees and predicts: stateless transforms, a mask kind each.

What may live here: the objectives. What one draws belongs to (seed, sample), so a row gives the
same whatever rank, step or batch it is in. Labels never cross the pieces of a row, and padding,
which is said by the lengths alone, is never predicted.
"""

from __future__ import annotations

import numpy as np
import torch

from manifests.rows import Rows
from manifests.tokens import Tokenizer
from training import config as knobs
from training.layout import IGNORED, Micro, layout_of


class Objective:
    """An objective for a tokenizer. Raises ValueError, in one line, where the tokenizer lacks a
    special token that it wants."""

    def __init__(self, objective: knobs.Objective, tokenizer: Tokenizer, seed: int) -> None:
        self.knobs, self.tokenizer, self.seed = objective, tokenizer, seed

    def length(self, length: int) -> int:
        """Tokens of the rows that come out for packed rows of `length`."""
        return length

    def __call__(self, rows: Rows, samples: np.ndarray) -> Micro:
        """A micro-batch of rows; `samples` (int64) are their numbers."""
        return causal(rows, samples)


def causal(rows: Rows, samples: np.ndarray) -> Micro:
    """The next token of the same piece."""
    length = rows.tokens.shape[1]
    pieces = [rows.lengths[a:b] for a, b in zip(rows.starts[:-1], rows.starts[1:], strict=True)]
    tokens = rows.tokens.astype(np.int64)
    labels = np.full(tokens.shape, IGNORED, np.int64)
    labels[:, :-1] = tokens[:, 1:]
    for row, own in enumerate(pieces):
        ends = np.cumsum(own)
        labels[row, ends - 1] = IGNORED
        labels[row, ends[-1] if len(ends) else 0 :] = IGNORED
    return Micro(
        tokens=torch.from_numpy(tokens),
        labels=torch.from_numpy(labels),
        layout=layout_of(pieces, length, "causal"),
        sources=torch.from_numpy(rows.sources.astype(np.int64)),
        samples=torch.from_numpy(np.asarray(samples, dtype=np.int64)),
    )
