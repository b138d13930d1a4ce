"""What a tokens run no longer needs.

What may live here: finding the files that no receipt names, and of a complete run those that only
its own phases have read. Removing and reporting them is as for a run of documents.
"""

from __future__ import annotations

from curation.engine import gc
from curation.engine.gc import Garbage, Refused
from curation.engine.lease import holders
from curation.engine.tokens.plan import PHASES, TokensPlan
from manifests.records import Receipt
from manifests.tokens import NAME

_RESULTS = ("packed", "documents", "shards", "tokenizer")


def find(plan: TokensPlan, intermediates: bool = False) -> tuple[list[Garbage], list[str]]:
    """What can be removed, in order of path, and what was left alone, in words.

    `intermediates`: also, where the run has its manifest, the run files of its phases: reading
    another mixture, or `--base` from it, then costs encoding again. Raises Refused where somebody
    drives the run, or where it is not complete.
    """
    if alive := [holder for holder in holders(plan.run) if holder.alive]:
        holder = alive[0]
        raise Refused(f"{plan.run}: held by {holder.user} on {holder.host} (process {holder.pid})")
    if intermediates and not (plan.run / NAME).is_file():
        raise Refused(f"{plan.run}: the run is not complete; its intermediates are needed")
    # The files first and the receipts after: what a task commits meanwhile is named by then.
    files = [path for place in ("phases", *_RESULTS) for path in gc.walk(plan.run / place)]
    named, notes = set(), []
    for phase in PHASES:
        for path in plan.receipts(phase).glob("*.json"):
            named.add(path)
            receipt = Receipt.load(path)
            if receipt is None:
                notes.append(f"{path.relative_to(plan.run)}: cannot be read; nothing is an orphan")
                continue
            named.update(plan.run / output.path for output in receipt.outputs.values())
    found = []
    for path in [*files, *gc.unfinished(plan.run)]:
        work = path.parent.name == "work"
        if gc.TEMPORARY.fullmatch(path.name):
            why = "temporary"
        elif path.name.startswith("."):
            why = "heartbeat" if path.name.endswith(".progress") else ""
        elif path in named:
            why = "intermediate" if work and intermediates else ""
        else:
            why = "orphan" if not notes and (work or path.suffix == ".parquet") else ""
        if why:
            found += gc.garbage_of(path, why)
    return sorted(found, key=lambda item: item.path), notes
