"""Documents that a run found to be copies of some others, by the removals that it keeps.

What may live here: who was removed in favour of whom, followed through chains, and how a person
reads it. It serves a takedown: what stays of a document that was taken out, under other names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from curation.engine.plan import Plan, Segment
from curation.inspect.pairs import evidence, outcome, removed_by, removers, shown_evidence
from curation.inspect.signals import batches
from curation.inspect.terminal import one_line


def near_copies(plan: Plan, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The copies that a run knows of these documents, those of the copies included; by id.

    Of each: `id`, `url`, `source`, `crawl`; `outcome`, as of the last segment that has it (None: no
    document of this run but of the index that it was held against); and by what it is known: the
    `step` that removed one of the two, `of`, the other one, `survivor`, which of the two was kept,
    and the evidence (`pairs.EVIDENCE`). Documents of `ids` themselves are not among them.
    """
    found: dict[str, dict[str, Any]] = {}
    known, fresh = set(ids), sorted(set(ids))
    while fresh:
        links = [link for segment in plan.maps for link in _links(plan, segment, fresh)]
        fresh = []
        for link in sorted(links, key=lambda link: (link["id"], link["of"])):
            if link["id"] not in known:
                known.add(link["id"])
                fresh.append(link["id"])
                found[link["id"]] = link
    _describe(plan, found)
    return [found[name] for name in sorted(found)]


def _links(plan: Plan, segment: Segment, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Removals in a segment of which one side is of these documents: the other side."""
    wanted = pa.array(ids, pa.string())
    for step in removers(segment):
        column = f"{step}.survivor"
        for by, other in ((column, "id"), ("id", column)):
            for table in batches(plan, segment, where=(by, wanted)):
                for row in table.to_pylist():
                    if removed_by(segment, row) == step:
                        yield {
                            **{"id": row[other], "step": step, "of": row[by]},
                            **{"survivor": row[column], **evidence(row, step)},
                        }


def _describe(plan: Plan, found: dict[str, dict[str, Any]]) -> None:
    """Adds what the run knows of each document; the last segment that has it tells its fate."""
    origin = ("url", "source", "crawl")
    for entry in found.values():
        entry.update(dict.fromkeys((*origin, "outcome")))
    for segment in plan.maps:
        for table in batches(plan, segment, where=("id", pa.array(sorted(found), pa.string()))):
            for row in table.to_pylist():
                entry = found[row["id"]]
                entry.update({name: row[name] for name in origin}, outcome=outcome(row))


def render(found: Sequence[dict[str, Any]]) -> str:
    """A line for each near-copy, those that are still there first."""
    lines = []
    for entry in sorted(found, key=lambda entry: (entry["outcome"] != "kept", entry["id"])):
        fate = entry["outcome"] or "of an earlier crawl"
        known = " ".join(filter(None, [one_line(entry["url"] or ""), entry["source"]]))
        told = shown_evidence({**entry, "group_size": None})
        lines.append(f"  {entry['id']}  {fate}  {known}".rstrip())
        lines.append(f"    by {entry['step']} of {entry['of']}  {told}".rstrip())
    return "\n".join(lines)
