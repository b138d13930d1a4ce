"""What is written down of a run, and the line that is printed.

What may live here: `health.jsonl` (is the model well: loss, norms, loss per source, mixture),
`operations.jsonl` (is the machine well: tokens/s, MFU, data wait, memory), `batches.jsonl` (the
digest of every batch), `events.jsonl` (starts, checkpoints, spikes), all append-only and written by
rank 0 alone; and the other places that health and operations may go to.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from training import config as knobs


class Metrics:
    """Writes the files of a run; nothing on ranks other than 0."""

    def __init__(self, run: Path, log: knobs.Log, first: bool) -> None:
        self.run, self.knobs, self.first = run, log, first

    def health(self, step: int, **values: Any) -> None:
        """After each step; `step` counts from 1."""
        self._line("health", {"step": step, **values})

    def operations(self, step: int, **values: Any) -> None:
        """Every `log.every` steps."""
        self._line("operations", {"step": step, **values})

    def batch(self, step: int, digest: str, key: str) -> None:
        """The digest of a step's batch, and a key of the logs as far as they decide it."""
        self._line("batches", {"step": step, "digest": digest, "key": key})

    def event(self, kind: str, **values: Any) -> None:
        """Something that happened, with the time (UTC)."""
        self._line("events", {"time": time.time(), "event": kind, **values})

    def say(self, line: str) -> None:
        """A line for people, on stderr."""
        if self.first:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Everything is on disk."""

    def _line(self, name: str, values: dict[str, Any]) -> None:
        if self.first:
            with (self.run / f"{name}.jsonl").open("a") as file:
                file.write(json.dumps(values) + "\n")
