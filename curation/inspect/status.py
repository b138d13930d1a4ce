"""How far a run is, from the files that it writes: while it runs, or after.

What may live here: the view behind `curation status`. It asks no process and takes no lock, so that
it works from any machine that sees the run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from curation.engine.lease import holders
from curation.engine.plan import Plan, Segment
from curation.engine.progress import Heartbeat
from curation.engine.stats import ended
from manifests.records import Receipt

STALE = 600.0  # seconds after which a heartbeat is taken for that of a task that was killed


def collect(plan: Plan) -> dict[str, Any]:
    """Per segment tasks, documents and what runs; the state of the run, and who holds it.

    `state`: `complete`; `ended` (some units are incomplete or quarantined); `running` (somebody
    holds the run, or a task has shown life within STALE seconds); `stopped`.
    """
    now = time.time()
    held = [asdict(holder) for holder in holders(plan.run)]
    segments = [_segment(plan, segment, now) for segment in plan.segments]
    state = {None: "", True: "complete", False: "ended"}[ended(plan.run)]
    if any(holder["alive"] for holder in held) or any(s["running"] for s in segments):
        state = "running"
    if state in ("complete", "ended"):
        for segment in segments:
            segment["known"] = segment["tasks"]
    times = [segment["last"] for segment in segments if segment["last"]]
    return {
        "run": str(plan.run),
        "name": plan.recipe.settings.name,
        "state": state or "stopped",
        "last": max(times, default=None),
        "holders": held,
        "segments": segments,
    }


def _segment(plan: Plan, segment: Segment, now: float) -> dict[str, Any]:
    """One pass over a segment's receipts and heartbeats.

    `known` is the number of tasks where it is known before they run: that of the first segment.
    """
    status: Counter[str] = Counter()
    documents = kept = unreadable = 0
    last = 0.0
    done: set[str] = set()
    beats: list[dict[str, Any]] = []
    for entry in _entries(plan.receipts(segment)):
        name = entry.name
        if name.endswith(".json") and not name.startswith("."):
            receipt = Receipt.load(Path(entry.path))
            if receipt is None:
                unreadable += 1
                continue
            done.add(receipt.task)
            status[receipt.status] += 1
            documents += receipt.counts.get("documents", 0)
            kept += receipt.counts.get("output", {}).get("documents", 0)
            last = max(last, entry.stat().st_mtime)
        elif name.startswith(".") and name.endswith(".progress"):
            beats += _beat(entry, now)
    return {
        "segment": segment.name,
        "kind": segment.kind,
        "tasks": sum(status.values()),
        "known": len(plan.units) if segment.kind == "read" else None,
        "incomplete": status["incomplete"],
        "quarantined": status["quarantined"],
        "unreadable": unreadable,
        "documents": None if segment.kind == "exchange" else documents,
        "kept": None if segment.kind == "exchange" else kept,
        "last": _iso(last) if last else None,
        "running": sorted(
            (beat for beat in beats if beat["task"] not in done and beat["seconds"] < STALE),
            key=lambda beat: str(beat["task"]),
        ),
    }


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []


def _beat(entry: os.DirEntry[str], now: float) -> list[dict[str, Any]]:
    """A heartbeat: the task, its documents so far, seconds since its last sign of life."""
    found = Heartbeat.read(Path(entry.path))
    try:
        seen = now - entry.stat().st_mtime
    except OSError:
        found = None
    if found is None:
        return []
    documents, kept = found
    task = entry.name.removeprefix(".").removesuffix(".progress")
    return [{"task": task, "documents": documents, "kept": kept, "seconds": max(0.0, seen)}]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def render(found: dict[str, Any]) -> str:
    """The state for a person."""
    lines = [f"{found['name']}  {found['state']}  {found['run']}"]
    if found["last"]:
        lines.append(f"last receipt  {found['last']}")
    for holder in found["holders"]:
        shard = f", shard {holder['shard']}" if holder["shard"] else ""
        lines.append(
            f"held by {holder['user']} on {holder['host']} (process {holder['pid']}{shard}) since "
            f"{holder['since']}, "
            + ("alive" if holder["alive"] else f"not seen for {holder['seen']:,.0f} s")
        )
    lines += ["", f"{'segment':<16}{'tasks':>17}{'documents':>15}{'kept':>15}"]
    for segment in found["segments"]:
        known = "" if segment["known"] is None else f"/{segment['known']:,}"
        line = f"{segment['segment']:<16}{segment['tasks']:>8,}{known:<9}"
        if segment["documents"] is not None:
            line += f"{segment['documents']:>15,}{segment['kept']:>15,}"
        notes = [
            f"{segment[what]:,} {what}"
            for what in ("incomplete", "quarantined", "unreadable")
            if segment[what]
        ]
        lines.append("  ".join([line.rstrip(), *notes]))
        lines += [
            f"  running  {beat['task']}: {beat['documents']:,} documents, {beat['kept']:,} kept, "
            f"{beat['seconds']:.0f} s ago"
            for beat in segment["running"][:20]
        ]
        if len(segment["running"]) > 20:
            lines.append(f"  ... and {len(segment['running']) - 20} more")
    return "\n".join(lines)
