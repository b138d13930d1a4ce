"""What other thresholds would have decided, from stored signals alone.

What may live here: the simulation behind `curation whatif`. It re-evaluates the rules of filters;
editors and global steps are not run again, and what would depend on them is called unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curation.engine.chain import group
from curation.engine.plan import Plan, Segment
from curation.engine.recipe import (
    RecipeError,
    StageSpec,
    nearest,
    parse_yaml,
    with_parameters,
)
from curation.engine.tables import signals_schema
from curation.inspect.signals import batches
from curation.inspect.trace import text_of
from curation.stage import Editor, Filter, by_language

KEPT, DROPPED, FAILED, UNKNOWN = "kept", "dropped", "failed", "unknown"
OUTCOMES = (KEPT, DROPPED, FAILED, UNKNOWN)


@dataclass
class _Outcome:
    """A decision per document: what, and where (`stage:rule`)."""

    what: np.ndarray  # object: one of OUTCOMES
    where: np.ndarray  # object: `stage:rule` or None


def simulate(plan: Plan, settings: Sequence[str], samples: int = 3) -> dict[str, Any]:
    """Kept, dropped and unknown under other thresholds, and which documents flip.

    A document is *unknown* where it would now go on to a stage that never scored it, or to a global
    step that never saw it. Raises RecipeError for a setting that is no threshold.
    """
    changed = _changed(plan, settings)
    segments = plan.maps
    tables = [_signals(plan, segment) for segment in segments]
    first = tables[0]
    old = _old(tables, segments)
    new, rules = _new(tables, segments, changed, old)
    words = first["words"].to_pylist()
    flips = {}
    for name, before, after in (
        ("now_dropped", (KEPT,), (DROPPED,)),
        ("now_kept_or_unknown", (DROPPED,), (KEPT, UNKNOWN)),
    ):
        at = np.flatnonzero(np.isin(old.what, before) & np.isin(new.what, after))
        flips[name] = {
            "documents": len(at),
            "words": int(sum(words[i] or 0 for i in at)),
            "samples": [
                _sample(plan, first, int(i), old, new) for i in _chosen(first, at, samples)
            ],
        }
    return {
        "settings": list(settings),
        "before": _totals(old, words),
        "after": _totals(new, words),
        "flips": flips,
        "rules": rules,
        "not_simulated": [
            spec.name
            for segment in plan.segments
            for spec in ((segment.step,) if segment.step else segment.stages)
            if spec is not None and not isinstance(spec.stage, Filter)
        ],
    }


def _signals(plan: Plan, segment: Segment) -> pa.Table:
    empty = signals_schema(plan.signal_types(segment)).empty_table()
    return pa.concat_tables([empty, *batches(plan, segment)])


def _changed(plan: Plan, settings: Sequence[str]) -> dict[str, StageSpec]:
    """The stages with their new thresholds."""
    specs = {spec.name: spec for spec in plan.recipe.stages}
    changed = dict(specs)
    for setting in settings:
        key, separator, text = setting.partition("=")
        name, dot, parameter = key.partition(".")
        if not separator or not dot:
            raise RecipeError(f"--set {setting}: STAGE.PARAMETER=VALUE is wanted")
        if name not in specs:
            raise RecipeError(f"--set {key}: no such stage{nearest(name, specs)}")
        parameter, _, language = parameter.partition(".")
        stage = changed[name].stage
        rules = stage.rules if isinstance(stage, (Filter, Editor)) else ()
        thresholds = [rule.parameter for rule in rules if rule.parameter]
        if parameter not in thresholds:
            if parameter in type(stage).model_fields:
                raise RecipeError(
                    f"--set {key}: not a threshold, it changes the scores; "
                    f"run the recipe with this setting and --base {plan.run}"
                )
            raise RecipeError(f"--set {key}: unknown key{nearest(parameter, thresholds)}")
        try:
            value = parse_yaml(text)
        except ValueError as error:
            raise RecipeError(f"--set {key}{error}") from None
        if language:
            value = {**by_language(getattr(stage, parameter)), language: value}
        changed[name] = with_parameters(changed[name], {parameter: value})
    return changed


def _keys(table: pa.Table) -> np.ndarray:
    """(unit, row) of each document as one integer."""
    return np.asarray(table["unit"].to_numpy().astype(np.int64) << 40 | table["row"].to_numpy())


def _old(tables: Sequence[pa.Table], segments: Sequence[Segment]) -> _Outcome:
    """What the run decided, per document of the first segment."""
    keys = _keys(tables[0])
    order = np.argsort(keys, kind="stable")
    outcome = _Outcome(np.full(len(keys), UNKNOWN, object), np.full(len(keys), None, object))
    for table, _ in zip(tables, segments, strict=True):
        at = order[np.searchsorted(keys, _keys(table), sorter=order)]
        outcome.what[at] = np.array(table["decision"].to_pylist(), object)
        reached, reason = table["reached"].to_pylist(), table["reason"].to_pylist()
        outcome.where[at] = np.array(
            [None if r is None else f"{s}:{r}" for s, r in zip(reached, reason, strict=True)],
            object,
        )
    return outcome


def _new(
    tables: Sequence[pa.Table],
    segments: Sequence[Segment],
    changed: dict[str, StageSpec],
    old: _Outcome,
) -> tuple[_Outcome, list[dict[str, Any]]]:
    keys = _keys(tables[0])
    order = np.argsort(keys, kind="stable")
    new = _Outcome(np.full(len(keys), None, object), np.full(len(keys), None, object))
    present = np.ones(len(keys), bool)  # documents whose signals the next segment has
    rules: list[dict[str, Any]] = []
    for table, segment in zip(tables, segments, strict=True):
        at = order[np.searchsorted(keys, _keys(table), sorter=order)]
        here = np.zeros(len(keys), bool)
        here[at] = True
        if segment.removals:
            # It would come here for the first time: past a global step, nothing is known of it.
            new.what[(new.what == None) & ~here & present] = UNKNOWN  # noqa: E711
        present = here
        names = segment.accounts
        reached = np.array(
            [names.index(n) if n in names else 0 for n in table["reached"].to_pylist()]
        )
        what, where = old.what[at], old.where[at]
        for spec in segment.removals:
            gone = (new.what[at] == None) & (what == DROPPED) & (reached == names.index(spec.name))  # noqa: E711
            new.what[at[gone]], new.where[at[gone]] = DROPPED, where[gone]
        violations: list[np.ndarray] = []
        labels: list[str] = []
        for step in group(segment.stages):
            start = names.index(step[0].name)
            for spec in step:
                place = names.index(spec.name)
                open_ = new.what[at] == None  # noqa: E711
                # Not scored before: it never came as far as this group.
                lost = open_ & (reached < start)
                new.what[at[lost]] = UNKNOWN
                open_ &= ~lost
                failed = open_ & (what == FAILED) & (reached == place)
                new.what[at[failed]], new.where[at[failed]] = FAILED, where[failed]
                open_ &= ~failed
                stage = changed[spec.name].stage
                if isinstance(stage, Editor):
                    emptied = open_ & (what == DROPPED) & (where == f"{spec.name}:empty")
                    new.what[at[emptied]] = DROPPED
                    new.where[at[emptied]] = where[emptied]
                    open_ &= ~emptied
                assert isinstance(stage, (Filter, Editor))
                for rule in stage.rules:
                    column = table[f"{spec.name}.{rule.signal}"].combine_chunks()
                    threshold = rule.threshold(stage, table["language"].combine_chunks())
                    violated = rule.violated(column, threshold)
                    violations.append(violated)
                    labels.append(f"{spec.name}:{rule.name}")
                    hit = open_ & violated
                    new.what[at[hit]], new.where[at[hit]] = DROPPED, labels[-1]
                    open_ &= ~hit
        total = np.sum(violations, axis=0) if violations else np.zeros(len(at), int)
        for label, violated in zip(labels, violations, strict=True):
            first_to_drop = int((new.where[at] == label).sum())
            rules.append(
                {
                    "rule": label,
                    "drops": first_to_drop,
                    "would_drop": int(violated.sum()),
                    "only_it": int((violated & (total == 1)).sum()),
                }
            )
    new.what[new.what == None] = KEPT  # noqa: E711
    return new, rules


def _totals(outcome: _Outcome, words: list[int | None]) -> dict[str, dict[str, int]]:
    totals = {}
    for name in OUTCOMES:
        at = np.flatnonzero(outcome.what == name)
        totals[name] = {"documents": len(at), "words": int(sum(words[i] or 0 for i in at))}
    return totals


def _chosen(table: pa.Table, at: np.ndarray, count: int) -> list[int]:
    """The samples with the smallest id: ids are hashes already."""
    ids = table["id"].take(pa.array(at)).to_pylist() if len(at) else []
    return [int(at[i]) for i in sorted(range(len(ids)), key=lambda i: ids[i])[:count]]


def _sample(
    plan: Plan, table: pa.Table, index: int, old: _Outcome, new: _Outcome
) -> dict[str, Any]:
    unit, row = table["unit"][index].as_py(), table["row"][index].as_py()
    return {
        "id": table["id"][index].as_py(),
        "url": table["url"][index].as_py(),
        "before": old.where[index],
        "after": new.where[index] or new.what[index],
        "text": (text_of(plan, unit, row) or "")[:300],
    }


def render(found: dict[str, Any]) -> str:
    lines = [f"{'':<10}{'documents':>12}{'':>14}{'words':>14}"]
    for name in OUTCOMES:
        before, after = found["before"][name], found["after"][name]
        if not before["documents"] and not after["documents"]:
            continue
        lines.append(
            f"{name:<10}{before['documents']:>12,} -> {after['documents']:>10,}"
            f"{before['words']:>14,} -> {after['words']:>12,}"
        )
    if found["after"]["unknown"]["documents"]:
        lines.append(
            "(unknown: kept by these thresholds, and then before stages that never saw it)"
        )
    titles = {
        "now_dropped": "kept before, dropped now",
        "now_kept_or_unknown": "dropped before, not now",
    }
    for name, title in titles.items():
        flips = found["flips"][name]
        lines.append(f"\n{title}: {flips['documents']:,} documents, {flips['words']:,} words")
        for sample in flips["samples"]:
            change = f"{sample['before'] or 'kept'} -> {sample['after']}"
            lines.append(f"  {sample['id']}  {change}  {sample['url'] or ''}")
            lines.append("      " + " ".join(sample["text"].split())[:90])
    width = max([len(rule["rule"]) for rule in found["rules"]] + [4])
    lines.append(f"\n{'rule':<{width}}{'drops':>10}{'would drop':>12}{'only it':>10}")
    lines += [
        f"{rule['rule']:<{width}}{rule['drops']:>10,}{rule['would_drop']:>12,}{rule['only_it']:>10,}"
        for rule in found["rules"]
        if rule["would_drop"]
    ]
    if found["not_simulated"]:
        lines.append(f"\nnot simulated: {', '.join(found['not_simulated'])}")
    return "\n".join(lines)
