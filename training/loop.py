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

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from manifests.tokens import Manifest
from training import config as knobs
from training import optim
from training.checkpoint import Checkpoints
from training.data.batches import Batches
from training.data.loader import Loader, Portion
from training.data.logs import Logs, Skip, append
from training.flops import flops_per_token
from training.guard import (
    Guard,
    Spike,
    alert,
    ranges,
    reason_of,
    report,
    rollbacks,
    write_report,
)
from training.layout import IGNORED
from training.meter import Facts, Meter, peak, wanted
from training.metrics import Metrics
from training.model import Shape
from training.objectives import Objective
from training.parallel import build, fill
from training.passes import Passes
from training.precision import Scaler
from training.run import open_run
from training.stop import Failed, Interrupted, Stop
from training.world import World


@dataclass(frozen=True)
class Result:
    """What a step gave, over all ranks."""

    loss: float  # per token that has a label, with the z-loss
    norm: float  # of all gradients, before clipping
    rate: float  # the learning rate
    labels: int  # tokens that were predicted
    by_source: list[tuple[float, int]]  # sum of cross-entropy, and labels, of each source
    tokens: list[int]  # of each source, without padding
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
        self.meter = Meter(self._facts())
        self.guard = Guard(config.guard)
        self.stop = Stop(world)
        self.step = 0
        self.loader = self._open()

    # ------------------------------------------------------------ the run

    def train(self) -> None:
        """From the last complete checkpoint, or from nothing, to the last step. Raises Interrupted
        where it was asked to stop and has saved."""
        if saved := self.checkpoints.steps():
            self.restore(saved[-1])
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

    def save(self) -> None:
        """A checkpoint of the steps done so far."""
        began = time.perf_counter()
        state = {
            "step": self.step,
            "guard": self.guard.state(),
            "meter": self.meter.state(),
            "scaler": self.scaler.state(),
        }
        self.checkpoints.save(self.step, self.model, self.optimizer, state)
        self.meter.saved(time.perf_counter() - began)
        self.metrics.plot()

    def restore(self, step: int) -> None:
        """Goes to a complete checkpoint."""
        state = self.checkpoints.load(step, self.model, self.optimizer)
        self.guard.load(state["guard"])
        self.meter.load(state["meter"])
        self.scaler.load(state["scaler"])
        self.step = step

    def back(self, spike: Spike) -> None:
        """Goes back before a spike and leaves its batches out from now on.

        A kill is safe at every point: as long as the skips are not written, checkpoints that hold
        the spike's batches are only missing, and the steps lead to the spike again; once they are,
        the run goes on from a checkpoint that does not. Raises Failed, with all as it was, after
        as many rollbacks as are allowed.
        """
        self.checkpoints.wait()
        batches = self.loader.batches
        number = rollbacks(batches.logs) + 1
        to = self.guard.target(spike, self.checkpoints.steps())
        losses = self._losses(spike)
        allowed = number <= self.config.guard.retries
        reason = reason_of(number, spike)
        if self.world.first:
            text = write_report(self.run, number, report(batches, spike, losses))
            self.metrics.event("spike", step=spike.step + 1, reason=spike.reason, report=text.name)
            self.metrics.say(f"step {spike.step + 1}: {spike.reason}; see {text}")
            if allowed:
                alert(self.config, reason)
        self.world.barrier()  # a rank that fails at once would take the first one's report along
        if not allowed:
            raise Failed(
                f"{spike.reason} at step {spike.step + 1}, after {number - 1} rollbacks "
                f"(guard.retries)"
            )
        self.checkpoints.forget(to)
        if self.world.first:
            holes = ranges(np.concatenate([batches.samples(step) for step in spike.steps]))
            append(self.run, [Skip(*hole, reason) for hole in holes])
            self.metrics.event(
                "rollback", number=number, spike=spike.step + 1, step=to, skipped=holes
            )
            self.metrics.say(f"back to step {to}; samples {holes} are left out")
        self.world.barrier()
        self.loader.close()
        self.loader = self._open()
        if to:
            self.restore(to)
        else:
            self.begin()

    def begin(self) -> None:
        """Makes everything as it was before the first step."""
        fill(self.model, self.config, str(self.world.device))
        self.optimizer = optim.build(self.model, self.config.optimizer)
        self.scaler, self.guard = Scaler(self.config.parallel), Guard(self.config.guard)
        self.meter, self.step = Meter(self._facts()), 0

    def _losses(self, spike: Spike) -> dict[int, tuple[float, int]]:
        """Cross-entropy and labels of the samples of a spike's own batch, from all ranks."""
        own: dict[int, tuple[float, int]] = {}
        micros = self.loader.get(spike.step).micros
        for micro, losses in zip(micros, self.passes.by_row, strict=False):
            labels = (micro.labels != IGNORED).sum(1)
            values = zip(losses.tolist(), labels.tolist(), strict=True)
            own.update(zip(micro.samples.tolist(), values, strict=True))
        return {sample: both for rank in self.world.gather(own) for sample, both in rank.items()}

    # ------------------------------------------------------------ a step

    def one(self, step: int) -> Result:
        """One step: gradients of the whole batch, clipped, and an update."""
        began = time.perf_counter()
        portion = self.loader.get(step)
        labels, digest, tokens = self._counts(portion)
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
            tokens=tokens,
            digest=digest,
            waited=portion.waited,
            seconds=time.perf_counter() - began,
        )

    def _counts(self, portion: Portion) -> tuple[int, str, list[int]]:
        """Labels of the whole batch (at least 1), its digest, and its tokens by source."""
        own = sum(int((micro.labels != IGNORED).sum()) for micro in portion.micros)
        counts = torch.tensor([own, portion.digest, *portion.tokens], dtype=torch.int64)
        labels, digest, *tokens = self.world.sum(counts.to(self.world.device)).tolist()
        return max(labels, 1), f"{digest & (1 << 64) - 1:016x}", tokens

    def _factor(self, labels: int) -> Tensor:
        """What the sum of losses is multiplied by before the backward pass."""
        return torch.tensor(self.scaler.scale / labels, device=self.world.device)

    def write(self, result: Result) -> None:
        """Logs a step."""
        self.metrics.batch(self.step, result.digest, "")
        weights = wanted(self.loader.batches, self.step - 1)
        self.metrics.health(self.step, **self.meter.health(result, weights))
        due = self.step % self.config.log.every == 0 or self.step == self.steps
        if due:
            self.metrics.operations(self.step, **self.meter.operations(self.world.device))
        self.metrics.progress(self.meter.line(self.step, result), due)

    def _facts(self) -> Facts:
        """What the meter wants to know of the run."""
        length, device = self.objective.length(self.manifest.sequence_length), self.world.device
        return Facts(
            sources=self.manifest.names,
            steps=self.steps,
            tokens=self.config.train.batch * length,
            flops=flops_per_token(self.shape, length),
            ranks=self.world.size,
            peak=peak(torch.cuda.get_device_name(device)) if device.type == "cuda" else None,
        )

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
        trainer.loader.close()
        trainer.metrics.close()
    return {"step": trainer.step}
