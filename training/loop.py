"""The training loop: one step, and what comes between the steps.

What may live here: a step (passes, norm, update), and the order in which loading, saving, guarding
and logging happen. Plain calls, no callbacks. Steps are numbered from 0; once `step` steps are
done, the next is number `step`, and a checkpoint of n holds what n steps have made.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from manifests.tokens import Manifest
from training import config as knobs
from training import optim, passes
from training.checkpoint import Checkpoints
from training.data.loader import Loader, Portion
from training.data.opening import open_batches, open_replay
from training.gradients import clip
from training.guard import Guard, Spike
from training.layout import IGNORED
from training.metrics import Metrics
from training.model import Shape
from training.objectives import Objective
from training.optim import Sophia
from training.parallel import build
from training.passes import Passes
from training.precision import Scaler
from training.run import open_run, started, steps_of
from training.stop import Interrupted, Stop
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
    skipped: bool  # no update was made, since loss or norm are not finite
    overflow: (
        bool  # skipped because of the scale of fp16, which was lowered: no affair of the guard
    )


class Trainer:
    """A run, on this rank."""

    def __init__(self, config: knobs.Config, world: World) -> None:
        self.config, self.world, self.run = config, world, Path(config.run)
        self.manifest = Manifest.load(config.data.manifest)
        self.start = open_run(config, self.manifest, world)
        length = self.manifest.sequence_length
        self.steps = steps_of(config, length)
        self.objective = Objective(config.objective, self.manifest.tokenizer, config.seed)
        self.shape = Shape.of(
            config.model, self.manifest.tokenizer.size, self.objective.length(length)
        )
        self.model = build(config, self.shape, world)
        sources = len(self.manifest.sources)
        self.passes = passes.choose(self.model, world, sources, config.parallel)
        self.optimizer = optim.build(self.model, config.optimizer)
        self.scaler = Scaler(config.parallel)
        self.checkpoints = Checkpoints(self.run, config.checkpoint, world)
        self.metrics = Metrics(self.run, config.log, world.first)
        self.guard = Guard(config.guard)
        self.stop = Stop(world)
        self.step = self.saved = 0  # steps that are done, and that the last checkpoint holds
        self.replay = open_replay(self.run, world)
        self.loader = self._open()

    # ------------------------------------------------------------ the run

    def train(self) -> None:
        """From the last complete checkpoint, or from nothing, to the last step. Raises Interrupted
        where it was asked to stop and has saved."""
        if saved := self.checkpoints.steps():
            self.restore(saved[-1])
        self.loader.close()
        self.loader = self._open(starts=True)
        self.metrics.event("start", start=self.start, step=self.step, **started(self.world))
        while self.step < self.steps:
            if self.stop.wanted():
                self.interrupt()
            result = self.one(self.step)
            self.step += 1
            self.write(result)
            self.stop.beat(self.step)
            spike = None
            if not result.overflow:  # all else that is not finite is a spike
                spike = self.guard.look(self.step - 1, result.loss, result.norm)
            if spike:
                self.stop.pause()
                self.back(spike)
                continue
            if self.step == self.steps or self.step % self.config.checkpoint.every == 0:
                self.save()
        self.checkpoints.wait()

    def interrupt(self) -> NoReturn:
        """Saves what is not saved, and raises Interrupted."""
        if self.step != self.saved:
            self.save()
        self.checkpoints.wait()
        self.metrics.event("interrupted", step=self.step)
        raise Interrupted(f"asked to stop; {self.step} of {self.steps} steps are done and saved")

    def save(self) -> None:
        """A checkpoint of the steps done so far."""
        self.stop.pause()
        state = {
            "step": self.step,
            "samples": self.step * self.config.train.batch,
            "prefix": self.loader.batches.prefix(self.step),
            "guard": self.guard.state(),
            "scaler": self.scaler.state(),
        }
        self.checkpoints.save(self.step, self.model, self.optimizer, state)
        self.saved = self.step

    def restore(self, step: int) -> None:
        """Goes to a complete checkpoint."""
        state = self.checkpoints.load(step, self.model, self.optimizer)
        self.loader.batches.check(step, state["prefix"])
        self.guard.load(state["guard"])
        self.scaler.load(state["scaler"])
        self.step = self.saved = step

    def back(self, spike: Spike) -> None:
        """Goes back before a spike and leaves its batch out from now on."""
        raise NotImplementedError(spike.reason)

    # ------------------------------------------------------------ a step

    def one(self, step: int) -> Result:
        """One step: gradients of the whole batch, clipped, and an update.

        A step whose loss or norm is not finite moves nothing. The device is waited for once, for
        loss, norm and counts together (another time where Sophia looks at the Hessian).
        """
        began = time.perf_counter()
        portion = self.loader.get(step)
        counts = self._counts(portion)
        factor = (self.scaler.scale / counts[0].clamp(min=1)).float()
        sums = self.world.sum(self.passes.run(portion.micros, factor))
        most, scale = self.config.optimizer.clip, self.scaler.scale
        norm = clip(self.model.parameters(), most, scale, self.world)
        numbers = torch.cat([sums, norm[None].to(sums.device)])
        (total, *by_source, whole), (labels, digest) = read(numbers, counts)
        finite = math.isfinite(total) and math.isfinite(whole)
        rate = optim.rate(step, self.steps, self.config.optimizer, self.config.schedule)
        if finite:
            if (
                isinstance(self.optimizer, Sophia)
                and step % self.config.optimizer.hessian_every == 0
            ):
                self._observe(self.optimizer, portion, factor, labels, step)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
        lowered = self.scaler.update(finite)
        self.optimizer.zero_grad(set_to_none=True)
        sources = len(by_source) // 2
        return Result(
            loss=total / max(labels, 1),
            norm=whole,
            rate=rate,
            labels=labels,
            by_source=list(zip(by_source[:sources], map(int, by_source[sources:]), strict=True)),
            digest=f"{digest & (1 << 64) - 1:016x}",
            waited=portion.waited,
            seconds=time.perf_counter() - began,
            skipped=not finite,
            overflow=lowered and math.isfinite(total),
        )

    def _counts(self, portion: Portion) -> Tensor:
        """Labels of the whole batch, and its digest: (2,) int64, on the device."""
        own = sum(int((micro.labels != IGNORED).sum()) for micro in portion.micros)
        counts = torch.tensor([own, portion.digest], dtype=torch.int64)
        return self.world.sum(counts.to(self.world.device))

    def _observe(
        self, sophia: Sophia, portion: Portion, factor: Tensor, labels: int, step: int
    ) -> None:
        """Lets Sophia see the Hessian; the step's gradients are as they were afterwards."""
        parameters = list(self.model.parameters())
        kept = [parameter.grad for parameter in parameters]
        sophia.zero_grad(set_to_none=True)
        assert isinstance(self.passes, Passes)  # config._problems
        self.passes.hessian(portion.micros, factor, self.config.seed, step)
        if math.isfinite(clip(parameters, None, self.scaler.scale, self.world).item()):
            sophia.observe(labels)  # else fp16 overflowed
        for parameter, gradient in zip(parameters, kept, strict=True):
            parameter.grad = gradient

    def write(self, result: Result) -> None:
        """Logs a step."""
        key = self.loader.batches.key(self.step - 1)
        self.replay.check(self.step, result.digest, key)
        self.metrics.batch(self.step, result.digest, key)
        self.metrics.health(self.step, loss=result.loss, norm=result.norm, rate=result.rate)
        if self.step % self.config.log.every == 0 or self.step == self.steps:
            self.metrics.say(f"step {self.step}/{self.steps}  loss {result.loss:.4f}")

    def _open(self, starts: bool = False) -> Loader:
        """The loader of the batches as the logs are now; where a start `starts`, its mixture is in
        force from the next block on."""
        done = self.step if starts else None
        batches = open_batches(self.config, self.manifest, self.world, self.steps, done)
        micro_batch, prefetch = self.config.train.micro_batch, self.config.data.prefetch
        return Loader(batches, self.objective, self.world, micro_batch, prefetch)


def read(numbers: Tensor, counts: Tensor) -> tuple[list[float], list[int]]:
    """The values of an fp64 and an int64 tensor of one device, fetched from it together."""
    together = torch.cat([numbers.view(torch.int64), counts]).cpu()
    fractions, whole = torch.split(together, [len(numbers), len(counts)])
    return fractions.view(torch.float64).tolist(), whole.tolist()


def main(config: knobs.Config, world: World) -> dict[str, Any]:
    """Trains. Raises Interrupted, ConfigError, ManifestError."""
    trainer = Trainer(config, world)
    try:
        trainer.train()
    finally:
        trainer.loader.close()
        trainer.metrics.close()
    return {"step": trainer.step}
