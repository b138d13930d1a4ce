"""What is written down of a run, what its numbers are, and the curves."""

from __future__ import annotations

import io
import json
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from manifests.reader import open_reader
from manifests.tokens import Manifest
from tests.ranks import run_ranks
from tests.trainers import config, lines, train
from training import plots
from training.config import ConfigError, Log, load
from training.data.batches import Batches
from training.data.logs import Logs, Mixture, Skip
from training.flops import flops_per_token, parameters
from training.loop import Result
from training.meter import Facts, Meter, clock, peak, wanted
from training.metrics import Metrics, read
from training.model import Shape, Transformer

PLAIN = Log(plots=False)

# ---------------------------------------------------------------- files


def test_a_line_takes_the_place_of_earlier_ones_of_its_step_and_after(tmp_path: Path) -> None:
    """Steps 3 and 4 belonged to what was gone back from."""
    metrics = Metrics(tmp_path, PLAIN, True)
    for step, loss in ((1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (2, 2.5), (3, 3.5)):
        metrics.health(step, loss=loss)
    metrics.close()
    found = read(tmp_path, "health")
    assert [(line["step"], line["loss"]) for line in found] == [(1, 1.0), (2, 2.5), (3, 3.5)]
    assert len(lines(tmp_path, "health")) == 6
    assert read(tmp_path, "operations") == []


def test_all_events_count(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, PLAIN, True)
    for step in (5, 3, 5):
        metrics.event("rollback", step=step)
    assert [line["step"] for line in read(tmp_path, "events")] == [5, 3, 5]


def test_a_torn_last_line_is_left_out_and_cut_off_by_the_next_start(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, PLAIN, True)
    metrics.health(1, loss=1.0)
    metrics.close()
    place = tmp_path / "health.jsonl"
    with place.open("a") as file:
        file.write('{"step": 2, "lo')
    assert [line["step"] for line in read(tmp_path, "health")] == [1]
    again = Metrics(tmp_path, PLAIN, True)
    again.health(2, loss=2.0)
    assert [(line["step"], line["start"]) for line in lines(tmp_path, "health")] == [(1, 1), (2, 2)]


@pytest.mark.parametrize("line", ["hello", "[1]", "{}"])
def test_a_line_that_no_run_writes_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "health.jsonl").write_text(f'{{"step": 1, "loss": 1.0}}\n{line}\n')
    with pytest.raises(ConfigError, match=r"health.jsonl, line 2: damaged"):
        read(tmp_path, "health")
    with pytest.raises(ConfigError, match=r"health.jsonl, last line: damaged"):
        Metrics(tmp_path, PLAIN, True)


def test_starts_are_counted_over_all_files(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        metrics = Metrics(tmp_path, PLAIN, True)
        metrics.event("start") if number != 2 else metrics.health(1, loss=1.0)
        metrics.close()
    assert [line["start"] for line in lines(tmp_path, "events")] == [1, 3]
    assert [line["start"] for line in lines(tmp_path, "health")] == [2]


def test_a_file_of_nothing_but_a_torn_line_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "health.jsonl").write_text('{"st')
    Metrics(tmp_path, PLAIN, True).health(1, loss=1.0)
    assert lines(tmp_path, "health") == [{"step": 1, "loss": 1.0, "start": 1}]


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    values = {"loss": float("nan"), "sources": {"a": {"loss": float("inf"), "all": [1.0, -1e999]}}}
    Metrics(tmp_path, PLAIN, True).health(1, **values)

    def refused(name: str) -> None:
        raise AssertionError(name)

    (line,) = (tmp_path / "health.jsonl").read_text().splitlines()
    found = json.loads(line, parse_constant=refused)
    assert found["loss"] is None and found["sources"]["a"] == {"loss": None, "all": [1.0, None]}


def test_numbers_come_back_to_the_bit(tmp_path: Path) -> None:
    value = float(torch.rand((), dtype=torch.float64))
    Metrics(tmp_path, PLAIN, True).health(1, loss=value)
    assert read(tmp_path, "health")[0]["loss"] == value


def test_only_rank_0_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(tmp_path / "run", Log(), False)
    metrics.health(1, loss=1.0)
    metrics.event("start")
    metrics.say("hello")
    metrics.progress("step 1", True)
    metrics.plot()
    metrics.close()
    assert not (tmp_path / "run").exists() and not capsys.readouterr().err


# ---------------------------------------------------------------- people, and other places


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_printed_where_it_is_due(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = Metrics(tmp_path, PLAIN, True)
    for step in range(1, 5):
        metrics.progress(f"step {step}", step % 2 == 0)
    assert capsys.readouterr().err == "step 2\nstep 4\n"


def test_progress_stays_in_its_line_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    metrics = Metrics(tmp_path, PLAIN, True)
    metrics.progress("step 1", True)
    metrics.progress("step 2", True)
    metrics.say("back to step 0")
    metrics.progress("step 1", True)
    metrics.close()
    shown = terminal.getvalue().replace("\r\x1b[K", "<")
    assert shown == "<step 1<step 2<back to step 0\n<step 1\n"


@pytest.mark.parametrize(
    ("package", "log"), [("tensorboard", Log(tensorboard=True)), ("wandb", Log(wandb="mill"))]
)
def test_a_missing_package_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, log: Log
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=f"^log.{package}: .* not installed$"):
        Metrics(tmp_path, log, False)  # on all ranks, so that none waits for the others


