"""What the trainer's tests share: a toy manifest, small configurations, and runs on some ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from training import loop, world
from training.config import Config, load

#: Two layers of 32; rows of 64 tokens (tests/make_tokens.py).
SMALL = (
    *("model.layers=2", "model.dim=32", "model.heads=4", "model.kv_heads=2", "model.ffn=48"),
    *("train.steps=6", "train.batch=8", "schedule.warmup=2", "checkpoint.every=3"),
    *("parallel.device=cpu", "log.plots=false"),
)


def config(manifest: Path, run: Path, *overrides: str) -> Config:
    """A small run of a manifest."""
    return load(None, [f"data.manifest={manifest}", f"run={run}", *SMALL, *overrides])


def train(config: Config) -> dict[str, Any]:
    """Trains on this rank; what `loop.main` gives."""
    here = world.join(config)
    try:
        return loop.main(config, here)
    finally:
        world.leave()


def lines(run: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a log of a run, such as `health`."""
    return [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]
