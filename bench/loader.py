"""What a batch costs the loader on one core: reading, digest, objective, at 2,048 tokens a row.

What may live here: measurements of training/data on rows that are made up here (Zipf tokens of 16
bits, four documents a row). `python bench/loader.py [DIR]` prints milliseconds of one core for a
batch of 524,288 tokens, the least of some times.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch

from manifests.rows import PARQUET, ROW_GROUP, Rows, from_table, to_table
from training.data.batches import digest
from training.objectives import causal

ROWS, LENGTH, DOCUMENTS, BATCH = 20_000, 2048, 4, 256


def make(place: Path) -> None:
    """A file of packed rows."""
    drawn = np.random.default_rng(0)
    cuts = np.sort(drawn.integers(1, LENGTH // 8, (ROWS, DOCUMENTS - 1)) * 8, axis=1)
    edges = np.concatenate([np.zeros((ROWS, 1), int), cuts, np.full((ROWS, 1), LENGTH)], axis=1)
    lengths = np.diff(edges, axis=1).reshape(-1).astype(np.int32)
    rows = Rows(
        (drawn.zipf(1.2, (ROWS, LENGTH)) % 32_000).astype(np.uint16),
        np.arange(ROWS + 1) * DOCUMENTS,
        lengths,
        np.zeros(len(lengths), np.int64),
        drawn.integers(0, 2**63, (len(lengths), 2)).astype(np.uint64),
        np.zeros(ROWS, np.int16),
    )
    pq.write_table(to_table(rows, ["web"]), place, row_group_size=ROW_GROUP, **PARQUET)


def least(work: Callable[[], object], times: int = 9) -> float:
    """Milliseconds of CPU."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return 1e3 * min(found)


def main(directory: Path) -> None:
    torch.set_num_threads(1)
    place = directory / "rows.parquet"
    make(place)
    file = pq.ParquetFile(place, memory_map=True)

    def group(number: int) -> Rows:
        return from_table(file.read_row_group(number, use_threads=False), ["web"])

    def batch() -> Rows:
        return Rows.join([group(number) for number in range(BATCH // ROW_GROUP)])

    rows, samples = batch(), np.arange(BATCH)
    print(f"{place.stat().st_size / 1e6:.1f} MB; {BATCH} rows, ms of one core")
    print(f"  reading, in order        {least(batch):7.1f}")
    print(f"  reading, one row a group {BATCH * least(lambda: group(100)):7.1f}")
    print(f"  digest                   {least(lambda: digest(rows, samples)):7.1f}")
    print(f"  objective (causal)       {least(lambda: causal(rows, samples)):7.1f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
