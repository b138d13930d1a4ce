"""How fast documents become arrays of token ids, beside the library's bare calls.

What may live here: this measurement alone.

    python bench/tokens_encoding.py TOKENIZER.json DOCUMENTS.jsonl [--limit N] [--repeat 3]

Reads the texts of a JSONL file (field "text"). Each thing is done in turn, `--repeat` times, in the
same process and on the same threads (RAYON_NUM_THREADS, else all cores); the best is taken, and the
ratios are of CPU seconds, which neighbours on the machine change least. Bare calls end with the
library's objects, ours with one flat array and the lengths; `run_files` also sorts the documents
and makes their provenance. Then one long line, with peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pyarrow as pa

from curation.tokens.encoding.batches import encode
from curation.tokens.encoding.loaded import load
from curation.tokens.encoding.runs import run_files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("tokenizer", help="tokenizer.json")
    parser.add_argument("documents", help="JSONL file with a field 'text'")
    parser.add_argument("--limit", type=int, help="documents to read (all)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, of which the best")
    parser.add_argument("--line", type=int, default=10_000_000, help="characters of the long line")
    options = parser.parse_args()
    with open(options.documents, encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in islice(lines, options.limit)]
    loaded = load(options.tokenizer)
    column = pa.array(texts, pa.large_string())
    ids = pa.array([f"{i:032x}" for i in range(len(texts))])
    batch = {"id": ids, "text": column, "duplicate_count": pa.array([1] * len(texts))}
    bare = loaded.encoder
    work: dict[str, Callable[[], Any]] = {
        "encode_batch, bare": lambda: bare.encode_batch(texts, add_special_tokens=False),
        "encode_batch_fast, bare": lambda: bare.encode_batch_fast(texts, add_special_tokens=False),
        "encode": lambda: encode(loaded, column),
        "run_files": lambda: run_files([batch], loaded, file="f", seed=1, validation=0.01),
    }
    tokens = int(encode(loaded, column)[1].sum())
    best = dict.fromkeys(work, (float("inf"), float("inf")))
    work["run_files"]()  # compiles
    for _ in range(options.repeat):
        for name, do in work.items():
            best[name] = tuple(map(min, best[name], _measured(do)))
    slow, fast = list(best.values())[:2]
    print(f"{len(texts):,} documents, {tokens:,} tokens")
    print(f"{'':26} {'M tokens/s':>10} {'of CPU':>8} {'to bare':>8} {'to fast':>8} (CPU)")
    for name, (wall, cpu) in best.items():
        speeds = f"{tokens / wall / 1e6:10.2f} {tokens / cpu / 1e6:8.2f}"
        print(f"{name:26} {speeds} {slow[1] / cpu:8.2f} {fast[1] / cpu:8.2f}", flush=True)
    _long_line(options.line, texts, loaded)


def _measured(do: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, and seconds of CPU in all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    made = do()
    taken = time.perf_counter() - wall, time.process_time() - cpu
    del made
    return taken


def _long_line(size: int, texts: list[str], loaded: Any) -> None:
    """One document without a line break: ours first, as peak memory only grows."""
    line = " ".join(texts).replace("\n", " ")[:size]
    print(f"\none line of {len(line):,} characters")
    for name, do in (
        ("encode", lambda: encode(loaded, [line])),
        ("encode_batch_fast, bare", lambda: loaded.encoder.encode_batch_fast([line])),
    ):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds, cpu = _measured(do)
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"{name:26} {seconds:8.2f} s, {cpu:8.2f} s CPU, peak memory + {more / 1024:,.0f} MB")


if __name__ == "__main__":
    main()
