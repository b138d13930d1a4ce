"""Pipeline parallelism: the same training as on one process, however the blocks are divided."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tests.ranks import run_ranks
from tests.trainers import config, lines, train
from training import world
from training.config import Config, ConfigError
from training.gradients import clip
from training.loop import Trainer
from training.pipeline import spans

LAYOUTS = {
    "pipeline 2": (2, ("parallel.pipeline=2",)),
    "pipeline 2 x shard 2": (4, ("parallel.pipeline=2", "parallel.shard=2")),
    "pipeline 2 x tensor 2": (4, ("parallel.pipeline=2", "parallel.tensor=2")),
    "pipeline 3": (3, ("parallel.pipeline=3",)),
}
#: Stages of one and two blocks (of 3); micro-batches of one row, so that a rank has four or eight.
UNEVEN = (
    *("model.layers=3", "train.micro_batch=1", "train.z_loss=1e-3", "optimizer.clip=0.05"),
    "schedule.kind=constant",
)


def whole(tensor: Tensor) -> np.ndarray:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).numpy()


def one_step(config: Config) -> dict[str, Any]:
    """Sums, norm and gradients of the first batch on this rank, and what evaluation says of it."""
    here = world.join(config)
    trainer = Trainer(config, here)
    try:
        portion = trainer.loader.get(0)
        factor = 1.0 / trainer._counts(portion)[0].float()
        looked = here.sum(trainer.passes.evaluate(portion.micros)).tolist()
        sums = here.sum(trainer.passes.run(portion.micros, factor)).tolist()
        gradients = {
            name: whole(p.grad)
            for name, p in trainer.model.named_parameters()
            if p.grad is not None
        }
        norm = float(clip(trainer.model.parameters(), None, 1.0, here))
        return {"looked": looked, "sums": sums, "gradients": gradients, "norm": norm}
    finally:
        trainer.loader.close()
        world.leave()


@pytest.fixture(scope="module")
def alone(toy_manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The first step on one process."""
    run = tmp_path_factory.mktemp("alone")
    found: dict[str, Any] = run_ranks(1, one_step, config(toy_manifest, run, *UNEVEN))[0]
    return found


