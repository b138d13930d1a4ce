"""Decontamination on one core: what is noted of documents per second, beside datatrove.

`prepare` of the stage `decontaminate` on batches of 1,024 texts, of which nothing is read or
written; its parts alone (words; words and hashes of n-grams, as the overlap of validation takes
them); and datatrove's n-gram filter in its own environment, on the first texts of the same. Items
are planted into every `--every`-th text on both sides, so that there is something to find.

What may live here: this measurement alone.

    python bench/tokens_decontamination.py TEXTS.jsonl SET.jsonl.gz [--peer-python PATH]
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from curation.document import Documents
from curation.filters.decontaminate import Decontaminate
from curation.inspect.contamination import aligned
from curation.text.ngrams import gram_words, ngram_hashes
from curation.text.view import TextView

BATCH, NGRAM = 1024, 13


def planted(texts: list[str], items: list[str], every: int) -> list[str]:
    """The texts, of which every n-th has the next item in its middle."""
    found = []
    for i, text in enumerate(texts):
        if i % every == 0:
            at = text.find(" ", len(text) // 2)
            text = f"{text[:at]} {items[i // every % len(items)]} {text[at:]}"
        found.append(text)
    return found


def best(work: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of some repetitions."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("texts", type=Path)
    parser.add_argument("set", type=Path)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-python")
    parser.add_argument("--peer-documents", type=int, default=200)
    options = parser.parse_args()
    with gzip.open(options.set, "rt", encoding="utf-8") as file:
        items = [json.loads(line)["text"] for line in file]
    lines = options.texts.read_text(encoding="utf-8").splitlines()
    texts = planted([json.loads(line)["text"] for line in lines], items, options.every)
    size = sum(len(text.encode()) for text in texts)
    stage = Decontaminate(sets={"set": str(options.set)}, fields=("text",), ngram=NGRAM)
    load = best(stage.load, 1)
    batches = [
        (pa.array(range(at, min(at + BATCH, len(texts)))), pa.array(part, pa.large_string()))
        for at in range(0, len(texts), BATCH)
        for part in (texts[at : at + BATCH],)
    ]

    def prepare() -> list[np.ndarray]:
        return [stage.prepare(Documents({"row": r, "text": t})) for r, t in batches]

    records = np.concatenate(prepare())  # compiles
    work: dict[str, Callable[[], Any]] = {
        "words of the text view": lambda: [TextView(t).word_hashes() for _, t in batches],
        "words of n-grams": lambda: [gram_words(TextView(t)) for _, t in batches],
        "words and n-grams": lambda: [
            ngram_hashes(gram_words(TextView(t)), NGRAM) for _, t in batches
        ],
        "prepare": prepare,
    }
    rows = [("", "MB/s", "documents/s", "dropped")]
    for name, one in work.items():
        one()
        seconds = best(one, options.repeats)
        hit = f"{len(np.unique(records['row'])):,}" if name == "prepare" else ""
        rows.append((name, f"{size / seconds / 1e6:.1f}", f"{len(texts) / seconds:,.0f}", hit))
    if options.peer_python:
        peer = _peer(options, texts)
        first = np.unique(records["row"])
        ours = int((first < peer["documents"]).sum())
        speed = peer["bytes"] / peer["seconds"] / 1e6
        label = f"datatrove, the first {peer['documents']:,}"
        rate = f"{peer['documents'] / peer['seconds']:,.0f}"
        rows.append((label, f"{speed:.2f}", rate, f"{peer['dropped']:,} (ours {ours:,})"))
    counts = [len(table) for table in stage.load().tables]
    print(f"{len(items):,} items, {sum(counts):,} n-grams ({load:.2f} s to load);", end=" ")
    print(f"{len(texts):,} texts, {size / 1e6:.1f} MB")
    print("\n".join(aligned(rows)))


def _peer(options: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        some = texts[: options.peer_documents]
        file.writelines(json.dumps({"text": text}) + "\n" for text in some)
        file.flush()
        script = Path(__file__).with_name("datatrove_decontamination.py")
        command = [options.peer_python, script, file.name, options.set, NGRAM, len(some)]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
