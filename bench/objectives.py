"""What objectives and the loss cost: processor seconds on one core, and the loss's memory.

    python bench/objectives.py

What is printed: milliseconds that each objective takes for 256 rows of 2,048 tokens, of documents
of 500 and of 60 tokens in the mean; then the forward and backward pass of the chunked loss and of
the plain one, with the largest tensor that each makes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from manifests.rows import Rows
from manifests.tokens import Tokenizer
from training import config as knobs
from training.layout import IGNORED
from training.loss import linear_cross_entropy, plain
from training.objectives import Objective

ROWS, LENGTH, VOCABULARY = 256, 2048, 32_000
SENTINELS = tuple(range(VOCABULARY - 100, VOCABULARY))
TOKENIZER = Tokenizer("", "", 0, VOCABULARY, 0, None, 1, 2, SENTINELS, {})


class Largest(TorchDispatchMode):
    """Notes the bytes of the largest tensor that anything gives."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for value in found if isinstance(found, tuple | list) else [found]:
            if isinstance(value, Tensor):
                self.bytes = max(self.bytes, value.nbytes)
        return found


def rows_of(mean: float) -> Rows:
    """Rows of documents whose lengths are exponential, each with some padding."""
    random = np.random.default_rng(0)
    lengths: list[int] = []
    counts = []
    for _ in range(ROWS):
        room, begin = LENGTH - int(random.integers(30)), len(lengths)
        while room:
            lengths.append(min(room, 1 + int(random.exponential(mean))))
            room -= lengths[-1]
        counts.append(len(lengths) - begin)
    return Rows(
        random.integers(3, SENTINELS[0], (ROWS, LENGTH)).astype(np.uint16),
        np.cumsum([0, *counts]),
        np.array(lengths, np.int32),
        np.zeros(len(lengths), np.int64),
        np.zeros((len(lengths), 2), np.uint64),
        np.zeros(ROWS, np.int16),
    )


def least(function: Callable[[], Any], times: int) -> float:
    """The least processor seconds of some calls."""
    found = []
    for _ in range(times):
        began = time.process_time()
        function()
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    torch.set_num_threads(1)
    for mean in (500, 60):
        rows = rows_of(mean)
        for kind in ("causal", "mlm", "prefix", "span"):
            objective = Objective(knobs.Objective(kind=kind), TOKENIZER, seed=1)
            micro = objective(rows, np.arange(ROWS))
            seconds = least(lambda made=objective, rows=rows: made(rows, np.arange(ROWS)), 9)
            share = float((micro.labels != IGNORED).double().mean())
            print(
                f"documents of {mean:3}  {kind:7} {1000 * seconds:6.1f} ms"
                f"  rows of {micro.tokens.shape[1]}  {share:.1%} predicted"
            )
    hidden = torch.randn(1024, 256, requires_grad=True)
    weight = torch.randn(VOCABULARY, 256, requires_grad=True)
    labels = torch.randint(VOCABULARY, (1024,))
    for name, function in {
        "chunks of 128": lambda: linear_cross_entropy(hidden, weight, labels, chunk=128),
        "plain": lambda: plain(hidden, weight, labels),
    }.items():
        with Largest() as largest:
            function()[0].backward()
        seconds = least(lambda made=function: made()[0].backward(), 3)
        print(f"loss, {name:14} {seconds:6.2f} s  largest tensor {largest.bytes >> 20} MiB")


if __name__ == "__main__":
    main()
