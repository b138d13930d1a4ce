"""From a document to its origin and its fate, and to the document that survived it.

What may live here: the view behind `curation trace doc`, and finding one document's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.engine.plan import Plan, Segment
from curation.inspect.pairs import (
    UNDECIDED,
    evidence,
    outcome,
    passed,
    removed_by,
    removers,
    shown_evidence,
)
from curation.inspect.signals import batches, stored
from curation.inspect.terminal import one_line
from manifests.records import Receipt


def document(plan: Plan, wanted: str) -> list[dict[str, Any]]:
    """Every document with this id or URL: its origin, and what each segment decided.

    A URL may have been captured more than once; each capture is an entry. `duplicate_of` tells of a
    removed duplicate which document survived it, `stands_for` of any other for how many documents
    it stands after each global step that removed some for it, itself included, and
    `duplicate_count` of a kept document for how many in all.
    """
    column = "id" if re.fullmatch(r"[0-9a-f]{32}", wanted) else "url"
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for segment, row in _rows(plan, column, [wanted]):
        place = (row["unit"], row["row"])
        entry = found.setdefault(place, _origin(plan, row))
        entry["segments"].append(_fate(segment.name, row))
        entry["duplicate_of"] = _duplicate_of(plan, segment, row)
        for step in removers(segment):
            if passed(segment, row, step):
                entry["stands_for"] |= _stands_for(plan, segment, step, row["id"])
    for (unit, number), entry in found.items():
        last = entry["segments"][-1]
        kept = last["decision"] == "kept" and last["segment"] == plan.maps[-1].name
        entry["outcome"] = (
            "kept" if kept else f"{last['decision']} {last['reached']}:{last['reason']}"
        )
        final = _final(plan, unit, entry["id"]) if kept else None
        entry["file"], entry["duplicate_count"] = final or (None, None)
        entry["text"] = text_of(plan, unit, number)
    return [found[place] for place in sorted(found)]


def _rows(
    plan: Plan, column: str, wanted: Sequence[str]
) -> Iterator[tuple[Segment, dict[str, Any]]]:
    """Rows of the signals of all segments, in their order, that have one of these values."""
    for segment in plan.maps:
        for table in batches(plan, segment, where=(column, pa.array(wanted, pa.string()))):
            for row in table.to_pylist():
                yield segment, row


def _duplicate_of(plan: Plan, segment: Segment, row: dict[str, Any]) -> dict[str, Any] | None:
    """Who survived the document of a row of signals, and by what evidence; None for no duplicate.

    A later global step may have removed the survivor in turn: `then` is that, as the same entry.
    """
    step = removed_by(segment, row)
    if step is None:
        return None
    name = row[f"{step}.survivor"]
    if name is None:  # `curation takedown` has taken it out
        gone = {"survivor": None, "url": None, "outcome": "taken down", "then": None}
        return {"step": step, "reason": row["reason"], **gone, **evidence(row, step)}
    known = list(_rows(plan, "id", [name]))
    rows = [
        (other, r)
        for other, r in known
        if other.index > segment.index or (other is segment and passed(segment, r, step))
    ]
    last = rows[-1] if rows else None
    undecided = UNDECIDED if known else None
    return {
        "step": step,
        "reason": row["reason"],
        "survivor": name,
        "url": last[1]["url"] if last else None,
        "outcome": outcome(last[1]) if last else undecided,  # None: not in this run
        **evidence(row, step),
        "then": _duplicate_of(plan, *last) if last else None,
    }


def _stands_for(plan: Plan, segment: Segment, step: str, name: str) -> dict[str, int]:
    """For how many documents one stands after a step; nothing where none was removed for it."""
    survivor, size = f"{step}.survivor", f"{step}.group_size"
    known = [size] if size in plan.signal_types(segment) else []
    count, told = 0, 0
    for table in batches(plan, segment, [survivor, *known], where=(survivor, pa.array([name]))):
        count += len(table)
        told = max(told, *(pc.max(table[column]).as_py() or 0 for column in known), 0)
    return {step: max(count + 1, told)} if count else {}


def _origin(plan: Plan, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "url": row["url"],
        "input": plan.units[row["unit"]].input.path,
        "row": row["row"],
        "warc_offset": row["warc_offset"],
        "warc_length": row["warc_length"],
        "segments": [],
        "duplicate_of": None,
        "stands_for": {},
    }


def _fate(segment: str, row: dict[str, Any]) -> dict[str, Any]:
    signals = {name: value for name, value in row.items() if "." in name and value is not None}
    return {
        "segment": segment,
        "reached": row["reached"],
        "decision": row["decision"],
        "reason": row["reason"],
        "signals": signals,
    }


def text_of(plan: Plan, unit: int, row: int) -> str | None:
    """The text of one document as the first segment stored it; None where it did not."""
    document = stored(plan, plan.segments[0], unit, row)
    return document["text"] if document is not None else None


def _final(plan: Plan, unit: int, name: str) -> tuple[str, int] | None:
    """Which file of `documents/` holds a document, and its `duplicate_count` there."""
    segment = plan.segments[-1]
    for path in sorted(plan.receipts(segment).glob("*.json")):
        receipt = Receipt.load(path)
        if receipt is None or unit not in receipt.counts["units"]:
            continue
        for kind, output in receipt.outputs.items():
            if kind.startswith("documents"):
                path = output.locate(plan.run)
                columns = pq.read_table(path, columns=["id", "duplicate_count"])
                counts = columns.filter(pc.equal(columns["id"], name))["duplicate_count"]
                if len(counts):
                    return output.path, counts[0].as_py()
    return None


def render(found: list[dict[str, Any]]) -> str:
    if not found:
        return "no document of this run has that id or URL"
    blocks = []
    for entry in found:
        lines = [
            f"{entry['id']}  {one_line(entry['url'] or '')}",
            f"  outcome  {entry['outcome']}",
            *_duplicate_lines(entry["duplicate_of"]),
        ]
        counts = ", ".join(f"{step} {n:,}" for step, n in entry["stands_for"].items())
        total = max(entry["duplicate_count"] or 0, *entry["stands_for"].values(), 0)
        if counts or total > 1:
            by = f" ({counts})" if counts else ""  # else it came as one that stands for others
            lines.append(f"  stands   for {total:,} documents, itself included{by}")
        place = f"  input    {entry['input']}"
        if entry["warc_offset"] is not None:
            place += f" at {entry['warc_offset']:,} ({entry['warc_length']:,} bytes)"
        else:
            place += f" document {entry['row']:,}"
        lines.append(place)
        if entry["file"]:
            lines.append(f"  file     {entry['file']}")
        signals = [pair for fate in entry["segments"] for pair in fate["signals"].items()]
        width = max((len(name) for name, _ in signals), default=0)
        for name, value in signals:
            shown = f"{value:.4g}" if isinstance(value, float) else one_line(str(value))
            lines.append(f"  {name:<{width}}  {shown}")
        if entry["text"]:
            lines.append("  text     " + one_line(entry["text"])[:200])
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _duplicate_lines(found: dict[str, Any] | None) -> Iterator[str]:
    """Who survived, by what evidence, and who survived that one."""
    while found is not None:
        known = " ".join(filter(None, [one_line(found["url"] or ""), shown_evidence(found)]))
        fate = found["outcome"] or "not in this run: a document of earlier crawls"
        yield f"  survivor {found['survivor'] or '-'} ({fate})  {known}".rstrip()
        found = found["then"]
