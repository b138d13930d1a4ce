"""Forward and backward passes of a step's micro-batches.

What may live here: what runs a model over micro-batches and sums what they give; the plain way, and
the choice of the other (training/pipeline.py). Gradients are left on the parameters, summed over
the ranks, of (sum of losses) * `factor`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from training.layout import IGNORED, Micro
from training.model import Transformer
from training.world import World


class Passes:
    """The plain way: one micro-batch after the other through the whole model."""

    def __init__(self, model: Transformer, world: World, sources: int) -> None:
        self.model, self.world, self.sources = model, world, sources
        #: Cross-entropy of each row, (rows,) for each micro-batch of the last `run`: for reports.
        self.by_row: list[Tensor] = []

    def run(self, micros: list[Micro], factor: Tensor) -> Tensor:
        """Passes over this rank's micro-batches: (1 + 2 * sources,) fp64 on the device, of this
        rank alone: the sum of losses (z-loss included); cross-entropy, then labels, by source."""
        sums = torch.zeros(1 + 2 * self.sources, dtype=torch.float64, device=self.world.device)
        self.by_row = []
        for number, micro in enumerate(micros):
            if isinstance(self.model, FSDPModule):
                self.model.set_requires_gradient_sync(number == len(micros) - 1)
            micro = micro.to(self.world.device)
            total, each = self.model(micro.tokens, micro.layout, micro.labels)
            (total * factor).backward()
            tally(sums, total.detach(), each, micro, self.sources)
            self.by_row.append(each.sum(1))
        return sums


def tally(sums: Tensor, total: Tensor, each: Tensor, micro: Micro, sources: int) -> None:
    """Adds what a micro-batch gave."""
    by_row, labels = each.double().sum(1), (micro.labels != IGNORED).sum(1).double()
    sums[0] += total.double()
    sums[1 : 1 + sources].index_add_(0, micro.sources, by_row)
    sums[1 + sources :].index_add_(0, micro.sources, labels)
