"""Takedown: a new run without the documents that a list names.

What may live here: `curation takedown LIST RUN`: the report for a person, and the near-copies of
what went. Reading with a list (`takedown:` of a recipe) and writing a run anew are the engine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curation.engine.listed import Listed, ListError, read_list
from curation.engine.plan import Plan, Segment, edits, open_plan
from curation.engine.takedown import Hits, Refused, rewrite
from curation.inspect.signals import batches
from curation.inspect.terminal import one_line

__all__ = ["ListError", "Listed", "Refused", "read_list", "render", "takedown_run"]

SHOWN = 20  # near-copies and entries that a person is shown


def takedown_run(run: Path, listed: Listed, output: Path) -> dict[str, Any]:
    """Writes a finished run anew without the listed documents; the old one is not touched.

    The report: `documents` that went; `found`: entries of the list and how many documents each
    named; `not_found`: the other entries; `near_copies`: documents that deduplication held to be
    copies of one that went (itself, or through others), with the evidence. None of them goes by
    itself: those that are `kept` are in `documents/`, the others only in what the run stores for
    inspection. `indexes`: those of earlier crawls that the run has added to. Raises RecipeError
    where no run lies there, Refused where it cannot be done, DamagedFile, OtherStages.
    """
    plan = open_plan(run)
    hits = rewrite(plan, listed, output)
    found: dict[str, int] = {}
    for name, url in hits.urls:
        for entry in listed.entries(name, url):
            found[entry] = found.get(entry, 0) + 1
    return {
        "run": str(output),
        "previous": str(run),
        "documents": len(hits),
        "found": dict(sorted(found.items())),
        "not_found": sorted((listed.ids | listed.urls) - found.keys()),
        "near_copies": near_copies(plan, hits),
        "indexes": sorted(str(directory) for _, directory in plan.indexed()),
    }


def near_copies(plan: Plan, hits: Hits) -> list[dict[str, Any]]:
    """The documents that a run has tied to those that went: which survived them or were removed for
    them, and for these in turn; in order of id."""
    known = set(hits.ids)
    size = 0
    while len(known) > size:
        size = len(known)
        for _, step, table in _removed(plan):
            survivor = table[f"{step}.survivor"]
            names = pa.array(sorted(known), pa.string())
            tied = pc.or_(pc.is_in(table["id"], names), pc.is_in(survivor, names))
            some = table.filter(tied)
            known.update(some["id"].to_pylist(), some[f"{step}.survivor"].to_pylist())
    wanted = pa.array(sorted(known - hits.ids), pa.string())
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for segment in plan.maps:
        for table in batches(plan, segment, where=("id", wanted)):
            for row in table.to_pylist():
                place = (row["unit"], row["row"])
                found[place] = _copy(plan, segment, row)
    return sorted(found.values(), key=lambda copy: (copy["id"], copy["url"] or ""))


def _removed(plan: Plan) -> Iterator[tuple[Segment, str, pa.Table]]:
    """The ids of removed documents and of their survivors, step by step."""
    for segment in plan.maps:
        for spec in segment.removals:
            if edits(spec):
                continue
            survivor = f"{spec.name}.survivor"
            for table in batches(plan, segment, ["id", survivor]):
                yield segment, spec.name, table.filter(table[survivor].is_valid())


def _copy(plan: Plan, segment: Segment, row: dict[str, Any]) -> dict[str, Any]:
    """What a person needs to judge a near-copy."""
    kept = row["decision"] == "kept"
    tie: dict[str, Any] = {}
    for spec in segment.removals:
        prefix = f"{spec.name}."
        if row["reached"] == spec.name and not edits(spec):
            tie = {"step": spec.name, "reason": row["reason"]}
            tie |= {
                name.removeprefix(prefix): value
                for name, value in row.items()
                if name.startswith(prefix) and value is not None
            }
    outcome = "kept" if kept else f"{row['decision']} {row['reached']}:{row['reason']}"
    return {"id": row["id"], "url": row["url"], "outcome": outcome, **tie}


def render(found: dict[str, Any]) -> str:
    """The report for a person."""
    lines = [f"{found['documents']:,} documents taken down", f"run  {found['run']}"]
    copies = found["near_copies"]
    if copies:
        lines.append(
            f"{len(copies):,} near-copies of them are left (list them, too, if they must go):"
        )
        for copy in copies[:SHOWN]:
            near = copy.get("jaccard") or copy.get("similarity")
            shown = f" ({near:.2f})" if near is not None else ""
            where = f"{copy['id']}  {one_line(copy['url'] or '')}"
            lines.append(f"  {where}  {copy['outcome']}{shown}")
        if len(copies) > SHOWN:
            lines.append(f"  ... and {len(copies) - SHOWN:,} more (--json has all)")
    lines += [f"index {name}: it has signatures of this run" for name in found["indexes"]]
    return "\n".join(lines)
