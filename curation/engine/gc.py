"""What a run no longer needs, and its removal.

What may live here: finding the files that no receipt names, and for a complete run the
intermediates; removing them. Only files inside the run are ever removed, no link is followed.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curation.engine.lease import holders
from curation.engine.plan import Plan, Segment
from curation.engine.stats import ended
from manifests.files import write_bytes
from manifests.records import Receipt, canonical

#: The files of an unfinished write: `.NAME.<12 hex digits>.tmp` (manifests/files.py).
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{12}\.tmp")
RELEASED = "released.json"


class Refused(RuntimeError):
    """Somebody drives the run, or it is not complete: nothing is removed."""


@dataclass(frozen=True)
class Garbage:
    """A file to remove. `why`: temporary, heartbeat, segment, orphan, or intermediate."""

    path: Path
    bytes: int
    why: str
    version: int  # st_mtime_ns: what has been written anew since is not what was found


def released(run: Path) -> frozenset[str]:
    """Outputs that were removed on purpose (`--intermediates`), as receipts name them: that they
    are missing is no fault, and no reason to make them again."""
    try:
        return frozenset(json.loads((run / RELEASED).read_bytes())["outputs"])
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def forget_released(run: Path) -> None:
    """What was removed on purpose is needed after all: it counts as missing from now on."""
    (run / RELEASED).unlink(missing_ok=True)


def find(plan: Plan, intermediates: bool = False) -> tuple[list[Garbage], list[str]]:
    """What can be removed, in order of path, and what was left alone, in words.

    `intermediates`: also, where the run is complete, what only its global steps have read.
    Raises Refused where somebody drives the run, or where it is not complete.
    """
    if alive := [holder for holder in holders(plan.run) if holder.alive]:
        holder = alive[0]
        raise Refused(f"{plan.run}: held by {holder.user} on {holder.host} (process {holder.pid})")
    if intermediates and not ended(plan.run):
        raise Refused(f"{plan.run}: the run is not complete; its intermediates are needed")
    # The files first and the receipts after: what a task commits meanwhile is named by then.
    files = [*_files(plan.run / "segments"), *_files(plan.run / "documents"), *_top(plan.run)]
    named: set[Path] = set()
    work: set[Path] = set()
    doubtful: list[Path] = []  # directories in which a receipt cannot be read
    notes = []
    for segment in plan.segments:
        for path in plan.receipts(segment).glob("*.json"):
            named.add(path)
            receipt = Receipt.load(path)
            if receipt is None:
                doubtful += _places(plan, segment)
                notes.append(f"{path.relative_to(plan.run)}: cannot be read; the files beside stay")
                continue
            outputs = [plan.run / output.path for output in receipt.outputs.values()]
            named.update(outputs)
            work.update(path for path in outputs if path.parent.name == "work")
    known = [plan.run / segment.directory for segment in plan.segments]
    found = []
    for path in files:
        why = _why(path, plan.run, known, named)
        if why == "orphan" and (path in named or any(map(path.is_relative_to, doubtful))):
            why = "intermediate" if intermediates and path in work else ""
        if why:
            found += _garbage(path, why)
    return sorted(found, key=lambda garbage: garbage.path), notes


def _garbage(path: Path, why: str) -> list[Garbage]:
    try:
        status = path.lstat()
    except OSError:
        return []  # gone by itself
    return [Garbage(path, status.st_size, why, status.st_mtime_ns)]


def _files(directory: Path) -> Iterator[Path]:
    """All files below a directory of the run; nothing behind a link."""
    if directory.is_symlink():
        return
    for folder, _, names in os.walk(directory, followlinks=False):
        yield from (Path(folder, name) for name in names)


def _top(run: Path) -> list[Path]:
    """Files of unfinished writes in the run's own directory."""
    return [path for path in run.iterdir() if _TEMPORARY.fullmatch(path.name) and path.is_file()]


def _places(plan: Plan, segment: Segment) -> list[Path]:
    """Where a segment's tasks write."""
    place = plan.run / segment.directory
    return [place, plan.run / "documents"] if segment == plan.segments[-1] else [place]


def _why(path: Path, run: Path, known: list[Path], named: set[Path]) -> str:
    """The kind of garbage that a file's place and name say; `orphan` if only receipts can tell.

    Pieces of a divided task (`pieces/<task>/`) have no receipt among the others: they are needed
    until the task itself has one.
    """
    if _TEMPORARY.fullmatch(path.name):
        return "temporary"
    segments = run / "segments"
    if path.is_relative_to(segments):
        parts = path.relative_to(segments).parts
        if segments / parts[0] not in known:
            return "segment"
        if parts[1:-1] == ("receipts",) and path.name.startswith("."):
            return "heartbeat" if path.name.endswith(".progress") else ""
        if parts[1] == "pieces":
            done = segments / parts[0] / "receipts" / f"{parts[2]}.json"
            return "orphan" if done in named else ""
    return "" if path.name.startswith(".") else "orphan"


def remove(plan: Plan, garbage: list[Garbage]) -> None:
    """Removes what `find` found, and the directories that it leaves empty.

    That an intermediate is missing on purpose is written down before the first one is removed: a
    removal that is cut off at any point leaves a run that holds.
    """
    freed = {str(g.path.relative_to(plan.run)) for g in garbage if g.why == "intermediate"}
    if freed:
        outputs = sorted(freed | released(plan.run))
        write_bytes(plan.run / RELEASED, canonical({"schema": 1, "outputs": outputs}) + b"\n")
    for item in garbage:
        if [item] == _garbage(item.path, item.why):
            item.path.unlink(missing_ok=True)
    for folder in sorted({item.path.parent for item in garbage}, reverse=True):
        _prune(folder, plan.run)


def _prune(folder: Path, run: Path) -> None:
    """Removes a directory and those above it as far as they are empty, below the run."""
    while folder != run and folder.is_relative_to(run / "segments"):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def report(plan: Plan, garbage: list[Garbage], notes: list[str], dry: bool) -> dict[str, Any]:
    """What was removed (`dry`: would be), its bytes in all and by kind."""
    kinds = Counter[str]()
    for item in garbage:
        kinds[item.why] += item.bytes
    return {
        "run": str(plan.run),
        "removed": not dry,
        "files": [
            {"path": str(g.path.relative_to(plan.run)), "bytes": g.bytes, "why": g.why}
            for g in garbage
        ],
        "bytes": sum(kinds.values()),
        "bytes_by_kind": dict(sorted(kinds.items())),
        "notes": notes,
    }


def render(found: dict[str, Any], most: int = 20) -> str:
    """The report for a person."""
    files = found["files"]
    lines = [f"{f['bytes']:>15,}  {f['why']:<12}  {f['path']}" for f in files[:most]]
    if len(files) > most:
        lines.append(f"... and {len(files) - most:,} more (--json has all)")
    did = "removed" if found["removed"] else "to remove"
    lines.append(f"{did}: {len(files):,} files, {found['bytes'] / 1e6:,.1f} MB")
    return "\n".join([*lines, *found["notes"]])
