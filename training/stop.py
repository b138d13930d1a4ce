"""Being asked to stop, and being seen to live.

What may live here: SIGTERM and SIGINT turned into a flag that all ranks agree on between steps, and
the heartbeat by which the launcher tells slow ranks from stalled ones. torch is imported where it
is used, for a worker listens before it has loaded it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.world import World

#: The environment variable with the descriptor of the pipe that a worker's heartbeats go to.
HEARTBEAT = "GRISTMILL_HEARTBEAT"
#: Exit code of a run that was asked to stop and has saved (EX_TEMPFAIL: try again).
INTERRUPTED = 75
#: Exit code of a worker that starting again would not help; the launcher makes it 1.
HOPELESS = 70

_TOGETHER = 1.0  # seconds; Slurm, torchrun and terminals may each send what is one wish


class Interrupted(Exception):
    """The run was asked to stop, and has saved."""


class Failed(Exception):
    """The run cannot go on, and starting it again would not help. One line."""


@dataclass
class _Wish:
    signal: int | None = None
    since: float = 0.0


_wish = _Wish()  # of this process, as signals are


def listen(again: Callable[[int], None]) -> None:
    """From now on SIGTERM and SIGINT are a wish to stop; a second one (more than a second after the
    first) calls `again` with its number. Tells the launcher so."""

    def heard(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if _wish.signal is None:
            _wish.signal, _wish.since = number, now
        elif now - _wish.since > _TOGETHER:
            again(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, heard)
    _tell("-")


def asked() -> int | None:
    """The signal by which this process was asked to stop; None for none."""
    return _wish.signal


class Stop:
    """The wish to stop, and the heartbeat, of a rank."""

    def __init__(self, world: World) -> None:
        self.world = world

    def beat(self, step: int) -> None:
        """A step is finished; the next should be, too, within `launch.stall` seconds."""
        _tell(str(step))

    def pause(self) -> None:
        """What comes before the next step is finished may take longer than a step does."""
        _tell("-")

    def wanted(self) -> bool:
        """Whether any rank has been asked to stop: the same answer on all. A reduction of one
        number in the memory of the CPU, so that it waits for no device."""
        import torch

        flag = torch.tensor(int(asked() is not None))
        return bool(self.world.most(flag))


def _tell(word: str) -> None:
    """A line to the launcher, if there is one. Never waits: what does not fit is left out."""
    if pipe := os.environ.get(HEARTBEAT):
        with suppress(OSError):  # the launcher does not listen; its death is another's business
            os.write(int(pipe), f"{word}\n".encode())
