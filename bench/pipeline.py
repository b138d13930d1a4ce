"""Throughput of read + decode + extract + language + Gopher quality, and the engine's own share.

    python bench/pipeline.py ARCHIVE.warc.gz [--slices 12]

The archive is dealt into slices. Of each, the engine does its task (one worker and its extraction
child), then the bare library calls run on the same pages (FastWARC + Resiliparse + fastText) with
decoding and the text kernels beside them; the next slice begins with the bare calls. So both sides
see the same machine, however its speed drifts. All figures are CPU seconds, of this process and its
child; the driver's start-up and reports are in "whole run".
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from fasttext.FastText import load_model
from fastwarc.warc import ArchiveIterator, WarcRecordType
from resiliparse.extract.html2text import extract_plain_text

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.peer import deal
from curation import models
from curation.document import Documents
from curation.engine.driver import drive
from curation.engine.executors import InProcess
from curation.engine.plan import build, freeze, open_plan, reading_tasks
from curation.engine.progress import Progress
from curation.engine.recipe import load
from curation.engine.unit import run_task
from curation.extract.decode import decode, sanitise
from curation.filters.gopher_quality import GopherQuality

RECIPE: dict[str, Any] = {
    "kind": "documents",
    "name": "bench",
    "input": {"kind": "warc"},
    "stages": [
        {"extract": {"engine": "resiliparse"}},
        {"language": {"min_score": 0.0}},
        {"gopher_quality": {}},
    ],
}
BATCH = 256
MODEL = load_model(str(models.find("lid.176.ftz")))


def bare(archive: str) -> Counter[str]:
    """CPU seconds of the library calls, and of decoding and kernels, page by page."""
    seconds: Counter[str] = Counter()
    classify = MODEL.f.predict
    pending: list[str] = []

    def kernels() -> None:
        docs = Documents({"text": pa.array(pending, pa.large_string())})
        start = time.process_time()
        docs.view.word_counts()
        GopherQuality().score(docs)
        seconds["kernels"] += time.process_time() - start
        pending.clear()

    clock = time.process_time()

    def lap(name: str) -> None:
        nonlocal clock
        now = time.process_time()
        seconds[name] += now - clock
        clock = now

    for record in ArchiveIterator(archive, record_types=WarcRecordType.response):
        body = record.reader.read()
        label = record.http_headers.get("Content-Type", "").partition("charset=")[2] or None
        lap("FastWARC")
        html = decode(body, label).text
        lap("decoding")
        text = extract_plain_text(html, main_content=True, alt_texts=False)
        lap("Resiliparse")
        text = sanitise(text)[0]
        lap("decoding")
        line = " ".join(text.splitlines()).strip()
        if line:
            classify(line + "\n", 1, 0.0, "strict")
        lap("fastText")
        pending.append(text)
        if len(pending) == BATCH:
            kernels()
            clock = time.process_time()
    kernels()
    return seconds


def child_cpu() -> float:
    """CPU seconds of living children."""
    times = [child.cpu_times() for child in psutil.Process().children()]
    return float(sum(time.user + time.system for time in times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("--slices", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pages = deal(options.archive, root / "archives", options.slices, 10**9)
        measure(root, pages)


def measure(root: Path, pages: int) -> None:
    recipe = load(RECIPE, [str(root / "archives")])
    plan = build(recipe, root / "run")
    warm = build(recipe, root / "warm")
    for it in (plan, warm):
        freeze(it)
    tasks = reading_tasks(plan)
    bare(plan.units[0].input.path)  # the kernels compile, the child starts, files are cached
    run_task(open_plan(warm.run), tasks[0])
    alone: Counter[str] = Counter()
    own = child = wall = 0.0
    opened = open_plan(plan.run)
    for number, unit in enumerate(plan.units):
        if number % 2:
            alone.update(bare(unit.input.path))
        start, children, clock = time.process_time(), child_cpu(), time.monotonic()
        run_task(opened, tasks[number])
        own += time.process_time() - start
        child += child_cpu() - children
        wall += time.monotonic() - clock
        if not number % 2:
            alone.update(bare(unit.input.path))
    start, clock = time.process_time(), time.monotonic()
    drive(plan, InProcess(), Progress(quiet=True))  # finds the tasks done; writes the documents
    rest, rest_wall = time.process_time() - start, time.monotonic() - clock

    timings = json.loads((plan.run / "timings.json").read_text())
    stages: Counter[str] = Counter()
    for entry in timings["segments"]:
        stages.update(entry["stage_cpu_seconds"])
    libraries = alone["FastWARC"] + alone["Resiliparse"] + alone["fastText"]
    parquet = stages["(write)"]
    engine = own + child + rest
    overhead = engine - libraries - alone["decoding"] - alone["kernels"] - parquet

    def show(name: str, seconds: float, note: str = "") -> None:
        print(f"{name:<34}{seconds:>9.2f} s{seconds / pages * 1e6:>9.0f} us/page  {note}")

    print(f"{pages} pages")
    print(f"documents/s per core: {pages / engine:.0f}")
    print(f"documents/s by the clock, 1 worker and its child: {pages / (wall + rest_wall):.0f}")
    show("engine, whole run", engine)
    for name, seconds in stages.items():
        show(f"  {name}, worker", seconds)
    show("  extraction child", child)
    show("bare libraries", libraries)
    for name in ("FastWARC", "Resiliparse", "fastText"):
        show(f"  {name}", alone[name])
    show("decoding and cleaning", alone["decoding"])
    show("kernels", alone["kernels"])
    show("Parquet encoding", parquet)
    show("own overhead", overhead, f"{overhead / libraries:.1%} of the bare libraries")


if __name__ == "__main__":
    main()
