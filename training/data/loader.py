"""Batches ahead of their steps: reading, transforming and pinning while the device works.

What may live here: the thread that prefetches, and what a rank gets of a batch. It holds no state
that a checkpoint would want: any step can be asked for at any time.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch

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
    """This rank's portions of the batches. Ranks that see the same rows get the same.

    A thread makes the `prefetch` portions after the last that was asked for; no more are in memory.
    """

    def __init__(
        self,
        batches: Batches,
        objective: Objective,
        world: World,
        micro_batch: int,
        prefetch: int,
    ) -> None:
        self.batches, self.objective, self.world = batches, objective, world
        self.micro_batch, self.prefetch = micro_batch, prefetch
        self._thread = ThreadPoolExecutor(1, "loader", self._begin)
        self._ahead: dict[int, Future[Portion]] = {}

    def get(self, step: int) -> Portion:
        """The portion of a step; those after it are read ahead. Raises what reading it raises."""
        began = time.perf_counter()
        if step not in self._ahead:  # the first, or the run has gone back
            self._drop()
        last = max(step, min(step + self.prefetch, self.batches.steps - 1))
        for number in range(step, last + 1):
            if number not in self._ahead:
                self._ahead[number] = self._thread.submit(self._make, number)
        portion = self._ahead.pop(step).result()
        return replace(portion, waited=time.perf_counter() - began)

    def close(self) -> None:
        """Stops reading ahead."""
        self._drop()
        self._thread.shutdown()

    def _drop(self) -> None:
        for future in self._ahead.values():
            future.cancel()
        self._ahead.clear()

    def _begin(self) -> None:
        if self.world.device.type == "cuda":  # or pinning would open a context on the first GPU
            torch.cuda.set_device(self.world.device)

    def _make(self, step: int) -> Portion:
        own = self.batches.size // self.world.data_ranks
        begin = self.world.data_rank * own
        rows, samples = self.batches.rows(step, begin, begin + own)
        cuts = [np.arange(n, n + self.micro_batch) for n in range(0, own, self.micro_batch)]
        micros = [self.objective(rows.take(cut), samples[cut]) for cut in cuts]
        if self.world.device.type == "cuda":
            micros = [micro.pinned() for micro in micros]
        tokens = np.bincount(rows.sources, rows.filled(), len(self.batches.manifest.sources))
        return Portion(micros, digest(rows, samples), tokens.astype(int).tolist(), 0.0)
