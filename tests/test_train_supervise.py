"""Workers that are started, watched and started again; scripts stand for workers, so it is fast."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from training import supervise
from training.config import Config, ConfigError, changed, load
from training.run import lock

#: What every script begins with: `rank`, how often this rank was started before, and `beat`.
PREAMBLE = """
import os, signal, sys, time
rank, run = int(os.environ["RANK"]), sys.argv[1].rsplit("/", 1)[0]
place = f"{run}/starts-{rank}"
open(place, "a").write("x")
start = len(open(place).read())
def beat(word):
    os.write(int(os.environ["GRISTMILL_HEARTBEAT"]), f"{word}\\n".encode())
beat("-")
"""

Run = Callable[..., tuple[int, Path]]


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a script as some workers; gives the exit code and the run's directory."""

    def run(script: str, count: int = 1, quiet: bool = False, **launch: object) -> tuple[int, Path]:
        (tmp_path / "worker.py").write_text(PREAMBLE + script)
        monkeypatch.setattr(supervise, "_COMMAND", [sys.executable, str(tmp_path / "worker.py")])
        return supervise.supervise(told(tmp_path, **launch), count, held, quiet), tmp_path

    with lock(tmp_path) as held:
        yield run


def told(run: Path, **launch: object) -> Config:
    config = load(None, [f"run={run}", "train.steps=1", "schedule.warmup=1"])
    return changed(config, **{f"launch__{name}": value for name, value in launch.items()})


def starts(run: Path, rank: int = 0) -> int:
    return len((run / f"starts-{rank}").read_text())


def alerts(run: Path, lines: int) -> list[str]:
    """What on_alert wrote; it is not waited for, so we do."""
    for _ in range(200):
        if (run / "alerts").exists() and len((run / "alerts").read_text().splitlines()) >= lines:
            break
        time.sleep(0.05)
    return (run / "alerts").read_text().splitlines()


ALERT = 'echo "$GRISTMILL_ALERT" >> "$GRISTMILL_RUN/alerts"'


def test_all_done_is_0_and_any_interrupted_is_75(workers: Run) -> None:
    assert workers("", count=2)[0] == 0
    assert workers("sys.exit(75 if rank else 0)", count=2)[0] == 75


def test_a_dead_worker_has_all_started_again_and_somebody_told(
    workers: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    code, run = workers(
        """
if start == 1 and rank == 1:
    beat(7)
    other = f"{run}/starts-0"  # which may else be killed before it has begun
    while not (os.path.exists(other) and os.path.getsize(other)):
        time.sleep(0.01)
    print("out of luck", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
if start == 1:
    time.sleep(60)
""",
        count=2,
        on_alert=ALERT,
    )
    assert code == 0
    assert [starts(run, 0), starts(run, 1)] == [2, 2]
    said = capfd.readouterr().err
    assert "rank 1 was killed by SIGKILL after step 7; starting again" in said
    assert "[rank 1] out of luck" in said
    assert alerts(run, 1) == ["rank 1 was killed by SIGKILL after step 7"]


def test_after_the_last_restart_the_run_has_failed(
    workers: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    code, run = workers('sys.exit("no luck at all")', restarts=2, on_alert=ALERT)
    assert (code, starts(run)) == (1, 3)
    last = capfd.readouterr().err.splitlines()[-1]
    assert "rank 0 exited with 1 before its first step: no luck at all" in last
    assert "launch.restarts=2 are used up" in last
    assert alerts(run, 3)[-1].startswith("the run has failed: rank 0 exited with 1")


@pytest.mark.parametrize(("worker", "launcher"), [(2, 2), (70, 1)])
def test_what_starting_again_would_not_help_is_not_started_again(
    workers: Run, worker: int, launcher: int
) -> None:
    code, run = workers(f"sys.exit({worker})")
    assert (code, starts(run)) == (launcher, 1)


def test_a_silent_worker_is_stalled_but_not_before_its_first_step_or_in_a_pause(
    workers: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    code, run = workers(
        """
time.sleep(1)
beat(1)
beat("-")
time.sleep(1)
beat(2)
if start == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
""",
        stall=0.5,
        on_alert=ALERT,
    )
    assert (code, starts(run)) == (0, 2)
    assert "rank 0 has finished nothing for" in alerts(run, 1)[0]
    assert alerts(run, 1)[0].endswith("after step 2")


@pytest.mark.parametrize(
    "command", ['sleep 20; echo late > "$GRISTMILL_RUN/late"', "exit 3", "no-such-command-here"]
)
def test_an_alert_that_hangs_or_fails_does_not_hurt_the_run(workers: Run, command: str) -> None:
    code, run = workers("sys.exit(start == 1)", on_alert=command)
    assert code == 0
    assert not (run / "late").exists()  # the run has not waited for it


def test_only_rank_0_is_shown_and_quiet_shows_none(
    workers: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    script = 'print(f"I am {rank}", file=sys.stderr)'
    workers(script, count=2)
    assert capfd.readouterr().err == "I am 0\n"
    workers(script, count=2, quiet=True)
    assert capfd.readouterr().err == ""


def test_what_a_worker_has_started_goes_with_it(workers: Run) -> None:
    _, run = workers(
        """
import subprocess
child = subprocess.Popen(["sleep", "60"])
open(f"{run}/child", "w").write(str(child.pid))
"""
    )
    child = int((run / "child").read_text())
    for _ in range(100):
        if not alive(child):
            return
        time.sleep(0.05)
    raise AssertionError("it is left behind")


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_run_is_locked_until_all_that_hold_it_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.run._PATIENCE", 0.2)
    held = lock(tmp_path)
    child = subprocess.Popen(["sleep", "60"], pass_fds=(held.fileno(),))
    for _ in range(2):  # with us, then with the child alone
        with pytest.raises(ConfigError, match="is being trained by another process"):
            lock(tmp_path)
        held.close()
    child.kill()
    child.wait()
    lock(tmp_path).close()


def test_ranks_find_each_other_by_the_environment(workers: Run) -> None:
    _, run = workers(
        """
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
open(f"{run}/said-{rank}", "w").write(" ".join(os.environ[name] for name in names))
""",
        count=2,
    )
    said = [(run / f"said-{rank}").read_text().split() for rank in range(2)]
    assert [words[:3] for words in said] == [["0", "0", "2"], ["1", "1", "2"]]
    assert said[0][3:] == said[1][3:] and said[0][3] == "127.0.0.1"


def test_rank_0_of_a_launcher_at_a_terminal_is_at_one(
    workers: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, _ = workers('print(sys.stderr.isatty(), end="\\r\\n", file=sys.stderr)', count=2)
    assert code == 0
    assert capfd.readouterr().err == "True\r\n"


def test_a_final_failure_is_said_once_and_told(
    workers: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    _, run = workers('print("it is over", file=sys.stderr); sys.exit(70)', on_alert=ALERT)
    assert capfd.readouterr().err == "it is over\n"
    assert alerts(run, 1) == [
        "the run has failed: rank 0 exited with 70 before its first step: it is over"
    ]
