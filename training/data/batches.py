"""`batch(step)`: the rows of a step, from a manifest and the two logs, and their digest.

What may live here: which samples a step has, reading them, and the digest by which two starts of a
run are held against each other. No state: any step, in any order, by any rank.
"""

from __future__ import annotations

import hashlib

import numpy as np

from manifests.logs import MIXTURE, SKIPS, Logs
from manifests.reader import Live, Shards, files_of
from manifests.records import digest_of
from manifests.rows import Rows
from manifests.tokens import File, Manifest, ManifestError
from training import config as knobs
from training.config import ConfigError


class Batches:
    """The batches of a run: step n, from 0, has the live samples n * size to (n + 1) * size - 1.

    `steps` are those of the whole run, by which `data.read=auto` knows whether shards suffice.
    Opens no file. Raises ManifestError and ConfigError.
    """

    def __init__(
        self, manifest: Manifest, data: knobs.Data, logs: Logs, batch: int, steps: int = 0
    ) -> None:
        self.manifest, self.logs, self.size, self.steps = manifest, logs, batch, steps
        self.order = logs.order(manifest)
        deals = logs.deals(manifest)
        missing = _missing(manifest, deals == manifest.deals(), logs.consumed(steps * batch))
        if data.read == "shards" and missing:
            raise ConfigError(f"data.read: {missing}; live or auto is wanted")
        self.live = data.read == "live" or missing is not None
        self.reader: Shards | Live = Live(manifest, deals) if self.live else Shards(manifest)

    def samples(self, step: int) -> np.ndarray:
        """The samples (size,) int64 of a step, from 0."""
        return self.logs.samples(step * self.size, self.size)

    def rows(self, step: int, begin: int, end: int) -> tuple[Rows, np.ndarray]:
        """Rows `begin` to `end - 1` of a step's batch, and their samples."""
        samples = self.samples(step)[begin:end]
        return self.take(samples), samples

    def take(self, samples: np.ndarray) -> Rows:
        """The rows of some samples, in ascending order."""
        return Rows.join([self.reader.batch(begin, end - begin) for begin, end in ranges(samples)])

    def files(self) -> list[File]:
        """The files that are read, validation and tokenizer included."""
        tokenizer = self.manifest.tokenizer
        own = File(tokenizer.path, 0, tokenizer.bytes, tokenizer.sha256)
        return [*files_of(self.manifest, self.live), own]

    def prefix(self, step: int) -> str:
        """32 hex digits that belong to what decides the batches of the first `step` steps."""
        return digest_of([self.size, self.logs.prefix(self.manifest, step * self.size)])

    def check(self, step: int, prefix: str) -> None:
        """Raises ManifestError where the prefix of the first `step` steps is another: a log was
        changed behind what was trained."""
        if self.prefix(step) != prefix:
            raise ManifestError(
                f"{MIXTURE}, {SKIPS}: changed for samples of the first {step:,} steps, which are "
                "trained"
            )

    def key(self, step: int) -> str:
        """16 hex digits that belong to all that decides a step's batch."""
        return self.prefix(step + 1)[:16]


def _missing(manifest: Manifest, own: bool, samples: int) -> str | None:
    """Why the shards do not do for so many samples; None where they do."""
    if not manifest.shards:
        return "the manifest has no shards"
    if not own:
        return "the mixture is not that of the shards"
    if samples > manifest.samples:
        return f"the shards have {manifest.samples:,} samples, the run reads {samples:,}"
    return None


def ranges(samples: np.ndarray) -> list[tuple[int, int]]:
    """Ascending samples as ranges [begin, end): several where they lie about a hole."""
    runs = np.split(samples, np.flatnonzero(np.diff(samples) != 1) + 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]


def digest(rows: Rows, samples: np.ndarray) -> int:
    """64 bits (signed) that belong to these rows, their pieces and their samples; those of the
    parts of a batch add up, modulo 2**64, to that of the batch, in whatever way it is divided.
    BLAKE2b of each row; what stands in its padding does not count."""
    filled = rows.filled()
    heads = np.stack([samples, rows.sources, np.diff(rows.starts)], axis=1).astype("<i8")
    pieces = np.column_stack([rows.lengths.astype("<u8"), rows.offsets.astype("<u8"), rows.ids])
    pieces = np.ascontiguousarray(pieces, "<u8")
    tokens = np.ascontiguousarray(rows.tokens, rows.tokens.dtype.newbyteorder("<"))
    total, starts = 0, rows.starts.tolist()
    for row, own in enumerate(filled.tolist()):
        state = hashlib.blake2b(heads[row], digest_size=8)
        state.update(pieces[starts[row] : starts[row + 1]].data)
        state.update(tokens[row, :own].data)
        total += int.from_bytes(state.digest(), "little")
    total &= (1 << 64) - 1
    return total - (1 << 64) if total >> 63 else total
