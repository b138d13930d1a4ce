"""The plan of a tokens run for a person: its sources, what they weigh, what would be read.

What may live here: the view behind `curation plan` of such a recipe.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml

from curation.engine.plan import Plan
from curation.engine.tokens.driver import sampling_weights
from curation.engine.tokens.plan import TokensPlan
from curation.inspect import planview


def describe(plan: TokensPlan, corpus: Plan) -> dict[str, Any]:
    """The resolved recipe, files and bytes of each source, weights that sum to 1, the corpus."""
    files, sizes = Counter[str](), Counter[str]()
    names = plan.recipe.names
    for unit in corpus.units:
        files[names[unit.member]] += 1
        sizes[names[unit.member]] += unit.weight
    held = plan.recipe.settings.validation
    mixed = [name for name in names if not (held and held.source == name)]
    weights = sampling_weights(plan.recipe.settings, mixed) or {}
    total = sum(weights.values())
    return {
        "run": str(plan.run),
        "recipe": plan.recipe.resolved(),
        "sources": [
            {
                "name": source.name,
                "files": files[source.name],
                "bytes": sizes[source.name],
                "weight": source.weight,
                "share": weights[source.name] / total if source.name in weights else None,
                "max_epochs": source.max_epochs,
            }
            for source in plan.recipe.settings.sources
        ],
        "corpus": planview.describe(corpus),
    }


def render(found: dict[str, Any]) -> str:
    """The plan for a person. Where no weights are given, they follow from the tokens."""
    lines = [yaml.safe_dump(found["recipe"], sort_keys=False, allow_unicode=True).rstrip(), ""]
    lines.append(
        f"{'source':<16}{'files':>8}{'MB':>12}{'weight':>10}{'share':>10}{'most epochs':>13}"
    )
    for source in found["sources"]:
        weight = "" if source["weight"] is None else f"{source['weight']:g}"
        share = "" if source["share"] is None else f"{source['share']:.2%}"
        lines.append(
            f"{source['name']:<16}{source['files']:>8,}{source['bytes'] / 1e6:>12,.1f}"
            f"{weight:>10}{share:>10}{source['max_epochs']:>13g}"
        )
    given = [source["weight"] for source in found["sources"] if source["weight"] is not None]
    if given and abs(sum(given) - 1) > 1e-9:
        lines.append(f"weights sum to {sum(given):g}; share is what they are normalised to")
    lines += ["", "corpus:", planview.render(found["corpus"]), "", f"run  {found['run']}"]
    return "\n".join(lines)
