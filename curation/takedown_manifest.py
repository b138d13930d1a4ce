"""Takedown from a manifest: rows and provenance, the texts below them, and what is left elsewhere.

What may live here: `curation takedown LIST MANIFEST`, put together from the takedown of rows
(`curation.tokens.takedown`) and that of runs (`curation.engine.takedown`), and the report; also
which training runs have seen what went.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from curation.engine.listed import Listed
from curation.engine.plan import Plan, open_plan
from curation.engine.recipe import RecipeError
from curation.engine.takedown import find, rewrite
from curation.inspect.terminal import one_line
from curation.takedown import near_copies
from curation.tokens.takedown import takedown
from manifests.tokens import Corpus, Manifest
from manifests.trained import steps_with

SHOWN = 20  # near-copies, and steps of a training run, that a person is shown


def takedown_manifest(
    manifest: Manifest, listed: Listed, output: Path, trained: Sequence[Path] = ()
) -> dict[str, Any]:
    """Writes a manifest and its files anew without the listed documents; the old one stays.

    The report is that of `curation.tokens.takedown` and: `near_copies`, documents that the corpus
    holds to be copies of those that went, each with the evidence; None where the corpus is not
    there, and then the new manifest has none, either; `upstream`, runs that the corpus was made of
    and that still have listed documents, with the near-copies that they know; `trained`: of each of
    these training runs the steps, from 1, that had a row of them, None where it was not of this
    manifest. Raises what the two takedowns raise, and ManifestError where there is no such run.
    """
    for run in trained:
        steps_with(run, manifest, {})  # before anything is written
    plan = _corpus_of(manifest)

    def remake(target: Path) -> Corpus:
        assert plan is not None
        if not target.exists():  # else from an attempt that was stopped: it appears whole
            rewrite(plan, listed, target)
        stats = json.loads((target / "stats.json").read_bytes())
        return Corpus(target.name, open_plan(target).origin, stats)

    found = takedown(manifest, listed, output, remake if plan else None)
    found["trained"] = [
        {"run": str(run), "steps": steps_with(run, manifest, found["rows"])} for run in trained
    ]
    if plan is None:
        return {**found, "near_copies": None, "upstream": []}
    hits = find(plan, listed)
    met = {entry for hit in hits.urls for entry in listed.entries(*hit)}
    return {
        **found,
        "found": sorted({*found["found"], *met}),
        "not_found": [entry for entry in found["not_found"] if entry not in met],
        "corpus_documents": len(hits),
        "near_copies": near_copies(plan, hits),
        "upstream": list(_upstream(plan, listed)),
    }


def _corpus_of(manifest: Manifest) -> Plan | None:
    """The plan of the documents run below a manifest, where it is there."""
    if manifest.corpus is None:
        return None
    try:
        return open_plan(manifest.directory / manifest.corpus.path)
    except RecipeError:
        return None


def _upstream(plan: Plan, listed: Listed) -> Iterator[dict[str, Any]]:
    """The runs whose documents the corpus has read, as far as they are there and have some."""
    for run in sorted({Path(unit.input.path).parent.parent for unit in plan.units}):
        if (run / "run.json").is_file():
            upstream = open_plan(run)
            if hits := find(upstream, listed):
                copies = near_copies(upstream, hits)
                yield {"run": str(run), "documents": len(hits), "near_copies": copies}


def render(found: dict[str, Any]) -> str:
    """The report for a person."""
    lines = [
        f"{found['documents']:,} documents ({found['tokens']:,} tokens) taken down, out of "
        f"{len(found['samples']):,} samples",
        f"{len(found['rewritten']):,} files written anew, {found['linked']:,} linked",
        f"manifest  {found['output']}",
        f"previous  {found['previous']}",
    ]
    if found["near_copies"] is None:
        lines.append("the corpus is not there: no texts in the new one, near-copies not looked for")
    else:
        lines += _copies(found["near_copies"])
    for upstream in found["upstream"]:
        lines.append(f"{upstream['run']} still has {upstream['documents']:,}: take them down there")
        lines += _copies(upstream["near_copies"])
    for run in found["trained"]:
        lines.append(f"{run['run']}: {_seen(run['steps'])}")
    return "\n".join(lines)


def _seen(steps: list[int] | None) -> str:
    """What a training run has seen of it."""
    if steps is None:
        return "trained on another manifest"
    if not steps:
        return "has not seen them"
    named = ", ".join(map(str, steps[:SHOWN])) + (", ..." if len(steps) > SHOWN else "")
    return f"has seen them in {len(steps):,} steps: {named}"


def _copies(copies: list[dict[str, Any]]) -> Iterator[str]:
    if copies:
        yield f"{len(copies):,} near-copies of them are left (list them, too, if they must go):"
    for copy in copies[:SHOWN]:
        near = copy.get("jaccard") or copy.get("similarity")
        shown = f" ({near:.2f})" if near is not None else ""
        yield f"  {copy['id']}  {one_line(copy['url'] or '')}  {copy['outcome']}{shown}"
    if len(copies) > SHOWN:
        yield f"  ... and {len(copies) - SHOWN:,} more (--json has all)"