def test_wandb_gets_health_and_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, Any]] = []
    own = types.SimpleNamespace(
        log=logged.append, define_metric=lambda *a, **k: None, finish=lambda: logged.append({})
    )
    made = types.ModuleType("wandb")
    made.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    made.init = lambda **given: own  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", made)
    metrics = Metrics(tmp_path, Log(plots=False, wandb="mill"), True)
    metrics.health(3, loss=2.0, sources={"web": {"loss": 1.5}})
    metrics.operations(3, mfu=None, seconds=0.1)
    metrics.close()
    assert logged == [
        {"health/loss": 2.0, "health/sources/web/loss": 1.5, "trained_steps": 3},
        {"operations/seconds": 0.1, "trained_steps": 3},
        {},
    ]


# ---------------------------------------------------------------- sizes and speed


@pytest.mark.parametrize("tied", [False, True])
def test_parameters_are_those_of_the_model(tied: bool) -> None:
    model = load("tiny", [f"model.tied={tied}"]).model
    shape = Shape.of(model, 258, 64)
    with torch.device("meta"):
        built = Transformer(shape, model, load("tiny").train)
    total, inner = parameters(shape)
    assert total == sum(parameter.numel() for parameter in built.parameters())
    assert inner == total - (0 if tied else built.embed.weight.numel())


def test_the_size_and_flops_of_the_1_4b_preset() -> None:
    """By hand: 2048 * (2 * 16 + 2 * 4) * 128 + 3 * 2048 * 5632 weights and two norms a layer."""
    shape = Shape.of(load("1.4b").model, 32000, 2048)
    layer = 10_485_760 + 34_603_008 + 4096
    inner = 24 * layer + 2048 + 32000 * 2048
    assert parameters(shape) == (inner + 32000 * 2048, inner)
    assert parameters(shape)[0] == pytest.approx(1.213e9, rel=1e-3)
    assert flops_per_token(shape, 2048) == 6 * inner + 12 * 24 * 2048 * 2048
    assert flops_per_token(shape, 2048) == pytest.approx(8.0946e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989.4e12),
        ("NVIDIA H20", 148e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("Tesla T4", None),
    ],
)
def test_peaks_by_name(name: str, flops: float | None) -> None:
    assert peak(name) == flops


FACTS = Facts(sources=["web", "code"], steps=100, tokens=512, flops=1e9, ranks=4, peak=1e12)


def result(**values: Any) -> Result:
    made = Result(
        loss=2.0,
        norm=1.0,
        rate=1e-3,
        labels=300,
        by_source=[(450.0, 200), (150.0, 100)],
        tokens=[210, 110],
        digest="",
        waited=0.5,
        seconds=2.0,
        skipped=False,
        overflow=False,
    )
    return replace(made, **values)


def test_speed_is_over_the_time_of_the_steps_since_the_last_line() -> None:
    meter = Meter(FACTS)
    for seconds, waited in ((2.0, 0.5), (6.0, 1.5)):
        meter.health(result(seconds=seconds, waited=waited), [0.5, 0.5])
    meter.saved(100.0)
    found = meter.operations(torch.device("cpu"))
    assert found["tokens_per_second"] == pytest.approx(2 * 512 / 8)
    assert found["tokens_per_second_per_rank"] == pytest.approx(2 * 512 / 8 / 4)
    assert found["mfu"] == pytest.approx(1e9 * (2 * 512 / 8) / (4 * 1e12))
    assert found["data_wait"] == pytest.approx(0.25)
    assert found["seconds"] == pytest.approx(4.0)
    assert found["checkpoint_seconds"] == 100.0
    assert found["memory_allocated"] is None
    meter.health(result(seconds=1.0, waited=0.0), [0.5, 0.5])
    again = meter.operations(torch.device("cpu"))
    assert again["tokens_per_second"] == pytest.approx(512)
    assert again["checkpoint_seconds"] == 0.0


def test_mfu_is_unknown_where_the_peak_is() -> None:
    meter = Meter(replace(FACTS, peak=None))
    meter.health(result(), [0.5, 0.5])
    assert meter.operations(torch.device("cpu"))["mfu"] is None


def test_health_is_by_source_and_counts_what_was_seen() -> None:
    meter = Meter(FACTS)
    first = meter.health(result(), [0.75, 0.25])
    assert first["sources"]["web"]["loss"] == pytest.approx(450 / 200)
    assert first["sources"]["code"]["share"] == pytest.approx(110 / 320)
    assert first["sources"]["web"]["wanted"] == pytest.approx(0.75)
    meter.load(json.loads(json.dumps(meter.state())))
    second = meter.health(result(tokens=[0, 320], by_source=[(0.0, 0), (9.0, 9)]), [0.0, 1.0])
    assert second["tokens"] == 640
    assert second["sources"]["web"] == {
        **{"loss": None, "labels": 0, "tokens": 210},
        **{"share": pytest.approx(210 / 640), "wanted": pytest.approx(0.375)},
    }


