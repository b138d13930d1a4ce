"""Forward and backward passes of a step's micro-batches.

What may live here: what runs a model over micro-batches and sums what they give; the plain way, and
the choice of the other (training/pipeline.py). Gradients are left on the parameters, summed over
the ranks, of (sum of losses) * `factor`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from training import config as knobs
from training.gradients import expect
from training.layout import IGNORED, Micro
from training.model import Transformer
from training.sampled import uniforms
from training.world import World

if TYPE_CHECKING:
    from training.pipeline import Pipeline


def choose(
    model: Transformer, world: World, sources: int, parallel: knobs.Parallel
) -> Passes | Pipeline:
    """The passes of this rank's model, or of its stage of it."""
    if world.stages == 1:
        return Passes(model, world, sources, parallel.reshard)
    from training.parallel import DTYPES  # here, since these import this module
    from training.pipeline import Pipeline

    return Pipeline(model, world, sources, DTYPES[parallel.precision])


class Passes:
    """The plain way: one micro-batch after the other through the whole model."""

    def __init__(
        self, model: Transformer, world: World, sources: int, reshard: bool = True
    ) -> None:
        self.model, self.world, self.sources = model, world, sources
        self.reshard = reshard
        #: Cross-entropy of each row, (rows,) for each micro-batch of the last `run`: for reports.
        self.by_row: list[Tensor] = []

    def run(self, micros: list[Micro], factor: Tensor) -> Tensor:
        """Passes over this rank's micro-batches: (1 + 2 * sources,) fp64 on the device, of this
        rank alone: the sum of losses (z-loss included); cross-entropy, then labels, by source."""
        sums = torch.zeros(1 + 2 * self.sources, dtype=torch.float64, device=self.world.device)
        self.by_row = []
        for number, micro in enumerate(micros):
            expect(self.model, number == len(micros) - 1, self.reshard)
            micro = micro.to(self.world.device)
            total, each = self.model(micro.tokens, micro.layout, micro.labels)
            (total * factor).backward()
            tally(sums, total.detach(), each, micro, self.sources)
            self.by_row.append(each.sum(1))
        return sums

    def hessian(self, micros: list[Micro], factor: Tensor, seed: int, step: int) -> None:
        """The same passes, with labels drawn from the model's own distribution in the place of the
        true ones: gradients for `Sophia.observe`."""
        for number, micro in enumerate(micros):
            expect(self.model, number == len(micros) - 1, self.reshard)
            draws = uniforms(seed, step, micro.samples, micro.tokens.shape[1])
            micro = micro.to(self.world.device)
            draws = draws.to(self.world.device)
            total, _ = self.model(micro.tokens, micro.layout, micro.labels, draws)
            (total * factor).backward()

    def evaluate(self, micros: list[Micro]) -> Tensor:
        """Sums as of `run`, without gradients. Ranks must give as many micro-batches each."""
        with resting(self.model):
            return forward(self.model, micros, self.sources, self.world.device)


@contextmanager
def resting(model: Transformer) -> Iterator[None]:
    """Evaluation without gradients. What was gathered is freed at the end: left as it is, a later
    pass would see it in place of parameters that have been loaded since."""
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train()
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def forward(model: Transformer, micros: list[Micro], sources: int, device: torch.device) -> Tensor:
    """Sums as of `Passes.run`, of forward passes alone."""
    sums = torch.zeros(1 + 2 * sources, dtype=torch.float64, device=device)
    for micro in micros:
        micro = micro.to(device)
        total, each = model(micro.tokens, micro.layout, micro.labels)
        tally(sums, total, each, micro, sources)
    return sums


def tally(sums: Tensor, total: Tensor, each: Tensor, micro: Micro, sources: int) -> None:
    """Adds what a micro-batch gave."""
    by_row, labels = each.double().sum(1), (micro.labels != IGNORED).sum(1).double()
    sums[0] += total.double()
    sums[1 : 1 + sources].index_add_(0, micro.sources, by_row)
    sums[1 + sources :].index_add_(0, micro.sources, labels)
