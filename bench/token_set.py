"""A tokens directory of made-up documents, for measuring the trainer where there is no corpus.

What may live here: `make(directory, ...)`. Documents have lognormal lengths and Zipf tokens, are
put into rows one after the other (a row's last document is cut at its end), and the shards are the
order of the rows, sample by sample.

    python -m bench.token_set DIR [--length 2048] [--samples 16384] [--mean 1024] [--poison A:B]

`--poison`: samples A to B - 1 are of uniformly random tokens, which a model finds out: a spike of
the loss, for the guard.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from manifests.order import ALGORITHM, BLOCK, VERSION, Deal, Order, parts_of
from manifests.records import digest_of
from manifests.rows import PARQUET, ROW_GROUP, Rows, to_table
from manifests.tokens import (
    Dealing,
    File,
    Manifest,
    Mixture,
    Packing,
    Source,
    Split,
    Tokenizer,
    Validation,
)

NAME = "web"


def make(
    directory: Path,
    *,
    length: int = 2048,
    vocab: int = 32_000,
    rows: int = 4096,
    samples: int = 16_384,
    mean: float = 1024,
    seed: int = 20,
    poison: range = range(0),
) -> Manifest:
    """Writes it and gives its manifest. `mean`: tokens of a document; rows are full; `poison`:
    samples whose tokens are uniformly random."""
    packed, held = (
        _rows(length, vocab, count, mean, seed + n) for n, count in ((0, rows), (1, 64))
    )
    parts = parts_of([1.0], [1.0])
    order = Order(seed, [NAME], [rows], [Deal(0, parts)])
    shard = packed.take(order.locate(np.arange(samples))[2])
    for sample in poison:
        shard.tokens[sample] = np.random.default_rng([seed, sample]).integers(0, vocab - 2, length)
    recipe = {"kind": "tokens", "name": "made-up", "seed": seed}
    manifest = Manifest(
        name="made-up",
        seed=seed,
        recipe=recipe,
        recipe_digest=digest_of(recipe),
        sequence_length=length,
        dtype="uint16" if vocab <= 1 << 16 else "uint32",
        max_docs_per_row=length,
        packing=Packing("concat", 1),
        tokenizer=_tokenizer(directory, vocab),
        dealing=Dealing(
            ALGORITHM, VERSION, BLOCK, samples, (Mixture(0, {NAME: 1.0}, {NAME: parts[0]}),)
        ),
        sources=(
            Source(
                NAME,
                None,
                1.0,
                1.0,
                order.epochs(samples)[0],
                1e9,
                {"kind": "made up"},
                {
                    "train": _split(directory, "train", packed),
                    "validation": _split(directory, "validation", held),
                },
            ),
        ),
        shards=(_file(directory, "shards/train/shard-00000.parquet", shard),),
        validation=Validation(None, None, None),
        corpus=None,
        directory=directory,
    )
    manifest.save(directory / "manifest.json")
    return manifest


def _rows(length: int, vocab: int, count: int, mean: float, seed: int) -> Rows:
    drawn = np.random.default_rng(seed)
    lengths, starts = [], [0]
    for _ in range(count):
        left = length
        while left:
            own = min(left, max(16, int(drawn.lognormal(np.log(mean) - 0.5, 1.0))))
            lengths.append(own)
            left -= own
        starts.append(len(lengths))
    tokens = (drawn.zipf(1.2, (count, length)) % (vocab - 2)).astype(
        np.uint16 if vocab <= 1 << 16 else np.uint32
    )
    return Rows(
        tokens,
        np.array(starts, np.int64),
        np.array(lengths, np.int32),
        np.zeros(len(lengths), np.int64),
        drawn.integers(0, 2**63, (len(lengths), 2)).astype(np.uint64),
        np.zeros(count, np.int16),
    )


def _split(directory: Path, split: str, rows: Rows) -> Split:
    pieces, size = len(rows.lengths), rows.tokens.size
    file = _file(directory, f"packed/{split}/{NAME}/part-00000.parquet", rows)
    return Split(pieces, pieces, size, pieces, len(rows), 1.0, 0, (file,), ())


def _file(directory: Path, path: str, rows: Rows) -> File:
    place = directory / path
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(to_table(rows, [NAME]), place, row_group_size=ROW_GROUP, **PARQUET)
    data = place.read_bytes()
    tokens = {NAME: int(rows.tokens.size)}
    return File(path, len(rows), len(data), hashlib.sha256(data).hexdigest(), tokens)


def _tokenizer(directory: Path, vocab: int) -> Tokenizer:
    directory.mkdir(parents=True, exist_ok=True)
    record = {"decoder": None, "pre_tokenizer": None, "model": {"vocab": {}}, "added_tokens": []}
    data = json.dumps(record).encode()
    (directory / "tokenizer.json").write_bytes(data)
    sha = hashlib.sha256(data).hexdigest()
    eos, pad = vocab - 2, vocab - 1
    special = {"<|endoftext|>": eos, "<|pad|>": pad}
    return Tokenizer("tokenizer.json", sha, len(data), vocab, eos, None, pad, None, (), special)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--samples", type=int, default=16_384)
    parser.add_argument("--mean", type=float, default=1024)
    parser.add_argument("--poison", default="0:0", metavar="A:B")
    given = parser.parse_args()
    made = make(
        given.directory,
        length=given.length,
        samples=given.samples,
        mean=given.mean,
        poison=range(*map(int, given.poison.split(":"))),
    )
    print(f"{made.samples:,} samples of {made.sequence_length:,} tokens in {given.directory}")
