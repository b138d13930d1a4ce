"""What other thresholds would have decided, from stored signals alone.

What may live here: the simulation behind `curation whatif`. It re-evaluates rules, of filters and
of editors over what they noted of their edits; edits and global steps are not done again, and what
would depend on them is called unknown. A global step that scores (`percentile`) scores again, among
the documents that now come to it.

Signals are read a row group at a time, and of each document 16 bytes are kept: its fate in the run,
its fate now, and its words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.document import Documents
from curation.engine.plan import Plan, Segment, edits
from curation.engine.recipe import (
    RecipeError,
    StageSpec,
    nearest,
    parse_yaml,
    with_parameters,
)
from curation.inspect.signals import batches
from curation.inspect.terminal import one_line
from curation.inspect.trace import text_of
from curation.stage import Editor, Filter, GlobalStep, Rule, by_language

KEPT, DROPPED, FAILED, UNKNOWN = "kept", "dropped", "failed", "unknown"
OUTCOMES = (KEPT, DROPPED, FAILED, UNKNOWN)
NAMES = ("reached", "decision", "reason")  # columns of few different strings
_UNIT = 1 << 32  # rows of a unit, at most
PAIRS = 5  # pairs of rules that are shown


def simulate(plan: Plan, settings: Sequence[str], samples: int = 3) -> dict[str, Any]:
    """Kept, dropped and unknown under other thresholds, and which documents flip.

    A document is *unknown* from where it would now come to a stage that never scored it or to a
    global step that never saw it, or where it was removed as the duplicate of a document that would
    no longer be there. Raises RecipeError for a setting that is no threshold.
    """
    run = _Simulation(plan, _changed(plan, settings))
    for segment in plan.maps:
        run.pass_through(segment)
    flips = {}
    for name, before, after in (
        ("now_dropped", (KEPT,), (DROPPED,)),
        ("now_kept_or_unknown", (DROPPED,), (KEPT, UNKNOWN)),
    ):
        flipped = run.fates.are(run.old, before) & run.fates.are(run.new, after)
        flips[name] = {
            "documents": int(flipped.sum()),
            "words": int(run.words[flipped].sum()),
            "samples": _samples(run, flipped, samples),
        }
    return {
        "settings": list(settings),
        "before": run.totals(run.old),
        "after": run.totals(run.new),
        "flips": flips,
        "stages": run.stages(),
        "rules": run.rules(),
        "pairs": run.pairs(),
        "global_steps": run.steps,
        "not_simulated": [
            spec.name
            for segment in plan.segments
            for spec in ((segment.step,) if segment.step else segment.stages)
            if spec is not None and not isinstance(spec.stage, Filter)
        ],
    }


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
        thresholds = [rule.parameter for rule in _rules(specs[name]) if rule.parameter]
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


def _rules(spec: StageSpec) -> tuple[Rule, ...]:
    return spec.stage.rules if isinstance(spec.stage, (Filter, Editor)) else ()


@dataclass(frozen=True)
class _Fate:
    """What became of a document, and where. `reason` is a rule, an error class, or empty."""

    outcome: str
    stage: str = ""
    reason: str = ""

    @property
    def where(self) -> str | None:
        return f"{self.stage}:{self.reason}" if self.reason else None


class _Fates:
    """All fates that occur, by number: documents hold the number. 0 is kept."""

    def __init__(self) -> None:
        self._numbers = {_Fate(KEPT): 0}

    def number(self, outcome: str, stage: str = "", reason: str = "") -> int:
        return self._numbers.setdefault(_Fate(outcome, stage, reason), len(self._numbers))

    def all(self) -> list[_Fate]:
        return list(self._numbers)

    def are(self, numbers: np.ndarray, outcomes: Sequence[str]) -> np.ndarray:
        """Which documents had one of these outcomes."""
        wanted = np.array([fate.outcome in outcomes for fate in self._numbers])
        return np.asarray(wanted[numbers])

    def count(self, numbers: np.ndarray) -> dict[_Fate, int]:
        counts = np.bincount(numbers, minlength=len(self._numbers))
        return dict(zip(self._numbers, counts.tolist(), strict=True))


@dataclass
class _Tally:
    """How many documents violate the rules of a segment, together and alone."""

    labels: list[tuple[str, str]]  # stage, rule
    both: np.ndarray  # int64, rule by rule: violate both; on the diagonal, violate the rule
    only_both: np.ndarray  # the same, and no other rule; on the diagonal, the rule alone

    @staticmethod
    def of(labels: list[tuple[str, str]]) -> _Tally:
        shape = (len(labels), len(labels))
        return _Tally(labels, np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def add(self, violated: np.ndarray) -> None:
        """`violated`: bool, rule by document."""
        total = violated.sum(axis=0)
        self.both += _common(violated)
        pairs = _common(violated[:, total == 2])
        np.fill_diagonal(pairs, violated[:, total == 1].sum(axis=1))
        self.only_both += pairs


def _common(violated: np.ndarray) -> np.ndarray:
    """Documents that two rules share, for all pairs: exact in float32 up to 2^24 of them."""
    numbers = violated.astype(np.float32)
    return np.asarray(numbers @ numbers.T).astype(np.int64)


@dataclass
class _Table:
    """A row group of a segment's signals, with the fates that the run gave."""

    columns: pa.Table
    at: np.ndarray  # places of its documents among all
    reached: np.ndarray  # ordinal of the stage among the segment's accounts
    old: np.ndarray  # number of the fate in this segment
    dropped: np.ndarray
    failed: np.ndarray

    def column(self, name: str) -> pa.Array:
        return self.columns[name].combine_chunks()


