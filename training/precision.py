"""Numbers of fewer bits: dynamic loss scaling for fp16.

What may live here: the scaler. Its scale is the same on all ranks, since it follows a flag that all
ranks agree on.
"""

from __future__ import annotations

from typing import Any

from training import config as knobs

# As torch.amp.GradScaler has them (P. Micikevicius et al., Mixed Precision Training, 2018).
START, GROWTH, BACKOFF, PATIENCE, FLOOR = 2.0**16, 2.0, 0.5, 2000, 1.0


class Scaler:
    """What losses are multiplied by, so that small gradients are not lost in fp16; 1 for others."""

    def __init__(self, parallel: knobs.Parallel) -> None:
        self.dynamic = parallel.precision == "fp16"
        self.scale = START if self.dynamic else 1.0
        self.finite = 0  # steps since the scale was changed

    def update(self, finite: bool) -> bool:
        """After a step: up after many finite ones, down at once after one that was not. Whether it
        went down: then the scale was to blame, and not the data."""
        if not self.dynamic:
            return False
        before = self.scale
        if not finite:
            self.scale, self.finite = max(FLOOR, self.scale * BACKOFF), 0
        elif self.finite + 1 == PATIENCE:
            self.scale, self.finite = self.scale * GROWTH, 0
        else:
            self.finite += 1
        return self.scale < before

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: JSON. Nothing where the scale is always 1."""
        return {"scale": self.scale, "finite": self.finite} if self.dynamic else {}

    def load(self, state: dict[str, Any]) -> None:
        """What a checkpoint kept; one of another precision changes nothing."""
        if self.dynamic and state:
            self.scale, self.finite = state["scale"], state["finite"]
