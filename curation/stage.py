"""What a stage is: the contracts between judges and the engine.

What may live here: the base classes of stages (`Filter`, `Editor`, `GlobalStep`), the `Rule`, and
which threshold of a rule is a document's.
A stage knows nothing of Ray, storage, other stages or counting: it returns signals, and the engine
evaluates rules, counts, samples and stores.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from curation.document import Documents

Class = type[Any]

#: What `score` returns: one column per signal, one value per document; null (or NaN in a float
#: numpy column) means "not scored" and violates no rule.
Signals = Mapping[str, "np.ndarray | pa.Array"]

#: The key of thresholds by language that stands for all languages that are not named.
OTHER = "other"


def for_language(threshold: Any, language: str | None) -> Any:
    """The threshold of documents in a language (BCP-47); None is off.

    Of a mapping, `zh-Hant` takes what it has for `zh-Hant`, else for `zh`, else for `other`, else
    None; anything else is the threshold of every language.
    """
    if not isinstance(threshold, Mapping):
        return threshold
    tag = language or OTHER
    while tag and tag not in threshold:
        tag = tag.rpartition("-")[0]
    return threshold.get(tag or OTHER)


def by_language(threshold: Any) -> dict[str, Any]:
    """A threshold as a mapping from languages."""
    return dict(threshold) if isinstance(threshold, Mapping) else {OTHER: threshold}


@dataclass(frozen=True)
class Rule:
    """One reason to drop a document.

    The document is dropped when its `signal` is strictly below the parameter named by `below`,
    strictly above the one named by `above`, not in the list named by `not_in`, or true where none
    is named. A parameter that is None switches the rule off; one that is a mapping has a threshold
    for each language (`for_language`). A null signal violates nothing.
    """

    name: str
    signal: str
    below: str | None = None
    above: str | None = None
    not_in: str | None = None

    @property
    def parameter(self) -> str | None:
        """Name of the stage's parameter that is this rule's threshold."""
        return self.below or self.above or self.not_in

    def threshold(self, stage: Stage, languages: pa.Array) -> Any:
        """What a stage's parameters say of documents in these languages.

        One value for all; or, where the parameter is by language, an Arrow array of a number for
        each document, null where the rule is off. Integers stay integers.
        """
        value = getattr(stage, self.parameter) if self.parameter else None
        if not isinstance(value, Mapping):
            return value
        encoded = languages.dictionary_encode()
        tags = [*encoded.dictionary.to_pylist(), None]
        whole = all(isinstance(number, int) for number in value.values() if number is not None)
        own = pa.array(
            [for_language(value, t) for t in tags], pa.int64() if whole else pa.float64()
        )
        return own.take(pc.fill_null(encoded.indices, len(tags) - 1))

    def violated(self, values: pa.Array, threshold: Any) -> np.ndarray:
        """Which documents the rule would drop: bool, one per value. See `threshold`."""
        violated = np.zeros(len(values), dtype=bool)
        if self.parameter is not None and threshold is None:
            return violated
        valid = np.asarray(values.is_valid())
        if self.not_in is not None:
            allowed = pa.array(list(threshold), values.type)
            inside = np.asarray(pc.is_in(values, value_set=allowed))
            np.logical_and(valid, ~inside, out=violated)
            return violated
        if isinstance(threshold, pa.Array):
            valid &= np.asarray(threshold.is_valid())
            threshold = threshold.filter(pa.array(valid)).to_numpy()
        numbers = values.filter(pa.array(valid)).to_numpy(zero_copy_only=False)  # integers stay
        if self.below is not None:
            violated[valid] = numbers < threshold
        elif self.above is not None:
            violated[valid] = numbers > threshold
        else:
            violated[valid] = numbers.astype(bool)
        return violated


#: What a stage may raise for a document: a user's `sys.exit` must not end the run either.
RAISED = (Exception, SystemExit)


class Stage(BaseModel):
    """A named step with validated, frozen parameters; the base of every kind of stage.

    `version` is bumped when the output changes for the same parameters and input. `group` names the
    filters whose cheap signals are computed together, for every document that reaches the group;
    a stage without a group scores only the documents still alive. `types` gives the Arrow type of
    a signal (such as `double`) where that of one document does not tell: the engine otherwise finds
    types by scoring one small English document. `places` are parameters that say where something
    lies: no key has them. A stage that reads no text (only addresses, say) sets `needs_text` to
    False and may stand before `extract`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: ClassVar[int]
    group: ClassVar[str | None] = None
    types: ClassVar[Mapping[str, str]] = {}
    places: ClassVar[frozenset[str]] = frozenset()
    needs_text: ClassVar[bool] = True

    def depends(self) -> dict[str, str]:
        """What else decides the output: versions of native libraries, of definitions."""
        return {}

    def files(self) -> dict[str, Path]:
        """Models and lists that the stage reads, by the names that its parameters give them: their
        digests are part of its key, and the run records them. May raise `models.ModelNotFound`."""
        return {}

    def needs_language(self) -> list[str]:
        """Names of the parameters that mean something else for each language: by default the
        thresholds that are mappings."""
        own = type(self)
        return [name for name in thresholds_of(own) if isinstance(getattr(self, name), Mapping)]

    def english(self, language: str) -> tuple[str, str] | None:
        """What of the stage's rules is made for English, where it would judge documents in another
        language (BCP-47), and what to set instead; else None."""
        return None

    def hosted(self) -> Class | None:
        """The class from a user's file that does the stage's work, where that is not the stage."""
        return None

    def memory(self) -> int:
        """Bytes that the stage takes besides the documents: its model, its child process."""
        return 0


