"""What a run can take from another one that it is based on.

What may live here: receipts found again by their key, and the conditions under which new thresholds
can be applied to what is stored of a unit, instead of reading it (`reapply.py` does it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from curation.engine.chain import first_edit, group, text_from
from curation.engine.plan import (
    Plan,
    Task,
    open_plan,
    reading_tasks,
    segment_key,
    stage_key,
)
from curation.engine.recipe import ENCODED, RecipeError, StageSpec
from curation.stage import Filter
from manifests.records import Receipt


@dataclass(frozen=True)
class Base:
    """Another run, and what of it serves a plan.

    `receipts` by key; `units` are the names of those to whose stored texts and signals the plan's
    thresholds can be applied, from the stage number `start` on; none of them where there is an
    `obstacle`, in words.
    """

    run: Path
    receipts: Mapping[str, Receipt]
    units: frozenset[str]
    start: int
    obstacle: str

    @staticmethod
    def of(plan: Plan, run: str | Path, retry_incomplete: bool = False) -> Base:
        """What a run has for a plan; without what is incomplete where that is tried again. Raises
        RecipeError where no run lies there."""
        base = open_plan(run)
        if base.run == plan.run:
            raise RecipeError(f"--base {run}: a run cannot be based on itself")
        useless = {"quarantined", "incomplete"} if retry_incomplete else {"quarantined"}
        receipts = {}
        for path in sorted(base.run.glob("segments/*/receipts/*.json")):
            receipt = Receipt.load(path)
            if receipt is not None and receipt.status not in useless:
                receipts[receipt.key] = receipt
        start, obstacle = beginning(plan, base)
        units = frozenset[str]()
        if not obstacle:
            mine, theirs = _identities(plan), _identities(base)
            units = frozenset(
                task.name
                for task in reading_tasks(base)
                if task.key in receipts and mine.get(task.name) == theirs[task.name]
            )
        return Base(base.run, receipts, units, start, obstacle)

    def offer(self, task: Task) -> Task:
        """A reading task with what there is for it."""
        if task.name not in self.units:
            return task
        return replace(task, base=str(self.run), start=self.start)

    def outlook(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """For a person: how many of the reading tasks are there already, re-applied or read."""
        reused = sum(task.key in self.receipts for task in tasks)
        again = sum(task.key not in self.receipts and task.name in self.units for task in tasks)
        return {
            "run": str(self.run),
            "reused": reused,
            "reapplied": again,
            "read": len(tasks) - reused - again,
            "obstacle": self.obstacle or None,
        }


def _identities(plan: Plan) -> dict[str, tuple[object, ...]]:
    """What each unit reads, and how, by its name."""
    keys = plan.recipe.settings.input_keys()
    return {unit.name: (unit.input, unit.span, keys[unit.member]) for unit in plan.units}


def beginning(plan: Plan, base: Plan) -> tuple[int, str]:
    """The stage from which on documents of a base run's first segment can go again under a plan,
    and what stands against it: nothing, or a few words.

    The first that decides otherwise, or the first that changes a text, since the text before it is
    stored, but not that between two edits. It must come after `extract`: payloads are not stored.
    """
    new, old = plan.segments[0], base.segments[0]
    try:
        same_versions = segment_key(base.recipe, old) == old.key
        keys = [[(s.name, *stage_key(s)) for s in segment.stages] for segment in (new, old)]
    except RecipeError as error:
        return 0, str(error)
    mine, theirs = plan.recipe.settings, base.recipe.settings
    if theirs.store != "all":
        return 0, "it has not stored the text of what it dropped (store: kept)"
    if not same_versions:
        return 0, "it was made with other versions, models or lists"
    scores = [[key[:2] for key in stages] for stages in keys]
    if scores[0] != scores[1] or plan.signal_types(new) != base.signal_types(old):
        return 0, "the stages up to the first global step differ in more than thresholds"
    known = theirs.input_keys()
    if mine.seed != theirs.seed or not any(key in known for key in mine.input_keys()):
        return 0, "seed or input settings differ"
    if plan.recipe.takedown != base.recipe.takedown:
        return 0, "other documents are taken down"
    changed = [i for i, (a, b) in enumerate(zip(*keys, strict=True)) if a != b]
    first = min([*changed, first_edit(new.stages)])
    steps = accumulate((len(step) for step in group(new.stages)), initial=0)
    start = max(place for place in steps if place <= first)  # a group counts all who come to it
    if start < text_from(new.stages):
        return 0, f"{new.stages[start].name} judges before extraction, and payloads are not stored"
    return start, _filled(new.stages[start:], {one.reader for one in mine.inputs})


def _filled(stages: Sequence[StageSpec], readers: Set[str]) -> str:
    """What stands against re-application in columns that stages from the start on fill: what was
    in them before is not stored. Only the language is known to be empty then, of an archive."""
    empty = {"language", "language_score"} if readers <= ENCODED else set()
    for spec in stages:
        if isinstance(spec.stage, Filter) and (full := {*spec.stage.adds} - empty):
            return f"{spec.name} fills {min(full)}, which the input may have filled before"
    return ""
