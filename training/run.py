"""The directory of a run: what it is (`run.json`), and whether a start may go on with it.

What may live here: run.json, the configuration of each start, and the refusal of what a resumed run
may not change.

    RUN/run.json          what the run is: its identity (config.Config.identity), manifest, digests
        config.yaml       the configuration of the last start, resolved
        mixture.jsonl  skips.jsonl                    what a batch is a function of (data/logs.py)
        batches.jsonl  health.jsonl  operations.jsonl  events.jsonl          (metrics.py)
        checkpoints/  spikes/  plots/
"""

from __future__ import annotations

import json
from pathlib import Path

from manifests.files import write_bytes
from manifests.tokens import Manifest
from training import config as knobs


def open_run(config: knobs.Config, manifest: Manifest) -> None:
    """Makes the directory, or holds this start against what is there (rank 0 only).

    Raises ConfigError, in one line that names the difference.
    """
    run = Path(config.run)
    run.mkdir(parents=True, exist_ok=True)
    record = {"identity": config.identity, "manifest": manifest.digest}
    if not (run / "run.json").exists():
        write_bytes(run / "run.json", json.dumps(record, indent=1).encode() + b"\n")
    write_bytes(run / "config.yaml", knobs.dump(config).encode())


def steps_of(config: knobs.Config, length: int) -> int:
    """Steps of the whole run, for rows of so many tokens."""
    if config.train.steps is not None:
        return config.train.steps
    assert config.train.tokens is not None
    return -(-config.train.tokens // (config.train.batch * length))