class Filter(Stage):
    """A judge: scores documents and declares rules; the engine drops.

    `adds` maps document columns to the signals that fill them (`{"language": "label"}`).
    """

    rules: ClassVar[tuple[Rule, ...]]
    adds: ClassVar[Mapping[str, str]] = {}

    def score(self, docs: Documents) -> Signals:
        """Signals of each document: a pure function of the batch's columns and the parameters."""
        raise NotImplementedError


@dataclass(frozen=True)
class Edited:
    """What an editor returns: the new texts, and what it noticed.

    `text` has one value per document (null where it failed); `failures` maps the index of a failed
    document in the batch to an error class such as `timeout`.
    """

    text: pa.LargeStringArray
    signals: Signals = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)


class Editor(Stage):
    """A stage that gives documents a new text; it ends a group of rules.

    A document whose new text is empty or only white space is dropped for `<stage>:empty`; `rules`
    over its signals are applied after the edit. `environmental` names the failures that a machine
    decides (a crash, a time-out): the engine writes them in the receipt, by document, and a replay
    honours them instead of trying its luck again.
    """

    rules: ClassVar[tuple[Rule, ...]] = ()
    environmental: ClassVar[frozenset[str]] = frozenset()

    def edit(self, docs: Documents) -> Edited:
        """New texts: a pure function of the batch's columns and the parameters."""
        raise NotImplementedError

    def edit_many(self, batches: Iterable[Documents]) -> Iterator[Edited]:
        """`edit` of each batch in order; an editor that works elsewhere may read one ahead."""
        return map(self.edit, batches)


@dataclass(frozen=True)
class Phase:
    """One phase of the exchange of a global step, and what it is divided by into tasks.

    - `units`: groups of neighbouring units, whose records each task reads;
    - `range`: the array `of` (phase, name) of every task is sorted by a uint64 of its own, and a
      task takes an equal range of these keys (`key_range`);
    - `rows`: one task for each value of the single array `of`, an int64: the bytes it will read;
    - `whole`: one task, measured by the bytes of the array `of`.

    `memory`: bytes that a task takes, as a multiple of the bytes by which it is measured.
    """

    name: str
    by: Literal["units", "range", "rows", "whole"]
    of: tuple[str, str] = ("", "")
    memory: float = 3


#: A document of an index that was taken down: the number of its batch, which file of its arrays it
#: is in, and which document of that. It is compared with no other any more.
TOMBSTONE = np.dtype([("batch", "<i8"), ("file", "<i8"), ("doc", "<i8")])


