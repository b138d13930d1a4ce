"""Speed-up from one worker to several on a run that only computes.

The texts of a JSONL file, dealt over files, pass language identification, the Gopher quality rules
and exact deduplication: no child process, hardly any reading. In each round one worker, N workers,
and N independent runs of one worker each on a share of the files, side by side: what the machine
itself gives to further processes. Whole processes by the clock; medians of the rounds.

What may live here: this measurement alone.

    python bench/scaling.py TEXTS.jsonl [--workers N] [--rounds N] [--executor ray] [--burn]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPE = """
kind: documents
name: scaling
input: {kind: jsonl}
stages:
  - language: {}
  - gopher_quality: {}
  - exact_dedup: {}
"""
#: Computes in registers alone, so that processors that share a core's caches do not matter.
BURN = RECIPE.replace("language: {}", "burn:Burn: {}")
FILTER = """
from curation import Filter, Rule


class Burn(Filter):
    version = 1
    rules = (Rule("never", signal="n", below="least"),)
    least: int = 0

    def score(self, docs):
        found = []
        for _ in range(len(docs)):
            n = 0
            for i in range(20_000):
                n = (n * 31 + i) & 0xFFFF
            found.append(n)
        return {"n": found}
"""


def start(folder: Path, name: str, inputs: list[Path], *more: str) -> subprocess.Popen[bytes]:
    shutil.rmtree(folder / name, ignore_errors=True)
    command = [sys.executable, "-m", "curation", "run", str(folder / "recipe.yaml"), "--quiet"]
    command += ["--output", str(folder / name), *more, "--set", "output.file_size=8MB"]
    command += ["--input", *map(str, inputs)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def seconds(*processes: subprocess.Popen[bytes]) -> float:
    started = time.monotonic()
    assert all(process.wait() == 0 for process in processes)
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--executor", default="inline")
    parser.add_argument("--burn", action="store_true", help="arithmetic in place of fastText")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gristmill-scaling-") as name:
        folder = Path(name)
        (folder / "recipe.yaml").write_text(BURN if options.burn else RECIPE)
        (folder / "burn.py").write_text(FILTER)
        files = [folder / f"{number:03d}.jsonl" for number in range(options.files)]
        outs = [path.open("wb") for path in files]
        with options.texts.open("rb") as lines:
            for number, line in enumerate(lines):
                outs[number % len(outs)].write(line)
        for out in outs:
            out.close()
        found: dict[str, list[float]] = {"one": [], "many": [], "apart": []}
        how = ("--executor", options.executor, "--workers")
        for _ in range(options.rounds):
            found["one"].append(seconds(start(folder, "a", files, *how, "1")))
            many = options.workers
            found["many"].append(seconds(start(folder, "b", files, *how, str(many))))
            shares = [start(folder, f"c{i}", files[i::many], *how, "1") for i in range(many)]
            found["apart"].append(seconds(*shares))
    one, several, apart = (statistics.median(found[name]) for name in ("one", "many", "apart"))
    print(
        f"1 worker {one:.1f} s, {many} workers {several:.1f} s: {one / several:.2f} times as fast"
    )
    print(f"{many} independent runs on their shares: {apart:.1f} s, {one / apart:.2f} times")


if __name__ == "__main__":
    main()
