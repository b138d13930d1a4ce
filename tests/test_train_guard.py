"""The guard: what a spike is, and that a rollback leaves out its batches and nothing else."""

from __future__ import annotations

import json
import math
import os
import random
import statistics
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

from manifests.tokens import Manifest
from manifests.trace import sequence
from tests.ranks import run_ranks
from tests.trainers import config, lines
from training import checkpoint, guard, loop, world
from training.config import Config
from training.config import Guard as Knobs
from training.data.batches import ranges
from training.data.logs import Logs, Skip, append
from training.guard import Guard, Spike, rollbacks
from training.layout import Micro
from training.metrics import read
from training.passes import Passes

# ---------------------------------------------------------------- what a spike is


def looked(values: Iterable[float], **knobs: Any) -> tuple[Guard, Spike | None]:
    """A guard that has seen losses in turn (the norm is always 1), and the first spike."""
    own = Guard(Knobs(**knobs))
    for step, value in enumerate(values):
        if spike := own.look(step, value, 1.0):
            return own, spike
    return own, None


def noise(steps: int, seed: int = 0) -> list[float]:
    drawn = random.Random(seed)
    return [3.0 + drawn.gauss(0, 0.1) for _ in range(steps)]


def test_z_scores_are_those_of_median_and_mad_of_the_last_steps() -> None:
    past = noise(200)
    _, spike = looked([*past, 9.0], window=50, z=8.0)
    assert spike is not None and spike.step == 200
    middle = float(np.median(past[-50:]))
    mad = float(np.median(np.abs(np.array(past[-50:]) - middle)))
    assert spike.measures["loss"].z == pytest.approx((9.0 - middle) / (1.4826 * mad))
    assert spike.measures["loss"].median == pytest.approx(middle)
    assert spike.measures["loss"].steps == 50
    assert "loss 9" in spike.reason and "\n" not in spike.reason


def test_the_threshold_is_a_z_score() -> None:
    past = noise(100)
    middle = statistics.median(past)
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in past)
    assert looked([*past, middle + 7.99 * deviation], z=8.0)[1] is None
    assert looked([*past, middle + 8.01 * deviation], z=8.0)[1] is not None


def test_falling_is_no_spike() -> None:
    assert looked([*noise(100), 0.001, -50.0])[1] is None


def test_norms_are_looked_at_too() -> None:
    own = Guard(Knobs())
    for step, value in enumerate(noise(64)):
        assert own.look(step, 2.0, value) is None
    spike = own.look(64, 2.0, 300.0)
    assert spike is not None and "norm" in spike.reason


def test_nothing_but_what_is_not_finite_is_a_spike_before_enough_steps_were_seen() -> None:
    assert looked([*noise(31), 1e9], least=32)[1] is None
    assert looked([*noise(32), 1e9], least=32)[1] is not None
    for bad in (math.nan, math.inf, -math.inf):
        assert looked([bad])[1] is not None
        assert Guard(Knobs()).look(0, 1.0, bad) is not None


def test_norms_that_differ_by_factors_are_normal() -> None:
    """Norms of small batches: of 2,000 the largest is some eight times the median."""
    drawn = random.Random(1)
    norms = [math.exp(drawn.gauss(0, 0.6)) for _ in range(2000)]
    own = Guard(Knobs())
    assert not any(own.look(step, 2.0, norm) for step, norm in enumerate(norms))
    assert max(norms) > 5
    spike = own.look(2000, 2.0, 1000.0)
    assert spike is not None and 0.7 < (spike.measures["norm"].median or 0) < 1.4


def test_a_norm_of_zero_is_no_accident() -> None:
    own = Guard(Knobs())
    norms = [0.0 if step % 50 == 7 else 1.0 + step % 3 / 10 for step in range(200)]
    assert not any(own.look(step, 2.0, norm) for step, norm in enumerate(norms))
    assert own.look(200, 2.0, 100.0) is not None


def test_a_norm_that_is_not_to_be_judged_is_passed_over() -> None:
    own = Guard(Knobs(least=4))
    for step in range(8):
        assert own.look(step, 2.0, None if step % 2 else 1.0) is None
    assert own.look(8, math.nan, None) is not None
    spike = own.look(8, 2.0, 50.0)
    assert spike is not None and spike.measures["norm"].steps == 4


@pytest.mark.parametrize("value", [2.5, 0.0])
def test_equal_values_make_no_spike_of_a_small_change(value: float) -> None:
    """MAD is 0; a deviation is at least 1 % of the median."""
    assert looked([value] * 64 + [value * 1.07])[1] is None
    assert looked([value] * 64 + [value * 1.09 + 0.1])[1] is not None


