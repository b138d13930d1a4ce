"""Opening the batches of a run, together on all ranks.

What may live here: what a start does before its first batch, once for all: reading the logs,
appending a change of the mixture, files, caps. Rank 0 looks, all hear what it found.
"""

from __future__ import annotations

from pathlib import Path

from manifests.tokens import Manifest
from training import config as knobs
from training.data.batches import Batches
from training.data.consumption import refuse_repetition
from training.data.files import verify
from training.data.logs import Logs, append, change
from training.data.replay import Replay
from training.world import World


def open_batches(
    config: knobs.Config, manifest: Manifest, world: World, steps: int, done: int | None = None
) -> Batches:
    """The batches as the logs are now. With `done`, the steps that a start begins after, its
    `data.mixture` is in force from the next block on, and no source is gone through too often.

    Raises ConfigError and ManifestError, in one line, on all ranks.
    """

    def begin() -> Logs:
        run, data, batch = Path(config.run), config.data, config.train.batch
        logs = Logs.read(run)
        if done is None:
            return logs
        entry = data.mixture and change(manifest, logs, data.mixture, done * batch)
        after = Logs((*logs.mixtures, entry), logs.skips) if entry else logs
        refuse_repetition(Batches(manifest, data, after, batch, steps), steps, data.max_epochs)
        if entry:
            append(run, [entry])
        return after

    logs = world.by_first(begin)
    batches = Batches(manifest, config.data, logs, config.train.batch, steps)
    verify(manifest, batches.files(), config.data.digests, Path(config.run), world)
    return batches


def open_replay(run: Path, world: World) -> Replay:
    """What the steps were when they were run before; rank 0 reads it for all."""
    return world.by_first(lambda: Replay.read(run))
