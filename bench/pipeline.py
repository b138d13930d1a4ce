"""Throughput of read + decode + extract + language + Gopher quality, and the engine's own share.

    python bench/pipeline.py ARCHIVE.warc.gz

Runs the recipe with one worker, and in the same call the bare library calls on the same pages
(FastWARC + Resiliparse + fastText), then decoding and the text kernels alone. All figures are CPU
seconds of processes and their children: the clock of a shared machine says little. The bare calls
run before and after the engine, and the mean is taken.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from fasttext.FastText import load_model
from fastwarc.warc import ArchiveIterator, WarcRecordType
from resiliparse.extract.html2text import extract_plain_text

from curation import models
from curation.document import Documents
from curation.extract.decode import decode, sanitise
from curation.filters.gopher_quality import GopherQuality

RECIPE: dict[str, Any] = {
    "kind": "documents",
    "name": "bench",
    "input": {"kind": "warc"},
    "stages": [{"extract": {}}, {"language": {"min_score": 0.0}}, {"gopher_quality": {}}],
}
BATCH = 256


def bare(archive: str) -> tuple[Counter[str], int]:
    """CPU seconds of the library calls, and of decoding and kernels, page by page."""
    seconds: Counter[str] = Counter()
    classify = load_model(str(models.find("lid.176.ftz"))).f.predict
    pages = 0
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
        pages += 1
        pending.append(text)
        if len(pending) == BATCH:
            kernels()
            clock = time.process_time()
    kernels()
    return seconds, pages


def engine(archive: str, folder: Path) -> tuple[dict[str, Any], float, float]:
    """The run's timings, its CPU seconds with all children, and its wall seconds."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(json.dumps(RECIPE))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    command = [sys.executable, "-m", "curation", "run", str(recipe), "--input", archive]
    subprocess.run(
        [*command, "--output", str(folder / "run"), "--workers", "1", "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads((folder / "run" / "timings.json").read_text()), cpu, wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("archive")
    options = parser.parse_args()
    with contextlib.redirect_stderr(io.StringIO()):
        bare(options.archive)  # the kernels compile; files are in the page cache
        first, pages = bare(options.archive)
    with tempfile.TemporaryDirectory() as folder:
        timings, cpu, wall = engine(options.archive, Path(folder))
    second, _ = bare(options.archive)
    alone = {name: (first[name] + second[name]) / 2 for name in first}
    stages: Counter[str] = Counter()
    own = 0.0
    for segment in timings["segments"]:
        stages.update(segment["stage_cpu_seconds"])
        own += segment["own_cpu_seconds"]
    tasks = sum(segment["cpu_seconds"] for segment in timings["segments"])
    libraries = alone["FastWARC"] + alone["Resiliparse"] + alone["fastText"]
    parquet = stages["(write)"]
    overhead = tasks - libraries - alone["decoding"] - alone["kernels"] - parquet

    def show(name: str, seconds: float, note: str = "") -> None:
        print(f"{name:<34}{seconds:>9.2f} s{seconds / pages * 1e6:>9.0f} us/page  {note}")

    print(f"{pages} pages")
    print(f"documents/s per core: {pages / cpu:.0f} (process), {pages / tasks:.0f} (tasks)")
    print(f"documents/s by the clock, 1 worker and its child: {pages / wall:.0f}")
    show("engine, whole process", cpu)
    show("engine, tasks", tasks)
    for name, seconds in stages.items():
        show(f"  {name}, worker", seconds)
    show("  extraction child", tasks - own)
    show("bare libraries", libraries)
    for name in ("FastWARC", "Resiliparse", "fastText"):
        show(f"  {name}", alone[name])
    show("decoding and cleaning", alone["decoding"])
    show("kernels", alone["kernels"])
    show("Parquet encoding", parquet)
    show("own overhead", overhead, f"{overhead / libraries:.1%} of the bare libraries")


if __name__ == "__main__":
    main()
