"""Optimisers and learning rates."""

from training.optim.build import build
from training.optim.schedule import rate

__all__ = ["build", "rate"]