class Sources(Protocol):
    """What a task of an exchange may read: records of units, and the arrays of earlier phases."""

    @property
    def units(self) -> Sequence[int]:
        """The ordinals of the units of this task, ascending; none but in a phase by `units`."""

    def records(self, unit: int) -> np.ndarray:
        """What `prepare` noted of a unit, in order of row.

        Without the rows that global steps just before this one removed (with no other stage
        between); the `weight` of the others is what they stand for by now.
        """

    def texts(self, unit: int) -> Iterator[Documents]:
        """The documents of a unit as they were when `prepare` saw them, in order of row; rows that
        have been removed since are among them."""

    def arrays(self, phase: str, name: str) -> Iterator[np.ndarray]:
        """The array `name` that each task of an earlier phase returned, in order of the tasks,
        memory-mapped. One at a time: there may be more than a process may have open files."""

    def rows(self, phase: str, name: str) -> list[int]:
        """The length of each of these arrays."""

    def index(self, name: str) -> Iterator[tuple[int, np.ndarray]]:
        """The arrays `name` that earlier runs have put into the step's index, memory-mapped, in
        order; each with the number of its batch among `batches`."""

    @property
    def batches(self) -> Sequence[str]:
        """The names of the batches of the index, the earliest first; none without an index."""

    @property
    def scratch(self) -> Path:
        """A directory for files of this task alone; it is removed when the task ends."""


