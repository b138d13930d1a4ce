"""The learning rate as a function of the step.

What may live here: schedules: pure functions of the step.
"""

from __future__ import annotations

import math

from training import config as knobs


def rate(step: int, steps: int, optimizer: knobs.Optimizer, schedule: knobs.Schedule) -> float:
    """The learning rate of a step, from 0, of so many: the same on every start.

    It rises in equal parts over the warm-up, whose last step has the peak, and is at min_lr in the
    last step of all (`constant`: at the peak). Sources: cosine, I. Loshchilov and F. Hutter, 2017;
    wsd, S. Hu et al., MiniCPM, 2024; its root, A. Hagele et al., 2024.
    """
    if step < schedule.warmup:
        return optimizer.lr * ((step + 1) / schedule.warmup)  # exactly the peak at the last
    if schedule.kind == "constant":
        return optimizer.lr
    peak, last = max(0, schedule.warmup - 1), steps - 1
    if schedule.kind == "wsd":
        peak = max(peak, last - max(1, round(schedule.decay * steps)))
    done = min(1.0, max(0, step - peak) / max(1, last - peak))
    if schedule.kind == "cosine":
        left = 0.5 * (1 + math.cos(math.pi * done))
    else:
        left = 1 - (done if schedule.shape == "linear" else math.sqrt(done))
    return optimizer.min_lr + (optimizer.lr - optimizer.min_lr) * left
