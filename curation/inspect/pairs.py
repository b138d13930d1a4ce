"""Removed duplicates beside the documents that survived them.

What may live here: how the evidence of a global step is found again in the files of a run, pair by
pair (`inspect --reason`) and group by group (`inspect --largest`), and how a person reads it.

Evidence lies in the signals of the segment that applied the removal: who survived, and, where the
step says so, the estimated Jaccard index (`similarity`), the exact one (`jaccard`), and for how
many documents the survivor stands in this step, itself included (`group_size`). The texts are those
that were compared: as the segment before the step stored them. Ids are looked for in the signals;
of texts only the row groups that hold a wanted document are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import wcwidth

from curation.engine.plan import Plan, Segment, edits
from curation.engine.recipe import RecipeError, nearest
from curation.inspect.columns import beside
from curation.inspect.passages import Worded, shared
from curation.inspect.signals import batches, stored
from curation.inspect.terminal import Terminal, one_line
from curation.stage import GlobalStep

EVIDENCE = ("similarity", "jaccard", "group_size")
COMPARED = 200_000  # characters of a text that are looked at
UNDECIDED = "not decided yet"  # of a survivor: the segment has not come to it
MEMBERS = 3  # documents of a group that are shown


def removers(segment: Segment) -> list[str]:
    """The global steps whose removals of duplicates a segment applies; not those that edit."""
    return [spec.name for spec in segment.removals if not edits(spec)]


def removed_by(segment: Segment, row: dict[str, Any]) -> str | None:
    """The step that removed the document of a row of signals as a duplicate, if one did."""
    step: str = row["reached"]
    return step if row["decision"] == "dropped" and step in removers(segment) else None


def passed(segment: Segment, row: dict[str, Any], step: str) -> bool:
    """Whether a global step of the segment kept the document of a row of signals."""
    order = segment.accounts
    return order.index(row["reached"]) > order.index(step) or removed_by(segment, row) is None


def evidence(row: dict[str, Any], step: str) -> dict[str, Any]:
    """What a step has noted of a document that it removed; None for what it does not tell."""
    return {name: row.get(f"{step}.{name}") for name in EVIDENCE}


def explain(plan: Plan, samples: Iterable[dict[str, Any]]) -> None:
    """Adds to each sampled removal its pair; leaves other samples as they are.

    The keys of a pair are `removed`, `survivor` ({id, url, source, crawl, date, text, outcome}, the
    last as of the segment that applied the removal; all but the id None where the survivor is not
    in this run), EVIDENCE, and `shared`: the passages that both have, as [start, stop) in
    characters of either text (see `passages.shared`).
    """
    for segment in plan.maps:
        steps = removers(segment)
        mine = [s for s in samples if s["kind"] == "dropped" and s["stage"] in steps]
        if not mine:
            continue
        found = _rows(plan, segment, [sample["id"] for sample in mine])
        survivors = _survivors(plan, segment, [(s["stage"], s["value"]) for s in mine])
        for sample in mine:
            gone = [
                row
                for row in found.get(sample["id"], [])
                if row["row"] == sample["row"] and removed_by(segment, row) == sample["stage"]
            ]
            sample.update(_pair(plan, segment, sample, gone, survivors))


Found = dict[str, list[dict[str, Any]]]


def _rows(plan: Plan, segment: Segment, ids: Sequence[str]) -> Found:
    """Rows of a segment's signals by id; a crawl may have an id more than once."""
    found: Found = {}
    for table in batches(plan, segment, where=("id", pa.array(ids, pa.string()))):
        for row in table.to_pylist():
            found.setdefault(row["id"], []).append(row)
    return found


