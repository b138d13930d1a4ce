"""Time lost per kind of fault: one run of two workers, disturbed once about half-way.

The archive is read in byte ranges of SPLIT; each fault is dealt when half of them are done, the
command started again where it has ended, and the seconds over the undisturbed run are printed
(median of the rounds). Faults of a Ray cluster: tests/test_ray.py.

What may live here: this measurement alone.

    python bench/faults.py ARCHIVE [--rounds N]
"""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

RECIPE = Path(__file__).resolve().parent.parent / "pipelines" / "crawl-filter.yaml"
SPLIT = "4MB"


class Bench:
    def __init__(self, archive: Path, folder: Path) -> None:
        self.archive, self.run = archive, folder / "run"

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "curation", "run", str(RECIPE), "--quiet"]
        command += ["--input", str(self.archive), "--output", str(self.run)]
        command += ["--set", f"input.split={SPLIT}", "--workers", "2"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def done(self) -> int:
        return len(list(self.run.glob("segments/0-*/receipts/*.json")))

    def seconds(self, units: int, fault: Callable[[subprocess.Popen[bytes]], None] | None) -> float:
        """How long a run takes when the fault happens at that many finished units."""
        shutil.rmtree(self.run, ignore_errors=True)
        started = time.monotonic()
        process = self.start()
        if fault is not None:
            while self.done() < units:
                time.sleep(0.01)
            fault(process)
        if process.wait() != 0:
            assert self.start().wait() == 0
        return time.monotonic() - started


def driver(number: signal.Signals) -> Callable[[subprocess.Popen[bytes]], None]:
    return lambda process: process.send_signal(number)


def child(what: str) -> Callable[[subprocess.Popen[bytes]], None]:
    def kill(process: subprocess.Popen[bytes]) -> None:
        tree = psutil.Process(process.pid).children(recursive=True)
        next(p for p in tree if what in " ".join(p.cmdline())).kill()

    return kill


FAULTS: dict[str, Callable[[subprocess.Popen[bytes]], None]] = {
    "driver, SIGKILL, started again": driver(signal.SIGKILL),
    "driver, SIGTERM, started again": driver(signal.SIGTERM),
    "worker, SIGKILL": child("curation.engine.worker"),
    "extraction child, SIGKILL": child("curation.extract.child"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gristmill-faults-") as name:
        bench = Bench(options.archive, Path(name))
        calm: list[float] = []
        lost: dict[str, list[float]] = {fault: [] for fault in FAULTS}
        bench.seconds(0, None)  # warms caches
        for _ in range(options.rounds):  # side by side, because machines drift
            calm.append(bench.seconds(0, None))
            units = bench.done()
            for fault, act in FAULTS.items():
                lost[fault].append(bench.seconds(units // 2, act) - calm[-1])
    print(f"undisturbed: {statistics.median(calm):.1f} s, {units} units of {SPLIT}")
    for fault, seconds in lost.items():
        print(f"{fault:<32} {statistics.median(seconds):+6.1f} s")


if __name__ == "__main__":
    main()
