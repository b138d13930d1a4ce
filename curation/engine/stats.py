"""The books of a run, added up from its receipts: `stats.json` and `timings.json`.

What may live here: sums over receipts, and the check that segments hand on what they kept. Integers
only, so that the order of receipts cannot matter. Every receipt is read once and then let go: there
may be a hundred thousand of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from curation.engine.ledger import Account, Amount
from curation.engine.plan import Plan, Segment
from manifests.records import Receipt

STATS_SCHEMA = 1


def receipts(plan: Plan, segment: Segment) -> Iterator[Receipt]:
    """The readable receipts of a segment, in order of their task's name."""
    for path in sorted(plan.receipts(segment).glob("*.json")):
        receipt = Receipt.load(path)
        if receipt is not None:
            yield receipt


class Books:
    """The sums of one segment over the receipts that were added."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.accounts = {name: Account(name) for name in segment.accounts}
        self.status: Counter[str] = Counter()
        self.reader: dict[str, Counter[str]] = {
            name: Counter() for name in ("amounts", "skipped", "notes", "problem_counts")
        }
        self.documents = 0
        self.output = Amount()
        self.units: set[int] = set()  # ordinals
        self.tasks = 0
        self.seconds: Counter[str] = Counter()
        self.stages: Counter[str] = Counter()  # CPU seconds
        self.peaks = {"peak_bytes": 0, "child_peak_bytes": 0, "tree_peak_bytes": 0}
        self.hosts: set[str] = set()
        self.left: dict[str, str] = {}  # reading tasks that did not end whole -> why
        self.places: dict[str, list[str]] = {}  # reading tasks -> what was wrong with the input

    @staticmethod
    def of(plan: Plan, segment: Segment) -> Books:
        """The books of a segment as its receipts on disk have them."""
        books = Books(segment)
        for receipt in receipts(plan, segment):
            books.add(receipt)
        return books

    def add(self, receipt: Receipt) -> None:
        self.status[receipt.status] += 1
        if receipt.envelope:
            self._time(receipt.envelope)
        if receipt.status == "quarantined":
            self.left[receipt.task] = f"quarantined: {receipt.counts['error']}"
            return
        if self.segment.kind == "exchange":
            return
        counts = receipt.counts
        for stage in counts["stages"]:
            self.accounts[stage["name"]].merge(stage)
        self.documents += counts["documents"]
        self.output.add(Amount.of(counts["output"]))
        self.units.update(counts["units"])
        if reader := counts.get("reader"):
            self.reader["amounts"].update(
                {"records": reader["records"], "documents": reader["documents"]}
            )
            for name in ("skipped", "notes", "problem_counts"):
                self.reader[name].update(reader[name])
            if places := _places(reader):
                self.places[receipt.task] = places
                if receipt.status == "incomplete":
                    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
                    self.left[receipt.task] = f"incomplete: {places[0]}{more}"

    def _time(self, envelope: Any) -> None:
        self.tasks += 1
        for name in ("seconds", "cpu_seconds", "own_cpu_seconds"):
            self.seconds[name] += envelope[name]
        self.stages.update(envelope["stage_cpu_seconds"])
        for name, peak in self.peaks.items():
            self.peaks[name] = max(peak, envelope[name])
        self.hosts.add(envelope["host"])

    @property
    def failed(self) -> int:
        """Documents that failed in any stage."""
        return sum(account.failed.documents for account in self.accounts.values())


def books_of(plan: Plan) -> list[Books]:
    """The books of all segments, from the receipts on disk."""
    return [Books.of(plan, segment) for segment in plan.segments]


def collect(plan: Plan, books: list[Books] | None = None) -> dict[str, Any]:
    """What `stats.json` says: reader, stages and output of a run, as far as it has come."""
    books = books_of(plan) if books is None else books
    first, last = books[0], books[-1]
    stages = []
    for segment in books:
        for account in segment.accounts.values():
            plain = account.plain()
            del plain["sums"]  # they hold the names of the inputs; the receipts keep them
            stages.append(plain)
    return {
        "schema": STATS_SCHEMA,
        "complete": first.status["done"] == len(plan.units) == len(last.units),
        "units": {
            "all": len(plan.units),
            **{name: first.status[name] for name in ("done", "incomplete", "quarantined")},
        },
        "reader": {
            "records": first.reader["amounts"]["records"],
            "documents": first.reader["amounts"]["documents"],
            "skipped": dict(sorted(first.reader["skipped"].items())),
            "notes": dict(sorted(first.reader["notes"].items())),
            "problems": dict(sorted(first.reader["problem_counts"].items())),
        },
        "stages": stages,
        "output": last.output.plain(),
    }


def ended(run: Path) -> bool | None:
    """Whether a run that has ended is complete, as its `stats.json` says; None before the end."""
    try:
        return bool(json.loads((run / "stats.json").read_bytes())["complete"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def conservation(books: list[Books]) -> str | None:
    """What does not balance between the segments of a finished run; None where all does."""
    before: Account | None = None
    kept: Amount | None = None
    for segment in books:
        if segment.segment.kind == "exchange":
            continue
        totals = list(segment.accounts.values())
        for account in totals:
            if problem := account.imbalance():
                return problem
            if before is not None and (
                account.sum_in != before.sum_kept or account.entered != before.kept
            ):
                return f"{account.name} did not receive what {before.name} kept"
            before = account
        outputs, name = segment.output, segment.segment.name
        if kept is not None and not totals and outputs != kept:
            return f"segment {name} wrote {outputs}, {kept} was kept before it"
        if before is not None and before.kept != outputs:
            return f"segment {name} wrote {outputs}, {before.name} kept {before.kept}"
        kept = outputs
    return None


def timings(books: list[Books]) -> dict[str, Any]:
    """What `timings.json` says: seconds, CPU and memory by segment. Differs from run to run."""
    return {
        "schema": 1,
        "segments": [
            {
                "segment": segment.segment.name,
                "tasks": segment.tasks,
                "task_seconds": segment.seconds["seconds"],
                "cpu_seconds": segment.seconds["cpu_seconds"],
                "own_cpu_seconds": segment.seconds["own_cpu_seconds"],
                "stage_cpu_seconds": dict(segment.stages),
                **segment.peaks,
                "hosts": sorted(segment.hosts),
            }
            for segment in books
        ],
    }


def problems(plan: Plan, reading: Books) -> dict[str, list[str]]:
    """What was wrong with inputs: unit -> `reason at offset`, also where all could be read."""
    return {u.shown: reading.places[u.name] for u in plan.units if u.name in reading.places}


def unfinished(plan: Plan, reading: Books) -> dict[str, str]:
    """Units that are incomplete, quarantined or not done, with the reason."""
    found = {}
    for unit in plan.units:
        if unit.name in reading.left:
            found[unit.shown] = reading.left[unit.name]
        elif unit.ordinal not in reading.units:
            found[unit.shown] = "not done"
    return found


def _places(reader: Mapping[str, Any]) -> list[str]:
    """`reason at offset` of what was wrong with an input."""
    return [
        f"{p['reason']} at offset {p['offset']}" + (f" ({p['detail']})" if p["detail"] else "")
        for p in reader["problems"]
    ]
