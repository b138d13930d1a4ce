"""Being asked to stop, and being seen to live.

What may live here: SIGTERM and SIGINT turned into a flag that all ranks agree on between steps, and
the heartbeat by which the launcher tells slow ranks from stalled ones.
"""

from __future__ import annotations

from training.world import World


class Interrupted(Exception):
    """The run was asked to stop, and has saved."""


class Failed(Exception):
    """The run cannot go on, and starting it again would not help. One line."""


class Stop:
    """The wish to stop."""

    def __init__(self, world: World) -> None:
        self.world = world

    def beat(self, step: int) -> None:
        """A step is finished."""

    def wanted(self) -> bool:
        """Whether any rank has been asked to stop: the same answer on all."""
        return False
