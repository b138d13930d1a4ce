"""Pipeline parallelism: the blocks divided among ranks, and micro-batches that pass through (1F1B).

What may live here: which blocks a stage holds, cutting a model down to them, and the passes of a
stage. A stage is the Transformer with fewer modules under the same names, so that sharding, first
values, optimisers and checkpoints need not know of it.

All stages of a pipeline see the same rows. So tokens, labels, positions and masks do not travel:
hidden states (rows, L, dim) go forward, their gradients back, nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from training.layout import Micro
from training.model import Transformer
from training.passes import resting, tally
from training.world import World


def spans(layers: int, stages: int, block: int, ends: int) -> list[range]:
    """The blocks of each stage, so that the most expensive stage costs as little as it can: a block
    costs `block`, the embedding (first stage) and the head (last) `ends` each.

    Blocks are alike, so giving each to the stage that has least is best. Of equal ones the later
    gets it, for it holds fewer micro-batches at a time.
    """
    costs = [block] * stages
    costs[0] += ends
    costs[-1] += ends
    counts = [1] * stages
    for _ in range(layers - stages):
        least = min(reversed(range(stages)), key=costs.__getitem__)
        costs[least] += block
        counts[least] += 1
    return [range(sum(counts[:stage]), sum(counts[: stage + 1])) for stage in range(stages)]


class Elsewhere(nn.Module):
    """Stands for what another stage holds: gives on what comes."""

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        """`x`."""
        return x


def keep_stage(model: Transformer, world: World) -> None:
    """Cuts a model (on the meta device) down to what this rank's stage holds. Cost is the number of
    parameters, which is what the arithmetic of a token and the memory go by."""
    stage, stages = world.stage, world.stages
    if stages == 1:
        return
    blocks = list(model.blocks.values())
    size = sum(parameter.numel() for parameter in blocks[0].parameters())
    own = spans(len(blocks), stages, size, model.shape.rows * model.shape.dim)[stage]
    model.blocks = nn.ModuleDict({str(number): blocks[number] for number in own})
    if stage > 0:
        model.embed = Elsewhere()  # type: ignore[assignment]
    if stage < stages - 1:
        model.head = Elsewhere()  # type: ignore[assignment]


class Pipeline:
    """The passes of a stage: as training.passes.Passes, with which it shares its contract, but that
    sums are those of the last stage, on all stages."""

    def __init__(self, model: Transformer, world: World, sources: int, dtype: torch.dtype) -> None:
        self.model, self.world, self.sources, self.dtype = model, world, sources, dtype
        self.first, self.last = world.stage == 0, world.stage == world.stages - 1
        self.group = world.mesh.get_group("pipeline")
        self.sums = self._zeros()
        self.by_row: list[Tensor] = []  # as of Passes, on the last stage
        self.factor = torch.ones((), device=world.device)
        self.schedule: Schedule1F1B | None = None

    def run(self, micros: list[Micro], factor: Tensor) -> Tensor:
        """As Passes.run; the number of micro-batches and their shape stay as they were first."""
        micros = [micro.to(self.world.device) for micro in micros]
        self.sums, self.factor, self.by_row = self._zeros(), factor, []
        if self.schedule is None:
            self.schedule = self._schedule(len(micros), *micros[0].tokens.shape)
        stage = self.schedule._stage
        stage.has_backward = True
        stage.clear_runtime_states()
        # What `step` calls once it has cut tensors along dimension 0; layouts cannot be cut so.
        self.schedule._step_microbatches(
            [(micro.tokens,) for micro in micros] if self.first else None,
            [{"layout": micro.layout, "labels": micro.labels} for micro in micros],
            micros,
        )
        return self.world.sum_stages(self.sums)

    def evaluate(self, micros: list[Micro]) -> Tensor:
        """As Passes.evaluate: forward passes only, of any number and any shapes."""
        sums, here = self._zeros(), self.world.stage
        with resting(self.model):
            for micro in micros:
                micro = micro.to(self.world.device)
                x = micro.tokens
                if not self.first:
                    shape = (*x.shape, self.model.shape.dim)
                    x = torch.empty(shape, dtype=self.dtype, device=self.world.device)
                    dist.recv(x, group=self.group, group_src=here - 1)
                out = self.model(x, micro.layout, micro.labels)
                if self.last:
                    total, each = out
                    tally(sums, total, each, micro, self.sources)
                else:
                    dist.send(out, group=self.group, group_dst=here + 1)
        return self.world.sum_stages(sums)

    def _schedule(self, micros: int, rows: int, length: int) -> Schedule1F1B:
        """Shapes are given, so that none are found out by passes that would leave gradients."""
        tokens = torch.empty(rows, length, dtype=torch.int64, device="meta")
        hidden = torch.empty(
            (rows, length, self.model.shape.dim),
            dtype=self.dtype,
            device="meta",
            requires_grad=True,
        )
        total = torch.empty((), device="meta", requires_grad=True)
        each = torch.empty(rows, length, device="meta")
        stage = PipelineStage(
            self.model,
            self.world.stage,
            self.world.stages,
            self.world.device,
            input_args=tokens if self.first else hidden,
            output_args=(total, each) if self.last else hidden,
            group=self.group,
        )
        # The loss is a sum times a factor: gradients of micro-batches are added, not averaged.
        return Schedule1F1B(stage, micros, loss_fn=self._loss, scale_grads=False)

    def _loss(self, out: tuple[Tensor, Tensor], micro: Micro) -> Tensor:
        """What the last stage goes back from."""
        total, each = out
        tally(self.sums, total.detach(), each, micro, self.sources)
        self.by_row.append(each.detach().sum(1))
        return total * self.factor

    def _zeros(self) -> Tensor:
        return torch.zeros(1 + 2 * self.sources, dtype=torch.float64, device=self.world.device)
