"""Progress of a run for the person who waits: one live line on a terminal, plain lines elsewhere.

What may live here: what is said on standard error while tasks run, and the heartbeats by which a
long task says how far it is. Heartbeats are hidden files that nothing else reads.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curation.engine.plan import Task

BEAT = 1.0  # seconds between heartbeats of a task, and between refreshes of the live line
EVERY = 5.0  # seconds between plain lines


class Heartbeat:
    """Documents seen and kept so far by one task, for whoever looks."""

    def __init__(self, directory: Path, task: str) -> None:
        self._path = directory / f".{task}.progress"
        self._last = time.monotonic()

    def beat(self, documents: int, kept: int) -> None:
        if time.monotonic() - self._last < BEAT:
            return
        self._last = time.monotonic()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(f"{documents} {kept}")

    def end(self) -> None:
        self._path.unlink(missing_ok=True)

    @staticmethod
    def sum(directory: Path) -> tuple[int, int]:
        """Documents seen and kept by the tasks that run in a segment."""
        documents = kept = 0
        for path in directory.glob(".*.progress"):
            seen, alive = Heartbeat.read(path) or (0, 0)
            documents, kept = documents + seen, kept + alive
        return documents, kept

    @staticmethod
    def read(path: Path) -> tuple[int, int] | None:
        """Documents seen and kept; None of a task that has just ended, or is just writing it."""
        try:
            documents, kept = map(int, path.read_text().split())
        except (OSError, ValueError):
            return None
        return documents, kept


class Progress:
    """Units, documents per second, kept share and time left of the segment that runs."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._name = ""
        self._directory = Path()
        self._total = self._ended = self._documents = self._kept = 0
        self._weight = self._weight_done = self._weight_found = 0
        self._said = self._started = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(
        self,
        name: str,
        directory: Path,
        tasks: Sequence[Task],
        found: Mapping[str, int],
    ) -> None:
        """A segment starts; the tasks in `found` are done already, with so many documents."""
        done = [task for task in tasks if task.name in found]
        self._name, self._directory = name, directory
        self._total, self._ended = len(tasks), len(done)
        self._weight = sum(task.weight + 1 for task in tasks)
        self._weight_done = self._weight_found = sum(task.weight + 1 for task in done)
        self._documents = self._kept = 0
        self._started = self._said = time.monotonic()
        if self._quiet or len(done) == len(tasks):
            return
        if done:
            self.say(f"{name}: {len(done)} of {len(tasks)} units are done already")
        self._stop.clear()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()

    def _tick(self) -> None:
        while not self._stop.wait(BEAT if self._live else EVERY):
            self._show()

    def done(self, task: Task, counts: Mapping[str, Any]) -> None:
        """A task has ended; `counts` as its receipt has them."""
        self._ended += 1
        self._weight_done += task.weight + 1
        self._documents += counts.get("documents", 0)
        self._kept += counts.get("output", {}).get("documents", 0)

    def end(self) -> None:
        """The segment has ended, or the run stops."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._clear()

    def say(self, line: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self._clear()
            print(line, file=sys.stderr)

    def _clear(self) -> None:
        if self._live and not self._quiet:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def _show(self) -> None:
        seconds = time.monotonic() - self._started
        running, alive = Heartbeat.sum(self._directory)
        documents, kept = self._documents + running, self._kept + alive
        line = f"{self._name}: {self._ended:,}/{self._total:,} units"
        if documents:
            line += f", {documents:,} documents, {documents / seconds:,.0f}/s"
            if kept:  # not all tasks judge documents
                line += f", {kept / documents:.0%} kept"
        done = self._weight_done - self._weight_found
        if done and self._ended < self._total:
            left = int(seconds * (self._weight - self._weight_done) / done)
            line += f", {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
        if self._live:
            sys.stderr.write("\r\x1b[2K" + line)
            sys.stderr.flush()
        else:
            print(line, file=sys.stderr)
