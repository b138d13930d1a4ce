"""Deduplication end to end: time, memory, disk, precision and recall, beside datatrove.

    python bench/dedup.py planted FOLDER --words TEXTS.jsonl --documents 1000000 \\
        [--exact] [--peer-python PATH]
    python bench/dedup.py texts FOLDER --texts DOCS.jsonl --repetitions 100 [--peer-python PATH]

`planted` runs `minhash_dedup` alone (with `--exact` after `exact_dedup`) on a corpus of
bench/planted.py, and scores what is kept against what was planted. `texts` takes 4,000 English
texts and repeats them with new words (bench/repeated.py) for our side until a run takes long
enough; datatrove gets them once. Corpora lie in FOLDER and are made when they are not there; runs
are removed when they are measured, unless `--keep`.

Documents per second are those of the whole command by the clock, less what the same command takes
for a corpus of one document (start-up), on both sides. Kernels are compiled beforehand.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.dedup_truth import Score, found, found_on_text, score
from bench.planted import Corpus, vocabulary
from bench.repeated import Repetitions, english

MIB = 1 << 20
FILE_SIZE = "32MB"  # of our result: a task writes a file, and all workers shall have some


@dataclass(frozen=True)
class Measured:
    """A command: whether it ended in time, wall and CPU seconds of all its processes, resident
    bytes of the largest of them, and what it printed."""

    ended: bool
    seconds: float
    cpu: float
    peak: int
    output: str


def measure(command: list[str], limit: float) -> Measured:
    """Runs a command to its end, or kills it and its processes after `limit` seconds."""
    with tempfile.TemporaryFile("w+") as log:
        return _measure(command, limit, log)


def _measure(command: list[str], limit: float, log: IO[str]) -> Measured:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start, peak, ended = time.monotonic(), 0, True
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
    )
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        peak = max(peak, *_resident(watched), 0)
        if time.monotonic() - start > limit:
            ended = False
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.1)
    seconds = time.monotonic() - start
    assert process.stdout is not None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if ended and process.returncode:
        log.seek(0)
        said = log.read()[-2000:]
        raise SystemExit(f"exit {process.returncode}: {' '.join(command)}\n{said}")
    return Measured(ended, seconds, cpu, peak, process.stdout.read())


def _resident(process: psutil.Process) -> Iterable[int]:
    with contextlib.suppress(psutil.Error):
        for some in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                yield some.memory_info().rss


def ours(corpus: Path, run: Path, stages: list[dict[str, Any]], workers: int) -> Measured:
    recipe: dict[str, Any] = {"kind": "documents", "name": "dedup", "stages": stages}
    recipe |= {"input": {"kind": "parquet"}, "output": {"file_size": FILE_SIZE}}
    path = run.with_suffix(".yaml")
    path.write_text(json.dumps(recipe))
    shutil.rmtree(run, ignore_errors=True)
    command = [sys.executable, "-m", "curation", "run", str(path), "--input", str(corpus)]
    command += ["--output", str(run), "--workers", str(workers), "--quiet"]
    return measure(command, limit=24 * 3600)


def theirs(python: str, corpus: Path, out: Path, workers: int, limit: float) -> Measured:
    shutil.rmtree(out, ignore_errors=True)
    script = str(Path(__file__).with_name("datatrove_minhash.py"))
    return measure([python, script, str(corpus), str(out), str(workers)], limit)


def phases(run: Path) -> list[str]:
    """A line per phase of a run, from its receipts: tasks, seconds, memory."""
    found: dict[str, list[dict[str, float]]] = {}
    for path in sorted(run.glob("segments/*/receipts/*.json")):
        segment = path.parent.parent.name.rpartition("-")[0]
        exchange = (path.parent.parent / "removals").is_dir()
        phase = path.name.partition("-")[0].removesuffix(".json") if exchange else ""
        envelope = json.loads(path.read_text())["envelope"]
        found.setdefault(f"{segment} {phase}", []).append(envelope)
    lines = [f"{'phase':<34}{'tasks':>7}{'task s':>9}{'CPU s':>9}{'longest':>9}{'peak MiB':>10}"]
    for name, tasks in found.items():
        seconds = [task["seconds"] for task in tasks]
        cpu = sum(task["cpu_seconds"] for task in tasks)
        peak = max(task["tree_peak_bytes"] for task in tasks) / MIB
        total, most = sum(seconds), max(seconds)
        lines.append(f"{name:<34}{len(tasks):>7}{total:>9.1f}{cpu:>9.1f}{most:>9.1f}{peak:>10.0f}")
    return lines


def disk(folder: Path) -> dict[str, int]:
    """Bytes of a folder's files by the folder that they lie in, without the keys of segments."""
    sizes: dict[str, int] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            name = re.sub(r"-[0-9a-f]{8}(?=/|$)", "", str(path.parent.relative_to(folder)))
            sizes[name] = sizes.get(name, 0) + path.stat().st_size
    return dict(sorted(sizes.items()))


