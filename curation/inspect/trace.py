"""From a document to its origin and its fate.

What may live here: the view behind `curation trace doc`, and finding one document's text.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.engine.plan import Plan
from curation.inspect.signals import batches
from manifests.records import Receipt


def document(plan: Plan, wanted: str) -> list[dict[str, Any]]:
    """Every document with this id or URL: its origin, and what each segment decided.

    A URL may have been captured more than once; each capture is an entry.
    """
    column = "id" if re.fullmatch(r"[0-9a-f]{32}", wanted) else "url"
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for segment in plan.maps:
        for table in batches(plan, segment):
            for row in table.filter(pc.equal(table[column], wanted)).to_pylist():
                place = (row["unit"], row["row"])
                entry = found.setdefault(place, _origin(plan, row))
                entry["segments"].append(_fate(segment.name, row))
    for (unit, row), entry in found.items():
        last = entry["segments"][-1]
        kept = last["decision"] == "kept" and last["segment"] == plan.maps[-1].name
        entry["outcome"] = (
            "kept" if kept else f"{last['decision']} {last['reached']}:{last['reason']}"
        )
        entry["file"] = _final_file(plan, unit, entry["id"]) if kept else None
        entry["text"] = text_of(plan, unit, row)
    return [found[place] for place in sorted(found)]


def _origin(plan: Plan, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "url": row["url"],
        "input": plan.units[row["unit"]].input.path,
        "row": row["row"],
        "warc_offset": row["warc_offset"],
        "warc_length": row["warc_length"],
        "segments": [],
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
    receipt = Receipt.load(plan.receipt_path(plan.segments[0], plan.units[unit].name))
    if receipt is None or "text" not in receipt.outputs:
        return None
    path = receipt.outputs["text"].locate(plan.run)
    hit = pq.read_table(path, columns=["text"], filters=[("row", "=", row)])  # one row group
    text: str | None = hit["text"][0].as_py() if len(hit) else None
    return text


def _final_file(plan: Plan, unit: int, name: str) -> str | None:
    """Which file of `documents/` holds a document."""
    segment = plan.segments[-1]
    for path in sorted(plan.receipts(segment).glob("*.json")):
        receipt = Receipt.load(path)
        if receipt is None or unit not in receipt.counts["units"]:
            continue
        for kind, output in receipt.outputs.items():
            if kind.startswith("documents"):
                ids = pq.read_table(output.locate(plan.run), columns=["id"])["id"]
                if pc.any(pc.equal(ids, name)).as_py():
                    return output.path
    return None


def render(found: list[dict[str, Any]]) -> str:
    if not found:
        return "no document of this run has that id or URL"
    blocks = []
    for entry in found:
        lines = [f"{entry['id']}  {entry['url'] or ''}", f"  outcome  {entry['outcome']}"]
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
            shown = f"{value:.4g}" if isinstance(value, float) else value
            lines.append(f"  {name:<{width}}  {shown}")
        if entry["text"]:
            lines.append("  text     " + " ".join(entry["text"].split())[:200])
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
