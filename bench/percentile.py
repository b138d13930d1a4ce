"""`percentile` over a million documents: seconds and memory of its exchange, by segment.

Short documents of drawn words in eight Parquet files; a signal with nearly as many values as
documents (the mean length of words); the best tenth is kept. Shares and ranks are held against
numpy over all values at once.

What may live here: this measurement alone.

    python bench/percentile.py FOLDER [--documents N] [--workers N]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from curation import run

FILES = 8
WORDS = 40  # of a document, at most


def write(folder: Path, documents: int) -> None:
    """Texts of 10 to 40 words of 1 to 12 letters."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(20)
    words = np.array(["x" * (1 + i % 12) for i in range(4096)], dtype=object)
    for part in range(FILES):
        size = documents // FILES
        lengths = numbers.integers(WORDS // 4, WORDS + 1, size)
        chosen = words[numbers.integers(0, len(words), int(lengths.sum()))]
        ends = np.cumsum(lengths)
        texts = [" ".join(chosen[end - n : end]) for n, end in zip(lengths, ends, strict=True)]
        pq.write_table(pa.table({"text": texts}), folder / f"{part}.parquet")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    inputs, output = options.folder / f"in-{options.documents}", options.folder / "run"
    if not inputs.exists():
        write(inputs, options.documents)
    shutil.rmtree(output, ignore_errors=True)
    off = dict.fromkeys(
        [
            *("min_words", "max_words", "min_mean_word_length", "max_mean_word_length"),
            *("min_alphabetic_words", "min_stop_words"),
        ]
    )
    step = {"signal": "gopher_quality.mean_word_length", "best": "lowest", "keep": 0.1, "by": "run"}
    recipe = {
        "kind": "documents",
        "name": "percentile",
        "input": {"kind": "parquet", "paths": [str(inputs)]},
        "stages": [{"gopher_quality": off}, {"percentile": step}],
    }
    outcome = run(recipe, output=output, workers=options.workers)
    timings = json.loads((output / "timings.json").read_bytes())
    print("segment        CPU s  tasks  largest process, MiB")
    for segment in timings["segments"]:
        peak = segment["peak_bytes"] / 2**20
        cpu, tasks = segment["cpu_seconds"], segment["tasks"]
        print(f"{segment['segment']:<12} {cpu:>7.1f} {tasks:>6} {peak:>12.0f}")
    values, ranks = [], []
    for segment in sorted((output / "segments").glob("*")):
        for path in sorted(segment.glob("signals/*.parquet")):
            names = pq.read_schema(path).names
            if step["signal"] in names:
                table = pq.read_table(path, columns=["unit", "row", step["signal"]])
                values.append(table.sort_by([("unit", "ascending"), ("row", "ascending")]))
            elif "percentile.rank" in names:
                ranks.append(pq.read_table(path, columns=["unit", "row", "percentile.rank"]))
    value = pa.concat_tables(values).sort_by([("unit", "ascending"), ("row", "ascending")])[2]
    rank = pa.concat_tables(ranks).sort_by([("unit", "ascending"), ("row", "ascending")])[2]
    order = np.sort(value.to_numpy())
    expected = (1 + np.searchsorted(order, value.to_numpy())) / len(order)
    same = bool(np.array_equal(expected, rank.to_numpy()))
    kept = outcome.stats["output"]["documents"]
    print(f"kept {kept:,} of {len(order):,}, {len(np.unique(order)):,} values; ranks exact: {same}")


if __name__ == "__main__":
    main()
