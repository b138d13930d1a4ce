"""`batch(step)`: the rows of a step, from a manifest and the two logs, and their digest.

What may live here: which samples a step has, reading them, and the digest by which two starts of a
run are held against each other. No state: any step, in any order, by any rank.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from manifests.reader import Live, Shards, open_reader
from manifests.rows import Rows
from manifests.tokens import Manifest
from training import config as knobs
from training.data.logs import Logs


class Batches:
    """The batches of a run. Raises ManifestError and ConfigError."""

    def __init__(self, manifest: Manifest, data: knobs.Data, logs: Logs, batch: int) -> None:
        self.manifest, self.logs, self.size = manifest, logs, batch
        self.reader: Shards | Live = open_reader(manifest, digests=data.digests)

    def samples(self, step: int) -> np.ndarray:
        """The samples (size,) int64 of a step, from 0."""
        return self.logs.samples(step * self.size, self.size)

    def rows(self, step: int, begin: int, end: int) -> tuple[Rows, np.ndarray]:
        """Rows `begin` to `end - 1` of a step's batch, and their samples."""
        samples = self.samples(step)[begin:end]
        return self.take(samples), samples

    def take(self, samples: np.ndarray) -> Rows:
        """The rows of some samples, in ascending order."""
        cuts = np.flatnonzero(np.diff(samples) != 1) + 1
        runs = np.split(samples, cuts)
        return Rows.join([self.reader.batch(int(run[0]), len(run)) for run in runs])


def digest(rows: Rows, samples: np.ndarray) -> int:
    """64 bits (signed) that belong to these rows; those of the parts of a batch add up, modulo
    2**64, to that of the batch, in whatever way it is divided."""
    total = 0
    filled = rows.filled()
    for row, sample in enumerate(samples.tolist()):
        pieces = slice(int(rows.starts[row]), int(rows.starts[row + 1]))
        state = hashlib.blake2b(
            np.array([sample, rows.sources[row]], "<i8").tobytes(), digest_size=8
        )
        state.update(rows.tokens[row, : filled[row]].astype("<u4").tobytes())
        for column in (rows.lengths, rows.offsets, rows.ids):
            state.update(np.ascontiguousarray(column[pieces]).astype("<u8").tobytes())
        total += int.from_bytes(state.digest(), "little")
    total &= (1 << 64) - 1
    return total - (1 << 64) if total >> 63 else total


def run_manifest(path: str) -> Manifest:
    """The manifest at a path."""
    return Manifest.load(Path(path))
