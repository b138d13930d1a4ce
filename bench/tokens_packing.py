"""Packing and sharding: speed, rows beyond the fewest possible, memory.

What may live here: this measurement alone.

    python bench/tokens_packing.py TEXTS.jsonl [--tokenizer TOKENIZER.json] [--documents 1000000]

Lengths are those of the texts (key `text`) in tokens, or without a tokenizer a quarter of their
bytes, and one more for the EOS. So many documents are drawn from them with replacement, and from a
lognormal distribution of the same mean. Of "2 % shortened" so many have a length of 1 to 50: texts
that have passed a filter of 50 words leave nothing that fits into the smallest gaps.

Beside ours, in the same run: best-fit in plain Python, which keeps the rooms sorted; copying the
tokens and nothing else; reading and writing the packed files with pyarrow and nothing else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left, insort
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from curation.tokens.encoding.runs import DOC
from curation.tokens.packing import ALGORITHMS, WINDOW, best_fit, pack
from curation.tokens.sharding import gather, scatter, write_rows
from manifests.arrays import load_array, save_array
from manifests.hashing import keys, salt
from manifests.order import Deal, Order, parts_of
from manifests.rows import PARQUET, ROW_GROUP

MOST = 1 << 20  # pieces of a row: no bound


def lengths_of(texts: Path, tokenizer: Path | None) -> np.ndarray:
    with texts.open(encoding="utf-8") as lines:
        found = [json.loads(line)["text"] for line in lines]
    if tokenizer is None:
        return np.array([len(text.encode()) // 4 + 1 for text in found])
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(tokenizer))
    return np.array([len(encoding.ids) + 1 for encoding in loaded.encode_batch_fast(found)])


def plain(lengths: np.ndarray, row: int) -> int:
    """Best-fit-decreasing in plain Python: how many rows."""
    rooms: list[int] = []  # distinct, ascending
    having: dict[int, int] = {}  # room -> rows that have it
    pieces = [min(row, n - at) for n in lengths.tolist() for at in range(0, n, row)]
    rows = 0
    for length in sorted(pieces, reverse=True):
        at = bisect_left(rooms, length)
        if at == len(rooms):
            rows, room = rows + 1, row
        else:
            room = rooms[at]
            having[room] -= 1
            if not having[room]:
                del having[room], rooms[at]
        room -= length
        if room:
            if room not in having:
                insort(rooms, room)
            having[room] = having.get(room, 0) + 1
    return rows


def timed(function: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """The least of some wall times, in seconds, and the result."""
    best, result = np.inf, None
    for _ in range(times):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def table(head: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]))
    print()


def speed(kinds: dict[str, np.ndarray], row: int) -> None:
    lines = []
    for kind, lengths in kinds.items():
        for name, function in ALGORITHMS.items():
            function(lengths[:9], row, MOST)
            seconds, found = timed(lambda f=function, n=lengths: f(n, row, MOST))
            lines.append([f"{kind}: {name}", seconds, found.rows, lengths])
        seconds, rows = timed(lambda n=lengths: plain(n, row), 1)
        lines.append([f"{kind}: plain Python", seconds, rows, lengths])
    table(
        [f"L = {row}", "s", "documents/s", "M tokens/s", "rows"],
        [
            [
                name,
                f"{seconds:.3f}",
                f"{len(n) / seconds:,.0f}",
                f"{n.sum() / seconds / 1e6:,.0f}",
                f"{rows:,}",
            ]
            for name, seconds, rows, n in lines
        ],
    )


def extra_rows(lengths: np.ndarray, row: int, bound: int) -> list[str]:
    found = best_fit(lengths, row, bound)
    fewest = -(-int(lengths.sum()) // row)
    more = found.rows - fewest
    return [f"{fewest:,}", f"{more:,}", f"{100 * more / fewest:.4f} %"]


def beyond(kinds: dict[str, np.ndarray], row: int) -> None:
    lines = []
    texts = kinds["texts"]
    for documents in sorted({10_000, 100_000, len(texts)}):
        for kind, lengths in kinds.items():
            more = extra_rows(lengths[:documents], row, MOST)
            lines.append([f"{documents:,} documents, {kind}", *more])
    window = texts[: int(np.searchsorted(np.cumsum(texts), WINDOW))]
    for bound in (MOST, 256, 64, 16):
        said = "any" if bound == MOST else str(bound)
        lines.append([f"one window, {said} pieces a row", *extra_rows(window, row, bound)])
    table([f"L = {row}", "fewest rows", "more", ""], lines)


def write_run_files(folder: Path, lengths: np.ndarray, files: int) -> None:
    """A window as an encoder would leave it, in several run files; ids by Zipf's law."""
    random = np.random.default_rng(5)
    for number, mine in enumerate(np.array_split(lengths, files)):
        docs = np.zeros(len(mine), DOC)
        docs["id"] = random.integers(0, 2**64, (len(mine), 2), dtype=np.uint64)
        docs["key"] = keys(salt(1, "packing"), docs["id"])
        docs["length"] = mine
        docs = docs[np.argsort(docs["key"])]
        docs["start"] = np.cumsum(docs["length"]) - docs["length"]
        tokens = (50_000 ** random.random(mine.sum())).astype(np.uint16)
        save_array(folder / f"docs-{number}.npy", docs, folder)
        save_array(folder / f"tokens-{number}.npy", tokens, folder)


