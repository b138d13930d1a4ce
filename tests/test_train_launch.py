"""The command, as a user and a scheduler meet it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from manifests.tokens import Manifest
from tests.conftest import ROOT
from tests.ranks import run_ranks
from tests.test_train_resume import log
from tests.trainers import SMALL, config, lines, train
from training import launch
from training.config import Config, ConfigError, docs, leaves
from training.launch import main

STEPS = 60
LONG = (f"train.steps={STEPS}", "checkpoint.every=20", "train.micro_batch=4")
WAIT = 120  # seconds until a test gives up; the machine may be busy

#: Each process loads torch, and a test has up to eight of them, one after the other.
pytestmark = pytest.mark.timeout(900)


def words(manifest: Path, run: Path, *overrides: str) -> list[str]:
    """The command."""
    own = [f"data.manifest={manifest}", f"run={run}", *SMALL, *overrides]
    return [sys.executable, "-m", "training.launch", *own]


def start(*arguments: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words(*arguments), stderr=subprocess.PIPE, text=True, env=environment)


@contextmanager
def launched(*arguments: Any) -> Iterator[subprocess.Popen[str]]:
    process = start(*arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, and what stands on stderr."""
    _, said = process.communicate(timeout=WAIT)
    return process.returncode, said


def until(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + WAIT
    while not (found := what()):
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)
    return found


def at_step(run: Path, step: int) -> None:
    """Waits until a step is done."""
    place = run / "health.jsonl"
    until(lambda: place.exists() and len(place.read_bytes().splitlines()) >= step)


def workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children()


def reference(manifest: Path, run: Path, ranks: int) -> None:
    run_ranks(ranks, train, config(manifest, run, *LONG))


def same(one: Path, other: Path) -> None:
    """Two runs have done the same steps, bit for bit."""
    for name, *keys in (("health", "loss", "norm", "rate"), ("batches", "digest")):
        first, second = log(one, name, *keys), log(other, name, *keys)
        assert sorted(first) == sorted(second) == list(range(1, STEPS + 1))
        assert first == second


def test_a_killed_worker_changes_nothing(toy_manifest: Path, tmp_path: Path) -> None:
    """kill -9 of one of two at a random step."""
    run, alerts = tmp_path / "run", tmp_path / "alerts"
    own = ("launch.workers=2", f'launch.on_alert=echo "$GRISTMILL_ALERT">>{alerts}')
    with launched(toy_manifest, run, *LONG, *own) as process:
        at_step(run, random.randrange(5, 40))
        workers(process)[1].kill()
        code, said = ended(process)
    assert code == 0, said
    assert said.count("starting again from the last complete checkpoint") == 1
    assert "rank 1 was killed by SIGKILL" in alerts.read_text()
    reference(toy_manifest, tmp_path / "reference", 2)
    same(tmp_path / "reference", run)


def test_sigterm_is_75_and_a_killed_launcher_leaves_nobody_and_the_same_command_goes_on(
    toy_manifest: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with launched(toy_manifest, run, *LONG) as process:
        at_step(run, 10)
        process.terminate()
        code, said = ended(process)
    assert code == 75, said
    done = max(log(run, "health", "loss"))
    assert f"{done} of {STEPS} steps are done and saved" in said.splitlines()[-1]
    with launched(toy_manifest, run, *LONG) as process:
        at_step(run, done + 5)
        own = workers(process)
        assert own
        process.kill()
        until(lambda: not any(alive(worker) for worker in own))
    with launched(toy_manifest, run, *LONG) as process:
        code, said = ended(process)
    assert code == 0, said
    begun = [line for line in lines(run, "events") if line["event"] == "start"]
    assert [line["start"] for line in begun] == [1, 2, 3]
    assert begun[1]["step"] == done <= begun[2]["step"]
    reference(toy_manifest, tmp_path / "reference", 1)
    same(tmp_path / "reference", run)
    with launched(toy_manifest, run, *LONG) as process:
        code, said = ended(process)
    assert (code, said) == (0, f"training.launch: {run} is finished: {STEPS} steps are done\n")


def alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_second_signal_ends_it_at_once(toy_manifest: Path, tmp_path: Path) -> None:
    with launched(
        toy_manifest, tmp_path, *LONG, "train.steps=100000", "data.max_epochs=1e9"
    ) as process:
        at_step(tmp_path, 1)
        own = workers(process)
        own[0].suspend()  # so that it cannot save
        process.send_signal(signal.SIGINT)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        assert ended(process)[0] == 128 + signal.SIGINT
        assert not any(alive(worker) for worker in own)


def test_a_knob_that_is_wrong_is_named_once(toy_manifest: Path, tmp_path: Path) -> None:
    own = config(toy_manifest, tmp_path / "run", "model.vocab=100")
    with pytest.raises(ConfigError, match=r"^model\.vocab: 100, but the data has"):
        launch._check(own, Manifest.load(toy_manifest), 1)


def test_a_missing_package_is_said_before_anything_is_made(
    toy_manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = config(toy_manifest, tmp_path / "run", "log.tensorboard=true")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^log\.tensorboard: .* is not installed$"):
        launch._check(own, Manifest.load(toy_manifest), 1)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.dimm=3", "model.dimm: no such knob; model.dim?"),
        ("data.manifest=/nowhere", "/nowhere: No such file or directory"),
        ("launch.workers=3", "train.batch: 8 is no multiple of train.micro_batch (8) times 3"),
        ("parallel.tensor=2", "parallel: 1 pipeline x 1 replicate x 1 shard x 2 tensor is 2 ranks"),
    ],
)
def test_what_is_wrong_is_2_and_one_line_before_anything_is_made(
    toy_manifest: Path, tmp_path: Path, override: str, said: str
) -> None:
    with launched(toy_manifest, tmp_path / "run", override) as process:
        code, text = ended(process)
    assert code == 2
    assert text.startswith(f"training.launch: {said}") and text.count("\n") == 1
    assert not list((tmp_path / "run").rglob("*.json*"))


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    toy_manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(toy_manifest, tmp_path / "run", "--dry-run")[3:]]) == 0
    assert "memory a rank" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


def test_sigterm_while_files_are_looked_at_is_75(toy_manifest: Path, tmp_path: Path) -> None:
    with launched(toy_manifest, tmp_path) as process:
        until((tmp_path / ".lock").exists)
        process.terminate()
        assert ended(process)[0] == 75


def test_a_knob_is_named_once_and_what_the_disk_says_is_one_line(
    toy_manifest: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = words(toy_manifest, tmp_path)[3:]
    assert main([*arguments, "objective.kind=mlm"]) == 2
    assert capsys.readouterr().err.startswith("training.launch: objective.kind: mlm wants")

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("training.data.files.write_bytes", full)
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said == f"training.launch: {tmp_path / 'verified.json'}: No space left on device\n"


def test_knobs_shows_each_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    from training.launch import main

    assert main(["--knobs"]) == 0
    text = capsys.readouterr().out
    for name, _ in leaves(Config()):
        assert any(line.startswith(f"{name} ") for line in text.splitlines())
        assert docs()[name].split()[0] in text
    assert any(line.split()[:2] == ["optimizer.lr", "0.001"] for line in text.splitlines())


def test_torchrun_is_joined(toy_manifest: Path, tmp_path: Path) -> None:
    own = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [sys.executable, *own, "-m", *words(toy_manifest, tmp_path / "run")[2:]]
    command.append("train.micro_batch=4")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, timeout=WAIT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line["step"] for line in lines(tmp_path / "run", "health")] == list(range(1, 7))
    assert lines(tmp_path / "run", "events")[0]["ranks"] == 2
