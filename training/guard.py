"""The guard: what a spike is, and what is done about it.

What may live here: robust z-scores of loss and gradient norm, the verdict, and the report of what
the batches that did it held. It looks and says; the loop goes back and skips.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from training import config as knobs


@dataclass(frozen=True)
class Spike:
    """The step (from 0) whose batch did it, and what was seen."""

    step: int
    reason: str


class Guard:
    """Looks at every step in order."""

    def __init__(self, guard: knobs.Guard, state: dict[str, Any] | None = None) -> None:
        self.knobs = guard

    def look(self, step: int, loss: float, norm: float) -> Spike | None:
        """What is wrong with a step; None for nothing."""
        return None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: JSON."""
        return {}