def test_the_steps_that_led_up_to_it_are_part_of_it() -> None:
    past = noise(100)
    middle = statistics.median(past)
    own, _ = looked(past)
    deviation = own._measure(0.0, past).sigma
    assert deviation is not None

    def first(*zs: float) -> int:
        _, spike = looked([*past, *(middle + z * deviation for z in zs)], z=8.0)
        assert spike is not None and spike.step == 100 + len(zs) - 1
        return spike.first

    assert first(20.0) == 100
    assert first(5.0, 20.0) == 100
    assert first(3.0, 20.0) == 101
    assert first(5.0, 2.0, 20.0) == 102  # what calmed down again has done nothing
    assert first(5.0, 6.5, 20.0) == 100


def test_a_disabled_guard_sees_nothing() -> None:
    assert Guard(Knobs(enabled=False)).look(0, math.nan, math.nan) is None


def test_a_restored_guard_decides_as_one_that_was_not_disturbed() -> None:
    values = [*noise(60, seed=3), 3.3, 3.5, 4.4]
    whole, spike = looked(values, least=8, window=40)
    own = Guard(Knobs(least=8, window=40))
    for step, value in enumerate(values):
        state = json.loads(json.dumps(own.state()))
        own = Guard(Knobs(least=8, window=40))
        own.load(state)
        found = own.look(step, value, 1.0)
    assert found == spike and spike is not None
    assert own.state() == whole.state()


def test_where_to_go_back_to() -> None:
    own, spike = Guard(Knobs(rollback=100)), Spike(400, 390, "")
    assert own.target(spike, [100, 200, 290, 291, 400]) == 290
    assert own.target(spike, [300, 350, 395, 401]) == 300  # none is so old: the oldest
    assert own.target(spike, [391, 400]) == 0  # these hold the batches that did it
    assert own.target(spike, []) == 0


def test_samples_about_an_earlier_hole_are_several_ranges() -> None:
    logs = Logs(skips=(Skip(10, 12, ""),))
    assert ranges(logs.samples(8, 4)) == [(8, 10), (12, 14)]
    assert ranges(np.arange(3, 7)) == [(3, 7)]
    assert ranges(np.arange(0)) == []


def test_rollbacks_are_counted_once_whatever_they_left_out() -> None:
    spike = Spike(6, 6, "loss is nan")
    first, second = guard.reason_of(1, spike), guard.reason_of(2, spike)
    skips = (Skip(0, 1, first), Skip(2, 3, first), Skip(4, 5, second), Skip(8, 9, "by hand"))
    assert rollbacks(Logs(skips=skips)) == 2


# ---------------------------------------------------------------- going back

BATCH = 8
QUICK = (
    *("train.steps=10", "checkpoint.every=2", "guard.rollback=3", "guard.least=3"),
    *("optimizer.lr=1e-3", "checkpoint.keep=0", "train.micro_batch=2", "data.digests=false"),
    "guard.z=20",
)


class Poisoned(Passes):
    """Passes in which some samples do harm, whichever step they are in: their micro-batches' losses
    are multiplied."""

    poison: tuple[tuple[range, float], ...] = ()

    def run(self, micros: list[Micro], factor: Tensor) -> Tensor:
        for samples, harm in self.poison:
            if any(sample in samples for micro in micros for sample in micro.samples.tolist()):
                sums = super().run(micros, factor * harm)
                sums[: 1 + self.sources] *= harm
                return sums
        return super().run(micros, factor)


