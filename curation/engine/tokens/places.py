"""Where the files of a tokens run lie, and its receipts.

What may live here: paths inside the run directory, by what they are of.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from curation.engine.plan import Task
from curation.engine.tokens.plan import TokensPlan
from manifests.records import Receipt


def packed(run: Path, split: str, source: str, window: int) -> Path:
    """Rows of a window of a source."""
    return run / "packed" / split / source / f"part-{window:05d}.parquet"


def provenance(run: Path, split: str, source: str, window: int) -> Path:
    """Where the documents of a window come from."""
    return run / "documents" / split / source / f"part-{window:05d}.parquet"


def shard(run: Path, number: int) -> Path:
    return run / "shards" / "train" / f"shard-{number:05d}.parquet"


def work(plan: TokensPlan, task: Task) -> Path:
    """The stem of the files that only later tasks read."""
    return plan.directory(task.phase) / "work" / task.name


def receipts(plan: TokensPlan, phase: str) -> tuple[Receipt, ...]:
    """The receipts of a phase that has ended, in order of their tasks' names."""
    directory = plan.receipts(phase)
    return _receipts(directory, directory.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _receipts(directory: Path, version: int) -> tuple[Receipt, ...]:
    found = (Receipt.load(path) for path in sorted(directory.glob("*.json")))
    return tuple(receipt for receipt in found if receipt is not None)


def encoded(plan: TokensPlan, source: str) -> list[Receipt]:
    """What the encoding left of a source, in order of the files of the corpus."""
    return [r for r in receipts(plan, "encode") if r.counts["source"] == source]