def fates(run: Path, corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Of a run on a planted corpus, by number: whether the document was kept, and the number of
    its survivor (-1 where there is none)."""
    kept = np.zeros(corpus.documents, dtype=bool)
    survivors = np.full(corpus.documents, -1)
    ids, numbers, gone, named = [], [], [], []
    for path in sorted(run.glob("segments/*-documents-*/signals/*.parquet")):
        schema = pq.read_schema(path)
        by = [name for name in schema.names if name.endswith(".survivor")]
        table = pq.read_table(path, columns=["unit", "row", "id", "decision", *by])
        files = table["unit"].to_numpy().astype(np.int64)
        number = corpus.number_at(files * corpus.per_file + table["row"].to_numpy())
        kept[number] = np.asarray(table["decision"]) == "kept"
        ids.append(_words(table["id"]))
        numbers.append(number)
        for name in by:
            some = np.asarray(table[name].is_valid())
            gone.append(number[some])
            named.append(_words(table[name].filter(pa.array(some))))
    id_words, all_numbers = np.concatenate(ids), np.concatenate(numbers)
    order = np.argsort(id_words)
    at = np.searchsorted(id_words, np.concatenate(named), sorter=order)
    survivors[np.concatenate(gone)] = all_numbers[order[at]]
    return kept, survivors


def _words(ids: pa.ChunkedArray) -> np.ndarray:
    """The first 64 bits of ids of 32 hex digits: enough to tell millions apart."""
    data = bytes.fromhex("".join(ids.to_pylist()))
    return np.frombuffer(data, ">u8").reshape(-1, 2)[:, 0].astype(np.uint64)


def show(name: str, documents: int, took: Measured, start: Measured, folder: Path) -> float:
    """Prints what a side took; documents per second."""
    rate = documents / max(took.seconds - start.seconds, 1e-9)
    print(
        f"{name}: {documents} documents in {took.seconds:.1f} s by the clock, start-up "
        f"{start.seconds:.1f} s, CPU {took.cpu:.1f} s (start-up {start.cpu:.1f} s): "
        f"{rate:.0f} documents/s\n  largest process {took.peak / MIB:.0f} MiB; on disk "
        f"{sum(disk(folder).values()) / MIB:.0f} MiB",
        flush=True,
    )
    return rate


def show_score(found: Score) -> None:
    evidence = found.evidence
    print(
        f"  removed {found.removed} of {found.documents}; precision at an exact Jaccard of 0.8 "
        f"{found.precision(0.8):.4f}, 0.75 {found.precision(0.75):.4f}, 0.7 "
        f"{found.precision(0.7):.4f}, 0.5 {found.precision(0.5):.4f}; below "
        f"{int((evidence < 0.5).sum())}\n  recall of {found.copies} copies at 0.8 or more "
        f"{found.recall:.4f}; groups lost {found.lost_groups}; never copied, yet removed "
        f"{found.outsiders}"
    )
    print("  pairs by exact Jaccard    pairs   found   theory: band  and verify")
    for band in found.bands:
        print(
            f"  {band.low:>12.3f} to {band.high:.3f} {band.pairs:>8}{band.found:>8.3f}"
            f"{band.candidates:>15.3f}{band.verified:>14.3f}"
        )


def one_document(corpus: Path) -> Path:
    """A corpus of the first document of another."""
    folder = corpus.with_name(corpus.name + "-one")
    if not folder.is_dir():
        folder.mkdir()
        first = pq.ParquetFile(min(corpus.glob("*.parquet")))
        pq.write_table(first.read_row_group(0).slice(0, 1), folder / "00000.parquet")
    return folder


def planted_corpus(options: argparse.Namespace) -> tuple[Corpus, Path]:
    with options.words.open(encoding="utf-8") as lines:
        corpus = Corpus(options.documents, vocabulary(lines))
    folder = options.folder / f"planted-{options.documents}"
    if not folder.is_dir():
        start = time.monotonic()
        corpus.write(folder)
        print(f"{folder}: written in {time.monotonic() - start:.0f} s")
    return corpus, folder


def planted(options: argparse.Namespace) -> None:
    corpus, folder = planted_corpus(options)
    truth, documents = pq.read_table(folder / "truth.parquet"), folder / "corpus"
    rate = 0.0
    if not options.peer_only:
        stages = our_stages(options)
        rate = our_side(options, documents, corpus.documents, stages)
        kept, survivors = fates(options.folder / "run", corpus)
        show_score(score(corpus, truth, kept, survivors, theory(options.verify)))
    if options.peer_python:
        out = their_side(options, documents, corpus.documents, rate)
        if out is not None:
            kept = np.zeros(corpus.documents, dtype=bool)
            for path in (out / "kept").glob("*.parquet"):
                kept[np.array(pq.read_table(path, columns=["id"])["id"], dtype=np.int64)] = True
            show_score(score(corpus, truth, kept))


def theory(verify: float | str) -> Callable[[float], float]:
    """The chance that a pair of some similarity is found: see `minhash_dedup.verify`."""
    if isinstance(verify, float):
        return lambda similarity: found(similarity, verify)
    threshold = float(verify.removeprefix("text").strip("()") or 0.8)
    return lambda similarity: found_on_text(similarity, threshold)


def texts(options: argparse.Namespace) -> None:
    once, often = (options.folder / f"texts-{n}" for n in (1, options.repetitions))
    with options.texts.open(encoding="utf-8") as lines:
        repeated = Repetitions(list(english(lines, options.documents)))
    for folder, repetitions in ((once, 1), (often, options.repetitions)):
        if not folder.is_dir():
            repeated.write(folder, repetitions, per_file=options.documents // 2)
    rate = 0.0
    if not options.peer_only:
        count = options.documents * options.repetitions
        rate = our_side(options, often, count, our_stages(options))
    if options.peer_python:
        their_side(options, once, options.documents, rate)


def our_stages(options: argparse.Namespace) -> list[dict[str, Any]]:
    if options.stages:
        return list(json.loads(options.stages))
    minhash = {"minhash_dedup": {"verify": options.verify}}
    return [{"exact_dedup": {}}, minhash] if options.exact else [minhash]


def our_side(
    options: argparse.Namespace, corpus: Path, documents: int, stages: list[dict[str, Any]]
) -> float:
    """Runs our engine; documents per second."""
    run, one = options.folder / "run", one_document(corpus)
    ours(one, run, stages, options.workers)  # compiles
    start = ours(one, run, stages, options.workers)
    took = ours(corpus, run, stages, options.workers)
    names = ", ".join(name for stage in stages for name in stage)
    rate = show(f"gristmill, {names}", documents, took, start, run)
    print("\n".join(f"  {line}" for line in phases(run)))
    sizes = [f"{name} {size / MIB:.1f}" for name, size in disk(run).items() if size > MIB / 20]
    print(f"  MiB on disk: {'; '.join(sizes)}", flush=True)
    return rate


def their_side(
    options: argparse.Namespace, corpus: Path, documents: int, rate: float
) -> Path | None:
    """Runs datatrove; where its files are, None if it did not end in time."""
    out, one = options.folder / "peer", one_document(corpus)
    start = theirs(options.peer_python, one, out, options.workers, options.limit)
    took = theirs(options.peer_python, corpus, out, options.workers, options.limit)
    if not took.ended:
        print(f"datatrove: not done after {options.limit:.0f} s; stages that were:\n{took.output}")
        return None
    peer_rate = show("datatrove, four stages", documents, took, start, out)
    stages = [json.loads(line) for line in took.output.splitlines() if line.startswith("{")]
    print("  " + ", ".join(f"{stage['stage']} {stage['seconds']:.1f} s" for stage in stages))
    if rate:
        print(f"ratio {rate / peer_rate:.1f}", flush=True)
    return out


def number_or_word(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("mode", choices=("planted", "texts"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--words", type=Path, help="texts that give the planted corpus its words")
    parser.add_argument("--texts", type=Path, help="JSON lines with `text`")
    parser.add_argument("--documents", type=int, help="planted: 100,000; texts: 4,000 by default")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--verify", type=number_or_word, default=0.8)
    parser.add_argument("--exact", action="store_true", help="exact_dedup before minhash_dedup")
    parser.add_argument("--stages", help="of our recipe, as JSON, instead")
    parser.add_argument("--peer-python", help="of an environment with datatrove")
    parser.add_argument("--peer-only", action="store_true")
    parser.add_argument("--limit", type=float, default=1200, help="seconds that the peer may take")
    parser.add_argument("--keep", action="store_true", help="the runs")
    options = parser.parse_args()
    needed = {"planted": "words", "texts": "texts"}[options.mode]
    if getattr(options, needed) is None:
        parser.error(f"{options.mode} needs --{needed}")
    options.documents = options.documents or {"planted": 100_000, "texts": 4_000}[options.mode]
    options.folder.mkdir(parents=True, exist_ok=True)
    {"planted": planted, "texts": texts}[options.mode](options)
    if not options.keep:
        for name in ("run", "peer"):
            shutil.rmtree(options.folder / name, ignore_errors=True)


if __name__ == "__main__":
    main()
