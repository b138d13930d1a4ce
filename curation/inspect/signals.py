"""The stored signals of a run, read back as tables.

What may live here: how views find signals and samples on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from curation.engine.plan import Plan, Segment
from curation.engine.stats import receipts
from curation.engine.tables import read_batches


def batches(
    plan: Plan,
    segment: Segment,
    columns: Sequence[str] | None = None,
    encoded: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """The signals of a segment, a row group at a time, in order of the task's name.

    `encoded`: see `read_batches`.
    """
    for receipt in receipts(plan, segment):
        if "signals" in receipt.outputs:
            path = receipt.outputs["signals"].locate(plan.run)
            yield from read_batches(path, "signals/1", columns, encoded)


def samples(plan: Plan, segment: Segment) -> Iterator[pa.Table]:
    """The samples of a segment, task by task."""
    for receipt in receipts(plan, segment):
        if "samples" in receipt.outputs:
            yield from read_batches(receipt.outputs["samples"].locate(plan.run), "samples/1")
