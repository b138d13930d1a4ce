"""Export and takedown of a manifest: speed beside copying the files, and memory.

What may live here: this measurement alone.

    python bench/tokens_export.py TEXTS.jsonl [--tokens 50000000]

Documents have the lengths of the texts (key `text`) in bytes / 4, drawn again until there are so
many tokens; tokens are random, uint16, rows of 2,048. Beside ours, in the same run: reading the
same files with pyarrow and writing their tokens with padding, and nothing else; copying the
directory. Each export runs in a process of its own, whose peak memory is told.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from curation.tokens.export import export
from curation.tokens.packed import write_table
from curation.tokens.packing import DOC, pack, window_bits
from curation.tokens.sharding import write_rows
from curation.tokens.takedown import takedown
from manifests.hashing import keys, salt
from manifests.order import ALGORITHM, BLOCK, VERSION, WHOLE
from manifests.records import digest_of
from manifests.tokens import (
    NAME,
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

LENGTH, SEED, EOS, SHARD = 2048, 20, 0, 8192
_NONE = Split(0, 0, 0, 0, 0, 0.0, 0, (), ())


@dataclass(frozen=True)
class Listed:
    """A list by ids."""

    ids: frozenset[str]
    urls: frozenset[str] = frozenset()

    def entries(self, id: str, url: str | None) -> list[str]:
        return [id] if id in self.ids else []


def make(directory: Path, texts: Path, tokens: int) -> Manifest:
    """A manifest of one source; all its rows are the shards, once."""
    with texts.open(encoding="utf-8") as lines:
        known = np.array([len(json.loads(line)["text"].encode()) // 4 + 1 for line in lines])
    chance = np.random.default_rng(SEED)
    lengths = chance.choice(known, size=int(tokens / known.mean()))
    docs = np.zeros(len(lengths), DOC)
    docs["id"] = chance.integers(0, 2**64, (len(docs), 2), dtype=np.uint64)
    docs["length"], docs["start"] = lengths, np.cumsum(lengths) - lengths
    docs["key"] = keys(salt(SEED, "packing"), docs["id"])
    flat = chance.integers(1, 50_000, int(lengths.sum()), dtype=np.uint16)
    flat[docs["start"] + lengths - 1] = EOS
    docs = docs[np.lexsort((docs["id"][:, 1], docs["id"][:, 0], docs["key"]))]
    split = _split(directory, docs, flat)
    shell = Manifest(
        name="bench",
        seed=SEED,
        recipe={},
        recipe_digest=digest_of({}),
        sequence_length=LENGTH,
        dtype="uint16",
        max_docs_per_row=256,
        packing=Packing("best_fit", 1),
        tokenizer=_tokenizer(directory),
        dealing=Dealing(
            *(ALGORITHM, VERSION, BLOCK, split.rows),
            (Mixture(0, {"web": 1.0}, {"web": WHOLE}),),
        ),
        sources=(
            Source(
                *("web", None, 1.0, 1.0, 1.0, 4.0, {"kind": "files"}),
                {"train": split, "validation": _NONE},
            ),
        ),
        shards=(),
        validation=Validation(None, None, None),
        corpus=None,
        directory=directory,
    )
    record = {**shell.__dict__, "shards": _shards(shell)}
    manifest = Manifest(**{name: record[name] for name in Manifest.__dataclass_fields__})
    manifest.save(directory / NAME)
    return manifest


def _split(directory: Path, docs: np.ndarray, flat: np.ndarray) -> Split:
    bits = window_bits(len(flat), len(docs), 1 << 24)
    windows = (docs["key"] >> np.uint64(64 - bits)) if bits else np.zeros(len(docs), np.uint64)
    files, origins, pieces = [], [], 0
    for window in range(1 << bits):
        mine = docs[windows == window]
        rows = pack([(mine, flat)], LENGTH, 256, "best_fit", SEED, EOS)
        path = directory / f"packed/train/web/part-{window:05d}.parquet"
        files.append(write_rows(path, [rows], ["web"], directory)[1])
        pieces += len(rows.lengths)
        names = [f"{high:016x}{low:016x}" for high, low in mine["id"].tolist()]
        table = {
            "id": names,
            "url": [f"https://web.example/{name}" for name in names],
            "copies": pa.array(np.ones(len(mine), np.int32)),
            "tokens": mine["length"],
            "language": ["en"] * len(mine),
            "license": pa.nulls(len(mine), pa.string()),
            "file": ["corpus/documents/part-00000.parquet"] * len(mine),
            "row": np.arange(len(mine)),
        }
        path_of = f"documents/train/web/part-{window:05d}.parquet"
        origins.append(write_table(directory, path_of, pa.table(table)))
    count = sum(file.rows for file in files)
    fill = len(flat) / (count * LENGTH)
    counts = (len(docs), len(docs), len(flat), pieces, count)
    return Split(*counts, fill, bits, tuple(files), tuple(origins))


def _shards(manifest: Manifest) -> tuple[File, ...]:
    from manifests.reader import Live

    live, made = Live(manifest), []
    for first in range(0, manifest.samples, SHARD):
        path = manifest.directory / f"shards/train/shard-{first // SHARD:05d}.parquet"
        rows = live.batch(first, min(SHARD, manifest.samples - first))
        made.append(write_rows(path, [rows], ["web"], manifest.directory)[1])
    return tuple(made)


def _tokenizer(directory: Path) -> Tokenizer:
    import hashlib

    (directory / "tokenizer.json").write_bytes(b"{}")
    sha256 = hashlib.sha256(b"{}").hexdigest()
    return Tokenizer("tokenizer.json", sha256, 2, 50_000, EOS, None, None, None, (), {})


def bare(manifest: Manifest, output: Path, files: tuple[File, ...]) -> None:
    """The tokens of files of rows with their padding, by pyarrow and numpy alone."""
    output.mkdir()
    for number, file in enumerate(files):
        with (
            pq.ParquetFile(manifest.directory / file.path) as table,
            (output / f"{number}.npy").open("wb") as out,
        ):
            for batch in table.iter_batches(1024, columns=["tokens"]):
                batch["tokens"].flatten().to_numpy().tofile(out)


WORK: dict[str, Callable[[Manifest, Path], Any]] = {
    "packed files, bare": lambda m, out: bare(m, out, m.source("web").train.files),
    "export megatron": lambda m, out: export(m, "megatron", out),
    "shards, bare": lambda m, out: bare(m, out, m.shards),
    "export npy": lambda m, out: export(m, "npy", out),
    "copy of all files": lambda m, out: shutil.copytree(m.directory, out),
    "takedown of 1 document": lambda m, out: takedown(m, _some(m, 1), out),
    "takedown of 100": lambda m, out: takedown(m, _some(m, 100), out),
}


def _some(manifest: Manifest, count: int) -> Listed:
    first = manifest.source("web").train.provenance[0]
    names = pq.read_table(manifest.directory / first.path)["id"].to_pylist()
    return Listed(frozenset(names[:count]))


def one(directory: Path, what: str, output: Path) -> None:
    """One piece of work, in this process; kernels are compiled before the clock starts."""
    manifest = Manifest.load(directory)
    from curation.tokens.documents import filled_tokens
    from manifests.reader import Shards

    filled_tokens(Shards(manifest).batch(0, 1))
    before = _peak()
    start = time.perf_counter()
    WORK[what](manifest, output)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak": _peak(), "before": before}))


def _peak() -> int:
    """The most memory that this process has had, in MiB; getrusage tells that of its parent."""
    said = Path("/proc/self/status").read_text()
    return int(said.partition("VmHWM:")[2].split()[0]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("texts", type=Path)
    parser.add_argument("--tokens", type=int, default=50_000_000)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one(options.texts, options.one[0], Path(options.one[1]))
    with tempfile.TemporaryDirectory() as folder:
        manifest = make(Path(folder, "m"), options.texts, options.tokens)
        train = manifest.source("web").train
        print(
            f"{train.documents:,} documents, {train.tokens:,} tokens, {train.rows:,} rows in",
            end=" ",
        )
        print(f"{len(train.files)} packed files and {len(manifest.shards)} shards")
        print(f"{'':<24}{'s':>8}{'M tokens/s':>12}{'peak MiB':>10}{'(before)':>10}")
        for what in WORK:
            out = Path(folder, "out")
            command = [sys.executable, __file__, str(manifest.directory), "--one", what, str(out)]
            said = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            shutil.rmtree(out)
            speed = train.tokens / said["seconds"] / 1e6
            print(
                f"{what:<24}{said['seconds']:>8.2f}{speed:>12.1f}"
                f"{said['peak']:>10.0f}{said['before']:>10.0f}"
            )


if __name__ == "__main__":
    main()