@dataclass
class _Simulation:
    """Fates of all documents of the first segment, in the order of its signals."""

    plan: Plan
    specs: Mapping[str, StageSpec]  # with the new thresholds
    fates: _Fates = field(default_factory=_Fates)
    old: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    new: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    words: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    steps: list[dict[str, Any]] = field(default_factory=list)
    #: What global steps that score say now, by `<stage>.<signal>`: float64, document by document.
    scores: dict[str, np.ndarray] = field(default_factory=dict)
    _first: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # place by unit
    #: Rows that no document has any more (a takedown), as `_UNIT` x unit + row, ascending.
    _gaps: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    _tallies: list[_Tally] = field(default_factory=list)

    def pass_through(self, segment: Segment) -> None:
        """All documents through one more segment of the run."""
        self._tallies.append(
            _Tally.of([(s.name, r.name) for s in segment.stages for r in _rules(s)])
        )
        if segment.index == 0:
            self._begin(segment)
            return
        if not segment.applies:
            return  # it only writes what was kept
        lost = self._lost(segment)
        for spec in segment.applies[len(segment.removals) :]:
            self._score_again(segment, spec)
        absent = np.ones(len(self.old), bool)
        for columns in batches(self.plan, segment, self._columns(segment), NAMES):
            at = self._places(columns)
            table = self._table(columns, segment, at)
            absent[at] = False
            self.old[at] = table.old
            self.words[at] = _words(columns)
            here = self.new[at] == 0
            self.new[at[here]] = self._judged(table, segment, here, lost)[here]
        # What never came here is unknown: past a global step that did not see it, or not yet there.
        for fates in (self.old, self.new):
            fates[absent & (fates == 0)] = self.fates.number(UNKNOWN, segment.accounts[0])

    def _begin(self, segment: Segment) -> None:
        old, new, words = [self.old], [self.new], [self.words]
        self._first = np.zeros(len(self.plan.units), np.int64)
        unit, place, row = -1, 0, 0
        gaps = [self._gaps]
        for columns in batches(self.plan, segment, self._columns(segment), NAMES):
            if columns["unit"][0].as_py() != unit:  # a file has the documents of one, row by row
                unit = columns["unit"][0].as_py()
                self._first[unit], row = place, 0
            rows = columns["row"].to_numpy()
            missing = np.setdiff1d(np.arange(row, rows[-1] + 1), rows, assume_unique=True)
            gaps.append(_UNIT * unit + missing)
            row = int(rows[-1]) + 1
            at = np.arange(place, place + len(columns))
            place += len(columns)
            table = self._table(columns, segment, at)
            old.append(table.old)
            new.append(self._judged(table, segment, np.ones(len(columns), bool), None))
            words.append(_words(columns))
        self._gaps = np.sort(np.concatenate(gaps))
        self.old, self.new, self.words = (np.concatenate(parts) for parts in (old, new, words))

    def _columns(self, segment: Segment) -> list[str]:
        """What has to be read of a segment's signals."""
        place = ["unit", "row", *(["language"] if self._by_language else [])]
        survivors = [f"{spec.name}.survivor" for spec in segment.removals if not edits(spec)]
        signals = [name for spec in segment.stages for name in self._signals(segment, spec)]
        return [*place, "words", *NAMES, *survivors, *signals]

    def _signals(self, segment: Segment, spec: StageSpec) -> list[str]:
        """Columns that tell what a stage decides, or at least whether it has scored."""
        own = [n for n in self.plan.signal_types(segment) if n.startswith(f"{spec.name}.")]
        named = {f"{spec.name}.{rule.signal}" for rule in _rules(spec)}
        return [name for name in own if name in named or not named]

    def _places(self, columns: pa.Table) -> np.ndarray:
        """Where documents stand among all, by their columns `unit` and `row`."""
        units, rows = columns["unit"].to_numpy().astype(np.int64), columns["row"].to_numpy()
        gaps = np.searchsorted(self._gaps, [_UNIT * units + rows, _UNIT * units])
        return np.asarray(self._first[units] + rows - gaps[0] + gaps[1])

    def _score_again(self, segment: Segment, spec: StageSpec) -> None:
        """What a global step that scores would say of the documents that now come to it: those that
        were there before, less those that the global steps beside it removed."""
        step = spec.stage
        assert isinstance(step, GlobalStep)
        here = self.new == 0
        for columns in batches(self.plan, segment, ["unit", "row", *NAMES], NAMES):
            table = self._table(columns, segment, self._places(columns))
            here[table.at[table.dropped & (table.reached < len(segment.removals))]] = False
        names = ["unit", "row", "language", "source", "crawl", *step.signals()]
        tables = []
        for columns in batches(self.plan, self.plan.before(segment), names):
            tables.append(columns.filter(pa.array(here[self._places(columns)])))
        if not tables:
            return  # no document has come so far
        came = pa.concat_tables(tables).combine_chunks()
        docs = Documents({name: came[name].combine_chunks() for name in names})
        at = self._places(came)
        for name, values in step.scores(docs).items():
            found = np.full(len(self.new), np.nan)
            found[at] = values
            self.scores[f"{spec.name}.{name}"] = found

    def _table(self, columns: pa.Table, segment: Segment, at: np.ndarray) -> _Table:
        parts = [columns[name].combine_chunks() for name in NAMES]
        values = [[*part.dictionary.to_pylist(), None] for part in parts]
        reached, decision, reason = (
            np.where(part.is_valid(), pc.fill_null(part.indices, 0), len(known) - 1)
            for part, known in zip(parts, values, strict=True)
        )
        mixed = (reached * len(values[1]) + decision) * len(values[2]) + reason
        numbers = np.zeros(np.prod([len(known) for known in values]), np.int32)
        for number in np.flatnonzero(np.bincount(mixed, minlength=1)):
            rest, last = divmod(int(number), len(values[2]))
            stage, outcome = (values[i][n] for i, n in enumerate(divmod(rest, len(values[1]))))
            if outcome != KEPT:
                numbers[number] = self.fates.number(outcome, stage, values[2][last] or "")
        accounts = {name: place for place, name in enumerate(segment.accounts)}
        places = np.array([accounts.get(name, 0) for name in values[0]])
        outcomes = [
            np.array([name == wanted for name in values[1]]) for wanted in (DROPPED, FAILED)
        ]
        dropped, failed = (known[decision] for known in outcomes)
        return _Table(columns, at, places[reached], numbers[mixed], dropped, failed)

    def _judged(
        self, table: _Table, segment: Segment, here: np.ndarray, lost: pa.Array | None
    ) -> np.ndarray:
        """Numbers of the fates of a row group's documents, of which those `here` still live.

        `lost`: ids of the documents that no longer come to the segment's global steps.
        """
        fates = np.zeros(len(here), np.int32)
        living = here.copy()

        def end(mask: np.ndarray, number: int | np.ndarray) -> None:
            ending = living & mask
            fates[ending] = number if isinstance(number, int) else number[ending]
            living[ending] = False

        for place, spec in enumerate(segment.removals):
            removed = table.dropped & (table.reached == place)
            if lost is not None and not edits(spec):
                freed = pc.is_in(table.column(f"{spec.name}.survivor"), value_set=lost)
                end(removed & np.asarray(freed), self.fates.number(UNKNOWN, spec.name))
            end(removed, table.old)
        violated: list[np.ndarray] = []
        for place, spec in enumerate(segment.stages, len(segment.removals)):
            # Without a score, it never came as far as this stage and those of its group; or it
            # failed here, which nobody was told, since an earlier rule had dropped it.
            silent = (table.reached < place) & self._silent(table, segment, spec)
            end(silent, self.fates.number(UNKNOWN, spec.name))
            end(table.failed & (table.reached == place), table.old)
            if isinstance(spec.stage, Editor):
                empty = self.fates.number(DROPPED, spec.name, "empty")
                end(table.old == empty, empty)
            for rule in _rules(spec):
                violated.append(self._violated(table, spec, rule))
                end(violated[-1], self.fates.number(DROPPED, spec.name, rule.name))
        if violated:
            self._tallies[-1].add(np.stack(violated))
        return fates

    def _violated(self, table: _Table, spec: StageSpec, rule: Rule) -> np.ndarray:
        """Which documents a rule would drop with its new threshold."""
        stage = self.specs[spec.name].stage
        languages = table.column("language") if self._by_language else pa.nulls(0, pa.string())
        threshold = rule.threshold(stage, languages)
        name = f"{spec.name}.{rule.signal}"
        if name in self.scores:
            return rule.violated(pa.array(self.scores[name][table.at], from_pandas=True), threshold)
        return rule.violated(table.column(name), threshold)

    @cached_property
    def _by_language(self) -> bool:
        """Whether a threshold is a mapping from languages."""
        return any(
            rule.parameter and isinstance(getattr(spec.stage, rule.parameter), Mapping)
            for spec in self.specs.values()
            for rule in _rules(spec)
        )

    def _silent(self, table: _Table, segment: Segment, spec: StageSpec) -> np.ndarray:
        """Which documents have no signal of a stage."""
        silent = np.ones(len(table.reached), bool)
        for name in self._signals(segment, spec):
            if table.columns[name].null_count == 0:
                return np.zeros(len(silent), bool)
            silent &= np.asarray(table.column(name).is_null())
        return silent

    def _lost(self, segment: Segment) -> pa.Array | None:
        """Ids of the documents that came to the global steps before a segment and now do not."""
        fewer, more = (self.old == 0) & (self.new != 0), (self.old != 0) & (self.new == 0)
        unknown = self.fates.are(self.new, (UNKNOWN,))
        self.steps += [
            {
                "step": spec.name,
                "more": int(more.sum()),
                "fewer": int(fewer.sum()),
                "unknown": int(unknown.sum()),
                "scores": isinstance(spec.stage, Filter),
            }
            for spec in segment.applies
        ]
        return pa.array(self.take(fewer, ["id"])["id"]) if fewer.any() else None

    def take(self, mask: np.ndarray, columns: Sequence[str]) -> dict[str, list[Any]]:
        """Columns of the first segment's signals, of the documents under a mask."""
        found: dict[str, list[Any]] = {name: [] for name in columns}
        place = 0
        for table in batches(self.plan, self.plan.segments[0], columns):
            part = mask[place : place + len(table)]
            place += len(table)
            if part.any():
                for name in columns:
                    found[name] += table[name].filter(pa.array(part)).to_pylist()
        return found

    # What came out

    def totals(self, numbers: np.ndarray) -> dict[str, dict[str, int]]:
        found = {}
        for name in OUTCOMES:
            mask = self.fates.are(numbers, (name,))
            found[name] = {"documents": int(mask.sum()), "words": int(self.words[mask].sum())}
        return found

    def stages(self) -> list[dict[str, Any]]:
        """Of each stage, before and after: documents in, and what became of those that it ended."""
        found: list[dict[str, Any]] = []
        counts = {"before": self.fates.count(self.old), "after": self.fates.count(self.new)}
        left = dict.fromkeys(counts, len(self.old))
        for name in [name for segment in self.plan.maps for name in segment.accounts]:
            entry: dict[str, Any] = {"stage": name}
            for when, fates in counts.items():
                entry[when] = {"in": left[when]}
                for outcome in (DROPPED, FAILED, UNKNOWN):
                    ended = [n for f, n in fates.items() if (f.outcome, f.stage) == (outcome, name)]
                    entry[when][outcome] = sum(ended)
                    left[when] -= sum(ended)
            found.append(entry)
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Of each rule: documents that it is the first to drop, that it would drop, and that no
        other rule of the segment would."""
        drops = self.fates.count(self.new)
        return [
            {
                "rule": f"{stage}:{rule}",
                "drops": drops.get(_Fate(DROPPED, stage, rule), 0),
                "would_drop": int(tally.both[i, i]),
                "only_it": int(tally.only_both[i, i]),
            }
            for tally in self._tallies
            for i, (stage, rule) in enumerate(tally.labels)
        ]

    def pairs(self) -> list[dict[str, Any]]:
        """Of each pair of rules that share documents: those that both would drop, and those that
        no third one would: what relaxing the two together brings back, but neither alone."""
        found = [
            {
                "rules": [":".join(tally.labels[i]), ":".join(tally.labels[j])],
                "would_drop": int(tally.both[i, j]),
                "only_both": int(tally.only_both[i, j]),
            }
            for tally in self._tallies
            for i, j in zip(*np.nonzero(np.triu(tally.both, 1)), strict=True)
        ]
        return sorted(found, key=lambda pair: (-pair["only_both"], -pair["would_drop"]))


def _words(columns: pa.Table) -> np.ndarray:
    """Words of each document; 0 before extraction."""
    return np.asarray(pc.fill_null(columns["words"], 0).to_numpy())


def _samples(run: _Simulation, flipped: np.ndarray, count: int) -> list[dict[str, Any]]:
    """The flipped documents with the smallest ids: ids are hashes already."""
    if not flipped.any() or count < 1:
        return []
    at = np.flatnonzero(flipped)
    ids = run.take(flipped, ["id"])["id"]
    chosen = sorted(range(len(ids)), key=ids.__getitem__)[:count]
    mask = np.zeros(len(flipped), bool)
    mask[at[chosen]] = True
    rows = run.take(mask, ["id", "url", "unit", "row"])
    fates = run.fates.all()
    found = []
    for i, place in enumerate(np.flatnonzero(mask)):
        before, after = fates[run.old[place]], fates[run.new[place]]
        found.append(
            {
                "id": rows["id"][i],
                "url": rows["url"][i],
                "before": before.where,
                "after": after.where or after.outcome,
                "text": (text_of(run.plan, rows["unit"][i], rows["row"][i]) or "")[:300],
            }
        )
    return sorted(found, key=lambda sample: str(sample["id"]))


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
            lines.append(f"  {sample['id']}  {change}  {one_line(sample['url'] or '')}")
            lines.append("      " + one_line(sample["text"])[:90])
    lines += [*_stage_lines(found["stages"]), *_rule_lines(found["rules"], found["pairs"])]
    if found["not_simulated"]:
        lines.append(f"\nnot simulated: {', '.join(found['not_simulated'])}")
    lines += [_step_line(step) for step in found["global_steps"]]
    return "\n".join(lines)


def _stage_lines(stages: list[dict[str, Any]]) -> list[str]:
    width = max([len(stage["stage"]) for stage in stages] + [5])
    lines = [f"\n{'stage':<{width}}{'in':>24}{'dropped':>24}{'unknown':>12}"]
    for stage in stages:
        old, new = stage["before"], stage["after"]
        lines.append(
            f"{stage['stage']:<{width}}{old['in']:>10,} -> {new['in']:>10,}"
            f"{old['dropped']:>10,} -> {new['dropped']:>10,}{new['unknown']:>12,}"
        )
    return lines if stages else []


def _rule_lines(rules: list[dict[str, Any]], pairs: list[dict[str, Any]]) -> list[str]:
    width = max([len(rule["rule"]) for rule in rules] + [4])
    lines = [f"\n{'rule':<{width}}{'drops':>10}{'would drop':>12}{'only it':>10}"]
    lines += [
        f"{rule['rule']:<{width}}{rule['drops']:>10,}{rule['would_drop']:>12,}{rule['only_it']:>10,}"
        for rule in rules
        if rule["would_drop"]
    ]
    shown = [pair for pair in pairs if pair["only_both"]][:PAIRS]
    if shown:
        lines.append("\nonly these two together:")
        lines += [f"{pair['only_both']:>10,}  {' and '.join(pair['rules'])}" for pair in shown]
    return lines


def _step_line(step: dict[str, Any]) -> str:
    """How far the decisions of a global step can be trusted."""
    if not any(step[name] for name in ("more", "fewer", "unknown")):
        return f"{step['step']}: the same documents come to it, what it decided stands"
    come = (
        f"{step['step']}: {step['more']:,} documents more, {step['fewer']:,} fewer and "
        f"{step['unknown']:,} unknown come to it; "
    )
    if step["scores"]:
        return f"{come}it scores those that are known anew, and the unknown ones would shift that"
    return (
        f"{come}what it decided is taken over, but a kept document may be a duplicate of one that "
        "is new there"
    )