def trained(
    config: Config,
    poison: tuple[tuple[range, float], ...] = (),
    patches: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains with poisoned samples and other patches; everything that the run has made, whole."""
    Poisoned.poison = poison
    for name, value in ({"training.passes.Passes": Poisoned} | (patches or {})).items():
        mock.patch(name, value).start()  # in a process of its own
    trainer = loop.Trainer(config, world.join(config))
    trainer.train()
    found = {
        **get_model_state_dict(trainer.model),
        **flat(get_optimizer_state_dict(trainer.model, trainer.optimizer)["state"]),
    }
    tensors = {
        name: (value.full_tensor() if hasattr(value, "full_tensor") else value).numpy()
        for name, value in found.items()
        if isinstance(value, Tensor)
    }
    return {"tensors": tensors, "guard": trainer.guard.state(), "meter": trainer.meter.state()}


def flat(values: dict[str, Any], where: str = "") -> dict[str, Any]:
    found = {}
    for name, value in values.items():
        inner = flat(value, f"{where}{name}.") if isinstance(value, dict) else {where + name: value}
        found.update(inner)
    return found


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Both runs have made the same bits, on all ranks."""
    for own in (*one, *other):
        assert own["guard"] == one[0]["guard"]
        assert own["meter"] == one[0]["meter"]
        assert own["tensors"].keys() == one[0]["tensors"].keys()
        for name, value in own["tensors"].items():
            assert np.array_equal(value, one[0]["tensors"][name]), name


def with_hole(manifest: Path, run: Path, holes: list[tuple[int, int]], ranks: int = 1) -> Any:
    """A run that never saw some samples."""
    run.mkdir()
    append(run, [Skip(*hole, "from the start") for hole in holes])
    return run_ranks(ranks, trained, config(manifest, run, *QUICK))


@pytest.fixture(scope="module")
def undisturbed(
    toy_manifest: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """One rank, with the batch of step 7 (from 0) left out from the start."""
    return with_hole(toy_manifest, tmp_path_factory.mktemp("hole") / "run", [(56, 64)])


BAD = (range(58, 59), 1e4)  # one sample, of the batch of step 7


@pytest.mark.parametrize("harm", [1e4, math.nan])
def test_a_spike_is_gone_back_before_and_its_batch_left_out(
    toy_manifest: Path, tmp_path: Path, harm: float
) -> None:
    """On two ranks, one of which has the sample: everything is as if it had never been seen."""
    run = tmp_path / "run"
    found = run_ranks(
        2, trained, config(toy_manifest, run, *QUICK), ((range(58, 59), harm),), seconds=280
    )
    same(found, with_hole(toy_manifest, tmp_path / "hole", [(56, 64)], ranks=2))
    (skip,) = Logs.read(run).skips
    assert (skip.begin, skip.end) == (56, 64)
    # checkpoints of 2, 4 and 6 steps; at least 3 steps before step 7 is the one of 4
    steps = [line["step"] for line in lines(run, "batches")]
    assert steps == [*range(1, 9), *range(5, 11)]
    digests: dict[int, list[str]] = {}
    for line in lines(run, "batches"):
        digests.setdefault(line["step"], []).append(line["digest"])
    for step in (5, 6, 7):
        assert digests[step][0] == digests[step][1]
    assert digests[8][0] != digests[8][1]
    events = {line["event"]: line for line in read(run, "events")}
    assert events["spike"]["step"] == 8 and events["rollback"]["step"] == 4
    assert [line["step"] for line in read(run, "health")] == list(range(1, 11))


def test_the_report_names_documents_sources_and_urls(
    toy_manifest: Path, tmp_path: Path, undisturbed: list[dict[str, Any]]
) -> None:
    run = tmp_path / "run"
    own = config(toy_manifest, run, *QUICK)
    same(run_ranks(1, trained, own, (BAD,)), undisturbed)
    (place,) = (run / "spikes").glob("*.json")
    assert place.name == "step-00000008-1.json"
    record = json.loads(place.read_text())
    assert record["step"] == 8 and record["reason"] in Logs.read(run).skips[0].reason
    assert record["batches"] == [{"step": 8, "samples": [[56, 64]]}]
    manifest = Manifest.load(toy_manifest)
    told = {
        row["sample"]: (source, [(d["id"], d["url"], d["warc_offset"]) for d in row["documents"]])
        for source, rows in record["sources"].items()
        for row in rows
    }
    assert sorted(told) == list(range(56, 64))
    for sample, said in told.items():
        true = sequence(manifest, sample)
        pieces = [(piece.id, piece.provenance) for piece in true.pieces]
        assert said == (true.source, [(i, p["url"], p["warc_offset"]) for i, p in pieces if p])
    text = place.with_suffix(".txt").read_text()
    assert all(url in text for _, found in told.values() for _, url, _ in found)
    losses = [row["loss"] for rows in record["sources"].values() for row in rows]
    assert all(isinstance(loss, float) for loss in losses)


def test_losses_of_rows_are_those_of_the_step(toy_manifest: Path, tmp_path: Path) -> None:
    """On two ranks: weighted by labels they give what the health log says of every source."""
    run = tmp_path / "run"
    knobs = config(toy_manifest, run, *QUICK, "guard.retries=0")
    with pytest.raises(RuntimeError, match=r"Failed: .* at step 8, after 0 rollbacks"):
        run_ranks(2, trained, knobs, ((range(58, 59), math.nan),))
    (place,) = (run / "spikes").glob("*.json")
    sources = json.loads(place.read_text())["sources"]
    line = lines(run, "health")[-1]
    assert line["step"] == 8 and line["loss"] is None
    for source, rows in sources.items():
        assert sum(row["labels"] for row in rows) == line["sources"][source]["labels"]
    assert not Logs.read(run).skips  # a run that fails leaves all as it was


def test_without_a_checkpoint_it_begins_anew(
    toy_manifest: Path, tmp_path: Path, undisturbed: list[dict[str, Any]]
) -> None:
    run = tmp_path / "run"
    found = run_ranks(1, trained, config(toy_manifest, run, *QUICK, "checkpoint.every=9"), (BAD,))
    same(found, undisturbed)
    assert [line["step"] for line in lines(run, "batches")] == [*range(1, 9), *range(1, 11)]


def test_a_second_spike_straddles_the_first_hole_and_the_number_is_capped(
    toy_manifest: Path, tmp_path: Path
) -> None:
    """After the hole [56, 64), step 7 is [64, 72). Seen by a guard that takes steps 6 and 7 for the
    spike then, these are [48, 56) and [64, 72). A third rollback is not allowed."""
    run = tmp_path / "run"
    knobs = config(toy_manifest, run, *QUICK, "guard.retries=2")
    poison = (BAD, (range(66, 67), 1e4), (range(80, 81), 1e4))
    patches = {"training.guard.Guard._first": back_one_after_first}
    with pytest.raises(RuntimeError, match="after 2 rollbacks"):
        run_ranks(1, trained, knobs, poison, patches)
    skips = [(skip.begin, skip.end) for skip in Logs.read(run).skips]
    assert skips == [(56, 64), (48, 56), (64, 72)]
    with pytest.raises(RuntimeError, match="after 2 rollbacks"):  # a restart does not count anew
        run_ranks(1, trained, knobs, poison, patches)
    assert [(skip.begin, skip.end) for skip in Logs.read(run).skips] == skips
    healed = run_ranks(1, trained, knobs, poison[:2])
    same(healed, with_hole(toy_manifest, tmp_path / "hole", [(48, 72)]))


def back_one_after_first(own: Guard, step: int) -> int:
    return step - 1 if any(entry[0] == 6 for entry in own.window) and seen_twice() else step


def seen_twice(calls: list[int] = []) -> bool:  # noqa: B006 (counts its calls)
    calls.append(1)
    return len(calls) > 1


# ---------------------------------------------------------------- kills


def dying(function: Callable[..., Any], before: bool, *arguments: Any, **named: Any) -> Any:
    """Dies at a function, as by kill -9: before or after it."""
    if not before:
        function(*arguments, **named)
    os._exit(9)


KILLS = {
    "before the report": {"training.loop.write_report": partial(dying, None, True)},
    "after the report": {"training.loop.write_report": partial(dying, guard.write_report, False)},
    "between two checkpoints that go": {
        "training.checkpoint.shutil.rmtree": partial(dying, None, True)
    },
    "before the skip is written": {"training.loop.append": partial(dying, None, True)},
    "after the skip is written": {"training.loop.append": partial(dying, append, False)},
    "after the checkpoint is loaded": {"training.loop.Trainer.restore": partial(dying, None, True)},
}


@pytest.mark.parametrize("kill", KILLS)
def test_a_kill_while_going_back_changes_nothing(
    toy_manifest: Path, tmp_path: Path, undisturbed: list[dict[str, Any]], kill: str
) -> None:
    run = tmp_path / "run"
    # checkpoints every step, so that several go, which hold the spike or not
    knobs = config(toy_manifest, run, *QUICK, "checkpoint.every=1")
    with pytest.raises(RuntimeError, match="died"):
        run_ranks(1, trained, knobs, (BAD,), KILLS[kill])
    same(run_ranks(1, trained, knobs, (BAD,)), undisturbed)
    assert [(skip.begin, skip.end) for skip in Logs.read(run).skips] == [(56, 64)]


def test_forgetting_leaves_the_older_checkpoints(toy_manifest: Path, tmp_path: Path) -> None:
    run_ranks(1, trained, config(toy_manifest, tmp_path / "run", *QUICK, "train.steps=6"))
    left = run_ranks(1, forget, config(toy_manifest, tmp_path / "run", *QUICK), 4)
    assert left == [([2, 4], "step-00000004\n")]
    assert run_ranks(1, forget, config(toy_manifest, tmp_path / "run", *QUICK), 0) == [([], None)]


def forget(config: Config, after: int) -> tuple[list[int], str | None]:
    kept = checkpoint.Checkpoints(Path(config.run), config.checkpoint, world.join(config))
    kept.forget(after)
    latest = kept.directory / checkpoint.LATEST
    return kept.steps(), latest.read_text() if latest.exists() else None


def test_all_ranks_see_the_same_bits(toy_manifest: Path, tmp_path: Path) -> None:
    """So all decide the same without asking each other."""
    knobs = config(toy_manifest, tmp_path / "run", *QUICK, "train.steps=4")
    seen = run_ranks(2, windows, knobs)
    assert seen[0] == seen[1] and len(seen[0]) == 4


def windows(config: Config) -> list[Any]:
    trainer = loop.Trainer(config, world.join(config))
    trainer.train()
    return list(trainer.guard.window)
