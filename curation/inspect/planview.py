"""A plan for a person: what would run, on what, under which keys.

What may live here: the view behind `curation plan`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from curation.engine.base import Base
from curation.engine.driver import outlook
from curation.engine.index import Batch
from curation.engine.plan import Plan, Segment, reading_tasks
from curation.engine.resources import needed_by
from curation.stage import GlobalStep

#: Bytes of input that a document takes, to guess how many there are. A crawl of Common Crawl has
#: some 3 billion pages in 90 TB of compressed WARC or 9 TB of WET; other inputs may have any.
TYPICAL = {"warc": 30_000, "wet": 3_000}
OTHERWISE = 2_000


def estimated(plan: Plan) -> int:
    """About how many documents the inputs may have; none is dropped before the global steps."""
    sizes = Counter[str]()
    for unit in plan.units:
        sizes[plan.recipe.settings.inputs[unit.member].reader] += unit.weight
    return sum(-(-size // TYPICAL.get(reader, OTHERWISE)) for reader, size in sizes.items())


def _outlook(plan: Plan, segment: Segment) -> list[dict[str, Any]]:
    assert segment.step is not None
    step = segment.step.stage
    assert isinstance(step, GlobalStep)
    earlier = 0
    for name in plan.indexes.get(segment.step.name, ()):
        batch = Batch.load(Path(step.index_directory() or "") / "batches" / name)
        earlier += sum(output.rows for output in batch.files.get("records", ()))
    return outlook(step, estimated(plan), earlier, len(plan.units))


def describe(plan: Plan, base: Base | None = None) -> dict[str, Any]:
    """The resolved recipe, segments with keys, units with sizes, memory per task; how many units
    would be taken from a base run as they are, re-applied from what it stored, or read."""
    return {
        "base": None if base is None else base.outlook(reading_tasks(plan)),
        "run": str(plan.run),
        "documents": estimated(plan),
        "indexes": {name: list(batches) for name, batches in plan.indexes.items()},
        "recipe": plan.recipe.resolved(),
        "segments": [
            {
                "index": segment.index,
                "kind": segment.kind,
                "name": segment.name,
                "key": segment.key,
                "applies": [spec.name for spec in segment.removals],
                "stages": [spec.name for spec in segment.stages],
                "prepares": [spec.name for spec in segment.prepares],
                "memory_per_task": (
                    None if segment.kind == "exchange" else needed_by(segment.stages)
                ),
                "exchange": _outlook(plan, segment) if segment.step else None,
            }
            for segment in plan.segments
        ],
        "units": [
            {
                "name": unit.name,
                "path": unit.input.path,
                "start": unit.span.start if unit.span else None,
                "stop": unit.span.stop if unit.span else None,
                "bytes": unit.input.size if unit.span is None else unit.weight,
            }
            for unit in plan.units
        ],
    }


def render(found: dict[str, Any]) -> str:
    recipe = yaml.safe_dump(found["recipe"], sort_keys=False, allow_unicode=True).rstrip()
    lines = [recipe, "", f"run  {found['run']}", ""]
    for segment in found["segments"]:
        what = [f"apply {name}" for name in segment["applies"]] + segment["stages"]
        what += [f"prepare {name}" for name in segment["prepares"]]
        if segment["kind"] == "documents":
            what.append("write documents")
        does = ", ".join(what)
        for phase in segment["exchange"] or ():
            size = phase["memory_per_task"] / (1 << 30)
            does += f"{', ' if does else ''}{phase['phase']} {phase['tasks']:,} x {size:.1f} GiB"
        memory = segment["memory_per_task"]
        shown = "" if memory is None else f"{memory / (1 << 30):.1f} GiB"
        lines.append(
            f"segment {segment['index']}  {segment['name']:<16} {segment['key'][:8]} "
            f"{shown:>8}  {does}"
        )
    if base := found["base"]:
        why = f" ({base['obstacle']})" if base["obstacle"] and base["read"] else ""
        counts = ", ".join(f"{base[name]:,} {name}" for name in ("reused", "reapplied", "read"))
        lines += ["", f"units with --base {base['run']}: {counts}{why}"]
    if any(segment["exchange"] for segment in found["segments"]):
        lines += [
            "",
            f"exchanges (tasks x memory): for some {found['documents']:,} documents, a guess from "
            "the size of the inputs, if none were dropped before",
        ]
    sizes = [unit["bytes"] or 0 for unit in found["units"]]
    total = sum(sizes)
    lines += ["", f"{len(sizes)} units, {total / 1e6:,.1f} MB"]
    for unit in found["units"][:20]:
        size = "?" if unit["bytes"] is None else f"{unit['bytes'] / 1e6:,.1f}"
        span = "" if unit["start"] is None else f", bytes {unit['start']}-{unit['stop']}"
        lines.append(f"  {size:>10} MB  {unit['path']}{span}")
    if len(sizes) > 20:
        lines.append(f"  ... and {len(sizes) - 20} more")
    return "\n".join(lines)
