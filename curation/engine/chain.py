"""The chain of stages of one segment, applied to a stream of batches.

What may live here: how batches pass through editors and groups of filters, how rules are evaluated
and applied, and what is noted of each document on its way. One `Chain` serves one task.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.document import DOCUMENT_SCHEMA, Documents
from curation.engine.ledger import Account, Sizes, row_keys
from curation.engine.recipe import StageSpec
from curation.engine.samples import Samples, id_words
from curation.stage import (
    RAISED,
    Edited,
    Editor,
    Edits,
    Filter,
    Removals,
    Rule,
    Signals,
    align,
    rules_of,
)
from curation.text.spans import delete_spans

BATCH_DOCUMENTS = 1024  # of short ones: what a batch costs by itself is shared by so many
BATCH_BYTES = 8 << 20  # of payload or text
NEAR = 0.1  # a value within this share of a threshold is near it

#: (stage, row) -> error class: failures that a machine decided, honoured on replay.
Known = Mapping[tuple[str, int], str]


@dataclass(frozen=True)
class Memory:
    """What an earlier run noted of the documents of a batch, where scores are not made again."""

    signals: Mapping[str, pa.Array]  # `<stage>.<signal>`, one value per document of the batch
    failures: Mapping[int, tuple[str, str]]  # place in the batch -> stage, error class


class StageFault(RuntimeError):
    """A stage broke its contract (wrong length, unknown signal): no document is to blame."""


@dataclass
class State:
    """A batch on its way: who is still there, and what has been noted of everyone."""

    docs: Documents  # those still alive
    index: np.ndarray  # their positions in the batch
    size: int  # documents in the batch at the start
    sizes: Sizes  # of those alive
    words: np.ndarray  # id_words of those alive
    stage: np.ndarray  # int16 per document of the batch: the stage that ended it, else the last one
    decision: np.ndarray  # uint8 per document of the batch: KEPT, DROPPED, FAILED
    reason: np.ndarray  # object per document of the batch
    signals: dict[str, pa.Array] = field(default_factory=dict)
    gone: list[tuple[np.ndarray, Documents, Sizes]] = field(default_factory=list)
    #: Positions in the batch and texts as they were before an edit changed them, edit by edit.
    originals: list[tuple[np.ndarray, pa.Array]] = field(default_factory=list)
    memory: Memory | None = None

    def leave(self, mask: np.ndarray, stage: int, decision: int, reasons: np.ndarray) -> None:
        """Ends the documents under `mask` (over the living); `reasons` is over the living too."""
        if not mask.any():
            return
        at = self.index[mask]
        self.stage[at] = stage
        self.decision[at] = decision
        self.reason[at] = reasons[mask]
        self.gone.append((at, self.docs.take(mask), self.sizes.take(mask)))
        stay = ~mask
        self.docs = self.docs.take(stay)
        self.index = self.index[stay]
        self.sizes = self.sizes.take(stay)
        self.words = self.words[stay]

    def everyone(self) -> list[tuple[np.ndarray, Documents, Sizes]]:
        """All documents of the batch, as they were when they left or as they are now."""
        return [*self.gone, (self.index, self.docs, self.sizes)]

    def note(self, stage: str, signals: Mapping[str, pa.Array]) -> None:
        """Stores signals of the living; for the others what is known of them already, or null."""
        where = np.full(self.size, -1, dtype=np.int64)
        where[self.index] = np.arange(len(self.index))
        indices = pa.array(where, mask=where < 0)
        for name, values in signals.items():
            column, known = values.take(indices), self.signals.get(f"{stage}.{name}")
            self.signals[f"{stage}.{name}"] = (
                column if known is None else pc.if_else(pa.array(where < 0), known, column)
            )


KEPT, DROPPED, FAILED = 0, 1, 2
DECISIONS = ("kept", "dropped", "failed")


class Chain:
    """The stages of one segment with their accounts and samples.

    `types` are the Arrow types of every signal column (`<stage>.<signal>`), found by `probe`.
    Documents enter before stage `start`; what the stages before it did is for the caller to book.
    """

    def __init__(
        self,
        stages: Sequence[StageSpec],
        removals: Sequence[StageSpec],
        types: Mapping[str, pa.DataType],
        seed: int,
        known: Known | None = None,
        start: int = 0,
    ) -> None:
        self._steps = group(stages[start:])
        names = [spec.name for spec in (*removals, *stages)]
        self.accounts = [Account(name) for name in names]
        self._ordinal = {name: position for position, name in enumerate(names)}
        self._types = types
        self._known = known or {}
        self._text_from = text_from(stages)
        self.samples = Samples(seed)
        self.fates: list[dict[str, Any]] = []  # environmental failures, for the receipt

    def stages(self, states: Iterable[State]) -> Iterator[State]:
        """The filters and editors of the segment, over states that have entered."""
        for step in self._steps:
            if isinstance(step[0].stage, Editor):
                states = self._edit(step[0], states)
            else:
                states = self._judge(step, states)
        return iter(states)

    def finish(self, states: Iterable[State]) -> Iterator[State]:
        last = max(len(self.accounts) - 1, 0)
        for state in states:
            state.stage[state.index] = last
            self.samples.offer("kept", "", "", state.docs, np.arange(len(state.index)), state.words)
            yield state

    def enter(self, docs: Documents, salt: int) -> State:
        """A batch as it comes in; `salt` belongs to the unit of its rows."""
        size = len(docs)
        keys = row_keys(salt, docs["row"].to_numpy(zero_copy_only=False))
        return State(
            docs,
            np.arange(size),
            size,
            measure(docs, keys),
            id_words(docs["id"]),
            np.zeros(size, dtype=np.int16),
            np.full(size, KEPT, dtype=np.uint8),
            np.full(size, None, dtype=object),
        )

    def remove(self, spec: StageSpec, state: State, removals: Removals) -> None:
        """Applies the removals of a global step to the living documents of one unit."""
        account = self.accounts[self._ordinal[spec.name]]
        account.enter(state.sizes)
        rows = state.docs["row"].to_numpy(zero_copy_only=False)
        where = align(removals.rows, rows)
        hit = np.asarray(where.is_valid())
        named = as_column(removals.reasons).cast(pa.string()).take(where)
        reasons = np.full(len(rows), None, dtype=object)
        reasons[hit] = named.filter(pa.array(hit)).to_pylist()
        evidence = {
            name: as_column(values).take(where)
            for name, values in (
                ("survivor", as_column(removals.survivors).cast(pa.string())),
                *removals.evidence.items(),
            )
        }
        state.note(spec.name, evidence)
        counts = state.docs["duplicate_count"].to_numpy(zero_copy_only=False).copy()
        counted = align(removals.counted_rows, rows)
        counts[np.asarray(counted.is_valid())] = removals.counts[counted.drop_null().to_numpy()]
        state.docs = state.docs.replace(duplicate_count=pa.array(counts))
        for reason in sorted(set(reasons[hit])):
            mask = np.asarray(pc.fill_null(pc.equal(named, reason), False))
            account.drop(reason, state.sizes, mask)
            account.would_drop[reason] += int(mask.sum())
            indices = np.flatnonzero(mask)
            self.samples.offer(
                *("dropped", spec.name, reason, state.docs, indices, state.words),
                evidence["survivor"],
            )
        state.leave(hit, self._ordinal[spec.name], DROPPED, reasons)
        account.keep(state.sizes)

    def delete(self, spec: StageSpec, state: State, edits: Edits) -> None:
        """Applies the edits of a global step to the living documents of one unit."""
        account = self.accounts[self._ordinal[spec.name]]
        account.enter(state.sizes)
        rows = state.docs["row"].to_numpy(zero_copy_only=False)
        bounds = [rows[0], rows[-1] + 1] if len(rows) else [0, 0]
        here = slice(*np.searchsorted(edits.rows, bounds))
        at = np.searchsorted(rows, edits.rows[here])
        living = rows[at] == edits.rows[here]
        spans = (at[living], edits.starts[here][living], edits.stops[here][living])
        text = delete_spans(state.docs.view, *spans)
        removed = state.sizes.bytes - pc.binary_length(text).to_numpy()
        where = align(edits.noted, rows)
        said = {name: as_column(values).take(where) for name, values in edits.evidence.items()}
        self._apply_edit(spec, account, state, text, {"removed_bytes": removed, **said}, {})

    def _fail(self, spec: StageSpec, state: State, failures: Mapping[int, str]) -> None:
        """Books and ends the documents (by index among the living) that a stage could not do."""
        if not failures:
            return
        account = self.accounts[self._ordinal[spec.name]]
        classes = np.full(len(state.index), None, dtype=object)
        environmental = spec.stage.environmental if isinstance(spec.stage, Editor) else frozenset()
        for index, error in sorted(failures.items()):
            classes[index] = error
            if error in environmental:
                row, name = state.docs["row"][index].as_py(), state.docs["id"][index].as_py()
                self.fates.append({"stage": spec.name, "row": row, "id": name, "class": error})
        for error in sorted(set(failures.values())):
            mask = classes == error
            account.fail(error, state.sizes, mask)
            indices = np.flatnonzero(mask)
            self.samples.offer("failed", spec.name, error, state.docs, indices, state.words)
        mask = np.array([error is not None for error in classes], dtype=bool)
        state.leave(mask, self._ordinal[spec.name], FAILED, classes)

    # Editors

    def _edit(self, spec: StageSpec, states: Iterable[State]) -> Iterator[State]:
        editor, account = spec.stage, self.accounts[self._ordinal[spec.name]]
        assert isinstance(editor, Editor)
        waiting: deque[State] = deque()

        def feed() -> Iterator[Documents]:
            arriving = iter(states)
            while True:
                start = time.process_time()
                state = next(arriving, None)
                account.cpu -= time.process_time() - start  # the time of those before it
                if state is None:
                    return
                account.enter(state.sizes)
                self._fail(spec, state, self._known_failures(spec, state))
                waiting.append(state)
                yield state.docs

        if type(editor).edit_many is Editor.edit_many:
            edits: Iterator[Edited] = (self._edit_safely(editor, docs) for docs in feed())
        else:
            edits = iter(editor.edit_many(feed()))
        while True:
            start = time.process_time()
            try:
                edited = next(edits)
            except StopIteration:
                return
            account.cpu += time.process_time() - start
            state = waiting.popleft()
            text = as_column(edited.text).cast(pa.large_string())
            wrong = [i for i in edited.failures if not 0 <= i < len(text)]
            if len(text) != len(state.docs) or wrong:
                raise StageFault(f"{spec.name}: {len(text)} texts for {len(state.docs)} documents")
            self._apply_edit(spec, account, state, text, edited.signals, edited.failures)
            yield state

    def _edit_safely(self, editor: Editor, docs: Documents) -> Edited:
        """The edit of a batch; documents that cannot be edited are found one by one."""
        try:
            return editor.edit(docs)
        except RAISED:
            if not len(docs):
                raise
        texts: list[pa.Array] = []
        signals: list[Signals] = []
        failures: dict[int, str] = {}
        for index in range(len(docs)):
            try:
                edited = editor.edit(docs.take(np.arange(len(docs)) == index))
            except RAISED as error:
                failures[index] = type(error).__name__
                texts.append(pa.nulls(1, pa.large_string()))
                signals.append({})
                continue
            texts.append(as_column(edited.text).cast(pa.large_string()))
            signals.append(edited.signals)
            if edited.failures:
                failures[index] = edited.failures[0]
        names = sorted({name for part in signals for name in part})
        columns = {
            name: pa.array(
                [as_column(part[name])[0].as_py() if name in part else None for part in signals]
            )
            for name in names
        }
        return Edited(pa.concat_arrays(texts), columns, failures)

    def _known_failures(self, spec: StageSpec, state: State) -> dict[int, str]:
        if not self._known:
            return {}
        rows = state.docs["row"].to_pylist()
        return {
            index: self._known[spec.name, row]
            for index, row in enumerate(rows)
            if (spec.name, row) in self._known
        }

    def _apply_edit(
        self,
        spec: StageSpec,
        account: Account,
        state: State,
        text: pa.Array,
        signals: Signals,
        failures: Mapping[int, str],
    ) -> None:
        columns = self._columns(spec, signals, len(state.index))
        state.note(spec.name, columns)
        failed = np.zeros(len(state.index), dtype=bool)
        failed[list(failures)] = True
        failed |= np.asarray(text.is_null())
        stay = ~failed
        missing = np.flatnonzero(failed).tolist()
        self._fail(spec, state, {i: failures.get(i, "no_text") for i in missing})
        columns = {name: values.filter(pa.array(stay)) for name, values in columns.items()}
        text = text.filter(pa.array(stay))

        # A document that an edit empties is dropped, in the sizes that it came with.
        blank = np.asarray(pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(text)), 0))
        drop = np.full(len(blank), None, dtype=object)
        drop[blank] = "empty"
        self._would_drop(spec, state, columns)
        self._decide(spec, state, rules_of(spec.stage), columns, drop)
        gone = np.array([reason is not None for reason in drop], dtype=bool)
        for reason in sorted({r for r in drop if r is not None}):
            mask = drop == reason
            account.drop(reason, state.sizes, mask)
            self.samples.offer(
                "dropped", spec.name, reason, state.docs, np.flatnonzero(mask), state.words
            )
        state.leave(gone, self._ordinal[spec.name], DROPPED, drop)

        before = state.sizes
        text = text.filter(pa.array(~gone))
        had = state.docs.columns.get("text")
        changed = (
            np.ones(len(text), dtype=bool)
            if had is None
            else ~np.asarray(pc.fill_null(pc.equal(had, text), False))
        )
        if had is not None and changed.any() and self._ordinal[spec.name] >= self._text_from:
            state.originals.append((state.index[changed], had.filter(pa.array(changed))))
        columns_left = {
            name: column
            for name, column in state.docs.columns.items()
            if name not in ("content", "media_type", "charset", "words")
        }
        state.docs = Documents({**columns_left, "text": text})
        state.sizes = self._measure(state, before.keys)
        account.edit(before, state.sizes, changed)
        account.keep(state.sizes)

    def _measure(self, state: State, keys: np.ndarray) -> Sizes:
        """Sizes of the living after an edit."""
        return measure(state.docs, keys)

    # Groups of filters

    def _judge(self, group: Sequence[StageSpec], states: Iterable[State]) -> Iterator[State]:
        for state in states:
            # Every filter of a group scores all who reach the group; then they decide in order.
            scored: list[dict[str, pa.Array]] = []
            failures: list[dict[int, str]] = []
            for spec in group:
                account = self.accounts[self._ordinal[spec.name]]
                start = time.process_time()
                signals, failed = self._recall(spec, state)
                account.cpu += time.process_time() - start
                scored.append(signals)
                failures.append(failed)
                state.note(spec.name, signals)
                assert isinstance(spec.stage, Filter)
                for column, signal in spec.stage.adds.items():
                    values = signals[signal].cast(DOCUMENT_SCHEMA.field(column).type)
                    state.docs = state.docs.replace(**{column: values})
            for spec, signals in zip(group, scored, strict=True):
                self._would_drop(spec, state, signals)
            origin = np.arange(len(state.index))  # the living, by their place at the group's start
            for spec, signals, failed in zip(group, scored, failures, strict=True):
                account = self.accounts[self._ordinal[spec.name]]
                account.enter(state.sizes)
                here = {int(i): failed[int(o)] for i, o in enumerate(origin) if int(o) in failed}
                stay = np.array([i not in here for i in range(len(origin))], dtype=bool)
                self._fail(spec, state, here)
                origin = origin[stay]
                living = pa.array(origin)
                columns = {name: values.take(living) for name, values in signals.items()}
                drop = np.full(len(origin), None, dtype=object)
                assert isinstance(spec.stage, Filter)
                self._decide(spec, state, spec.stage.rules, columns, drop)
                gone = np.array([reason is not None for reason in drop], dtype=bool)
                for rule in spec.stage.rules:
                    mask = drop == rule.name
                    if mask.any():
                        account.drop(rule.name, state.sizes, mask)
                        threshold = rule.threshold(spec.stage, state.docs["language"])
                        self.samples.offer(
                            "dropped",
                            spec.name,
                            rule.name,
                            state.docs,
                            np.flatnonzero(mask),
                            state.words,
                            columns[rule.signal],
                            threshold,
                        )
                state.leave(gone, self._ordinal[spec.name], DROPPED, drop)
                account.keep(state.sizes)
                origin = origin[~gone]
            yield state

    def _would_drop(self, spec: StageSpec, state: State, columns: Mapping[str, pa.Array]) -> None:
        """Books how many of those who came to the group each rule of a stage would drop alone."""
        account = self.accounts[self._ordinal[spec.name]]
        for rule in rules_of(spec.stage):
            threshold = rule.threshold(spec.stage, state.docs["language"])
            violated = rule.violated(columns[rule.signal], threshold)
            account.would_drop[rule.name] += int(violated.sum())

    def _decide(
        self,
        spec: StageSpec,
        state: State,
        rules: Sequence[Rule],
        columns: Mapping[str, pa.Array],
        drop: np.ndarray,
    ) -> None:
        """Fills `drop` with the first rule that drops each document."""
        for rule in rules:
            threshold = rule.threshold(spec.stage, state.docs["language"])
            values = columns[rule.signal]
            violated = rule.violated(values, threshold)
            near = near_threshold(rule, values, threshold)
            for kind, some in (("near_failed", near & violated), ("near_passed", near & ~violated)):
                self.samples.offer(
                    kind,
                    spec.name,
                    rule.name,
                    state.docs,
                    np.flatnonzero(some),
                    state.words,
                    values,
                    threshold,
                )
            first = violated & np.array([reason is None for reason in drop], dtype=bool)
            drop[first] = rule.name

    def _recall(self, spec: StageSpec, state: State) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """Signals of the living: those that an earlier run has noted, new ones for the others."""
        if state.memory is None:
            return self._score(spec, state.docs)
        living = pa.array(state.index)
        names = self._columns(spec, {}, 0)
        noted = {n: state.memory.signals[f"{spec.name}.{n}"].take(living) for n in names}
        fates = [state.memory.failures.get(place) for place in state.index.tolist()]
        failures = {i: fate[1] for i, fate in enumerate(fates) if fate and fate[0] == spec.name}
        missing = np.ones(len(state.index), dtype=bool)
        for values in noted.values():
            missing &= np.asarray(values.is_null())
        missing[list(failures)] = False
        if not missing.any():
            return noted, failures
        fresh, failed = self._score(spec, state.docs.take(missing))
        at = np.flatnonzero(missing)
        failures |= {int(at[i]): error for i, error in failed.items()}
        source = np.arange(len(missing))
        source[at] = len(missing) + np.arange(len(at))
        order = pa.array(source)
        return {n: pa.concat_arrays([noted[n], fresh[n]]).take(order) for n in names}, failures

    def _score(
        self, spec: StageSpec, docs: Documents
    ) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """Signals of a batch; documents that the filter cannot score are found one by one."""
        stage = spec.stage
        assert isinstance(stage, Filter)
        if not len(docs):
            return self._columns(spec, {}, 0), {}
        try:
            return self._columns(spec, stage.score(docs), len(docs)), {}
        except StageFault:
            raise
        except RAISED as error:
            if len(docs) == 1:
                return self._columns(spec, {}, 1), {0: type(error).__name__}
        parts: list[dict[str, pa.Array]] = []
        failures: dict[int, str] = {}
        for index in range(len(docs)):
            mask = np.zeros(len(docs), dtype=bool)
            mask[index] = True
            try:
                parts.append(self._columns(spec, stage.score(docs.take(mask)), 1))
            except StageFault:
                raise
            except RAISED as error:
                failures[index] = type(error).__name__
                parts.append(self._columns(spec, {}, 1))
        names = parts[0]
        return {name: pa.concat_arrays([part[name] for part in parts]) for name in names}, failures

    def _columns(self, spec: StageSpec, signals: Signals, size: int) -> dict[str, pa.Array]:
        """Signals as Arrow columns of their declared types; those not given are null."""
        prefix = spec.name + "."
        names = [name.removeprefix(prefix) for name in self._types if name.startswith(prefix)]
        unknown = set(signals) - set(names)
        if unknown:
            raise StageFault(f"{spec.name}: unexpected signal {sorted(unknown)[0]!r}")
        columns = {}
        for name in names:
            kind = self._types[prefix + name]
            if name not in signals:
                columns[name] = pa.nulls(size, kind)
                continue
            column = as_column(signals[name])
            try:
                columns[name] = column.cast(kind)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise StageFault(
                    f"{spec.name}: signal {name!r} was {kind} for one document and is "
                    f"{column.type} now; name its type in `types`"
                ) from None
            if len(columns[name]) != size:
                raise StageFault(
                    f"{spec.name}: {len(columns[name])} values of {name!r} for {size} documents"
                )
        return columns


def text_from(stages: Sequence[StageSpec]) -> int:
    """The first stage that is given a text: the one after `extract`, where that is among them."""
    types = [spec.type for spec in stages]
    return types.index("extract") + 1 if "extract" in types else 0


def first_edit(stages: Sequence[StageSpec]) -> int:
    """The first stage that changes a text which is there already; their number if none does."""
    start = text_from(stages)
    edits = (i for i, s in enumerate(stages) if i >= start and isinstance(s.stage, Editor))
    return next(edits, len(stages))


def group(stages: Sequence[StageSpec]) -> list[list[StageSpec]]:
    """Neighbouring filters of the same group together, everything else alone."""
    steps: list[list[StageSpec]] = []
    for spec in stages:
        label = spec.stage.group
        if steps and label is not None and steps[-1][-1].stage.group == label:
            steps[-1].append(spec)
        else:
            steps.append([spec])
    return steps


def slices(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Documents of these bytes in batches, bounded in number and in bytes: the first of each, and
    how many."""
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(sizes):
        full = int(np.searchsorted(ends, before + BATCH_BYTES)) + 1
        stop = min(start + BATCH_DOCUMENTS, full, len(sizes))
        yield start, stop - start
        start, before = stop, int(ends[stop - 1])


