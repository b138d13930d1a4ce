"""Sampled documents of a run: text, scores, and the rule that decided.

What may live here: the view behind `curation inspect`.
"""

from __future__ import annotations

import heapq
import textwrap
from typing import Any

from curation.engine.plan import Plan
from curation.engine.recipe import RecipeError, nearest
from curation.inspect import pairs
from curation.inspect.signals import samples
from curation.inspect.terminal import Terminal, one_line


def sampled(
    plan: Plan, stage: str | None, reason: str | None, *, near: bool, count: int
) -> list[dict[str, Any]]:
    """The `count` samples with the smallest hash, of each kind, stage and reason asked for.

    Without a stage or reason: of every one that the run has. `near`: those near a threshold.
    Those that a global step removed come with the document that survived them (`pairs.explain`).
    Raises RecipeError for a stage or reason that the run does not know.
    """
    stages = [name for segment in plan.maps for name in segment.accounts]
    if stage is not None and stage not in stages:
        raise RecipeError(f"--stage {stage}: no such stage{nearest(stage, stages)}")
    groups: dict[tuple[int, str, str, str], list[tuple[int, str, dict[str, Any]]]] = {}
    known: set[str] = set()
    for position, segment in enumerate(plan.maps):
        for table in samples(plan, segment):
            for row in table.to_pylist():
                if row["kind"] == "kept" and segment is not plan.maps[-1]:
                    continue  # only what the whole run kept is kept
                if row["kind"].startswith("near") != near or (stage and row["stage"] != stage):
                    continue
                known |= {row["reason"]} - {""}
                if reason and row["reason"] != reason:
                    continue
                order = stages.index(row["stage"]) if row["stage"] else len(stages) + position
                key = (order, row["kind"], row["stage"], row["reason"])
                groups.setdefault(key, []).append((row["hash"], row["id"], row))
    if reason is not None and reason not in known:
        raise RecipeError(f"--reason {reason}: no sample has it{nearest(reason, known)}")
    found = [
        row
        for key in sorted(groups)
        for _, _, row in heapq.nsmallest(count, groups[key], key=lambda item: item[:2])
    ]
    pairs.explain(plan, found)
    return found


def render(found: list[dict[str, Any]], terminal: Terminal, width: int = 96, lines: int = 8) -> str:
    if not found:
        return "no samples"
    blocks = []
    for row in found:
        if "survivor" in row:
            blocks.append(pairs.render(row, terminal))
            continue
        head = row["kind"].replace("_", ", ")
        if row["stage"]:
            head += f"  {row['stage']}:{row['reason']}"
        if row["value"] is not None:
            head += f"  {row['value']}"
        if row["threshold"] is not None:
            head += f" (threshold {row['threshold']})"
        text = row["text"] or ""
        body: list[str] = []
        for line in text.splitlines():
            body += textwrap.wrap(one_line(line), width - 4) or [""]
            if len(body) > lines:
                break
        cut = body[:lines] + (["..."] if len(body) > lines else [])
        shown = [textwrap.indent("\n".join(cut), "    ")] if text.strip() else ["    (no text)"]
        blocks.append("\n".join([head, f"    {row['id']}  {one_line(row['url'] or '')}", *shown]))
    return "\n\n".join(blocks)