def slices_in(folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    return [
        (load_array(path), load_array(path.with_name(path.name.replace("docs", "tokens"))))
        for path in sorted(folder.glob("docs-*.npy"))
    ]


def peak(step: str, folder: Path, row: int) -> str:
    """MiB that a step takes in a process of its own, beyond what the process has at first."""
    command = [sys.executable, __file__, "-", "--step", step, "--folder", str(folder)]
    done = subprocess.run(
        [*command, "--length", str(row)], check=True, capture_output=True, text=True
    )
    return f"{int(done.stdout) / 2**20:,.0f}"


def whole_path(folder: Path, row: int) -> None:
    """A window packed, written, scattered and gathered, step by step."""
    slices = slices_in(folder)
    tokens = sum(len(own) for _, own in slices)
    size, lines = tokens * 2 / 1e6, []

    def line(name: str, seconds: float, memory: str = "") -> None:
        rates = [f"{tokens / seconds / 1e6:,.0f}", f"{size / seconds:,.0f}"]
        lines.append([name, f"{seconds:.2f}", *rates, memory])

    line("copy the tokens", timed(lambda: [np.array(own) for _, own in slices])[0])
    for algorithm in ALGORITHMS:
        seconds, rows = timed(lambda a=algorithm: pack(slices, row, 1024, a, 1, 0))
        line(f"pack, {algorithm}", seconds, peak(algorithm, folder, row))
    path = folder / "packed.parquet"
    line("write the packed file", timed(lambda: write_rows(path, [rows], ["web"], folder))[0])
    count = len(rows)
    del rows
    line("read it with pyarrow", timed(lambda: pq.read_table(path))[0])
    line("write it with pyarrow", bare_write(path, folder / "bare.parquet"))
    order = Order(1, ["web"], [count], [Deal(0, parts_of([1], [1]))])
    seconds, _ = timed(
        lambda: scatter(order, 0, [(0, path)], count, ["web"], folder / "run", folder)
    )
    line("scatter", seconds, peak("scatter", folder, row))
    seconds, rows = timed(lambda: gather([folder / "run"], 0, count))
    line("gather", seconds, peak("gather", folder, row))
    shard = folder / "shard.parquet"
    line("write the shard", timed(lambda: write_rows(shard, [rows], ["web"], folder))[0])
    table([f"{tokens:,} tokens", "s", "M tokens/s", "MB/s", "MiB"], lines)


def bare_write(path: Path, to: Path) -> float:
    whole = pq.read_table(path)
    return timed(lambda: pq.write_table(whole, to, row_group_size=ROW_GROUP, **PARQUET))[0]


def high_water() -> int:
    """Bytes that were resident at most, mapped files included (rusage would count the parent's)."""
    said = Path("/proc/self/status").read_text()
    return int(said.split("VmHWM:")[1].split()[0]) << 10


def step(name: str, folder: Path, row: int) -> None:
    """One step alone; prints the bytes that it took."""
    path = folder / "packed.parquet"
    few = [(docs[:1], tokens) for docs, tokens in slices_in(folder)]
    pack(few, row, 1024, "best_fit", 1, 0)
    pack(few, row, 1024, "concat", 1, 0)
    before = high_water()
    if name in ALGORITHMS:
        pack(slices_in(folder), row, 1024, name, 1, 0)
    else:
        count = pq.read_metadata(path).num_rows
        order = Order(1, ["web"], [count], [Deal(0, parts_of([1], [1]))])
        if name == "scatter":
            scatter(order, 0, [(0, path)], count, ["web"], folder / "run", folder)
        else:
            gather([folder / "run"], 0, count)
    print(high_water() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        step(args.step, args.folder, args.length)
        return
    random = np.random.default_rng(1)
    own = lengths_of(args.texts, args.tokenizer)
    sigma = 1.2
    normal = random.lognormal(np.log(own.mean()) - sigma**2 / 2, sigma, args.documents)
    real = random.choice(own, args.documents)
    print(f"{len(own):,} texts of {own.mean():,.0f} tokens, median {np.median(own):,.0f}\n")
    short = np.where(random.random(len(real)) < 0.02, random.integers(1, 51, len(real)), real)
    kinds = {"texts": real, "lognormal": normal.astype(np.int64) + 1}
    speed(kinds, args.length)
    for row in (2048, 8192):
        beyond({**kinds, "2 % shortened": short}, row)
    with tempfile.TemporaryDirectory() as name:
        write_run_files(Path(name), random.choice(own, int(WINDOW / own.mean())), 4)
        whole_path(Path(name), args.length)


if __name__ == "__main__":
    main()
