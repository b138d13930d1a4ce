"""Optimisers and learning rates.

What may live here: optimisers, each in a file of its own, what they share, and the schedule.
"""

from training.optim.build import build
from training.optim.schedule import rate
from training.optim.sophia import Sophia

__all__ = ["Sophia", "build", "rate"]