def test_the_wanted_mixture_is_that_of_the_steps_first_sample(toy_manifest: Path) -> None:
    manifest = Manifest.load(toy_manifest)
    logs = Logs(
        (Mixture(1024, {"web": 3.0, "code": 1.0}, {"web": 3 << 30, "code": 1 << 30}),),
        (Skip(0, 8, ""),),
    )
    batches = Batches(manifest, load("tiny").data, logs, 8)
    assert wanted(batches, 126) == pytest.approx([0.5, 0.3, 0.2])  # samples 1,016 to 1,023
    assert wanted(batches, 127) == pytest.approx([0.75, 0.25, 0.0])


def test_the_progress_line() -> None:
    meter = Meter(FACTS)
    line = meter.line(10, result())
    assert line == "step 10/100  loss 2.0000  norm 1  lr 1.00e-03"
    meter.health(result(), [0.5, 0.5])
    meter.operations(torch.device("cpu"))
    meter.speed["elapsed"] = 40.0
    for part in ("256 tokens/s", "MFU 6.4%", "data wait 25.0%", "ETA 1:00:00"):
        assert part in meter.line(10, result())
    assert clock(59.6) == "0:01:00" and clock(90061) == "25:01:01"


# ---------------------------------------------------------------- a run


def test_a_resumed_run_writes_down_what_an_undisturbed_one_does(
    toy_manifest: Path, tmp_path: Path
) -> None:
    """Tokens of each source are those of the rows themselves; on two ranks, stopped in between."""
    run = tmp_path / "run"
    knobs = ("log.every=2", "train.micro_batch=2", "schedule.kind=constant")
    run_ranks(2, train, config(toy_manifest, run, *knobs, "train.steps=3"))
    run_ranks(2, train, config(toy_manifest, run, *knobs, "train.steps=5"))
    health = read(run, "health")
    assert [line["step"] for line in health] == [1, 2, 3, 4, 5]
    assert [line["start"] for line in health] == [1, 1, 1, 2, 2]
    reader = open_reader(Manifest.load(toy_manifest))
    for line in health:
        rows = reader.batch(0, 8 * line["step"])
        own = np.bincount(rows.sources, weights=rows.filled(), minlength=3)
        sources = list(line["sources"].values())
        assert [source["tokens"] for source in sources] == own.tolist()
        assert sum(source["share"] for source in sources) == pytest.approx(1)
        assert sum(source["labels"] for source in sources) == line["labels"]
        summed = sum((source["loss"] or 0) * source["labels"] for source in sources)
        assert summed / line["labels"] == pytest.approx(line["loss"])
    operations = read(run, "operations")
    assert [line["step"] for line in operations] == [2, 3, 4, 5]
    assert all(line["tokens_per_second"] > 0 and line["mfu"] is None for line in operations)


# ---------------------------------------------------------------- curves


def pretend(run: Path, steps: int = 30) -> None:
    """A run with a restart after step 10 and a rollback from 20 to 12."""
    meter = Meter(replace(FACTS, peak=None))

    def go(metrics: Metrics, begin: int, end: int) -> None:
        for step in range(begin, end + 1):
            metrics.health(step, **meter.health(result(loss=5 / step), [0.6, 0.4]))
            if step % 5 == 0:
                metrics.operations(step, **meter.operations(torch.device("cpu")))
                metrics.validation(step, loss=5.2 / step)
        metrics.close()

    go(Metrics(run, PLAIN, True), 1, 12)
    go(Metrics(run, PLAIN, True), 11, 20)
    last = Metrics(run, PLAIN, True)
    last.start = 2
    last.event("rollback", spike=20, step=12)
    go(last, 13, steps)


def test_all_curves_are_drawn_of_several_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    pretend(tmp_path / "one")
    pretend(tmp_path / "two", steps=25)
    assert plots.main([str(tmp_path / "one"), str(tmp_path / "two")]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert {place.stem for place in written} == {name for name, *_ in plots.DRAWINGS}
    for place in written:
        assert place.parent == tmp_path / "one" / "plots"
        assert place.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_restarts_and_holes_are_marked(tmp_path: Path) -> None:
    pretend(tmp_path / "run")
    assert plots.Run.load(tmp_path / "run", "run").marks() == ([11], [20])


def test_curves_are_drawn_at_the_end_of_a_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pretend(tmp_path / "run")
    metrics = Metrics(tmp_path / "run", Log(), True)
    metrics.plot()
    metrics.close()
    assert (tmp_path / "run" / "plots" / "loss.png").exists()


def test_without_matplotlib_a_line_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(tmp_path / "run", steps=21)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert plots.main([str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err == ("training.plots: no curves: matplotlib is not installed\n")


def test_what_is_no_run_is_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert plots.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_running_mean() -> None:
    values = np.random.default_rng(0).normal(size=50)
    expected = [values[max(0, place - 3) : place + 4].mean() for place in range(50)]
    assert plots.smooth(values, 7) == pytest.approx(expected)
