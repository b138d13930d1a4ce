"""The books of a run, added up from its receipts: `stats.json` and `timings.json`.

What may live here: sums over receipts, and the check that segments hand on what they kept. Integers
only, so that the order of receipts cannot matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from curation.engine.ledger import Account, Amount
from curation.engine.plan import Plan, Segment, Unit
from manifests.records import Receipt

STATS_SCHEMA = 1


def receipts(plan: Plan, segment: Segment) -> Iterator[Receipt]:
    """The readable receipts of a segment, in order of their task's name."""
    for path in sorted(plan.receipts(segment).glob("*.json")):
        receipt = Receipt.load(path)
        if receipt is not None:
            yield receipt


def accounts(plan: Plan, segment: Segment) -> list[Account]:
    """The accounts of a map segment over all its tasks."""
    totals = {name: Account(name) for name in segment.accounts}
    for receipt in receipts(plan, segment):
        for stage in receipt.counts.get("stages", []):
            totals[stage["name"]].merge(stage)
    return list(totals.values())


def collect(plan: Plan) -> dict[str, Any]:
    """What `stats.json` says: reader, stages and output of a run, as far as it has come."""
    records = documents = 0
    skipped: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    status: Counter[str] = Counter()
    first, last = plan.segments[0], plan.segments[-1]
    for receipt in receipts(plan, first):
        status[receipt.status] += 1
        if receipt.status == "quarantined":
            continue
        part = receipt.counts["reader"]
        records += part["records"]
        documents += part["documents"]
        skipped.update(part["skipped"])
        notes.update(part["notes"])
        problems.update(part["problem_counts"])
    stages = []
    for segment in plan.maps:
        for account in accounts(plan, segment):
            plain = account.plain()
            del plain["sums"]  # they hold the names of the inputs; the receipts keep them
            stages.append(plain)
    output = Amount()
    written: set[int] = set()
    for receipt in receipts(plan, last):
        output.add(Amount.of(receipt.counts["output"]))
        written.update(receipt.counts["units"])
    wanted = {unit.ordinal for unit in plan.units}
    return {
        "schema": STATS_SCHEMA,
        "complete": status["done"] == len(plan.units) and written == wanted,
        "units": {
            "all": len(plan.units),
            **{name: status[name] for name in ("done", "incomplete", "quarantined")},
        },
        "reader": {
            "records": records,
            "documents": documents,
            "skipped": dict(sorted(skipped.items())),
            "notes": dict(sorted(notes.items())),
            "problems": dict(sorted(problems.items())),
        },
        "stages": stages,
        "output": output.plain(),
    }


def conservation(plan: Plan) -> str | None:
    """What does not balance between the segments of a finished run; None where all does."""
    before: Account | None = None
    kept = None
    for segment in plan.maps:
        totals = accounts(plan, segment)
        for account in totals:
            if problem := account.imbalance():
                return problem
            if before is not None and (
                account.sum_in != before.sum_kept or account.entered != before.kept
            ):
                return f"{account.name} did not receive what {before.name} kept"
            before = account
        outputs = Amount()
        for receipt in receipts(plan, segment):
            if receipt.status != "quarantined":
                outputs.add(Amount.of(receipt.counts["output"]))
        if kept is not None and not totals and outputs != kept:
            return f"segment {segment.name} wrote {outputs}, {kept} was kept before it"
        if before is not None and before.kept != outputs:
            return f"segment {segment.name} wrote {outputs}, {before.name} kept {before.kept}"
        kept = outputs
    return None


def timings(plan: Plan) -> dict[str, Any]:
    """What `timings.json` says: seconds, CPU and memory by segment. Differs from run to run."""
    segments = []
    for segment in plan.segments:
        envelopes = [r.envelope for r in receipts(plan, segment) if r.envelope]
        stages: Counter[str] = Counter()
        for envelope in envelopes:
            for name, seconds in envelope["stage_cpu_seconds"].items():
                stages[name] += seconds
        segments.append(
            {
                "segment": segment.name,
                "tasks": len(envelopes),
                "task_seconds": sum(e["seconds"] for e in envelopes),
                "cpu_seconds": sum(e["cpu_seconds"] for e in envelopes),
                "own_cpu_seconds": sum(e["own_cpu_seconds"] for e in envelopes),
                "stage_cpu_seconds": dict(stages),
                "peak_bytes": max([e["peak_bytes"] for e in envelopes], default=0),
                "child_peak_bytes": max([e["child_peak_bytes"] for e in envelopes], default=0),
                "hosts": sorted({e["host"] for e in envelopes}),
            }
        )
    return {"schema": 1, "segments": segments}


def problems(plan: Plan) -> dict[str, list[str]]:
    """What was wrong with inputs: path -> `reason at offset`, also where all could be read."""
    found = {unit.input.path: _places(receipt) for unit, receipt in _readings(plan) if receipt}
    return {path: places for path, places in found.items() if places}


def unfinished(plan: Plan) -> dict[str, str]:
    """Inputs whose unit is incomplete, quarantined or not done, with the reason."""
    found = {}
    for unit, receipt in _readings(plan):
        path = unit.input.path
        if receipt is None:
            found[path] = "not done"
        elif receipt.status == "quarantined":
            found[path] = f"quarantined: {receipt.counts['error']}"
        elif receipt.status == "incomplete":
            first, *more = _places(receipt)
            found[path] = f"incomplete: {first}" + (f" and {len(more)} more" if more else "")
    return found


def _readings(plan: Plan) -> Iterator[tuple[Unit, Receipt | None]]:
    """Every unit with its receipt of the first segment."""
    for unit in plan.units:
        yield unit, Receipt.load(plan.receipt_path(plan.segments[0], unit.name))


def _places(receipt: Receipt) -> list[str]:
    """`reason at offset` of what was wrong with an input."""
    listed = receipt.counts.get("reader", {}).get("problems", [])
    return [
        f"{p['reason']} at offset {p['offset']}" + (f" ({p['detail']})" if p["detail"] else "")
        for p in listed
    ]
