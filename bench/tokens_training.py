"""Training a tokenizer beside the library's bare trainer: seconds and peak memory.

What may live here: this measurement alone.

    python bench/tokens_training.py DOCUMENTS.jsonl [--limit N] [--vocabulary 32000]
        [--junk 0.05] [--memory BYTES]

Reads the texts of a JSONL file (field "text"). `--junk`: this share of all bytes is made of unique
runs of 10,000 letters without spaces besides. Each trainer runs in a process of its own, which is
killed after ten minutes; whether their merges are the same is said.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from string import ascii_letters
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from curation.tokens import presets
from curation.tokens.bpe import TrainOptions, train


def texts(options: argparse.Namespace) -> Iterator[str]:
    """The texts, and between them the runs."""
    chance, owed = random.Random(1), 0.0
    with open(options.documents, encoding="utf-8") as lines:
        for line in islice(lines, options.limit):
            text = json.loads(line)["text"]
            yield text
            owed += len(text.encode()) * options.junk / (1 - options.junk)
            while owed >= 10_000:
                owed -= 10_000
                yield "".join(chance.choices(ascii_letters, k=10_000))


def bare(options: argparse.Namespace) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = presets.pre_tokenizer(options.preset)
    trainer = trainers.BpeTrainer(
        vocab_size=options.vocabulary,
        min_frequency=2,
        special_tokens=["<|endoftext|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(options), trainer)
    return tokenizer


def ours(options: argparse.Namespace) -> Tokenizer:
    wanted = TrainOptions(
        vocab_size=options.vocabulary, pretokenizer=options.preset, memory=options.memory
    )
    return train(texts(options), wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("documents", help="JSONL file with a field 'text'")
    parser.add_argument("--limit", type=int, help="documents to read (all)")
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--preset", default="gpt2", choices=list(presets.PATTERNS))
    parser.add_argument("--junk", type=float, default=0.0)
    parser.add_argument("--memory", type=int, default=4 << 30)
    parser.add_argument("--only", choices=["bare", "ours"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        _alone(options)
        return
    size = sum(len(text.encode()) for text in texts(options))
    print(f"{size / 1e6:.1f} MB, vocabulary {options.vocabulary:,}, {options.preset}")
    merges: dict[str, Any] = {}
    for name in ("bare", "ours"):
        command = [sys.executable, "-m", "bench.tokens_training", *sys.argv[1:], "--only", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        told = json.loads(done.stdout)
        merges[name] = told["merges"]
        print(
            f"{name:6} {told['seconds']:8.1f} s {told['cpu']:8.1f} s CPU"
            f" {told['peak'] / 1024:8,.0f} MB more at peak, {len(told['merges']):,} merges"
        )
    first, other = ({tuple(merge) for merge in merges[name]} for name in ("bare", "ours"))
    print(f"{len(first & other):,} merges are in both")


def _alone(options: argparse.Namespace) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin, cpu = time.perf_counter(), time.process_time()
    tokenizer = {"bare": bare, "ours": ours}[options.only](options)
    told = {
        "seconds": time.perf_counter() - begin,
        "cpu": time.process_time() - cpu,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before,
        "merges": json.loads(tokenizer.to_str())["model"]["merges"],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
