"""The guard: what a spike is, and the report of what the batches that did it held.

What may live here: robust z-scores of loss and gradient norm, the verdict, and `spikes/*.json`. It
looks and says; the loop goes back and skips.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from training import config as knobs
from training.data.batches import Batches


@dataclass(frozen=True)
class Spike:
    """The step (from 0) whose batch did it, and what was seen."""

    step: int
    reason: str


class Guard:
    """Looks at every step in order. Ranks see the same numbers, so they say the same."""

    def __init__(self, guard: knobs.Guard) -> None:
        self.knobs = guard

    def look(self, step: int, loss: float, norm: float) -> Spike | None:
        """What is wrong with a step; None for nothing. Values that are not finite are spikes from
        the first step on."""
        return None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: JSON."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """What a checkpoint kept."""


def report(batches: Batches, spike: Spike) -> dict[str, Any]:
    """Which documents, sources and URLs the batch of a spike held."""
    return {"step": spike.step, "reason": spike.reason}
