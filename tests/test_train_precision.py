"""fp16's dynamic loss scale, and steps that are left out."""

from __future__ import annotations

import math
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ranks import run_ranks
from tests.trainers import config
from training import config as knobs
from training import loop, world
from training.layout import Micro
from training.precision import Scaler

FP16 = knobs.Parallel(precision="fp16")


def test_the_scale_doubles_after_two_thousand_finite_steps() -> None:
    scaler = Scaler(FP16)
    for _ in range(1999):
        assert not scaler.update(True)
    assert scaler.scale == 2**16
    scaler.update(True)
    assert scaler.scale == 2**17
    for _ in range(1999):
        scaler.update(True)
    assert scaler.scale == 2**17


def test_the_scale_halves_at_once_and_counts_anew() -> None:
    scaler = Scaler(FP16)
    for _ in range(1999):
        scaler.update(True)
    assert scaler.update(False)
    assert scaler.scale == 2**15
    scaler.update(True)
    assert scaler.scale == 2**15


def test_the_scale_is_not_to_blame_once_it_is_one() -> None:
    scaler = Scaler(FP16)
    assert [scaler.update(False) for _ in range(18)] == [True] * 16 + [False] * 2
    assert scaler.scale == 1


def test_a_restored_scale_goes_on_as_the_old_one() -> None:
    scaler, other = Scaler(FP16), Scaler(FP16)
    scaler.update(False)
    for _ in range(1500):
        scaler.update(True)
    other.load(scaler.state())
    for _ in range(500):
        assert scaler.update(True) == other.update(True)
        assert scaler.state() == other.state()
    assert other.scale == 2**16


def test_other_precisions_have_no_scale() -> None:
    scaler = Scaler(knobs.Parallel(precision="bf16"))
    assert not scaler.update(False)
    assert scaler.scale == 1
    fp16 = Scaler(FP16)
    fp16.load(scaler.state())  # a run that was begun in bf16
    assert fp16.scale == 2**16


class Poisoned(loop.Trainer):
    """A trainer one of whose steps has a gradient of a given value, on the last rank only."""

    def poison(self, step: int, value: float) -> None:
        """From now on."""
        plain, self.seen = self.passes.run, []
        look = self.guard.look

        def run(micros: list[Micro], factor: Tensor) -> Tensor:
            sums = plain(micros, factor)
            if self.step == step and self.world.rank == self.world.size - 1:
                gradient = next(self.model.parameters()).grad
                gradient.to_local().view(-1)[0] = value
            return sums

        def seen(step: int, loss: float, norm: float | None) -> Any:
            self.seen.append((step, math.isfinite(loss), None if norm is None else norm == norm))
            return look(step, loss, norm if norm == norm else None)

        self.passes.run, self.guard.look = run, seen  # type: ignore[method-assign]


def snapshot(trainer: loop.Trainer) -> list[Tensor]:
    """Bits of all that a step may move on this rank."""
    moved = [*trainer.model.parameters()]
    for state in trainer.optimizer.state.values():
        moved += state.values()
    return [(t.to_local() if hasattr(t, "to_local") else t).detach().clone() for t in moved]


def poisoned(configs: list[knobs.Config], value: float) -> list[dict[str, Any]]:
    """Three steps of each run, the second of which is poisoned."""
    here = world.join(configs[0])
    return [three(Poisoned(config, here), value) for config in configs]


def three(trainer: Poisoned, value: float) -> dict[str, Any]:
    """Of one run."""
    trainer.poison(1, value)
    results, states, scales = [], [snapshot(trainer)], [trainer.scaler.scale]
    for step in range(3):
        trainer.step = step
        results.append(trainer.one(step))
        states.append(snapshot(trainer))
        scales.append(trainer.scaler.scale)
    same = [all(map(torch.equal, a, b)) for a, b in pairwise(states)]
    return {
        "same": same,
        "scales": scales,
        "skipped": [result.skipped for result in results],
        "overflow": [result.overflow for result in results],
        "norms": [math.isfinite(result.norm) for result in results],
    }


def test_a_step_that_is_not_finite_on_one_rank_moves_nothing_on_any(
    toy_manifest: Path, tmp_path: Path
) -> None:
    """Parameters, moments and counts of updates are bitwise what they were; the next step moves
    them."""
    knobs = ("optimizer.hessian_every=1", "train.micro_batch=4")
    kinds = ("adamw", "lion", "adafactor", "sophia")
    each = [
        config(toy_manifest, tmp_path / kind, f"optimizer.kind={kind}", *knobs) for kind in kinds
    ]
    for found in chain.from_iterable(run_ranks(2, poisoned, each, math.nan)):
        assert found["same"] == [False, True, False]
        assert found["skipped"] == [False, True, False]
        assert found["norms"] == [True, False, True]
        assert not any(found["overflow"])


def test_an_overflow_of_fp16_halves_the_scale_and_is_no_affair_of_the_guard(
    toy_manifest: Path, tmp_path: Path
) -> None:
    here = config(toy_manifest, tmp_path, "parallel.precision=fp16", "train.micro_batch=4")
    for (found,) in run_ranks(2, poisoned, [here], math.inf):
        assert found["same"] == [False, True, False]
        assert found["scales"] == [2**16, 2**16, 2**15, 2**15]
        assert found["skipped"] == found["overflow"] == [False, True, False]


def watched(config: knobs.Config) -> list[tuple[int, bool, bool | None]]:
    """What the guard is shown of a run whose second step is poisoned."""
    trainer = Poisoned(config, world.join(config))
    trainer.poison(1, math.nan)
    trainer.train()
    return trainer.seen


@pytest.mark.parametrize(("precision", "shown"), [("fp32", True), ("bf16", True), ("fp16", False)])
def test_the_guard_sees_what_is_not_finite_but_for_overflows(
    toy_manifest: Path, tmp_path: Path, precision: str, shown: bool
) -> None:
    overrides = (f"parallel.precision={precision}", "train.steps=3")
    seen = run_ranks(1, watched, config(toy_manifest, tmp_path, *overrides))[0]
    assert [(step, loss) for step, loss, _ in seen] == [(0, True), (1, True), (2, True)]
    assert [norm for _, _, norm in seen] == [True, False if shown else None, True]


def scaled(config: knobs.Config, scale: float) -> list[tuple[float, float]]:
    """Losses and norms of three steps with a scale."""
    trainer = loop.Trainer(config, world.join(config))
    trainer.scaler.scale = scale
    results = [trainer.one(step) for step in range(3)]
    return [(result.loss, result.norm) for result in results]


def test_gradients_are_unscaled_before_they_are_clipped(toy_manifest: Path, tmp_path: Path) -> None:
    """Any power of two gives bitwise the same in fp32; the norm is that of the gradients."""
    here = config(toy_manifest, tmp_path, "optimizer.clip=0.5")
    plain, high = (run_ranks(1, scaled, here, scale)[0] for scale in (1.0, 2.0**16))
    assert high == plain
    assert all(norm > 0.5 for _, norm in plain)


def test_fp16_learns_as_fp32_does(toy_manifest: Path, tmp_path: Path) -> None:
    wanted = run_ranks(1, scaled, config(toy_manifest, tmp_path / "32"), 1.0)[0]
    half = config(toy_manifest, tmp_path / "16", "parallel.precision=fp16")
    found = run_ranks(1, scaled, half, 2.0**16)[0]
    assert [loss for loss, _ in found] == pytest.approx([loss for loss, _ in wanted], rel=2e-3)
    assert [norm for _, norm in found] == pytest.approx([norm for _, norm in wanted], rel=3e-2)
