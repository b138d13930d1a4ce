"""Progress of a run for the person who waits: one live line on a terminal, plain lines elsewhere.

What may live here: what is said on standard error while tasks end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence

from curation.engine.plan import Task
from manifests.records import Receipt

EVERY = 5.0  # seconds between plain lines


class Progress:
    """Units, documents per second, kept share and time left of the segment that runs."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._name = ""
        self._total = self._ended = self._documents = self._kept = 0
        self._weight = self._weight_done = self._weight_found = 0
        self._said = self._started = 0.0

    def begin(
        self,
        name: str,
        tasks: Sequence[Task],
        found: Sequence[Task],
        receipts: Mapping[str, Receipt],
    ) -> None:
        """A segment starts; `found` tasks have their receipts already."""
        self._name = name
        self._total, self._ended = len(tasks), len(found)
        self._weight = sum(task.weight + 1 for task in tasks)
        self._weight_done = self._weight_found = sum(task.weight + 1 for task in found)
        self._documents = self._kept = 0
        self._started = self._said = time.monotonic()
        if found and len(found) < len(tasks):
            self.say(f"{name}: {len(found)} of {len(tasks)} units are done already")
        if len(found) < len(tasks) and self._live:
            self._show()

    def done(self, task: Task, receipt: Receipt) -> None:
        self._ended += 1
        self._weight_done += task.weight + 1
        self._documents += receipt.counts.get("documents", 0)
        self._kept += receipt.counts.get("output", {}).get("documents", 0)
        if self._live or time.monotonic() - self._said > EVERY:
            self._show()

    def end(self) -> None:
        if self._live and not self._quiet:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def say(self, line: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self.end()
            print(line, file=sys.stderr)

    def _show(self) -> None:
        if self._quiet:
            return
        self._said = time.monotonic()
        seconds = self._said - self._started
        line = f"{self._name}: {self._ended}/{self._total} units"
        if self._documents:
            line += f", {self._documents / max(seconds, 1e-9):,.0f} documents/s"
            line += f", {self._kept / self._documents:.0%} kept"
        done = self._weight_done - self._weight_found
        if done and self._ended < self._total:
            left = seconds * (self._weight - self._weight_done) / done
            line += f", {int(left) // 60}:{int(left) % 60:02d} left"
        if self._live:
            sys.stderr.write("\r\x1b[2K" + line)
            sys.stderr.flush()
        else:
            print(line, file=sys.stderr)
