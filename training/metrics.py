"""What is written down of a run, and the line that is printed.

What may live here: writing and reading the files of a run, the progress line, and the other places
that health and operations may go to. What the numbers are is said in training/meter.py.

    health.jsonl      is the model well: loss, norms, loss per source, mixture; every step
    operations.jsonl  is the machine well: tokens/s, MFU, data wait, memory; every `log.every` steps
    validation.jsonl  held-out loss
    batches.jsonl     the digest of every batch
    events.jsonl      starts, checkpoints, rollbacks, with the time

All are append-only and written by rank 0 alone, a line at a time and each line by one write. Steps
count from 1. After a rollback or a resume, steps are done again and have another line: `read` gives
those that count. `start` says which start of the run wrote a line, from 1. Numbers that are not
finite are null.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from training import config as knobs
from training.config import ConfigError

FILES = ("health", "operations", "validation", "batches", "events")

_TAIL = 1 << 20  # bytes: no line is longer
_REDRAW = 0.2  # seconds from one drawing of the progress line on a terminal to the next
_PATIENCE = 120  # seconds that the last plots may take


def read(run: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a file of a run, such as `health`, that count: a line of a step takes the place
    of all earlier ones of that step and of those after it. All events count. A torn last line is
    left out; a file that is not there is empty. Raises ConfigError, in one line with file and line,
    for what no run writes."""
    place = run / f"{name}.jsonl"
    found: list[dict[str, Any]] = []
    written = place.read_bytes().splitlines(keepends=True) if place.exists() else []
    for number, line in enumerate(written, 1):
        if not line.endswith(b"\n"):
            break
        values = _values(line, f"{place}, line {number}")
        while name != "events" and found and found[-1]["step"] >= values["step"]:
            found.pop()
        found.append(values)
    return found


def check_packages(log: knobs.Log) -> None:
    """Raises ConfigError where a package is missing that a knob wants."""
    for knob, wanted, package in (
        ("tensorboard", log.tensorboard, "tensorboard"),
        ("wandb", log.wandb is not None, "wandb"),
    ):
        if wanted and importlib.util.find_spec(package) is None:
            raise ConfigError(f"log.{knob}: the package {package} is not installed")


class Metrics:
    """Writes the files of a run; nothing on ranks other than 0. Raises ConfigError, on all ranks,
    where a package is missing that a knob wants."""

    def __init__(self, run: Path, log: knobs.Log, first: bool) -> None:
        self.run, self.knobs, self.first = run, log, first
        check_packages(log)
        self._files: dict[str, BinaryIO] = {}
        self._drawn, self._live = 0.0, False
        self._plots: subprocess.Popen[bytes] | None = None
        if first:
            run.mkdir(parents=True, exist_ok=True)
            last = [_mend(run / f"{name}.jsonl") for name in FILES]
            self.start = 1 + max(line.get("start", 0) for line in last)
            self._board = _board(run) if log.tensorboard else None
            self._wandb = _wandb(run, log.wandb) if log.wandb is not None else None

    # ------------------------------------------------------------ files

    def health(self, step: int, **values: Any) -> None:
        """After each step; `step` counts from 1."""
        self._line("health", {"step": step, **values})
        self._elsewhere("health", step, values)

    def operations(self, step: int, **values: Any) -> None:
        """Every `log.every` steps."""
        self._line("operations", {"step": step, **values})
        self._elsewhere("operations", step, values)

    def validation(self, step: int, **values: Any) -> None:
        """Held-out loss after a step: `loss`, and `sources` with a mapping of figures for each."""
        self._line("validation", {"step": step, **values})
        self._elsewhere("validation", step, values)

    def batch(self, step: int, digest: str, key: str) -> None:
        """The digest of a step's batch, and a key of the logs as far as they decide it."""
        self._line("batches", {"step": step, "digest": digest, "key": key})

    def event(self, kind: str, **values: Any) -> None:
        """Something that happened, with the time (UTC)."""
        self._line("events", {"time": time.time(), "event": kind, **values})

    def _line(self, name: str, values: dict[str, Any]) -> None:
        if not self.first:
            return
        if name not in self._files:
            self._files[name] = (self.run / f"{name}.jsonl").open("ab", buffering=0)
        line = json.dumps(finite({**values, "start": self.start}), allow_nan=False)
        self._files[name].write(line.encode() + b"\n")

    def _elsewhere(self, group: str, step: int, values: dict[str, Any]) -> None:
        if not self.first or (self._board is None and self._wandb is None):
            return
        numbers = dict(_flat(values, f"{group}/"))
        if self._board is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log({**numbers, "trained_steps": step})

    # ------------------------------------------------------------ people

    def say(self, line: str) -> None:
        """A line for people, on stderr."""
        if self.first:
            print(f"\r\x1b[K{line}" if self._live else line, file=sys.stderr, flush=True)
            self._live = False

    def progress(self, line: str, due: bool) -> None:
        """The one line of how far it is: on a terminal drawn anew again and again, elsewhere
        printed where it is due."""
        if not sys.stderr.isatty():
            if due:
                self.say(line)
        elif self.first:
            now = time.monotonic()
            if due or now - self._drawn >= _REDRAW:
                print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
                self._drawn, self._live = now, True

    def plot(self, wait: bool = False) -> None:
        """Draws the curves in a process of its own, so that training goes on; not while it is still
        at the last ones, unless this is to `wait`."""
        if not self.first or not self.knobs.plots:
            return
        if self._plots is not None and (self._plots.poll() is not None or wait):
            self._wait()
        if self._plots is None:
            command = [sys.executable, "-m", "training.plots", str(self.run), "--quiet"]
            self._plots = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        if wait:
            self._wait()

    def _wait(self) -> None:
        assert self._plots is not None
        try:
            self._plots.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._plots.kill()
            self._plots.wait()
        self._plots = None

    def close(self) -> None:
        """Everything is on disk, and drawn."""
        if not self.first:
            return
        if self._live:
            print(file=sys.stderr, flush=True)
        for file in self._files.values():
            os.fsync(file.fileno())
            file.close()
        self._files.clear()
        self.plot(wait=True)
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def finite(value: Any) -> Any:
    """A value as JSON can say it: numbers that are not finite are null."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def _mend(place: Path) -> dict[str, Any]:
    """Cuts a torn last line off, as a kill may leave it; gives the last whole one."""
    if not place.exists():
        return {}
    with place.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        tail = file.read()
        whole = tail[: tail.rfind(b"\n") + 1]
        file.truncate(size - len(tail) + len(whole))
    return _values(whole.splitlines()[-1], f"{place}, last line") if whole else {}


def _values(line: bytes, where: str) -> dict[str, Any]:
    """What a line of a file of a run says. Raises ConfigError."""
    try:
        values = json.loads(line)
    except ValueError:
        values = None
    if not isinstance(values, dict) or not {"step", "event"} & values.keys():
        raise ConfigError(f"{where}: damaged: no line of a run")
    return values


def _flat(values: dict[str, Any], where: str) -> Any:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{where}{name}/")
        elif isinstance(value, int | float):
            yield f"{where}{name}", value


def _board(run: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(run / "tensorboard"))


def _wandb(run: Path, project: str) -> Any:
    """The run of this name there, gone on with where it is known; steps may come again after a
    rollback, which its own step count does not allow."""
    import wandb

    own = wandb.init(project=project, id=run.resolve().name, resume="allow", dir=str(run))
    own.define_metric("*", step_metric="trained_steps")
    return own
