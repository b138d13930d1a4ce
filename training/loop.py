"""The training loop: one step, and what comes between the steps.

What may live here: a step (micro-batches, backward, norm, update), and the order in which loading,
saving, guarding and logging happen. Plain calls, no callbacks. A step is numbered from 0; after it,
`step + 1` steps are done, and a checkpoint of n holds n steps.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from manifests.tokens import Manifest
from training import config as knobs
from training import optim
from training.checkpoint import Checkpoints
from training.data.batches import Batches, digest
from training.data.logs import Logs
from training.guard import Guard
from training.layout import IGNORED, Micro
from training.metrics import Metrics
from training.model import Shape
from training.objectives import Objective
from training.parallel import build
from training.world import World


@dataclass
class Result:
    """What a step gave, over all ranks."""

    loss: float  # per token that has a label, with the z-loss
    norm: float  # of all gradients, before clipping
    labels: int  # tokens that were predicted
    by_source: list[tuple[float, int]]  # sum of cross-entropy and labels of each source
    digest: str  # of the batch, 16 hex digits


class Trainer:
    """A run on this rank."""

    def __init__(self, config: knobs.Config, world: World) -> None:
        self.config, self.world, self.run = config, world, Path(config.run)
        self.manifest = Manifest.load(config.data.manifest)
        self.shape = Shape.of(
            config.model, self.manifest.tokenizer.size, self.manifest.sequence_length
        )
        self.logs = Logs.read(self.run)
        self.batches = Batches(self.manifest, config.data, self.logs, config.train.batch)
        self.objective = Objective(config.objective, self.manifest.tokenizer, config.seed)
        self.model = build(config, self.shape, world)
        self.optimizer = optim.build(self.model, config.optimizer)
        self.checkpoints = Checkpoints(self.run, config.checkpoint, world)
        self.metrics = Metrics(self.run, config.log, world.first)
        self.guard = Guard(config.guard)
        self.steps = steps_of(config, self.manifest.sequence_length)
        self.step = 0

    def train(self) -> None:
        """From the last complete checkpoint, or from nothing, to the last step."""
        if saved := self.checkpoints.steps():
            self.step = saved[-1]
            self.checkpoints.load(self.step, self.model, self.optimizer)
        while self.step < self.steps:
            began = time.perf_counter()
            result = self.one(self.step)
            self.step += 1
            self.write(result, time.perf_counter() - began)
            if self.step % self.config.checkpoint.every == 0 or self.step == self.steps:
                self.checkpoints.save(self.step, self.model, self.optimizer, {"step": self.step})
        self.checkpoints.wait()

    def one(self, step: int) -> Result:
        """One step: gradients of the whole batch, clipped, and an update."""
        micros, own = self.micro_batches(step)
        world = self.world
        labels = sum(int((micro.labels != IGNORED).sum()) for micro in micros)
        sources = len(self.manifest.sources)
        sums = torch.zeros(2 + 2 * sources, dtype=torch.float64, device=world.device)
        counts = world.sum(torch.tensor([labels, own], dtype=torch.int64, device=world.device))
        whole = max(int(counts[0]), 1)
        for number, micro in enumerate(micros):
            self._synchronise(number == len(micros) - 1)
            micro = micro.to(world.device)
            total, each = self.model(micro.tokens, micro.layout, micro.labels)
            (total / whole).backward()
            by_row, has = each.double().sum(1), (micro.labels != IGNORED).sum(1).double()
            sums[0] += total.detach().double()
            sums[2 : 2 + sources].index_add_(0, micro.sources, by_row)
            sums[2 + sources :].index_add_(0, micro.sources, has)
        world.sum(sums)
        norm = clip(list(self.model.parameters()), self.config.optimizer.clip)
        rate = optim.rate(step, self.steps, self.config.optimizer, self.config.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        values = sums.tolist()
        return Result(
            loss=values[0] / whole,
            norm=float(norm),
            labels=whole,
            by_source=[
                (loss, int(count))
                for loss, count in zip(values[2 : 2 + sources], values[2 + sources :], strict=True)
            ],
            digest=f"{int(counts[1]) & (1 << 64) - 1:016x}",
        )

    def micro_batches(self, step: int) -> tuple[list[Micro], int]:
        """This rank's micro-batches of a step, and their part of its digest."""
        train, world = self.config.train, self.world
        own = train.batch // world.data_ranks
        begin = world.data_rank * own
        rows, samples = self.batches.rows(step, begin, begin + own)
        parts = range(0, own, train.micro_batch)
        cuts = [torch.arange(part, part + train.micro_batch).numpy() for part in parts]
        return [self.objective(rows.take(cut), samples[cut]) for cut in cuts], digest(rows, samples)

    def write(self, result: Result, seconds: float) -> None:
        """Logs a step."""
        self.metrics.batch(self.step, result.digest, "")
        self.metrics.health(self.step, loss=result.loss, norm=result.norm)
        if self.step % self.config.log.every == 0 or self.step == self.steps:
            self.metrics.say(f"step {self.step}/{self.steps}  loss {result.loss:.4f}")

    def _synchronise(self, last: bool) -> None:
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last)


def clip(parameters: list[Tensor], most: float | None) -> Tensor:
    """The norm of all gradients together, which are scaled down where it is above `most`."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, math.inf if most is None else most)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def steps_of(config: knobs.Config, length: int) -> int:
    """Steps of the whole run."""
    if config.train.steps is not None:
        return config.train.steps
    assert config.train.tokens is not None
    return -(-config.train.tokens // (config.train.batch * length))


def main(config: knobs.Config, world: World) -> dict[str, Any]:
    """Trains."""
    Path(config.run).mkdir(parents=True, exist_ok=True)
    trainer = Trainer(config, world)
    trainer.train()
    return {"step": trainer.step}