@pytest.fixture(scope="module")
def whole_run(toy_manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps on one process."""
    run = tmp_path_factory.mktemp("whole")
    run_ranks(1, train, config(toy_manifest, run, *UNEVEN))
    return run


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_norm_and_sums_are_those_of_one_process(
    toy_manifest: Path, tmp_path: Path, alone: dict[str, Any], layout: str
) -> None:
    """With padding, document masks, accumulation and the z-loss."""
    ranks, parallel = LAYOUTS[layout]
    found = run_ranks(ranks, one_step, config(toy_manifest, tmp_path, *UNEVEN, *parallel))
    gradients: dict[str, np.ndarray] = {}
    for rank in found:
        assert rank["sums"] == pytest.approx(alone["sums"], rel=1e-6)
        assert rank["looked"] == pytest.approx(alone["sums"], rel=1e-6)
        gradients |= rank["gradients"]
    assert len({(str(rank["sums"]), rank["norm"]) for rank in found}) == 1
    assert gradients.keys() == alone["gradients"].keys()
    for name, gradient in alone["gradients"].items():
        largest = np.abs(gradient).max()
        np.testing.assert_allclose(
            gradients[name], gradient, rtol=2e-5, atol=2e-5 * largest, err_msg=name
        )
    squares = sum(np.square(g, dtype=np.float64).sum() for g in alone["gradients"].values())
    assert found[0]["norm"] == pytest.approx(squares**0.5, rel=1e-5)


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in lines(run, "health")]


def test_a_run_gives_the_losses_and_digests_of_one_process_and_the_same_bits_each_time(
    toy_manifest: Path, tmp_path: Path, whole_run: Path
) -> None:
    for name in ("first", "second"):
        run_ranks(2, train, config(toy_manifest, tmp_path / name, *UNEVEN, "parallel.pipeline=2"))
    found = losses(tmp_path / "first")
    assert found == losses(tmp_path / "second")
    assert found == pytest.approx(losses(whole_run), rel=1e-6)
    assert lines(tmp_path / "first", "batches") == lines(whole_run, "batches")


def test_a_run_goes_on_with_other_stages_and_back(
    toy_manifest: Path, tmp_path: Path, whole_run: Path
) -> None:
    """Two steps each on 1 process, 2 stages, 1 process: with the moments of the optimiser."""
    for ranks, steps in ((1, 2), (2, 4), (1, 6)):
        overrides = (*UNEVEN, f"train.steps={steps}", f"parallel.pipeline={ranks}")
        run_ranks(ranks, train, config(toy_manifest, tmp_path, *overrides))
    assert losses(tmp_path) == pytest.approx(losses(whole_run), rel=1e-6)


def test_hidden_states_of_half_precision_travel_as_such(toy_manifest: Path, tmp_path: Path) -> None:
    half = (*UNEVEN, "parallel.precision=bf16", "train.steps=2")
    run_ranks(1, train, config(toy_manifest, tmp_path / "one", *half))
    run_ranks(2, train, config(toy_manifest, tmp_path / "two", *half, "parallel.pipeline=2"))
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


def evaluated(config: Config) -> list[list[float]]:
    """Evaluation of micro-batches of two shapes, before and after all weights are doubled."""
    here = world.join(config)
    trainer = Trainer(config, here)
    try:
        micros = trainer.loader.get(0).micros
        short = trainer.objective(*trainer.loader.batches.rows(0, 0, 3))
        found = []
        for factor in (1.0, 2.0):
            with torch.no_grad():
                for parameter in trainer.model.parameters():
                    parameter.mul_(factor)
            found.append(here.sum(trainer.passes.evaluate([*micros, short])).tolist())
        assert trainer.model.training
        assert all(parameter.grad is None for parameter in trainer.model.parameters())
        return found
    finally:
        trainer.loader.close()
        world.leave()


def test_evaluation_sees_the_weights_of_now_at_every_layout(
    toy_manifest: Path, tmp_path: Path
) -> None:
    """Micro-batches of any number and shapes; no gathered weights of before."""
    said = (*UNEVEN, "parallel.reshard=false")
    [alone] = run_ranks(1, evaluated, config(toy_manifest, tmp_path / "one", *said))
    assert alone[0] != pytest.approx(alone[1], rel=1e-3)
    two = config(toy_manifest, tmp_path / "two", *said, "parallel.pipeline=2")
    for found in run_ranks(2, evaluated, two):
        for ours, theirs in zip(found, alone, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-6)


def divisions(layers: int, stages: int) -> Iterator[list[int]]:
    """Every way to divide layers among stages that have one at least."""
    for cuts in itertools.combinations(range(1, layers), stages - 1):
        bounds = [0, *cuts, layers]
        yield [end - begin for begin, end in itertools.pairwise(bounds)]


@pytest.mark.parametrize("ends", [0, 3, 7, 30])
@pytest.mark.parametrize(("layers", "stages"), [(3, 2), (7, 3), (8, 4), (4, 4), (9, 2), (5, 1)])
def test_no_division_has_a_cheaper_dearest_stage(layers: int, stages: int, ends: int) -> None:
    def dearest(counts: list[int]) -> int:
        costs = [5 * count for count in counts]
        costs[0] += ends
        costs[-1] += ends
        return max(costs)

    found = spans(layers, stages, 5, ends)
    assert [number for span in found for number in span] == list(range(layers))
    counts = [len(span) for span in found]
    assert min(counts) >= 1
    assert dearest(counts) == min(map(dearest, divisions(layers, stages)))


def joined(config: Config) -> str:
    try:
        world.join(config)
    except ConfigError as error:
        return str(error)
    return ""


def test_what_cannot_be_divided_is_refused_in_one_line(toy_manifest: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^model\.tied: "):
        config(toy_manifest, tmp_path, "parallel.pipeline=2", "model.tied=true")
    with pytest.raises(ConfigError, match=r"^parallel\.pipeline: 3 stages of 2 layers$"):
        config(toy_manifest, tmp_path, "parallel.pipeline=3")
    few = config(toy_manifest, tmp_path, "parallel.pipeline=2", "train.micro_batch=8")
    for said in run_ranks(2, joined, few):
        assert said.startswith("parallel.pipeline: 2 stages of 1 micro-batches a step; train.batch")
