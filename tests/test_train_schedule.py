"""Learning rates: what they are at the ends and between them, and after a resume."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.ranks import run_ranks
from tests.trainers import config
from training import loop, world
from training.config import Config, Optimizer, Schedule
from training.optim import rate

KINDS = ("cosine", "wsd", "constant")
PEAK, LEAST = 3e-4, 3e-5


def rates(steps: int, schedule: Schedule) -> list[float]:
    """Of all steps of a run."""
    optimizer = Optimizer(lr=PEAK, min_lr=LEAST)
    return [rate(step, steps, optimizer, schedule) for step in range(steps)]


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, Schedule]:
    """Steps, and a schedule whose warm-up fits."""
    steps = draw(st.integers(1, 300))
    kind, shape = draw(st.sampled_from(KINDS)), draw(st.sampled_from(("linear", "sqrt")))
    warmup, decay = draw(st.integers(0, steps)), draw(st.floats(1e-3, 1.0))
    return steps, Schedule(kind, warmup, decay, shape)


@given(runs())
@example((216, Schedule("constant", warmup=215)))  # PEAK * 215 / 215 is below PEAK
def test_up_in_equal_parts_then_down_and_never_up_again(run: tuple[int, Schedule]) -> None:
    steps, schedule = run
    found = rates(steps, schedule)
    up, down = found[: schedule.warmup], found[max(0, schedule.warmup - 1) :]
    assert up == pytest.approx([PEAK * (n + 1) / schedule.warmup for n in range(len(up))])
    assert down == sorted(down, reverse=True)
    assert max(found) == pytest.approx(PEAK)
    assert min(down) >= LEAST * (1 - 1e-12)


@given(runs())
def test_the_last_step_has_the_least_rate(run: tuple[int, Schedule]) -> None:
    steps, schedule = run
    last = rates(steps, schedule)[-1]
    falls = schedule.kind != "constant" and schedule.warmup < steps and steps > 1
    assert last == pytest.approx(LEAST if falls else PEAK, rel=1e-12)


def test_cosine_is_the_mean_of_both_ends_half_way() -> None:
    found = rates(111, Schedule("cosine", warmup=11))  # the peak is in step 10, the end in step 110
    assert found[60] == pytest.approx((PEAK + LEAST) / 2)
    assert found[35] == pytest.approx(LEAST + (PEAK - LEAST) * (1 + 0.5**0.5) / 2)


@pytest.mark.parametrize(("shape", "quarter"), [("linear", 0.75), ("sqrt", 0.5)])
def test_wsd_is_stable_up_to_its_decay(shape: Any, quarter: float) -> None:
    found = rates(200, Schedule("wsd", warmup=20, decay=0.2, shape=shape))
    assert found[19:160] == [found[19]] * 141
    assert found[160] < found[159]
    assert found[169] == pytest.approx(LEAST + (PEAK - LEAST) * quarter)  # 10 of 40 steps down


def test_a_longer_wsd_run_has_the_same_stable_part() -> None:
    """What wsd is for: going on from before the decay."""
    schedule = Schedule("wsd", warmup=10, decay=0.1)
    assert rates(100, schedule)[:90] == rates(1000, schedule)[:90]


@given(runs())
def test_no_step_is_a_jump(run: tuple[int, Schedule]) -> None:
    """But for the root, whose slope has no bound: no step changes more than the steepest part."""
    steps, schedule = run
    if schedule.shape == "sqrt":
        return
    found = [0.0, *rates(steps, schedule)] if schedule.warmup else rates(steps, schedule)
    after = steps - max(1, schedule.warmup)
    down = after if schedule.kind == "cosine" else min(after, max(1, round(schedule.decay * steps)))
    most = max(PEAK / max(1, schedule.warmup), 1.5708 * (PEAK - LEAST) / max(1, down))
    assert all(abs(b - a) <= most * (1 + 1e-9) for a, b in pairwise(found))


Seen = list[tuple[float, float]]


def resumed(configs: list[Config]) -> list[tuple[Seen, Seen]]:
    """Of each run, rates and losses of the last three of six steps: in one go, and after a
    resume."""
    here = world.join(configs[0])
    return [both(config, here) for config in configs]


def both(config: Config, here: world.World) -> tuple[Seen, Seen]:
    """Of one run."""
    kept: Seen = []
    first = loop.Trainer(config, here)
    for step in range(6):
        if step == 3:
            first.step = 3
            first.save()
            first.checkpoints.wait()
        result = first.one(step)
        if step >= 3:
            kept.append((result.rate, result.loss))
    second = loop.Trainer(config, here)
    second.restore(3)
    again = [second.one(step) for step in range(3, 6)]
    return kept, [(result.rate, result.loss) for result in again]


def test_a_resumed_run_has_the_rates_and_losses_of_an_undisturbed_one(
    toy_manifest: Path, tmp_path: Path
) -> None:
    knobs = ("optimizer.hessian_every=2", "schedule.kind=wsd", "schedule.decay=0.5")
    kinds = ("adamw", "lion", "adafactor", "sophia")
    each = [
        config(toy_manifest, tmp_path / kind, f"optimizer.kind={kind}", *knobs) for kind in kinds
    ]
    for undisturbed, after in run_ranks(1, resumed, each)[0]:
        assert after == undisturbed
        assert len({rate for rate, _ in after}) == 3
