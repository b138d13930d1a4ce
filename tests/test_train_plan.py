"""The plan: sizes, FLOPs, memory, the Chinchilla point, and too many epochs refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.ranks import run_ranks
from tests.trainers import SMALL, lines, train
from tests.trainers import config as small
from training import plan
from training.config import Config, ConfigError, changed, load
from training.flops import flops_per_token, parameters
from training.model import Shape, Transformer

NO_DATA = ["data.manifest=none"]  # sizes alone


def shape(config: Config) -> Shape:
    return Shape.of(config.model, 258, 64)


@pytest.mark.parametrize("name", ["tiny", "125m", "350m", "1.4b", "7b"])
def test_parameters_are_those_of_the_model(name: str) -> None:
    config = load(name)
    own = shape(config)
    with torch.device("meta"):
        model = Transformer(own, config.model, config.train)
    total = sum(parameter.numel() for parameter in model.parameters())
    inner = total if own.tied else total - model.embed.weight.numel()
    assert parameters(own) == (total, inner)


def test_the_preset_of_one_point_four_has_the_published_numbers() -> None:
    """The "1.4b" preset is 1.213 B parameters and 8.0946e9 FLOPs a token at T = 2048."""
    own = shape(load("1.4b"))
    total, inner = parameters(own)
    assert round(total / 1e9, 3) == 1.213
    assert inner == total - 32000 * 2048
    assert flops_per_token(own, 2048) == pytest.approx(8.0946e9, rel=1e-4)
    assert load("1.4b").train.batch * 2048 == 524_288


def test_chinchilla_of_1e22_flops() -> None:
    """C = 6 N D, D = 20 N: about 9.1 B parameters and 182 B tokens."""
    best, tokens = plan.chinchilla(1e22)
    assert best == pytest.approx(9.1e9, rel=0.01)
    assert tokens == pytest.approx(182e9, rel=0.01)
    assert 6 * best * tokens == pytest.approx(1e22)


@pytest.mark.parametrize(("name", "ranks"), [("1.4b", 1), ("1.4b", 4), ("7b", 8), ("125m", 2)])
@pytest.mark.parametrize("gpu", sorted(plan.GPUS))
def test_the_micro_batch_is_the_largest_that_leaves_a_tenth_free(
    name: str, ranks: int, gpu: str
) -> None:
    config = load(name, NO_DATA)
    own = Shape.of(config.model, 100, 100)
    memory = plan.GPUS[gpu].memory * plan.GIB

    def fits(rows: int) -> bool:
        tried = changed(config, train__micro_batch=rows)
        return plan.memory(tried, own, ranks).total <= 0.9 * memory

    fitting = [
        rows
        for rows in range(1, config.train.batch // ranks + 1)
        if config.train.batch // ranks % rows == 0 and fits(rows)
    ]
    assert plan.micro_batch(config, own, ranks, memory) == max(fitting, default=None)


def test_gradients_that_are_not_reduced_before_the_last_micro_batch_cost_memory() -> None:
    """fp32 of all parameters, and all of them gathered in bf16 rather than two blocks."""
    config = load("1.4b", [*NO_DATA, "parallel.reshard=true"])
    kept = changed(config, parallel__reshard=False)
    own = shape(config)
    more = plan.memory(kept, own, 4).gathered - plan.memory(config, own, 4).gathered
    total, _ = parameters(own)
    block = (total - 2 * own.rows * own.dim) / 24
    assert more == pytest.approx(4 * total + 2 * 22 * block)


def test_a_micro_batch_left_open_is_found_at_the_start(toy_manifest: Path, tmp_path: Path) -> None:
    """Without a GPU at most 8; the losses are those of any other."""
    for name, rows in (("open", "null"), ("said", "4")):
        own = small(toy_manifest, tmp_path / name, "train.batch=12", f"train.micro_batch={rows}")
        run_ranks(1, train, own)
    start = lines(tmp_path / "open", "events")[0]
    assert (start["event"], start["micro_batch"]) == ("start", 6)
    opened, said = (lines(tmp_path / name, "health") for name in ("open", "said"))
    assert [line["loss"] for line in opened] == pytest.approx([line["loss"] for line in said])


def test_an_open_micro_batch_wants_whole_shares_of_the_batch() -> None:
    config = load("1.4b", [*NO_DATA, "train.micro_batch=null"])
    with pytest.raises(ConfigError, match=r"^train\.batch: 256 is no multiple of 3 data ranks$"):
        plan.plan(changed(config, launch__workers=3), 3)


def test_memory_of_the_reference_run() -> None:
    """Measured with the same sizes: 68 GiB at 16 rows of 2,048 tokens on one GPU; 21 GiB with full
    activation checkpointing."""
    config = load("1.4b", [*NO_DATA, "parallel.reshard=true"])
    assert plan.plan(config, 1).memory.total / plan.GIB == pytest.approx(68, rel=0.1)
    full = changed(config, parallel__activations="full")
    assert plan.plan(full, 1).memory.total / plan.GIB == pytest.approx(21, rel=0.25)


def test_states_are_shared_by_the_ranks_that_shard() -> None:
    one, eight = (plan.plan(load("1.4b", NO_DATA), ranks).memory for ranks in (1, 8))
    assert eight.states == pytest.approx(one.states / 8)
    assert eight.activations == one.activations


def test_epochs_are_those_of_the_order_and_too_many_are_refused(toy_manifest: Path) -> None:
    given = [f"data.manifest={toy_manifest}", *SMALL, "train.steps=512"]
    found = plan.plan(load(None, given), 1)
    assert found.sources is not None
    manifest = plan.Manifest.load(toy_manifest)
    assert [s.epochs for s in found.sources] == manifest.order().epochs(512 * 8)
    most = max(found.sources, key=lambda source: source.epochs)
    with pytest.raises(ConfigError, match=most.name):
        plan.plan(load(None, [*given, f"data.max_epochs={most.epochs * 0.99}"]), 1)


def test_the_mixture_is_the_one_that_is_asked_for(toy_manifest: Path) -> None:
    given = [f"data.manifest={toy_manifest}", *SMALL, "train.steps=10", "data.mixture={code: 1}"]
    found = plan.plan(load(None, given), 1)
    assert found.sources is not None
    assert {source.name for source in found.sources if source.tokens} == {"code"}
    with pytest.raises(ConfigError, match="'cod'; there are web"):
        plan.plan(load(None, [*given, "data.mixture={cod: 1}"]), 1)


def test_commands(toy_manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main(["--flops", "1e22", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == pytest.approx(9.1e9, rel=0.01)
    assert plan.main(["1.4b", "data.manifest=none", "--ranks", "8", "--price", "h100=2"]) == 0
    told = capsys.readouterr().out
    assert "1.21B" in told and "8.095e+09" in told and "$2" in told
    assert plan.main(["tiny", f"data.manifest={toy_manifest}", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["sources"]) == 3
    assert plan.main(["1.4b", "data.manifest=none", "--ranks", "8", "data.manifest=nowhere"]) == 0
    assert "no manifest at nowhere" in capsys.readouterr().out
    for wrong in (["tiny", "data.manifest=nowhere"], ["2b"], ["1.4b", "--price", "x=1"]):
        assert plan.main(wrong) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
