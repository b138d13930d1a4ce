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

import numpy as np
import torch
from torch import Tensor

from manifests.tokens import Manifest
from training import config as knobs
from training import optim, passes
from training.checkpoint import CheckpointError, Checkpoints, described
from training.data.batches import ranges
from training.data.loader import Loader, Portion
from training.data.logs import Skip, append
from training.data.opening import open_batches, open_replay
from training.flops import flops_per_token, parameters
from training.gradients import clip
from training.guard import Guard, Spike, reason_of, report, rollbacks, write_report
from training.layout import IGNORED
from training.meter import Facts, Meter, peak, wanted
from training.metrics import Metrics
from training.model import Shape
from training.objectives import Objective
from training.optim import Sophia
from training.parallel import build, fill
from training.passes import Passes
from training.plan import fitted
from training.precision import Scaler
from training.run import open_run, started, steps_of
from training.stop import Failed, Interrupted, Stop
from training.supervise import alert
from training.tables import count
from training.trained import bytes_of_tokens
from training.validate import Held, held_out, scores
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
    tokens: list[int]  # of each source, without padding
    digest: str  # of the batch, 16 hex digits
    waited: float  # seconds for the batch
    seconds: float
    skipped: bool  # no update was made, since loss or norm are not finite
    overflow: bool  # skipped for the scale of fp16, which was lowered: no affair of the guard


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
        self.micro_batch = fitted(config, self.shape, world)
        self.model = build(config, self.shape, world)
        sources = len(self.manifest.sources)
        self.passes = passes.choose(self.model, world, sources, config.parallel)
        self.optimizer = optim.build(self.model, config.optimizer)
        self.scaler = Scaler(config.parallel)
        self.checkpoints = Checkpoints(self.run, config.checkpoint, world)
        self.metrics = Metrics(self.run, config.log, world.first)
        self.metrics.start = self.start
        self.meter = Meter(self._facts())
        self.guard = Guard(config.guard)
        self.stop = Stop(world)
        self.held: Held | None = None  # held-out rows, once they have been read
        self.step = self.saved = 0  # steps that are done, and that the last checkpoint holds
        self.replay = open_replay(self.run, world)
        self.loader = self._open()

    # ------------------------------------------------------------ the run

    def train(self) -> None:
        """From the last complete checkpoint, or from nothing, to the last step. Raises Interrupted
        where it was asked to stop and has saved."""
        self.resume()
        self.loader.close()
        self.loader = self._open(starts=True)
        place = {"micro_batch": self.micro_batch, **started(self.world)}
        self.metrics.event("start", start=self.start, step=self.step, **place)
        self.metrics.say(self._beginning())
        while self.step < self.steps:
            if self.stop.wanted():
                self.interrupt()
            result = self.one(self.step)
            self.step += 1
            self.checkpoints.reserve(self.model, self.optimizer)
            self.write(result)
            self.stop.beat(self.step)
            norm = None if result.overflow else result.norm  # fp16's scale was too large: no spike
            if spike := self.guard.look(self.step - 1, result.loss, norm):
                self.stop.pause()
                self.back(spike)
                continue
            if self._due(self.config.validation.every):
                self.validate()
            if self._due(self.config.checkpoint.every):
                self.save()
        self.checkpoints.wait()

    def _beginning(self) -> str:
        """What is trained, where, and from which step on: the first line that people see."""
        size, length = count(parameters(self.shape)[0]), self.manifest.sequence_length
        ranks = f", {self.world.size} ranks" if self.world.size > 1 else ""
        return (
            f"{self.run}: {size} parameters, {self.config.train.batch:,} rows of {length:,} tokens "
            f"a step, {self.world.device.type}{ranks}; step {self.step:,} of {self.steps:,}"
        )

    def interrupt(self) -> NoReturn:
        """Saves what is not saved, and raises Interrupted."""
        if self.step != self.saved:
            self.save()
        self.checkpoints.wait()
        self.metrics.event("interrupted", step=self.step)
        raise Interrupted(f"asked to stop; {self.step} of {self.steps} steps are done and saved")

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
        self.initial()

    def initial(self) -> None:
        """Weights of `checkpoint.init_from` in the place of the first values."""
        if self.config.checkpoint.init_from is not None:
            begun = begin_from(self.config, self.shape, self.manifest, self.model, self.world)
            self.metrics.event("init_from", **begun)

    def _due(self, every: int | None) -> bool:
        """Whether something that happens so often does after this step; it does after the last."""
        return self.step == self.steps or (every is not None and self.step % every == 0)

    def validate(self) -> None:
        """Held-out loss, of every source that has held-out rows."""
        self.stop.pause()
        if self.held is None:
            self.held = held_out(
                self.loader.batches.reader,
                self.objective,
                bytes_of_tokens(self.manifest),
                micro_batch=self.micro_batch,
                most=self.config.validation.rows,
                rank=self.world.data_rank,
                ranks=self.world.data_ranks,
            )
        if not self.held.micros:
            return
        sums = self.world.sum(self.passes.evaluate(self.held.micros))
        losses, labels = sums[1:].cpu().numpy().reshape(2, -1)
        found = scores(self.manifest.names, self.held, losses, labels)
        own = {score.source: score.record() for score in found}
        if whole := own.pop("all", None):
            self.metrics.validation(self.step, **whole, sources=own)
            self.metrics.say(f"step {self.step}: held-out {found[-1].line()}")

    def save(self) -> None:
        """A checkpoint of the steps done so far."""
        self.stop.pause()
        began = time.perf_counter()
        state = {
            **described(self.config, self.shape, self.manifest),
            "step": self.step,
            "samples": self.step * self.config.train.batch,
            "prefix": self.loader.batches.prefix(self.step),
            "guard": self.guard.state(),
            "meter": self.meter.state(),
            "scaler": self.scaler.state(),
        }
        self.checkpoints.save(self.step, self.model, self.optimizer, state)
        self.saved = self.step
        self.meter.saved(time.perf_counter() - began)
        self.metrics.plot()

    def restore(self, step: int) -> None:
        """Goes to a complete checkpoint."""
        state = self.checkpoints.load(step, self.model, self.optimizer)
        self.loader.batches.check(step, state["prefix"])
        self.guard.load(state["guard"])
        self.meter.load(state["meter"])
        self.scaler.load(state["scaler"])
        self.step = self.saved = step

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
            said = ", ".join(f"{begin} to {end - 1}" for begin, end in holes)
            self.metrics.say(f"back to step {to}; samples {said} are left out")
        self.world.barrier()
        self.loader.close()
        self.loader = self._open()
        if to:
            self.restore(to)
        else:
            self.begin()

    def begin(self) -> None:
        """Makes everything as it was before the first step."""
        fill(self.model, self.config, str(next(self.model.parameters()).device))
        self.initial()
        self.optimizer = optim.build(self.model, self.config.optimizer)
        self.scaler, self.guard = Scaler(self.config.parallel), Guard(self.config.guard)
        self.meter = Meter(self._facts())
        self.step = self.saved = 0

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
        (total, *by_source, whole), (labels, digest, *tokens) = read(numbers, counts)
        finite = math.isfinite(total) and math.isfinite(whole)
        rate = optim.rate(step, self.steps, self.config.optimizer, self.config.schedule)
        if finite:
            self.checkpoints.settle()
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
            tokens=tokens,
            digest=f"{digest & (1 << 64) - 1:016x}",
            waited=portion.waited,
            seconds=time.perf_counter() - began,
            skipped=not finite,
            overflow=lowered and math.isfinite(total),
        )

    def _counts(self, portion: Portion) -> Tensor:
        """Labels of the whole batch, its digest, and its tokens by source: (2 + sources,) int64, on
        the device."""
        own = sum(int((micro.labels != IGNORED).sum()) for micro in portion.micros)
        counts = torch.tensor([own, portion.digest, *portion.tokens], dtype=torch.int64)
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

    def _open(self, starts: bool = False) -> Loader:
        """The loader of the batches as the logs are now; where a start `starts`, its mixture is in
        force from the next block on."""
        done = self.step if starts else None
        batches = open_batches(self.config, self.manifest, self.world, self.steps, done)
        prefetch = self.config.data.prefetch
        return Loader(batches, self.objective, self.world, self.micro_batch, prefetch)


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
        trainer.checkpoints.close()
        trainer.loader.close()
        trainer.metrics.close()
    return {"step": trainer.step}
