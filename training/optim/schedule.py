"""The learning rate as a function of the step."""

from __future__ import annotations

import math

from training import config as knobs


def rate(step: int, steps: int, optimizer: knobs.Optimizer, schedule: knobs.Schedule) -> float:
    """The learning rate of a step, from 0, of so many: the same on every start."""
    if step < schedule.warmup:
        return optimizer.lr * (step + 1) / schedule.warmup
    if schedule.kind == "constant":
        return optimizer.lr
    span = optimizer.lr - optimizer.min_lr
    done = (step - schedule.warmup) / max(1, steps - 1 - schedule.warmup)
    return optimizer.min_lr + span * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
