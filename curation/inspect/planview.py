"""A plan for a person: what would run, on what, under which keys.

What may live here: the view behind `curation plan`.
"""

from __future__ import annotations

from typing import Any

import yaml

from curation.engine.plan import Plan

BASE_BYTES = (
    700 << 20
)  # of a worker with libraries, kernels and the extraction child (bench/memory.py)


def describe(plan: Plan) -> dict[str, Any]:
    """The resolved recipe, segments with keys, units with sizes, memory per task."""
    return {
        "run": str(plan.run),
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
            }
            for segment in plan.segments
        ],
        "units": [
            {"name": unit.name, "path": unit.input.path, "bytes": unit.input.size}
            for unit in plan.units
        ],
        "memory_per_task": BASE_BYTES,
    }


def render(found: dict[str, Any]) -> str:
    recipe = yaml.safe_dump(found["recipe"], sort_keys=False, allow_unicode=True).rstrip()
    lines = [recipe, "", f"run  {found['run']}", ""]
    for segment in found["segments"]:
        what = [f"apply {name}" for name in segment["applies"]] + segment["stages"]
        what += [f"prepare {name}" for name in segment["prepares"]]
        if segment["kind"] == "documents":
            what.append("write documents")
        does = ", ".join(what) or f"exchange of {segment['name']}"
        lines.append(
            f"segment {segment['index']}  {segment['name']:<16} {segment['key'][:8]}  {does}"
        )
    sizes = [unit["bytes"] or 0 for unit in found["units"]]
    total = sum(sizes)
    lines += ["", f"{len(sizes)} units, {total / 1e6:,.1f} MB"]
    for unit in found["units"][:20]:
        size = "?" if unit["bytes"] is None else f"{unit['bytes'] / 1e6:,.1f}"
        lines.append(f"  {size:>10} MB  {unit['path']}")
    if len(sizes) > 20:
        lines.append(f"  ... and {len(sizes) - 20} more")
    lines.append(f"memory per task: about {found['memory_per_task'] / (1 << 30):.1f} GiB")
    return "\n".join(lines)