def _survivors(
    plan: Plan, segment: Segment, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Of each (step, id of a survivor) what `_side` tells."""
    found = _rows(plan, segment, [name for _, name in wanted])
    kept = {
        (step, name): [row for row in found.get(name, []) if passed(segment, row, step)]
        for step, name in wanted
    }
    # Where the task that has it is not done, it is known from the segment before.
    missing = [name for (_, name), rows in kept.items() if not rows]
    before = _rows(plan, plan.before(segment), missing) if missing else {}
    sides = {}
    for (step, name), rows in kept.items():
        sides[step, name] = _side(plan, segment, name, rows or before.get(name, []))
        if not rows and name in before:
            sides[step, name]["outcome"] = UNDECIDED
    return sides


def _pair(
    plan: Plan,
    segment: Segment,
    sample: dict[str, Any],
    gone: list[dict[str, Any]],
    survivors: dict[tuple[str, str], dict[str, Any]],
) -> dict[str, Any]:
    step = sample["stage"]
    removed, survivor = _side(plan, segment, sample["id"], gone), survivors[step, sample["value"]]
    if removed["text"] is None:
        removed["text"] = sample["text"]
    one, other = Worded.of(removed["text"] or ""), Worded.of(survivor["text"] or "")
    marks = shared(one, other)
    return {
        "removed": removed,
        "survivor": survivor,
        **evidence(gone[0] if gone else {}, step),
        "shared": {"removed": one.spans(marks[0]), "survivor": other.spans(marks[1])},
    }


def _side(plan: Plan, segment: Segment, name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One document of a pair."""
    side: dict[str, Any] = dict.fromkeys(
        ("id", "url", "source", "crawl", "date", "text", "outcome")
    )
    side["id"] = name
    if rows:
        row = rows[0]
        side |= {key: row[key] for key in ("url", "source", "crawl")}
        side["outcome"] = outcome(row)
        document = stored(plan, plan.before(segment), row["unit"], row["row"])
        if document is not None:
            side["date"], side["text"] = document["date"], document["text"][:COMPARED]
    return side


def outcome(row: dict[str, Any]) -> str:
    """What became of the document of a row of signals in its segment."""
    if row["decision"] == "kept":
        return "kept"
    return f"{row['decision']} {row['reached']}:{row['reason']}"


def render(pair: dict[str, Any], terminal: Terminal) -> str:
    """A sampled removal with its pair (`explain`)."""
    head = f"{pair['stage']}:{pair['reason']}  {shown_evidence(pair)}".rstrip()
    removed, survivor = pair["removed"], pair["survivor"]
    lines = [head, f"  removed   {_origin(removed)}", f"  survivor  {_survivor(survivor)}"]
    titles = ("removed", "survivor" if survivor["outcome"] else "(not here)")
    body = beside((removed["text"] or "", survivor["text"] or ""), titles, terminal)
    return "\n".join([*lines, *body])


def shown_evidence(found: dict[str, Any]) -> str:
    """EVIDENCE for a person, as far as the step tells it."""
    similar = [
        f"{found[name]:.3f} {word}"
        for name, word in (("similarity", "estimated"), ("jaccard", "exact"))
        if found[name] is not None
    ]
    parts = [f"Jaccard {', '.join(similar)}"] if similar else []
    if found["group_size"] is not None:
        parts.append(f"group of {found['group_size']:,}")
    return "  ".join(parts)


def _origin(side: dict[str, Any]) -> str:
    """Id, address and origin of a document, as far as they are known."""
    known = [side[name] for name in ("url", "source", "crawl", "date")]
    return "  ".join([side["id"], *(one_line(text) for text in known if text)])


def _survivor(side: dict[str, Any]) -> str:
    """The same, and what became of it if it was not kept."""
    if side["id"] is None:
        return "(taken down)"
    if side["outcome"] is None:
        return f"{side['id']}  (not in this run: a document of earlier crawls)"
    return _origin(side) + ("" if side["outcome"] == "kept" else f"  ({side['outcome']})")


# ---------------------------------------------------------------- groups


def largest(plan: Plan, stage: str | None, reason: str | None, count: int) -> list[dict[str, Any]]:
    """The `count` largest groups of each global step: the survivor, and a few of its duplicates.

    `stage` and `reason`: of this step, of removals for this reason. Raises RecipeError where the
    run has no such step. It takes some 100 bytes of memory for each survivor.
    """
    steps = [(segment, name) for segment in plan.maps for name in removers(segment)]
    names = [name for _, name in steps]
    kinds = [spec.stage for spec in plan.recipe.stages if spec.name in names]
    if not steps:
        raise RecipeError("--largest: the recipe has no step that removes duplicates")
    if stage is not None and stage not in names:
        hint = nearest(stage, names)
        raise RecipeError(f"--largest --stage {stage}: no step that removes duplicates{hint}")
    reasons = {r for step in kinds if isinstance(step, GlobalStep) for r in step.reasons}
    if reason is not None and reason not in reasons:
        raise RecipeError(f"--largest --reason {reason}: no such reason{nearest(reason, reasons)}")
    return [
        group
        for segment, name in steps
        if stage in (None, name)
        for group in _groups(plan, segment, name, reason, count)
    ]


def _groups(
    plan: Plan, segment: Segment, step: str, reason: str | None, count: int
) -> list[dict[str, Any]]:
    sizes = _sizes(plan, segment, step, reason).slice(0, count).to_pylist()
    members = _members(plan, segment, step, reason, [size["survivor"] for size in sizes])
    survivors = _survivors(plan, segment, [(step, size["survivor"]) for size in sizes])
    groups = []
    for size in sizes:
        name = size["survivor"]
        groups.append(
            {
                "step": step,
                "group_size": size["group_size"],
                "survivor": survivors[step, name],
                "removed": [
                    {**_side(plan, segment, row["id"], [row]), **evidence(row, step)}
                    for row in members[name]
                ],
            }
        )
    return groups


def _sizes(plan: Plan, segment: Segment, step: str, reason: str | None) -> pa.Table:
    """Survivors and their `group_size`, the largest first: as the step tells it, else the number of
    documents that name the survivor, and itself."""
    survivor, told = f"{step}.survivor", f"{step}.group_size"
    known = [told] if told in plan.signal_types(segment) else []
    parts = []
    for table in batches(plan, segment, [survivor, "reason", *known]):
        chosen = table[survivor].is_valid()
        if reason is not None:
            chosen = pc.and_(chosen, pc.equal(table["reason"], reason))
        table = table.filter(pc.fill_null(chosen, False))
        size = table[told] if known else pa.nulls(len(table), pa.int64())
        part = pa.table({"survivor": table[survivor], "told": size})
        part = part.group_by("survivor").aggregate([([], "count_all"), ("told", "max")])
        parts.append(part)
    whole = pa.concat_tables(parts) if parts else _NO_SIZES
    whole = whole.group_by("survivor").aggregate([("count_all", "sum"), ("told_max", "max")])
    counted = pc.add(whole["count_all_sum"], 1)
    sizes = pa.table(
        {
            "survivor": whole["survivor"],
            "group_size": pc.coalesce(whole["told_max_max"], counted),
        }
    )
    return sizes.sort_by([("group_size", "descending"), ("survivor", "ascending")])


_NO_SIZES = pa.table(
    {
        "survivor": pa.array([], pa.string()),
        "count_all": pa.array([], pa.int64()),
        "told_max": pa.array([], pa.int64()),
    }
)


def _members(
    plan: Plan, segment: Segment, step: str, reason: str | None, survivors: list[str]
) -> Found:
    """Of each survivor the MEMBERS removed documents with the smallest ids."""
    members: Found = {name: [] for name in survivors}
    column = f"{step}.survivor"
    order = ("id", "unit", "row")
    for table in batches(plan, segment, where=(column, pa.array(survivors, pa.string()))):
        if reason is not None:
            table = table.filter(pc.equal(table["reason"], reason))
        for name in pc.unique(table[column]).to_pylist():
            mine = table.filter(pc.equal(table[column], name))
            mine = mine.sort_by([(key, "ascending") for key in order]).slice(0, MEMBERS)
            best = [*members[name], *mine.to_pylist()]
            members[name] = sorted(best, key=itemgetter(*order))[:MEMBERS]
    return members


def render_groups(groups: list[dict[str, Any]], terminal: Terminal) -> str:
    """Groups for a person: each survivor with the beginning of its text, and its duplicates."""
    blocks = []
    for group in groups:
        lines = [
            f"{group['step']}  group of {group['group_size']:,}",
            f"  survivor  {_survivor(group['survivor'])}",
            *_beginning(group["survivor"], terminal),
        ]
        for side in group["removed"]:
            told = shown_evidence({**side, "group_size": None})
            lines.append(f"  removed   {_origin(side)}  {told}".rstrip())
            lines += _beginning(side, terminal)
        left = group["group_size"] - 1 - len(group["removed"])
        if left > 0:
            lines.append(f"  and {left:,} more")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) or "no document has been removed as a duplicate so far"


def _beginning(side: dict[str, Any], terminal: Terminal) -> list[str]:
    """The first line of a document's text, as far as there is room."""
    text = wcwidth.clip(one_line((side["text"] or "")[: terminal.width]), 0, terminal.width - 12)
    return [" " * 12 + text] if text else []
