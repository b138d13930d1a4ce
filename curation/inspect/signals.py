"""The stored signals, samples and texts of a run, read back.

What may live here: how views find them on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curation.engine.plan import Plan, Segment
from curation.engine.stats import receipts
from curation.engine.tables import read_batches
from manifests.records import Receipt


def batches(
    plan: Plan,
    segment: Segment,
    columns: Sequence[str] | None = None,
    encoded: Sequence[str] = (),
    where: tuple[str, pa.Array] | None = None,
) -> Iterator[pa.Table]:
    """The signals of a segment, a row group at a time, in order of the task's name.

    `encoded` and `where`: see `read_batches`.
    """
    for receipt in receipts(plan, segment):
        if "signals" in receipt.outputs:
            path = receipt.outputs["signals"].locate(plan.run)
            yield from read_batches(path, "signals/1", columns, encoded, where)


def samples(plan: Plan, segment: Segment) -> Iterator[pa.Table]:
    """The samples of a segment, task by task."""
    for receipt in receipts(plan, segment):
        if "samples" in receipt.outputs:
            yield from read_batches(receipt.outputs["samples"].locate(plan.run), "samples/1")


def stored(plan: Plan, segment: Segment, unit: int, row: int) -> dict[str, Any] | None:
    """One document as a segment before the last stored it (`text/2`); None where it did not."""
    receipt = Receipt.load(plan.receipt_path(segment, plan.units[unit].name))
    if receipt is None or "text" not in receipt.outputs:
        return None
    path = receipt.outputs["text"].locate(plan.run)
    hit = pq.read_table(path, filters=[("row", "=", row)])  # one row group
    document: dict[str, Any] | None = hit.to_pylist()[0] if len(hit) else None
    return document
