"""Which steps of a training run had some rows of its manifest.

What may live here: what the records of a training run say of the rows that it has seen. Read as
plain JSON, without anything of `training`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from manifests.logs import Logs
from manifests.tokens import Manifest, ManifestError


def steps_with(
    run: Path, manifest: Manifest, rows: Mapping[str, Sequence[int]]
) -> list[int] | None:
    """The steps, from 1 and in order, whose batches had any of these training rows (by source);
    None where the run was not of this manifest. Batches that were left out after a spike do not
    count: what they did was taken back. Raises ManifestError, in one line, where there is no run.
    """
    try:
        record = json.loads((run / "run.json").read_bytes())
        digest, size = record["manifest"], int(record["identity"]["batch"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ManifestError(f"{run}: no training run") from None
    if digest != manifest.digest:
        return None
    logs = Logs.read(run)
    order = logs.order(manifest)
    end = logs.consumed(_done(run) * size)
    draws = order.draws(end)
    found = [np.empty(0, np.int64)]
    for name, own in rows.items():
        source = manifest.names.index(name)
        for epoch in range(-(-int(draws[source]) // max(int(order.rows[source]), 1))):
            found.append(order.sample_of(source, epoch, np.array(own, np.int64)))
    samples = np.concatenate(found)
    live = logs.live(samples[(samples >= 0) & (samples < end)])
    steps: list[int] = (np.unique(live[live >= 0] // size) + 1).tolist()
    return steps


def _done(run: Path) -> int:
    """The steps that a run has logged the batches of."""
    done, place = 0, run / "batches.jsonl"
    for line in place.read_bytes().splitlines() if place.exists() else ():
        try:
            done = max(done, int(json.loads(line)["step"]))
        except (ValueError, KeyError, TypeError):
            continue  # torn
    return done
