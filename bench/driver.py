"""The driver with very many units: its cost per task, its memory, and how long a resume takes.

The planner and the driver are the real ones. The tasks are not carried out: an executor answers
each with the receipt that a real task of a small run left, under the name and key of the task, so
that the books balance. Prints a line for the first run and one for the resume, each in a process of
its own, with seconds and peak memory.

What may live here: this measurement alone: the made-up run and the executor that answers.

    python bench/driver.py [UNITS]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from curation.engine.driver import drive
from curation.engine.executors import Finished, InProcess
from curation.engine.ledger import Account
from curation.engine.plan import Task, build, open_plan
from curation.engine.progress import Progress
from curation.engine.recipe import load
from manifests.records import Receipt

RECIPE = {
    "kind": "documents",
    "name": "many",
    "input": {"kind": "jsonl"},
    "stages": [{"gopher_quality": {}}, {"exact_dedup": {}}],
}
TEXT = "The mill and the river have to be seen with that old wheel which turns slowly. " * 20


class Answers:
    """Receipts of the small run in place of work."""

    workers = 1

    def __init__(self, small: Path) -> None:
        self._plan = open_plan(small)
        self.tasks = 0
        self._models: dict[tuple[int, str], Receipt] = {}
        for segment in self._plan.segments:
            for path in self._plan.receipts(segment).glob("*.json"):
                receipt = Receipt.load(path)
                assert receipt is not None
                phase = receipt.task.partition("-")[0] if segment.kind == "exchange" else ""
                outputs = {
                    name: replace(output, path=str(small / output.path))
                    for name, output in receipt.outputs.items()
                }
                self._models[segment.index, phase] = replace(receipt, outputs=outputs)

    def run(self, run: Path, queue: deque[Task]) -> Generator[Finished, None, None]:
        plan = open_plan(run)
        os.fsync = lambda number: None  # a thousand tasks a second do not wait for the disk
        while queue:
            task = queue.popleft()
            model = self._models[task.segment, task.phase]
            counts = dict(model.counts)
            if counts.get("units"):
                counts = times(counts, len(task.units)) | {"units": list(task.units)}
            receipt = replace(model, task=task.name, key=task.key, counts=counts)
            receipt.save(plan.receipt_of(task))
            self.tasks += 1
            yield task, receipt

    def close(self) -> None:
        """Nothing is held."""


def times(counts: dict[str, Any], units: int) -> dict[str, Any]:
    """The counts of a task of so many units, from those of a task of one."""
    if units == 1:
        return counts
    stages = []
    for plain in counts["stages"]:
        account = Account(plain["name"])
        for _ in range(units):
            account.merge(plain)
        stages.append(account.plain())
    output = {name: amount * units for name, amount in counts["output"].items()}
    return {**counts, "stages": stages, "output": output, "documents": counts["documents"] * units}


def prepare(folder: Path, units: int) -> None:
    """Inputs (one file under many names), and the small run."""
    source = folder / "in"
    source.mkdir()
    first = source / "00000.jsonl"
    first.write_text("".join(json.dumps({"text": f"{i} {TEXT}"}) + "\n" for i in (1, 2)))
    for number in range(1, units):
        if number % 30_000 == 0:  # as many names as a file may have
            first = source / f"{number:05d}.jsonl"
            first.write_bytes((source / "00000.jsonl").read_bytes())
        else:
            os.link(first, source / f"{number:05d}.jsonl")
    drive(
        build(load(RECIPE, [str(source / "00000.jsonl")]), folder / "small"),
        InProcess(),
        Progress(quiet=True),
    )


def measure(folder: Path) -> None:
    """A first run, or a resume: whatever is there to do."""
    started = time.monotonic()
    plan = build(load(RECIPE, [str(folder / "in")]), folder / "run")
    planned = time.monotonic() - started
    answers = Answers(folder / "small")
    outcome = drive(plan, answers, Progress(quiet=True))
    seconds = time.monotonic() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert outcome.stats["complete"]
    print(
        f"{len(plan.units):,} units, {answers.tasks:,} tasks carried out: {seconds:.1f} s "
        f"(of these the plan {planned:.1f} s), peak {peak:,.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("units", type=int, nargs="?", default=90_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure(options.measure)
    with tempfile.TemporaryDirectory(prefix="gristmill-driver-") as name:
        prepare(Path(name), options.units)
        for _ in range(2):
            subprocess.run([sys.executable, __file__, "--measure", name], check=True)


if __name__ == "__main__":
    main()
