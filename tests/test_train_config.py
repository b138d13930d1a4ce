"""Knobs: every one documented, read from YAML and a.b=c, and what cannot be said in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from training import config as knobs
from training.config import Config, ConfigError, load


def test_every_knob_has_a_docstring() -> None:
    names = [name for name, _ in knobs.leaves(Config())]
    assert sorted(knobs.docs()) == sorted(names)
    assert all(said.endswith((".", ".)")) or ":" in said for said in knobs.docs().values())


@pytest.mark.parametrize("name", knobs.presets())
def test_presets_are_read_and_written_back(name: str, tmp_path: Path) -> None:
    config = load(name)
    (tmp_path / "again.yaml").write_text(knobs.dump(config))
    assert load(tmp_path / "again.yaml") == config


def test_the_smallest_preset_is_too_short_for_the_guard() -> None:
    """Norms of the first steps vary by more than `guard.z` deviations: nothing is wrong then."""
    tiny = load("tiny")
    assert tiny.train.steps == tiny.guard.least


def test_the_preset_that_the_speed_is_measured_with() -> None:
    config = load("1.4b")
    model = config.model
    assert (model.vocab, model.context, model.layers, model.dim) == (32000, 2048, 24, 2048)
    assert (model.heads, model.kv_heads, model.ffn, model.tied) == (16, 4, 5632, False)
    optimizer = config.optimizer
    assert (optimizer.lr, optimizer.min_lr, optimizer.clip) == (3e-4, 3e-5, 1.0)
    assert (optimizer.weight_decay, config.schedule.warmup) == (0.1, 2000)
    assert config.schedule.kind == "cosine"


def test_files_presets_and_overrides_in_that_order(tmp_path: Path) -> None:
    place = tmp_path / "own.yaml"
    place.write_text(
        "preset: tiny\nmodel: {layers: 3}\ntrain: {tokens: 1e6}\noptimizer: {lr: 2e-3}\n"
    )
    config = load(place, ["model.layers=5", "data.mixture={a: 1, b: 2}"])
    assert config.model.layers == 5
    assert config.model.dim == load("tiny").model.dim
    assert (config.train.steps, config.train.tokens) == (None, 1_000_000)
    assert config.optimizer.lr == 2e-3
    assert config.data.mixture == {"a": 1, "b": 2}
    assert load(place, ["train.steps=70"]).train.tokens is None


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.layerz=3", "model.layers?"),
        ("modell.layers=3", "model"),
        ("optimizer.lr=fast", "optimizer.lr"),
        ("optimizer.lr=-1", "optimizer.lr"),
        ("optimizer.lr=.nan", "optimizer.lr"),
        ("optimizer.lr=.inf", "optimizer.lr"),
        ('run="a\\0b"', "run: "),
        ("optimizer.min_lr=1", "optimizer.min_lr"),
        ("train.batch=7", "train.micro_batch"),
        ("train.batch=7.5", "train.batch"),
        ("model.heads=5", "model.heads"),
        ("model.kv_heads=3", "model.kv_heads"),
        ("parallel.tensor=4", "parallel.tensor"),
        ("parallel.pipeline=9", "parallel.pipeline"),
        ("parallel.fp8=true", "parallel.precision"),
        ("schedule.warmup=1000", "schedule.warmup"),
        ("schedule.kind=linear", "schedule.kind"),
        ("objective.mask_share=1", "objective.mask_share"),
        ("train.steps=null", "train.steps"),
        ("run", "NAME=VALUE"),
        ("model.layers.x=1", "model.layers"),
        ("model.layers={", "model.layers"),
        ("model=3", "model"),
    ],
)
def test_wrong_knobs_are_one_line_that_names_them(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load("tiny", [override])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[1]", "a: b: c", "model: {layers: 1, layers: 2}", "preset: none", "\x00", "model: 3"]
)
def test_wrong_files_are_one_line(text: str, tmp_path: Path) -> None:
    place = tmp_path / "wrong.yaml"
    place.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(place)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="tiny"):
        load(tmp_path / "missing.yaml")
    for name in ("a" * 5000, "a\0b"):
        with pytest.raises(ConfigError, match="tiny"):
            load(name)


def test_sections_without_knobs_can_be_filled_and_yaml_can_be_merged(tmp_path: Path) -> None:
    place = tmp_path / "own.yaml"
    place.write_text("train:\ndata: {mixture: null}\nschedule: {warmup: 1}\n")
    config = load(place, ["train.steps=5", "data.mixture.web=1"])
    assert (config.train.steps, config.data.mixture) == (5, {"web": 1})
    place.write_text(
        "preset: tiny\ndata: {mixture: {web: 1}}\noptimizer: {<<: {lr: 1.0}, lr: 2.0}\n"
    )
    assert load(place).optimizer.lr == 2.0
    never = ["guard.z=.inf", "launch.stall=.inf", "data.max_epochs=.inf", "optimizer.clip=.inf"]
    assert load("tiny", never).guard.z == float("inf")


def test_identity_is_what_may_not_change() -> None:
    config = load("tiny")
    assert replace(config, launch=knobs.Launch(workers=3)).identity == config.identity
    assert load("tiny", ["optimizer.lr=1e-2", "train.micro_batch=2"]).identity == config.identity
    for other in ("train.batch=16", "model.layers=3", "seed=1", "objective.kind=mlm"):
        assert load("tiny", [other]).identity != config.identity
