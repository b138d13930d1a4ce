"""A long soak: runs that are disturbed at random until they end, held against an undisturbed one.

Each round takes a fresh run directory and starts the command again and again; meanwhile drivers,
workers and extraction children are killed, drivers are interrupted or frozen while another starts,
shards run side by side, and between two starts files of the run are cut, flipped or removed. When
the command ends by itself, every byte that matters must be that of the undisturbed run, and
`curation verify` must hold. Ends with 1 and keeps the directory where that is not so.

What may live here: the ways to disturb a run, and the comparison.

    python bench/soak.py [--minutes M] [--seed S] [--folder DIR]

The seed is printed: it chooses the disturbances, the machine their exact moments.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from kit import contents

from curation.engine.plan import open_plan
from curation.inspect import verify
from curation.sample import write_sample

RECIPE = Path(__file__).resolve().parent.parent / "pipelines" / "crawl-filter.yaml"
ARCHIVES = 8
SPLIT = "60KB"  # several byte ranges per archive
DONE, INTERRUPTED, HELD = 0, 75, 1


class Soak:
    """One recipe on one set of inputs, disturbed in rounds."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.faults: Counter[str] = Counter()
        inputs = folder / "in"
        inputs.mkdir(parents=True)
        for number in range(ARCHIVES):
            write_sample(inputs / f"{number}.warc.gz")
        started = time.monotonic()
        assert self.start(folder / "calm").wait() == DONE
        self.undisturbed = time.monotonic() - started
        self.wanted = contents(folder / "calm")

    def start(self, run: Path, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "curation", "run", str(RECIPE), "--quiet"]
        command += ["--input", str(self.folder / "in"), "--output", str(run)]
        command += ["--set", f"input.split={SPLIT}", "--workers", "2", *more]
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def round(self, run: Path) -> None:
        """A row of disturbances, then a start that is left alone."""
        ways = [self.kill_driver, self.interrupt, self.kill_worker, self.kill_child, self.damage]
        ways += [self.two_drivers, self.shards]
        for _ in range(self.chance.randint(3, 8)):
            self.chance.choice(ways)(run)
        assert self.start(run).wait(600) == DONE

    # Ways to disturb a run

    def _moment(self) -> None:
        time.sleep(self.chance.uniform(0.8, 1.2 * self.undisturbed))

    def kill_driver(self, run: Path) -> None:
        process = self.start(run)
        self._moment()
        self.faults["driver killed"] += process.poll() is None
        process.kill()
        process.wait()

    def interrupt(self, run: Path) -> None:
        process = self.start(run)
        self._moment()
        self.faults["driver interrupted"] += process.poll() is None
        process.send_signal(self.chance.choice((signal.SIGINT, signal.SIGTERM)))
        status = process.wait(60)
        # A signal before Python has installed its handlers ends the process as signals do.
        assert status in (DONE, INTERRUPTED, -signal.SIGTERM, -signal.SIGINT), status

    def _kill_one(self, run: Path, what: str) -> None:
        """Kills a process of the run by its command line; the run goes on by itself."""
        process = self.start(run)
        self._moment()
        tree = psutil.Process(process.pid)
        try:
            found = [p for p in tree.children(recursive=True) if what in " ".join(p.cmdline())]
            if found:
                self.chance.choice(found).kill()
                self.faults[f"{what.rpartition('.')[2]} killed"] += 1
        except psutil.Error:
            pass  # it has ended just now
        status = process.wait(600)
        assert status == DONE, status

    def kill_worker(self, run: Path) -> None:
        self._kill_one(run, "curation.engine.worker")

    def kill_child(self, run: Path) -> None:
        self._kill_one(run, "curation.extract.child")

    def damage(self, run: Path) -> None:
        files = sorted(p for p in run.glob("segments/*/*/*") if p.is_file())
        for path in self.chance.sample(files, min(3, len(files))):
            data = bytearray(path.read_bytes())
            way = self.chance.choice(("cut", "removed", "flipped"))
            self.faults[f"file {way}"] += 1
            if way == "removed" or not data:
                path.unlink()
                continue
            if way == "flipped":
                # What nothing reads again (signals, samples) is looked at by its size alone.
                if path.parent.name in ("signals", "samples"):
                    continue
                data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
            path.write_bytes(data[: len(data) // 2] if way == "cut" else data)
        # What has read a file already does not read it again: only unfinished work finds flips.
        for receipt in run.glob("segments/[1-9]*/receipts/*"):
            receipt.unlink()

    def two_drivers(self, run: Path) -> None:
        first = self.start(run)
        time.sleep(self.chance.uniform(0, 3))
        frozen = self.chance.random() < 0.5
        if frozen:
            first.send_signal(signal.SIGSTOP)
        second = self.start(run)
        ended = second.wait(600) if frozen else None
        first.send_signal(signal.SIGCONT)
        statuses = first.wait(600), second.wait(600) if ended is None else ended
        self.faults["driver frozen" if frozen else "two drivers"] += 1
        assert DONE in statuses and set(statuses) <= {DONE, HELD}, statuses

    def shards(self, run: Path) -> None:
        both = [self.start(run, "--shard", f"{i}/2") for i in (1, 2)]
        if self.chance.random() < 0.5:
            self._moment()
            self.chance.choice(both).kill()
        for process in both:
            process.wait(600)
        self.faults["shards"] += 1


def mentions(process: psutil.Process, folder: Path) -> bool:
    """Whether this is a process of the soak, other than itself."""
    line = " ".join(process.info["cmdline"] or [])
    return process.pid != os.getpid() and str(folder) in line


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--folder", type=Path, help="kept; default: a temporary one")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="gristmill-soak-"))
    print(f"seed {seed}, in {folder}", flush=True)
    soak = Soak(folder, random.Random(seed))
    print(f"undisturbed: {soak.undisturbed:.1f} s", flush=True)
    end, rounds = time.monotonic() + 60 * options.minutes, 0
    while time.monotonic() < end:
        run = folder / f"round{rounds}"
        soak.round(run)
        same = contents(run) == soak.wanted
        found = verify.check(open_plan(run))
        if not same or not found["holds"]:
            print(f"round {rounds}: {run} differs; {found['problems'][:3]}")
            sys.exit(1)
        rounds += 1
        shutil.rmtree(run)
        print(f"round {rounds}: same bytes; so far {dict(sorted(soak.faults.items()))}", flush=True)
    left = [process for process in psutil.process_iter(["cmdline"]) if mentions(process, folder)]
    print(f"{rounds} rounds, {sum(soak.faults.values())} disturbances, {len(left)} processes left")
    if not options.folder:
        shutil.rmtree(folder)
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
