"""Runs that stop and go on: nothing is lost, nothing is done twice, and nothing else comes out."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from manifests.tokens import Manifest
from tests.make_tokens import make
from tests.ranks import run_ranks
from tests.trainers import config, lines, train
from training import loop, stop, world
from training.config import Config, ConfigError
from training.run import check_run, steps_of

STEPS, EVERY = 12, 4  # of the runs here, and from one checkpoint to the next
#: A kill right after a step must not meet a checkpoint that is still being written.
LENGTH = (
    f"train.steps={STEPS}",
    f"checkpoint.every={EVERY}",
    "checkpoint.asynchronous=false",
)


class Killed(Exception):
    """Stands for kill -9: nothing is saved or closed."""


def train_until(config: Config, step: int, act: Callable[[int], None]) -> int:
    """Trains; once so many steps are done and logged, `act(rank)` is called. The steps done."""
    here = world.join(config)
    trainer = loop.Trainer(config, here)
    write = trainer.write

    def written(result: loop.Result) -> None:
        write(result)
        if trainer.step == step:
            act(here.rank)

    trainer.write = written  # type: ignore[method-assign]
    stop.listen(lambda number: None)
    with suppress(Killed, stop.Interrupted):
        trainer.train()
    return trainer.step


def die(rank: int) -> None:
    raise Killed


def ask(rank: int) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def ask_rank_1(rank: int) -> None:
    if rank == 1:
        ask(rank)


def final(config: Config) -> dict[str, Any]:
    """Trains to the end: every parameter, every moment and the learning rate."""
    here = world.join(config)
    try:
        trainer = loop.Trainer(config, here)
        trainer.train()
        model = {name: whole(value) for name, value in trainer.model.state_dict().items()}
        state = get_optimizer_state_dict(trainer.model, trainer.optimizer)["state"]
        moments = {
            f"{name} {key}": whole(value)
            for name, own in state.items()
            for key, value in own.items()
        }
        return {**model, **moments, "rate": trainer.optimizer.param_groups[0]["lr"]}
    finally:
        world.leave()


def whole(value: Any) -> np.ndarray:
    value = value.full_tensor() if hasattr(value, "full_tensor") else value
    return value.numpy()


def log(run: Path, name: str, *keys: str) -> dict[int, tuple[Any, ...]]:
    """What the last start that did a step wrote of it, by step."""
    return {line["step"]: tuple(line[key] for key in keys) for line in lines(run, name)}


def same(one: Path, other: Path) -> None:
    """Two runs have done the same steps, bit for bit."""
    for name, *keys in (("health", "loss", "norm", "rate"), ("batches", "digest")):
        first, second = log(one, name, *keys), log(other, name, *keys)
        assert list(first) == list(range(1, STEPS + 1))
        assert {step: second[step] for step in sorted(second)} == first


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("manifest")
    make(directory)
    return directory


@pytest.fixture(scope="module")
def undisturbed(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A run of one rank that nobody has stopped, and what it ends with."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    return run, run_ranks(1, final, config(manifest, run, *LENGTH))[0]


def test_two_resumes_in_a_row_end_bit_for_bit_where_one_run_does(
    manifest: Path, tmp_path: Path, undisturbed: tuple[Path, Any]
) -> None:
    """Parameters, both moments, their step count and the learning rate; digests, losses, norms."""
    told = config(manifest, tmp_path / "run", *LENGTH)
    assert run_ranks(1, train_until, told, 6, die) == [6]
    assert run_ranks(1, train_until, told, 9, die) == [9]
    end = run_ranks(1, final, told)[0]
    one, wanted = undisturbed
    same(one, tmp_path / "run")
    assert end.keys() == wanted.keys()
    assert any("exp_avg_sq" in name for name in end)
    for name, value in wanted.items():
        assert np.array_equal(value, end[name]), name
        assert name == "rate" or value.dtype == end[name].dtype == np.float32, name
    begun = [line for line in lines(tmp_path / "run", "events") if line["event"] == "start"]
    assert [(line["start"], line["step"]) for line in begun] == [(1, 0), (2, 4), (3, 8)]


def test_another_number_of_ranks_goes_on_with_the_same_batches_and_losses(
    manifest: Path, tmp_path: Path, undisturbed: tuple[Path, Any]
) -> None:
    """1 -> 2 -> 1 ranks."""
    told = config(manifest, tmp_path / "run", *LENGTH, "train.micro_batch=4")
    run_ranks(1, train_until, told, 5, die)
    run_ranks(2, train_until, told, 10, die)
    run_ranks(1, train, told)
    one, other = undisturbed[0], tmp_path / "run"
    assert log(one, "batches", "digest") == log(other, "batches", "digest")
    first, second = log(one, "health", "loss"), log(other, "health", "loss")
    assert sorted(second) == list(range(1, STEPS + 1))
    for step, (loss,) in first.items():
        assert second[step] == pytest.approx((loss,), rel=1e-6)


def test_a_signal_to_one_rank_stops_all_after_the_same_step_and_saves_it(
    manifest: Path, tmp_path: Path
) -> None:
    told = config(manifest, tmp_path / "run", *LENGTH, "train.micro_batch=4")
    assert run_ranks(2, train_until, told, 5, ask_rank_1) == [5, 5]
    run_ranks(2, train, told)
    begun = [line["step"] for line in lines(tmp_path / "run", "events") if line["event"] == "start"]
    assert begun == [0, 5]
    assert [line["step"] for line in lines(tmp_path / "run", "health")] == list(range(1, STEPS + 1))


def test_a_resumed_run_has_the_schedules_learning_rate_and_ends_at_its_end(
    manifest: Path, tmp_path: Path
) -> None:
    """nanotron #233, with 15 steps for its 1,500: stopped at 14, the next one has the rate of the
    15th, not of the first, and is the last."""
    steps = ("train.steps=15", "schedule.warmup=1", "optimizer.lr=1e-3", "optimizer.min_lr=1e-4")
    told = config(manifest, tmp_path / "run", *steps, "checkpoint.every=100")
    run_ranks(1, train_until, told, 14, ask)
    run_ranks(1, train_until, told, 99, die)
    assert run_ranks(1, train_until, told, 99, die) == [15]  # a third start does nothing
    rates = {line["step"]: line["rate"] for line in lines(tmp_path / "run", "health")}
    assert len(lines(tmp_path / "run", "health")) == max(rates) == 15
    assert rates[1] == pytest.approx(1e-3)
    assert rates[15] == pytest.approx(1e-4)


def test_more_steps_than_before_go_on_from_the_end(manifest: Path, tmp_path: Path) -> None:
    run_ranks(1, train, config(manifest, tmp_path / "run", "train.steps=3"))
    run_ranks(1, train, config(manifest, tmp_path / "run", "train.steps=5"))
    assert [line["step"] for line in lines(tmp_path / "run", "health")] == [1, 2, 3, 4, 5]


IDENTITY = ["model.dim=64", "seed=21", "train.batch=16", "train.z_loss=1e-4", "objective.kind=mlm"]
FREE = [
    *("train.micro_batch=2", "optimizer.lr=1e-4", "train.steps=20", "guard.enabled=false"),
    *("parallel.replicate=2", "model.attention=sdpa", "optimizer.kind=adamw"),
]


@pytest.fixture(scope="module")
def begun(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("begun") / "run"
    run_ranks(1, train, config(manifest, run, "train.steps=2"))
    return run


@pytest.mark.parametrize("override", IDENTITY)
def test_what_a_run_is_may_not_change(manifest: Path, begun: Path, override: str) -> None:
    name, value = override.split("=")
    with pytest.raises(ConfigError) as error:
        check_run(config(manifest, begun, override), Manifest.load(manifest))
    assert str(error.value).startswith(f"{name}: ")
    shown = str(float(value)) if name == "train.z_loss" else value
    assert shown in str(error.value) and "was begun with" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("override", FREE)
def test_how_it_is_trained_may(manifest: Path, begun: Path, override: str) -> None:
    check_run(config(manifest, begun, override), Manifest.load(manifest))


def test_another_manifest_is_refused_and_the_same_at_another_place_is_not(
    manifest: Path, begun: Path, tmp_path: Path
) -> None:
    other = make(tmp_path / "other", seed=21)
    with pytest.raises(ConfigError, match=f"data.manifest: .*{other.digest}.*was begun with"):
        check_run(config(tmp_path / "other", begun), other)
    check_run(config(tmp_path / "same", begun), make(tmp_path / "same"))


def test_more_samples_than_have_numbers_are_refused(manifest: Path, tmp_path: Path) -> None:
    for many in ("train.steps=1e18", "train.tokens=1e30"):
        with pytest.raises(ConfigError, match="are too many"):
            steps_of(config(manifest, tmp_path, "train.steps=null", many), 64)


def test_a_refused_start_ends_on_all_ranks_and_changes_nothing(manifest: Path, begun: Path) -> None:
    before = {place: place.stat().st_mtime_ns for place in begun.rglob("*")}
    told = config(manifest, begun, "seed=3", "train.micro_batch=4")
    said = run_ranks(2, refused, told)
    assert said[0] == said[1]
    assert said[0].startswith("seed: 3, but")
    assert {place: place.stat().st_mtime_ns for place in begun.rglob("*")} == before


def refused(config: Config) -> str:
    with pytest.raises(ConfigError) as error:
        train(config)
    return str(error.value)


def test_run_json_says_what_the_run_is_made_of(manifest: Path, begun: Path) -> None:
    record, loaded = json.loads((begun / "run.json").read_text()), Manifest.load(manifest)
    assert record["manifest"] == loaded.digest
    assert record["tokenizer"] == loaded.tokenizer.sha256
    assert record["torch"] == torch.__version__
    assert Path(record["manifest_path"]).samefile(manifest)
    assert (begun / "configs" / "00001.yaml").read_text() == (begun / "config.yaml").read_text()


def test_a_run_begun_before_there_was_a_knob_has_its_default(manifest: Path, begun: Path) -> None:
    place = begun / "run.json"
    text = place.read_text()
    record = json.loads(text)
    del record["identity"]["model"]["qk_norm"]
    place.write_text(json.dumps(record))
    try:
        check_run(config(manifest, begun), Manifest.load(manifest))
        with pytest.raises(ConfigError, match=r"model\.qk_norm: True"):
            check_run(config(manifest, begun, "model.qk_norm=true"), Manifest.load(manifest))
        place.write_text("{")
        with pytest.raises(ConfigError, match=r"run: .*run\.json cannot be read"):
            check_run(config(manifest, begun), Manifest.load(manifest))
    finally:
        place.write_text(text)
