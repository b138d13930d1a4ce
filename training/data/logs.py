"""The two logs that a batch is a function of: mixtures and skips, append-only, in sample numbers.

What may live here: reading, appending and the digests of `mixture.jsonl` and `skips.jsonl`.
Sample numbers are those of the order (manifests/order.py). A *live* sample is one that is not
skipped; training counts in live samples, so that skipped ones are consumed and never seen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

MIXTURE, SKIPS = "mixture.jsonl", "skips.jsonl"


@dataclass(frozen=True)
class Mixture:
    """From a sample on (at a block of the order), the shares of tokens of each source."""

    from_sample: int
    weights: Mapping[str, float]


@dataclass(frozen=True)
class Skip:
    """Samples `begin` to `end - 1` are left out; `reason` says why."""

    begin: int
    end: int
    reason: str


@dataclass(frozen=True)
class Logs:
    """Both logs of a run, as they are now."""

    mixtures: tuple[Mixture, ...] = ()
    skips: tuple[Skip, ...] = ()

    @staticmethod
    def read(run: Path) -> Logs:
        """Of a run directory; a log that is not there is empty."""
        return Logs(
            tuple(Mixture(**entry) for entry in _entries(run / MIXTURE)),
            tuple(Skip(**entry) for entry in _entries(run / SKIPS)),
        )

    def samples(self, first: int, count: int) -> np.ndarray:
        """The samples (int64) that are the live ones `first` to `first + count - 1`."""
        found = np.arange(first, first + count, dtype=np.int64)
        for begin, end in self.holes():
            found[found >= begin] += end - begin
        return found

    def holes(self) -> list[tuple[int, int]]:
        """The skipped ranges, disjoint and in order."""
        merged: list[tuple[int, int]] = []
        for skip in sorted(self.skips, key=lambda skip: skip.begin):
            if merged and skip.begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], skip.end))
            else:
                merged.append((skip.begin, skip.end))
        return merged


def append(run: Path, entries: Sequence[Mixture | Skip]) -> None:
    """Writes entries at the end of their logs, durably."""
    for entry in entries:
        place = run / (MIXTURE if isinstance(entry, Mixture) else SKIPS)
        with place.open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _entries(place: Path) -> list[dict[str, Any]]:
    if not place.exists():
        return []
    return [json.loads(line) for line in place.read_text().splitlines() if line]
