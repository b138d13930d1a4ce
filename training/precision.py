"""Numbers of fewer bits: dynamic loss scaling for fp16.

What may live here: the scaler. Its scale is the same on all ranks, since it follows a flag that all
ranks agree on.
"""

from __future__ import annotations

from typing import Any

from training import config as knobs


class Scaler:
    """What losses are multiplied by, so that small gradients are not lost in fp16; 1 for others."""

    def __init__(self, parallel: knobs.Parallel) -> None:
        self.scale = 1.0

    def update(self, finite: bool) -> None:
        """After a step: up after many finite ones, down at once after one that was not."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: JSON."""
        return {"scale": self.scale}

    def load(self, state: dict[str, Any]) -> None:
        """What a checkpoint kept."""
        self.scale = state["scale"]
