"""A whole tokens run: what each phase takes, and tokens per second beside the bare library.

What may live here: this measurement alone.

    python bench/tokens_run.py TEXTS.jsonl --tokenizer TOKENIZER.json --tokens 100000000

The texts are repeated, each time under other ids, until there are about so many tokens; two sources
of which one is seen 1.5 times. Rates are per worker. The bare library encodes one pass of the same
texts in as many threads as the run has workers, in the same minutes. Memory is that of the largest
task, children included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curation.api import run_tokens
from curation.engine.tokens.plan import PHASES
from manifests.records import Receipt
from manifests.tokens import Manifest

_BARE = """
import json, sys, time
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[2])
texts = [json.loads(line)["text"] for line in open(sys.argv[1], encoding="utf-8")]
for name in ("encode_batch", "encode_batch_fast"):
    encode, start, tokens = getattr(tokenizer, name), time.monotonic(), 0
    for i in range(0, len(texts), 1024):
        tokens += sum(len(e.ids) for e in encode(texts[i : i + 1024], add_special_tokens=False))
    print(name, tokens, time.monotonic() - start)
"""


def bare(texts: Path, tokenizer: Path, threads: int) -> dict[str, tuple[int, float]]:
    """Tokens and seconds of the library alone."""
    env = {**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    command = [sys.executable, "-c", _BARE, str(texts), str(tokenizer)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout
    found = (line.split() for line in lines.splitlines())
    return {name: (int(tokens), float(seconds)) for name, tokens, seconds in found}


def write(texts: Path, folder: Path, copies: int) -> None:
    """The texts as several files for each of two sources, a third of them in the second."""
    lines = texts.read_text(encoding="utf-8").splitlines()
    for copy in range(copies):
        large = [line for i, line in enumerate(lines) if i % 3]
        for name, part in (("large", large), ("small", lines[::3])):
            place = folder / name / f"{copy:04d}.jsonl"
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("w", encoding="utf-8") as file:
                for i, line in enumerate(part):
                    file.write(json.dumps({**json.loads(line), "id": f"{name}-{copy}-{i}"}) + "\n")


def receipts(run: Path, phase: str) -> Iterator[Receipt]:
    places = run.glob(f"phases/*-{phase}/receipts/*.json")
    yield from (r for path in sorted(places) if (r := Receipt.load(path)) is not None)


def told(run: Path, phase: str) -> dict[str, Any]:
    """Tasks of a phase: seconds and CPU seconds in all, the largest memory, bytes written."""
    envelopes, size = [], 0
    for receipt in receipts(run, phase):
        envelopes.append(receipt.envelope)
        size += sum(output.bytes for output in receipt.outputs.values())
    return {
        "tasks": len(envelopes),
        "seconds": sum(e["seconds"] for e in envelopes),
        "cpu": sum(e["cpu_seconds"] for e in envelopes),
        "peak": max((e["tree_peak_bytes"] for e in envelopes), default=0),
        "bytes": size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--tokens", type=float, default=1e7)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--length", type=int, default=2048)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        known = bare(options.texts, options.tokenizer, options.workers)
        copies = max(1, round(options.tokens / known["encode_batch"][0]))
        write(options.texts, folder, copies)
        recipe = {
            "kind": "tokens",
            "name": "bench",
            "sources": [
                {"name": n, "kind": "jsonl", "paths": [str(folder / n)], "weight": w}
                for n, w in (("large", 0.5), ("small", 0.5))
            ],
            "tokenizer": {"path": str(options.tokenizer)},
            "sequence_length": options.length,
            "total_tokens": int(known["encode_batch"][0] * copies),
            "validation": {"share": 0.005},
        }
        start = time.monotonic()
        made = run_tokens(recipe, output=folder / "run", workers=options.workers, quiet=True)
        seconds = time.monotonic() - start
        report(made.manifest, seconds, known, options.workers)


def report(
    manifest: Manifest, seconds: float, known: dict[str, tuple[int, float]], workers: int
) -> None:
    run = manifest.directory
    tokens = sum(split.tokens for source in manifest.sources for split in source.splits.values())
    wide = 2 if manifest.dtype == "uint16" else 4
    print(
        f"{tokens:,} tokens, {manifest.samples:,} samples of {manifest.sequence_length}, "
        f"{workers} workers, {seconds:,.0f} s"
    )
    head = ("phase", "tasks", "seconds", "CPU", "M tokens/s", "MB/s", "MiB")
    print("\n{:<10}{:>7}{:>10}{:>10}{:>12}{:>9}{:>7}".format(*head))
    shuffled = manifest.samples * manifest.sequence_length
    for phase in PHASES:
        found = told(run, phase)
        if not found["tasks"]:
            continue
        handled = shuffled if phase in ("scatter", "gather") else tokens
        per = handled / found["seconds"] if found["seconds"] else 0.0
        print(
            f"{phase:<10}{found['tasks']:>7,}{found['seconds']:>10.1f}{found['cpu']:>10.1f}"
            f"{per / 1e6:>12.2f}{per * wide / 1e6:>9.1f}{found['peak'] / 2**20:>7.0f}"
        )
    encode = told(run, "encode")
    print(f"\n{'one pass of the texts':<28}{'tokens/s per thread':>22}")
    for name, (counted, taken) in known.items():
        print(f"bare {name:<23}{counted / taken / workers:>22,.0f}")
    print(f"{'encode, by the clock':<28}{tokens / encode['seconds']:>22,.0f}")


if __name__ == "__main__":
    main()
