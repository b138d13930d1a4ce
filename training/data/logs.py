"""Writing to the two logs that a batch is a function of.

What may live here: appending to `mixture.jsonl` and `skips.jsonl`, and the entry that a change of
`data.mixture` makes. What the logs say, and how they are read, is in manifests/logs.py. Entries
begin at or after the first sample that is not yet consumed, so that what a run has seen stays as
it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from manifests import typed
from manifests.logs import MIXTURE, SKIPS, Logs, Skip, whole
from manifests.order import BLOCK, parts_of
from manifests.tokens import Manifest, Mixture
from training.config import ConfigError

__all__ = ["MIXTURE", "SKIPS", "Logs", "Mixture", "Skip", "append", "change"]


def append(run: Path, entries: Sequence[Mixture | Skip]) -> None:
    """Writes entries at the end of their logs, durably; a torn line at the end goes."""
    for name, kind in ((MIXTURE, Mixture), (SKIPS, Skip)):
        own = [typed.plain(entry) for entry in entries if isinstance(entry, kind)]
        if not own:
            continue
        with (run / name).open("a+b") as file:
            file.seek(0)
            file.truncate(len(whole(file.read())))
            # One write: the parts of a batch that lies about an earlier hole are all there or none.
            file.write(b"".join(json.dumps(entry).encode() + b"\n" for entry in own))
            file.flush()
            os.fsync(file.fileno())
    directory = os.open(run, os.O_RDONLY)
    try:
        os.fsync(directory)  # the name of a log that is new
    finally:
        os.close(directory)


def change(
    manifest: Manifest, logs: Logs, weights: Mapping[str, float], live: int
) -> Mixture | None:
    """The entry that gives the sources these shares of tokens, from the next block on that begins
    at or after the first sample not yet consumed, when `live` live ones are. None where that is
    what the run is set to. Raises ConfigError for sources that are not there or have no rows.

    A run that died after a change and goes on from before it is set to the change already.
    """
    for name, weight in weights.items():
        if name not in manifest.names:
            known = ", ".join(manifest.names)
            raise ConfigError(f"data.mixture: no source {name!r}; there are {known}")
        if weight and not manifest.source(name).train.tokens:
            raise ConfigError(f"data.mixture: source {name!r} has no rows")
    fills = [source.train.fill for source in manifest.sources]
    parts = parts_of([weights.get(name, 0.0) for name in manifest.names], fills)
    begin = -(-int(logs.samples(live, 1)[0]) // BLOCK) * BLOCK
    deals = logs.deals(manifest)
    if not logs.mixtures:  # of the manifest's stages, all that are still to come
        now = max(number for number, deal in enumerate(deals) if deal.from_sample <= begin)
        ahead = deals[now:]
    else:
        ahead = deals[-1:]
    if all(deal.parts == parts for deal in ahead):
        return None
    return Mixture(begin, dict(weights), dict(zip(manifest.names, parts, strict=True)))
