"""Who holds a run.

What may live here: reading leases. (A stub: the lease itself is written elsewhere.)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Holder:
    """A driver that holds a run. `seen`: seconds since its last sign of life."""

    host: str
    pid: int
    user: str
    since: str
    seen: float
    shard: str
    alive: bool


def holders(run: Path) -> list[Holder]:
    """The drivers that hold the run at `run`."""
    return []
