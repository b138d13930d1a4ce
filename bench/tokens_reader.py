"""How fast one reader gives packed rows, from shards and live, beside pyarrow on the same ones.

What may live here: this measurement alone.

    python bench/tokens_reader.py TEXTS.jsonl --tokenizer T.json [--length 2048] [--batch 32]

Packs the texts of a JSONL file (field "text") one after the other into rows, deals them to three
sources and writes packed files and shards, as a tokens run lays them out. Then one thread reads
all samples in order: as shards; live, each row from where it was packed; and by pyarrow alone,
which reads the row groups of the shards and makes nothing of them. The best of the repetitions, by
turns. With --forms, instead: what the column of tokens takes and how fast it is read, by encoding,
compression and rows of a row group.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from manifests.hashing import mix64
from manifests.order import ALGORITHM, BLOCK, VERSION, Deal, Order, parts_of
from manifests.reader import Live, Shards
from manifests.rows import PARQUET, ROW_GROUP, Rows, to_table
from manifests.tokens import (
    Dealing,
    File,
    Manifest,
    Mixture,
    Packing,
    Source,
    Split,
    Validation,
)
from manifests.tokens import Tokenizer as TokenizerFacts

NAMES, WEIGHTS = ["web", "code", "books"], [0.6, 0.3, 0.1]


def packed(path: Path, tokenizer: Path, length: int, most: int) -> Rows:
    """Documents one after the other, cut every `length` tokens; EOS (0) ends each."""
    encoder, lengths, tokens, total = Tokenizer.from_file(str(tokenizer)), [], [], 0
    with path.open() as lines:
        for line in lines:
            ids = [*encoder.encode(json.loads(line)["text"], add_special_tokens=False).ids, 0]
            tokens.append(np.array(ids, np.uint16))
            lengths.append(len(ids))
            total += len(ids)
            if total > most:
                break
    rows = total // length
    ends = np.cumsum(lengths)
    cuts = np.unique(np.concatenate([[0], ends, np.arange(0, rows * length + 1, length)]))
    cuts = cuts[cuts <= rows * length]
    pieces = np.diff(cuts)
    document = np.searchsorted(ends, cuts[:-1], side="right")
    return Rows(
        np.concatenate(tokens)[: rows * length].reshape(rows, length),
        np.searchsorted(cuts, np.arange(rows + 1) * length),
        pieces.astype(np.int32),
        cuts[:-1] - np.concatenate([[0], ends])[document],
        np.stack([mix64(document), document.astype(np.uint64)], axis=1),
        np.zeros(rows, np.int16),
    )


def write(directory: Path, path: str, rows: Rows) -> File:
    place = directory / path
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(to_table(rows, NAMES), place, row_group_size=ROW_GROUP, **PARQUET)
    data = place.read_bytes()
    return File(path, len(rows), len(data), hashlib.sha256(data).hexdigest())


def laid_out(directory: Path, rows: Rows) -> Manifest:
    """Packed files and shards of three sources, and their manifest, in which only counts matter."""
    bounds = (len(rows) * np.cumsum([0, *WEIGHTS])).astype(int)
    sources, train = [], []
    for ordinal, name in enumerate(NAMES):
        own = rows.take(np.arange(bounds[ordinal], bounds[ordinal + 1]))
        own = Rows(own.tokens, own.starts, own.lengths, own.offsets, own.ids, own.sources + ordinal)
        file = write(directory, f"packed/train/{name}/part-00000.parquet", own)
        split = Split(0, 0, own.tokens.size, len(own.lengths), len(own), 1.0, 0, (file,), ())
        empty = Split(0, 0, 0, 0, 0, 0.0, 0, (), ())
        splits = {"train": split, "validation": empty}
        weight = WEIGHTS[ordinal]
        sources.append(Source(name, None, weight, weight, 1.0, 4, {}, splits))
        train.append(own)
    parts = parts_of(WEIGHTS, [1.0] * len(NAMES))
    order = Order(20, NAMES, [len(own) for own in train], [Deal(0, parts)])
    located, _, numbers = order.locate(np.arange(len(rows)))
    sampled = Rows.join(train).take(np.asarray(bounds)[located] + numbers)
    shards = [
        write(directory, f"shards/train/shard-{i:05d}.parquet", sampled.take(part))
        for i, part in enumerate(np.array_split(np.arange(len(rows)), 2))
    ]
    mixture = Mixture(
        0, dict(zip(NAMES, WEIGHTS, strict=True)), dict(zip(NAMES, parts, strict=True))
    )
    return Manifest(
        *("bench", 20, {}, "", rows.tokens.shape[1], "uint16", 1 << 20, Packing("concat", 1)),
        TokenizerFacts("", "", 0, 1 << 16, 0, None, None, None, (), {}),
        Dealing(ALGORITHM, VERSION, BLOCK, len(rows), (mixture,)),
        *(tuple(sources), tuple(shards), Validation(None, None, None), None),
        directory=directory,
    )


def in_order(reader: Shards | Live, samples: int, batch: int) -> None:
    for first in range(0, samples, batch):
        reader.batch(first, min(batch, samples - first))


def bare(manifest: Manifest) -> None:
    for shard in manifest.shards:
        file = pq.ParquetFile(manifest.directory / shard.path, memory_map=True)
        for group in range(file.num_row_groups):
            file.read_row_group(group, use_threads=False)


def best(work: list[Callable[[], Any]], repeat: int) -> list[float]:
    """Seconds of each, the best of the repetitions, which go by turns."""
    found = [float("inf")] * len(work)
    for _ in range(repeat):
        for number, one in enumerate(work):
            start = time.perf_counter()
            one()
            found[number] = min(found[number], time.perf_counter() - start)
    return found


def speeds(manifest: Manifest, batch: int, repeat: int) -> Iterator[tuple[str, ...]]:
    samples, length = manifest.samples, manifest.sequence_length
    names = [f"shards, batches of {batch}", f"live, batches of {batch}", "pyarrow, row groups"]
    order = manifest.order()
    work: list[Callable[[], Any]] = [
        lambda: in_order(Shards(manifest), samples, batch),
        lambda: in_order(Live(manifest), samples, batch),
        lambda: bare(manifest),
        lambda: order.locate(np.arange(samples)),
        lambda: [order.locate(np.arange(i, i + batch)) for i in range(0, 1024, batch)],
    ]
    found = best(work, repeat)
    yield ("", "sequences/s", "MB/s", "of pyarrow")
    for name, seconds in zip(names, found[:3], strict=True):
        size = samples * length * 2 / 1e6
        yield (
            name,
            f"{samples / seconds:,.0f}",
            f"{size / seconds:,.0f}",
            f"{found[2] / seconds:.2f}",
        )
    yield ("order alone, all at once", f"{samples / found[3]:,.0f}", "", "")
    yield (f"order alone, batches of {batch}", f"{1024 / found[4]:,.0f}", "", "")


def forms(rows: Rows, directory: Path, repeat: int) -> Iterator[tuple[str, ...]]:
    """Sizes and speeds by how the file is written."""
    table = to_table(rows, NAMES)
    place, column = directory / "form.parquet", "tokens.list.element"
    yield ("tokens column", "rows/group", "bytes/token", "write MB/s", "read MB/s", "one row ms")
    wanted: list[tuple[str, str, int]] = [
        (encoding, compression, 64)
        for encoding in ("PLAIN", "BYTE_STREAM_SPLIT", "DICTIONARY")
        for compression in ("none", "lz4", "zstd")
    ]
    wanted += [("BYTE_STREAM_SPLIT", "zstd", group) for group in (8, 16, 32, 128, 256)]
    for encoding, compression, group in wanted:
        options: dict[str, Any] = {"compression": compression, "write_statistics": False}
        if compression == "zstd":
            options["compression_level"] = 1
        if encoding == "DICTIONARY":
            options["use_dictionary"] = [column]
        else:
            options |= {"use_dictionary": False, "column_encoding": {column: encoding}}

        def written(options: dict[str, Any] = options, group: int = group) -> None:
            pq.write_table(table, place, row_group_size=group, **options)

        def single() -> None:
            file = pq.ParquetFile(place, memory_map=True)
            for number in np.random.default_rng(0).integers(0, file.num_row_groups, 20):
                file.read_row_group(int(number), use_threads=False)

        written()
        read = lambda: pq.read_table(place, use_threads=False, memory_map=True)  # noqa: E731
        seconds = best([written, read, single], repeat)
        size = rows.tokens.size
        yield (
            *(f"{encoding.lower()}, {compression}", str(group)),
            f"{place.stat().st_size / size:.2f}",
            *(f"{2 * size / 1e6 / s:,.0f}" for s in seconds[:2]),
            f"{seconds[2] / 20 * 1e3:.2f}",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=8_000_000, help="at most about so many")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--forms", action="store_true", help="encodings and row groups")
    options = parser.parse_args()
    rows = packed(options.texts, options.tokenizer, options.length, options.tokens)
    print(f"{len(rows):,} rows of {options.length:,} tokens, {len(rows.lengths):,} pieces")
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        if options.forms:
            found = forms(rows, directory, options.repeat)
        else:
            found = speeds(laid_out(directory, rows), options.batch, options.repeat)
        lines = list(found)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for first, *others in lines:
        numbers = (c.rjust(w) for c, w in zip(others, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *numbers]).rstrip())


if __name__ == "__main__":
    main()
