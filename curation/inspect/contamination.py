"""What a run had of its evaluation sets: which items, in which documents, what became of it.

What may live here: the view behind `curation contamination`. How much would be found is measured in
`curation.inspect.injection`.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from curation import models
from curation.engine.plan import Plan, Segment
from curation.engine.recipe import RecipeError, StageSpec
from curation.filters import evaluation
from curation.filters.decontaminate import Decontaminate
from curation.filters.evaluation import Sets
from curation.inspect.signals import batches, stored
from curation.inspect.terminal import one_line
from manifests.arrays import load_array
from manifests.records import Receipt

CONTEXT = 60  # characters of the text that are shown beside a match
SHOWN = 300  # characters of a match


def steps(plan: Plan) -> list[tuple[StageSpec, Decontaminate]]:
    """The stages of a run that look for evaluation sets. Raises RecipeError where none does."""
    found = [(spec, spec.stage) for spec in plan.recipe.stages]
    mine = [(spec, stage) for spec, stage in found if isinstance(stage, Decontaminate)]
    if not mine:
        raise RecipeError(f"{plan.run}: the recipe has no stage that is decontaminate")
    return mine


def collect(plan: Plan, examples: int) -> list[dict[str, Any]]:
    """What each such stage found, in all and by set; the documents with the most n-grams as
    examples. What only the sets themselves or files that `gc` removed can tell is None, with a
    note."""
    return [_stage(plan, spec, stage, examples) for spec, stage in steps(plan)]


def _stage(plan: Plan, spec: StageSpec, stage: Decontaminate, examples: int) -> dict[str, Any]:
    segment = next(s for s in plan.maps if spec in s.removals)
    documents = list(_documents(plan, segment, spec.name))
    sets, note = sets_of(plan, spec, stage)
    counts = counts_of(plan, spec)
    ignored = None if counts is None else stage.common(counts)
    best = heapq.nsmallest(examples, documents, key=lambda row: (-row["ngrams"], row["id"]))
    return {
        "stage": spec.name,
        "documents": len(documents),
        "dropped": sum(row["contaminated"] for row in documents),
        "removed_bytes": sum(row["removed_bytes"] for row in documents),
        "ngrams": None if counts is None else len(counts),
        "suppressed": None if ignored is None else len(ignored),
        "sets": _by_set(documents, sets, ignored),
        "examples": [_example(plan, segment, row) for row in best],
        "note": note,
    }


def sets_of(plan: Plan, spec: StageSpec, stage: Decontaminate) -> tuple[Sets | None, str | None]:
    """The sets of a stage, where they are here as the run had them; else None, and why."""
    try:
        recorded = plan.models.get(spec.name, {})
        for name, path in stage.files().items():
            if name in recorded and models.digest(path) != recorded[name]["sha256"]:
                return None, f"set {name}: {path} is not the file that the run had"
        return stage.load(), None
    except (LookupError, OSError, ValueError) as error:
        return None, str(error)


def counts_of(plan: Plan, spec: StageSpec) -> np.ndarray | None:
    """In how many documents each n-gram was found; None where `gc` has removed it."""
    segment = plan.exchange_of(spec)
    for path in plan.receipts(segment).glob("counts-*.json"):
        receipt = Receipt.load(path)
        if receipt is not None and (file := receipt.outputs["counts"].locate(plan.run)).exists():
            return load_array(file)
    return None


def _documents(plan: Plan, segment: Segment, stage: str) -> Iterator[dict[str, Any]]:
    """The documents that shared something, with what the stage said of them."""
    said = [*Decontaminate.evidence, "removed_bytes"]
    columns = ["unit", "row", "id", "url", *(f"{stage}.{name}" for name in said)]
    for table in batches(plan, segment, columns):
        for row in table.filter(pc.is_valid(table[f"{stage}.matches"])).to_pylist():
            found = {name.removeprefix(f"{stage}."): value for name, value in row.items()}
            yield {**found, "matches": json.loads(found["matches"])}


def _by_set(
    documents: Sequence[Mapping[str, Any]], sets: Sets | None, ignored: np.ndarray | None
) -> list[dict[str, Any]]:
    known = {name: (items, able) for name, items, able in evaluation.totals(sets)} if sets else {}
    names = sorted({*known, *(match[0] for row in documents for match in row["matches"])})
    suppressed: dict[str, int] | None = None
    if sets is not None and ignored is not None:
        suppressed = dict.fromkeys(names, 0)
        for number in ignored.tolist():
            for name in {sets.items[item][0] for item in sets.owners_of(number)}:
                suppressed[name] += 1
    found = []
    for name in names:
        mine = [row for row in documents if any(match[0] == name for match in row["matches"])]
        items, searchable = known.get(name, (None, None))
        found.append(
            {
                "set": name,
                "items": items,
                "searchable": searchable,
                "found": len({m[1] for row in mine for m in row["matches"] if m[0] == name}),
                "documents": len(mine),
                "dropped": sum(row["contaminated"] for row in mine),
                "removed_bytes": sum(row["removed_bytes"] for row in mine),
                "suppressed": None if suppressed is None else suppressed[name],
            }
        )
    return found


def _example(plan: Plan, segment: Segment, row: Mapping[str, Any]) -> dict[str, Any]:
    """A document and its longest match, with the words around it; None where no text is stored."""
    document = stored(plan, plan.before(segment), row["unit"], row["row"])
    words = before = after = None
    if document is not None:
        text = document["text"].encode()
        head, tail = text[: row["start"]].decode(), text[row["stop"] :].decode()
        words = text[row["start"] : row["stop"]].decode()
        before, after = head[-CONTEXT:], tail[:CONTEXT]
    names = ("id", "url", "set", "item", "start", "stop", "ngrams", "items", "contaminated")
    shown = {name: row[name] for name in (*names, "removed_bytes")}
    return {**shown, "before": before, "words": words, "after": after}


def render(found: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(map(_render, found))


_HEAD = ("set", "items", "searchable", "found", "documents", "dropped", "cut bytes", "suppressed")


def _render(stage: Mapping[str, Any]) -> str:
    keys = ("items", "searchable", "found", "documents", "dropped", "removed_bytes", "suppressed")
    total = {**dict.fromkeys(keys, None), **stage, "found": sum(s["found"] for s in stage["sets"])}
    rows = [(s["set"], *(_count(s[key]) for key in keys)) for s in stage["sets"]]
    rows.append(("all", *(_count(total[key]) for key in keys)))
    lines = [f"{stage['stage']}: n-grams of evaluation sets", *aligned([_HEAD, *rows])]
    if any(s["searchable"] not in (None, s["items"]) for s in stage["sets"]):
        lines.append("items that are not searchable have too few words (min_item_words)")
    if stage["note"]:
        lines.append(stage["note"])
    for row in stage["examples"]:
        became = "dropped" if row["contaminated"] else f"{row['removed_bytes']:,} bytes cut"
        item = one_line(f"{row['set']} {row['item']}")
        where = f"{item}  bytes {row['start']:,} to {row['stop']:,}"
        lines.append(f"\n{row['id']}  {one_line(row['url'] or '')}".rstrip())
        lines.append(f"    {where}, {row['ngrams']:,} n-grams, {row['items']:,} items: {became}")
        if row["words"] is not None:
            words = one_line(row["words"])
            words = words if len(words) <= SHOWN else f"{words[:SHOWN]} ..."
            lines.append(f"    {one_line(row['before'])} ⟦{words}⟧ {one_line(row['after'])}")
    return "\n".join(lines)


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())
    return lines