def task_bytes(total: int, most: int) -> int:
    """Bytes of arrays that a task of an exchange is given, out of a total.

    Small ones, for all workers and little memory; but no more than 256 of them before they grow to
    the `most` that is allowed, since each task opens a file of every one of the phase before.
    """
    return min(most, max(64 << 20, total // 256))


def key_range(keys: np.ndarray, part: int, parts: int) -> slice:
    """Where the keys (uint64, ascending) of one of `parts` equal ranges lie."""
    return between(keys, (part << 64) // parts, ((part + 1) << 64) // parts)


def between(keys: np.ndarray, low: int, high: int) -> slice:
    """Where the integers [low, high) lie in an ascending array.

    Reads no more of a field of a memory-mapped array than the search asks for; numpy would copy it.
    """
    return slice(bisect_left(keys, low), bisect_left(keys, high))


def of_units(arrays: Iterable[np.ndarray], units: Sequence[int], kind: np.dtype) -> np.ndarray:
    """What arrays sorted by their field `unit` say of neighbouring units; copied, so that maps of
    files can be let go."""
    pieces = [np.empty(0, kind)]
    for array in arrays:
        pieces.append(np.array(array[between(array["unit"], units[0], units[-1] + 1)]))
    return np.concatenate(pieces)


def align(known: np.ndarray, rows: np.ndarray) -> pa.Array:
    """Where each of these rows stands among `known` (ascending): an index; null for no place."""
    at = np.searchsorted(known, rows)
    missing = np.ones(len(rows), dtype=bool)
    inside = at < len(known)
    missing[inside] = known[at[inside]] != rows[inside]
    return pa.array(at, mask=missing)


@dataclass(frozen=True)
class Removals:
    """The slice of a global step's decision that concerns one unit.

    `rows` (int64, ascending), `reasons` (one per row), `survivors` (ids, one per row: the kept
    document that each is a duplicate of); `counted_rows` and `counts` (int64): how many documents
    each survivor stands for, itself included and through chains, where that is more than one.
    `evidence` has a column per name of `GlobalStep.evidence`, one value per removed row.
    """

    rows: np.ndarray
    reasons: Sequence[str] | pa.Array
    survivors: Sequence[str] | pa.Array
    counted_rows: np.ndarray
    counts: np.ndarray
    evidence: Mapping[str, np.ndarray | pa.Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Edits:
    """As `Removals`, of a step that deletes parts of texts: the bytes [start, stop) of these rows.

    In the text as it was stored; all int64. Rows ascend, and within a row the spans, which are
    disjoint, not empty, and begin and end between characters. `evidence` has a column per name of
    `GlobalStep.evidence`, one value per row of `noted` (int64, ascending); other rows have null.
    """

    rows: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    noted: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    evidence: Mapping[str, np.ndarray | pa.Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Scores:
    """As `Removals`, of a step that is a `Filter` too: what it says of these rows (int64,
    ascending); `columns` has one per name of `GlobalStep.evidence`. Other rows have null."""

    rows: np.ndarray
    columns: Mapping[str, np.ndarray | pa.Array]

    def onto(self, docs: Documents) -> Documents:
        """The documents with these columns."""
        where = align(self.rows, docs["row"].to_numpy(zero_copy_only=False))
        return docs.replace(**{name: pa.array(c).take(where) for name, c in self.columns.items()})


def rules_of(stage: Stage | type[Stage]) -> tuple[Rule, ...]:
    """The rules of a stage; none where its kind has no rules."""
    return getattr(stage, "rules", ())


def thresholds_of(kind: type[Stage]) -> list[str]:
    """The parameters of a kind of stage that its rules hold signals against."""
    names = [rule.parameter for rule in rules_of(kind)]
    return [name for name in dict.fromkeys(names) if name in kind.model_fields]


class GlobalStep(Stage):
    """A step that needs all documents at once: prepare, exchange, apply (DESIGN section 6).

    *Prepare* is fused to the end of the segment before it and notes a record per document; the
    *exchange* runs its phases in tasks of its own, on files; *collate* gives each unit its
    removals, which the engine applies as drop reasons at the start of the next segment. `evidence`
    names what a removal says besides its survivor, and the Arrow type of each. A step that `edits`
    gives edits instead: the engine books them as those of an `Editor`, drops what they empty for
    `<stage>:empty`, notes the signal `removed_bytes` and what the edits say as `evidence`, and
    applies the step's `rules` to these, if it has any. Whatever follows sees the edited text.

    A step that is a `Filter` as well gives `Scores`: its `score` finds the columns of `evidence`
    among those of the documents, and its rules judge them at the start of the next segment. What-if
    asks it for `scores` of other documents.
    """

    reasons: ClassVar[tuple[str, ...]]
    evidence: ClassVar[Mapping[str, str]] = {}
    edits: ClassVar[bool] = False

    @property
    def removes(self) -> bool:
        """Whether it gives removals, each with its survivor: no edits, no scores."""
        return not self.edits and not isinstance(self, Filter)

    def scores(self, docs: Documents) -> Mapping[str, np.ndarray]:
        """Of a step that is a `Filter`: the columns of `evidence` (float64, NaN for none) if these
        documents were all; they have `unit`, `row`, `language`, `source`, `crawl`, and signals."""
        raise NotImplementedError

    def signals(self) -> tuple[str, ...]:
        """Signals (`<stage>.<signal>`) of earlier stages of the segment that `prepare` reads: it
        finds them among the columns."""
        return ()

    def prepare(self, docs: Documents) -> np.ndarray:
        """Fixed-width records of the documents, in their order: a structured array, at least with
        the field `row`. Where there is one record per document, it may have the field `weight`
        (int64): the number of documents that it stands for."""
        raise NotImplementedError

    def sizes(self) -> dict[tuple[str, str], float]:
        """Bytes that a document takes at most in the array of a phase, for the plan; under
        ("", "records") in what `prepare` notes. Where no bound can be said, a typical number."""
        return {}

    def index_directory(self) -> str | None:
        """The index of earlier crawls that the step reads and adds to. What it adds are the arrays
        of the phase `index`, which is by `units`."""
        return None

    def index_form(self) -> dict[str, Any]:
        """What the arrays of an index depend on, for a person: one made otherwise is refused."""
        return {}

    def no_records(self) -> np.ndarray:
        """An empty array of the type that `prepare` returns."""
        raise NotImplementedError

    def phases(self) -> tuple[Phase, ...]:
        """The phases of the exchange, in order; the first one is by `units`."""
        raise NotImplementedError

    def exchange(
        self, phase: str, part: int, parts: int, sources: Sources
    ) -> Mapping[str, np.ndarray]:
        """Task `part` of `parts` of a phase: the arrays that later phases and `collate` read."""
        raise NotImplementedError

    def collate(self, sources: Sources) -> Iterator[Removals | Edits | Scores]:
        """What the exchange decided about each of the units of this task, in their order."""
        raise NotImplementedError
