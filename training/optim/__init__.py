"""Optimisers and learning rates."""

from training.optim.build import build
from training.optim.schedule import rate
from training.optim.sophia import Sophia

__all__ = ["Sophia", "build", "rate"]
