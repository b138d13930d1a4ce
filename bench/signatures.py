"""How fast MinHash signatures are on one core, beside datatrove, datasketch and rensa.

    python bench/signatures.py TEXTS.jsonl --peer-python PATH [--documents 600] [--slices 6]

Reads the texts of a JSONL file (field "text") and takes an even sample. The sample is cut into
slices; on each slice ours and theirs run in turn, in CPU time, so that a machine whose speed drifts
is fair to all. Ours: the whole way from the text, words included, to 112 values and the hashes of
14 bands, the median of the repetitions. Before that, what ours spends its time on, over all texts,
the best of the repetitions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from curation.dedup.signatures import band_hashes, shingles, signatures
from curation.text.view import TextView

OURS = "gristmill, words and bands included"
GIVEN = ", shingles given"


def ours(texts: pa.LargeStringArray) -> None:
    found, _ = signatures(TextView(texts), 5, 112)
    band_hashes(found, 14, 8, np.zeros(len(texts), np.uint64))


WORK: dict[str, Callable[[pa.LargeStringArray], Any]] = {
    "hashes of words": lambda texts: TextView(texts).word_hashes(),
    "signatures, 112 permutations": lambda texts: signatures(TextView(texts), 5, 112),
    "signatures, 260": lambda texts: signatures(TextView(texts), 5, 260),
    "signatures, 9,000": lambda texts: signatures(TextView(texts), 5, 9000),
    "signatures and band hashes": ours,
    "sorted sets of shingles": lambda texts: shingles(TextView(texts), 5),
}


def seconds(work: Callable[[pa.LargeStringArray], Any], batches: list[pa.Array]) -> float:
    start = time.process_time()
    for batch in batches:
        work(batch)
    return time.process_time() - start


def beside(python: str, texts: list[str], slices: int, batch: int, repeat: int) -> dict[str, float]:
    """CPU seconds by name, in sum over the slices."""
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        script = str(Path(__file__).with_name("signature_peers.py"))
        with subprocess.Popen(
            [python, script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as peer:
            assert peer.stdin and peer.stdout
            while peer.stdout.readline() not in ("ready\n", ""):
                pass
            for number in range(slices):
                start, stop = (len(texts) * k // slices for k in (number, number + 1))
                part = pa.array(texts[start:stop], pa.large_string())
                batches = [part.slice(i, batch) for i in range(0, len(part), batch)]
                peer.stdin.write(f"{start} {stop}\n")
                peer.stdin.flush()
                total.update(json.loads(peer.stdout.readline()))
                total[OURS] += median(seconds(ours, batches) for _ in range(repeat))
            peer.stdin.close()
    for name in ("datasketch", "rensa"):
        total[f"{name}, with shingles"] = total[name + GIVEN] + total["shingles in Python"]
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("texts", help="JSONL file with a field 'text'")
    parser.add_argument("--peer-python", help="of an environment with the peers")
    parser.add_argument("--documents", type=int, default=600, help="that the peers see")
    parser.add_argument("--slices", type=int, default=6)
    parser.add_argument("--batch", type=int, default=1000, help="documents per batch")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions, of which the best")
    options = parser.parse_args()
    with open(options.texts, encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    whole = pa.array(texts, pa.large_string())
    batches = [whole.slice(i, options.batch) for i in range(0, len(whole), options.batch)]
    size = sum(len(text.encode()) for text in texts)
    print(f"{len(texts)} documents, {size / len(texts):.0f} bytes on average")
    for name, work in WORK.items():
        work(batches[0])  # compiles
        took = min(seconds(work, batches) for _ in range(options.repeat))
        print(f"{name:38}{len(texts) / took:10,.0f} documents/s{size / took / 1e6:8.1f} MB/s")

    if options.peer_python:
        sample = texts[:: max(1, len(texts) // options.documents)]
        found = beside(options.peer_python, sample, options.slices, options.batch, options.repeat)
        size = sum(len(text.encode()) for text in sample)
        print(
            f"\nbeside others: {len(sample)} documents, {size / len(sample):.0f} bytes on average"
        )
        for name, took in sorted(found.items(), key=lambda item: item[1]):
            print(
                f"{name:38}{len(sample) / took:10,.0f} documents/s{size / took / 1e6:8.1f} MB/s"
                f"   ours {took / found[OURS]:6.1f} times as many"
            )


if __name__ == "__main__":
    main()
