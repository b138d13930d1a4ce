"""The training loop: one step, and what comes between the steps.

What may live here: a step (passes, norm, update), and the order in which loading, saving, guarding
and logging happen. Plain calls, no callbacks. Steps are numbered from 0; once `step` steps are
done, the next is number `step`, and a checkpoint of n holds what n steps have made.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from manifests.tokens import Manifest
from training import config as knobs
from training import optim
from training.checkpoint import CheckpointError, Checkpoints, described
from training.data.batches import Batches
from training.data.loader import Loader, Portion
from training.data.logs import Logs
from training.guard import Guard, Spike
from training.layout import IGNORED
from training.metrics import Metrics
from training.model import Shape
from training.objectives import Objective
from training.parallel import build
from training.passes import Passes
from training.precision import Scaler
from training.run import open_run
from training.stop import Interrupted, Stop
from training.weights import begin_from
from training.world import World


@dataclass(frozen=True)
class Result:
    """What a step gave, over all ranks."""

    loss: float  # per token that has a label, with the z-loss
    norm: float  # of all gradients, before clipping
    rate: float  # the learning rate
    labels: int  # tokens that were predicted
    by_source: list[tuple[float, int]]  # sum of cross-entropy, and labels, of each source
    digest: str  # of the batch, 16 hex digits
    waited: float  # seconds for the batch
    seconds: float


class Trainer:
    """A run, on this rank."""

    def __init__(self, config: knobs.Config, world: World) -> None:
        self.config, self.world, self.run = config, world, Path(config.run)
        self.manifest = Manifest.load(config.data.manifest)
        if world.first:
            open_run(config, self.manifest)
        world.barrier()
        length = self.manifest.sequence_length
        self.steps = steps_of(config, length)
        self.objective = Objective(config.objective, self.manifest.tokenizer, config.seed)
        self.shape = Shape.of(
            config.model, self.manifest.tokenizer.size, self.objective.length(length)
        )
        self.model = build(config, self.shape, world)
        self.passes = Passes(self.model, world, len(self.manifest.sources))
        self.optimizer = optim.build(self.model, config.optimizer)
        self.scaler = Scaler(config.parallel)
        self.checkpoints = Checkpoints(self.run, config.checkpoint, world)
        self.metrics = Metrics(self.run, config.log, world.first)
        self.guard = Guard(config.guard)
        self.stop = Stop(world)
        self.step = 0
        self.loader = self._open()

    # ------------------------------------------------------------ the run

    def train(self) -> None:
        """From the last complete checkpoint, or from nothing, to the last step. Raises Interrupted
        where it was asked to stop and has saved."""
        self.resume()
        while self.step < self.steps:
            result = self.one(self.step)
            self.step += 1
            self.write(result)
            self.stop.beat(self.step)
            if spike := self.guard.look(self.step - 1, result.loss, result.norm):
                self.back(spike)
                continue
            stopping = self.stop.wanted()
            last = self.step == self.steps
            if stopping or last or self.step % self.config.checkpoint.every == 0:
                self.save()
            if stopping and not last:
                self.checkpoints.wait()
                raise Interrupted(f"stopped after step {self.step}")
        self.checkpoints.wait()

    def resume(self) -> None:
        """Goes to the newest checkpoint that is sound; where there is none at all, to the weights
        of `checkpoint.init_from`, or stays with the first values."""
        steps = self.checkpoints.steps()
        for step in reversed(steps):
            try:
                return self.restore(step)
            except CheckpointError as error:
                self.metrics.event("damaged", step=step, problem=str(error))
                self.metrics.say(f"{error}; the checkpoint before it is taken")
        if steps:
            raise CheckpointError(f"{self.run}: none of its {len(steps)} checkpoints can be used")
        if self.config.checkpoint.init_from is not None:
            begun = begin_from(self.config, self.shape, self.manifest, self.model, self.world)
            self.metrics.event("init_from", **begun)

    def save(self) -> None:
        """A checkpoint of the steps done so far."""
        state = {
            **described(self.config, self.shape, self.manifest),
            "step": self.step,
            "samples": self.step * self.config.train.batch,
            "guard": self.guard.state(),
            "scaler": self.scaler.state(),
        }
        self.checkpoints.save(self.step, self.model, self.optimizer, state)

    def restore(self, step: int) -> None:
        """Goes to a complete checkpoint."""
        state = self.checkpoints.load(step, self.model, self.optimizer)
        self.guard.load(state["guard"])
        self.scaler.load(state["scaler"])
        self.step = step

    def back(self, spike: Spike) -> None:
        """Goes back before a spike and leaves its batch out from now on."""
        raise NotImplementedError(spike.reason)

    # ------------------------------------------------------------ a step

    def one(self, step: int) -> Result:
        """One step: gradients of the whole batch, clipped, and an update."""
        began = time.perf_counter()
        portion = self.loader.get(step)
        labels, digest = self._counts(portion)
        sums = self.passes.run(portion.micros, self._factor(labels))
        sums = self.world.sum(sums)
        norm = clip(list(self.model.parameters()), self.config.optimizer.clip, self.scaler.scale)
        rate = optim.rate(step, self.steps, self.config.optimizer, self.config.schedule)
        finite = math.isfinite(norm)
        if finite:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
        self.scaler.update(finite)
        self.optimizer.zero_grad(set_to_none=True)
        total, *by_source = sums.tolist()
        sources = len(by_source) // 2
        return Result(
            loss=total / labels,
            norm=norm,
            rate=rate,
            labels=labels,
            by_source=list(zip(by_source[:sources], map(int, by_source[sources:]), strict=True)),
            digest=digest,
            waited=portion.waited,
            seconds=time.perf_counter() - began,
        )

    def _counts(self, portion: Portion) -> tuple[int, str]:
        """Labels of the whole batch (at least 1), and its digest."""
        own = sum(int((micro.labels != IGNORED).sum()) for micro in portion.micros)
        counts = torch.tensor([own, portion.digest], dtype=torch.int64, device=self.world.device)
        labels, digest = self.world.sum(counts).tolist()
        return max(labels, 1), f"{digest & (1 << 64) - 1:016x}"

    def _factor(self, labels: int) -> Tensor:
        """What the sum of losses is multiplied by before the backward pass."""
        return torch.tensor(self.scaler.scale / labels, device=self.world.device)

    def write(self, result: Result) -> None:
        """Logs a step."""
        self.metrics.batch(self.step, result.digest, "")
        self.metrics.health(self.step, loss=result.loss, norm=result.norm, rate=result.rate)
        if self.step % self.config.log.every == 0 or self.step == self.steps:
            self.metrics.say(f"step {self.step}/{self.steps}  loss {result.loss:.4f}")

    def _open(self) -> Loader:
        """The loader of the batches as the logs are now."""
        train = self.config.train
        logs = Logs.read(self.run)
        batches = Batches(self.manifest, self.config.data, logs, train.batch)
        return Loader(
            batches, self.objective, self.world, train.micro_batch, self.config.data.prefetch
        )


def clip(parameters: Sequence[nn.Parameter], most: float | None, scale: float) -> float:
    """The norm of all gradients together, over all ranks, divided by `scale`; with it the gradients
    themselves, which are scaled down where the norm is above `most`."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    whole = (norm.full_tensor() if isinstance(norm, DTensor) else norm) / scale
    factor = 1.0 / scale
    if most is not None:
        factor *= min(1.0, most / (float(whole) + 1e-6))
    if factor != 1.0:
        torch._foreach_mul_(gradients, factor)
    return float(whole)


def steps_of(config: knobs.Config, length: int) -> int:
    """Steps of the whole run, for rows of so many tokens."""
    if config.train.steps is not None:
        return config.train.steps
    assert config.train.tokens is not None
    return -(-config.train.tokens // (config.train.batch * length))


def main(config: knobs.Config, world: World) -> dict[str, Any]:
    """Trains. Raises Interrupted, ConfigError, ManifestError."""
    trainer = Trainer(config, world)
    try:
        trainer.train()
    finally:
        trainer.checkpoints.close()
        trainer.loader.close()
        trainer.metrics.close()
    return {"step": trainer.step}