def as_column(values: Any) -> pa.Array:
    """A signal as an Arrow array: NaN in a float array means "not scored" and becomes null."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    values = np.asarray(values) if not isinstance(values, list) else values
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return pa.array(values, mask=np.isnan(values))
    return pa.array(values)


def measure(docs: Documents, keys: np.ndarray) -> Sizes:
    """Words and bytes of each document: of the text, or of the payload before extraction."""
    if "content" in docs:
        sizes = pc.fill_null(pc.binary_length(docs["content"]), 0).to_numpy(zero_copy_only=False)
        text = pc.fill_null(pc.binary_length(docs["text"]), 0).to_numpy(zero_copy_only=False)
        return Sizes(None, (sizes + text).astype(np.int64), keys)
    known = docs.columns.get("words")  # of a stored text
    words = docs.view.word_counts() if known is None else known.to_numpy(zero_copy_only=False)
    return Sizes(words, docs.view.byte_counts(), keys)


def near_threshold(rule: Rule, values: pa.Array, threshold: Any) -> np.ndarray:
    """Which numeric values lie within 10 % of the threshold, on either side: none of 0."""
    if rule.not_in or rule.parameter is None or threshold is None:
        return np.zeros(len(values), dtype=bool)
    numbers = values.to_numpy(zero_copy_only=False).astype(float)
    if isinstance(threshold, pa.Array):
        threshold = threshold.to_numpy(zero_copy_only=False).astype(float)
    with np.errstate(invalid="ignore"):
        near = np.abs(numbers - threshold) <= NEAR * np.abs(threshold)
        return np.asarray(near & (np.abs(threshold) > 0), dtype=bool)
