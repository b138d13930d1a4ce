"""What differs between two runs, or between two manifests of tokens.

What may live here: the view behind `curation diff`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from curation.engine.plan import open_plan
from curation.engine.recipe import RecipeError
from curation.inspect import manifest
from manifests.diff import Difference, diff, differences
from manifests.diff import render as render

_COMPARED = ("name", "seed", "recipe", "inputs")  # of run.json; the rest follows from these


def between(a: str, b: str) -> list[Difference]:
    """Every place that differs. Raises RecipeError where A is a run and B a manifest, or where
    there is none of both, and ManifestError for a damaged manifest."""
    one, other = manifest.find(a), manifest.find(b)
    if one and other:
        return diff(one, other)
    if one or other:
        raise RecipeError(f"{a} and {b}: one is a manifest of tokens, the other is none")
    return differences(_run(a), _run(b))


def plain(found: list[Difference]) -> list[dict[str, Any]]:
    """The differences as JSON."""
    return [asdict(difference) for difference in found]


def _run(path: str) -> dict[str, Any]:
    """Configuration and inputs of a run, and its counts where it has ended."""
    run = Path(open_plan(path).run)
    record = json.loads((run / "run.json").read_bytes())
    stats = run / "stats.json"
    counts = json.loads(stats.read_bytes()) if stats.exists() else None
    return {**{name: record[name] for name in _COMPARED}, "stats": counts}
