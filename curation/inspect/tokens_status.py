"""How far a tokens run is: its corpus, then its phases, from the files that they write.

What may live here: the view behind `curation status` of such a run. It asks no process and takes no
lock.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from curation.engine.lease import holders
from curation.engine.plan import open_plan
from curation.engine.recipe import RecipeError
from curation.engine.tokens.plan import PHASES, TokensPlan
from curation.inspect import status
from manifests.records import Receipt
from manifests.tokens import NAME


def collect(plan: TokensPlan) -> dict[str, Any]:
    """The state of the run, of its corpus, and the tasks of each phase that have ended."""
    held = [asdict(holder) for holder in holders(plan.run)]
    phases = []
    for phase in PHASES:
        receipts = [Receipt.load(path) for path in sorted(plan.receipts(phase).glob("*.json"))]
        done = [receipt for receipt in receipts if receipt is not None]
        seconds = sum(receipt.envelope.get("seconds", 0.0) for receipt in done)
        phases.append({"phase": phase, "tasks": len(done), "seconds": round(seconds, 3)})
    try:
        corpus = status.collect(open_plan(plan.corpus))
    except RecipeError:
        corpus = None  # not begun
    complete = (plan.run / NAME).is_file()
    running = any(holder["alive"] for holder in held)
    state = "running" if running else "complete" if complete else "stopped"
    about = {"run": str(plan.run), "name": plan.recipe.settings.name, "state": state}
    return {**about, "holders": held, "corpus": corpus, "phases": phases}


def render(found: dict[str, Any]) -> str:
    """The state for a person."""
    lines = [f"{found['name']}  {found['state']}  {found['run']}"]
    lines += [
        f"held by {holder['user']} on {holder['host']} (process {holder['pid']}) since "
        f"{holder['since']}, " + ("alive" if holder["alive"] else "gone")
        for holder in found["holders"]
    ]
    if found["corpus"] is not None:
        lines += ["", status.render(found["corpus"])]
    lines += ["", f"{'phase':<16}{'tasks':>8}{'seconds':>12}"]
    lines += [f"{p['phase']:<16}{p['tasks']:>8,}{p['seconds']:>12,.1f}" for p in found["phases"]]
    return "\n".join(lines)
