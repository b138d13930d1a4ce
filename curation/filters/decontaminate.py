"""Decontamination: what a text has of an evaluation set is cut out of it, or the document dropped.

What may live here: the global step `decontaminate`, and what it decides about a document. The sets
are read in `curation.filters.evaluation`; n-grams are those of `curation.text.ngrams`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Discriminator, Field, Tag, model_validator

from curation import models
from curation.document import Documents
from curation.filters import evaluation
from curation.filters.evaluation import EvaluationError, Item, Sets
from curation.filters.parameters import LIST, MAPPING, Count
from curation.stage import Edits, GlobalStep, Phase, Rule, Sources
from curation.text.ngrams import gram_words, versions

#: What is noted of an n-gram of the sets in a document, 40 bytes. In bytes of the text: the n-gram
#: [start, stop), and [before, after) with its surroundings, in characters [left, until). `bytes`
#: and `characters` are of the whole text.
RECORD = np.dtype(
    [
        *((name, "<u4") for name in ("row", "ngram", "start", "stop", "before", "after")),
        *((name, "<u4") for name in ("left", "until", "bytes", "characters")),
    ]
)
#: In how many documents an n-gram is, sorted by it.
COUNT = np.dtype([("ngram", "<u4"), ("documents", "<i8")])

TYPICAL = 1  # records of a document, for the plan: most have none

Names = Annotated[tuple[str, ...], Field(strict=False)]
#: No batch has more.
Characters = Annotated[int, Field(ge=0, lt=1 << 31)]
_FORM = Discriminator(lambda value: MAPPING if isinstance(value, Mapping) else LIST)


@dataclass(frozen=True)
class Match:
    """Where a document has n-grams of an item, one after another: bytes [start, stop)."""

    item: int
    start: int
    stop: int
    ngrams: int  # occurrences


class Decontaminate(GlobalStep):
    """Removes what documents share with evaluation sets: n-grams of `ngram` words.

    `cut` is GPT-3's way (Brown et al. 2020, arXiv 2005.14165, appendix C): a shared 13-gram is
    removed with 200 characters on each side, of the pieces that are left those under 200 characters
    too, and a document that falls into more than 10 pieces is dropped. `drop` drops every document
    that shares one, as lm-evaluation-harness calls it contaminated. In both, n-grams that more than
    `max_documents` documents have are common language, and ignored.

    Here a cut goes on to the next white space (for at most as many characters again), so that
    pieces neither lose half a word nor grow together to one; pieces are counted before the short
    ones go; and the pieces stay one document. One of which no piece is left is dropped as
    `contaminated`, too. An item is found by the passages that are its strings: by every n-gram of
    a passage that has `ngram` words, and, of one with at least `min_item_words`, by the whole of
    it. (GPT-3 took n from the 5th percentile of each set's lengths, 8 to 13.) Items that are
    shorter cannot be told from common language: `curation contamination` counts them.

    Signals, of documents that share something, as they came: `contaminated` (dropped), `pieces`,
    `ngrams` (different ones), `items`; of the longest match `set`, `item`, and bytes `start` to
    `stop`; and `matches`, all of them as JSON: [set, item, start, stop, ngrams].
    """

    version: ClassVar[int] = 1
    reasons: ClassVar[tuple[str, ...]] = ("contaminated", "empty")
    rules: ClassVar[tuple[Rule, ...]] = (Rule("contaminated", signal="contaminated"),)
    edits: ClassVar[bool] = True
    places: ClassVar[frozenset[str]] = frozenset({"sets"})
    evidence: ClassVar[Mapping[str, str]] = {
        **{"contaminated": "bool", "pieces": "int64", "ngrams": "int64", "items": "int64"},
        **{"set": "string", "item": "string", "start": "int64", "stop": "int64"},
        "matches": "string",
    }

    sets: Annotated[Annotated[Names, Tag(LIST)] | Annotated[dict[str, str], Tag(MAPPING)], _FORM]
    """Evaluation sets, JSONL (`.gz` too), one object a line: paths or globs, called after their
    files, or a mapping from names to paths."""
    fields: Annotated[tuple[str, ...] | None, Field(strict=False)] = None
    """Fields of an item whose strings are looked for; null: all but `id_field`."""
    id_field: str = "id"
    """The field that names an item; without it, it is the number of its line."""
    ngram: int = Field(default=13, ge=2, le=100)
    """Words (GPT-3, lm-evaluation-harness: 13; datatrove: 12)."""
    min_item_words: int = Field(default=8, ge=2)
    """Words from which on a passage shorter than `ngram` is looked for as a whole (GPT-3's least
    n)."""
    max_documents: Count | None = 10
    """Documents that an n-gram may be in before it is ignored (GPT-3: 10); null: any number."""
    action: Literal["cut", "drop"] = "cut"
    """What becomes of a document that shares something."""
    min_ngrams: int = Field(default=1, ge=1)
    """Different n-grams that a document must share before anything becomes of it."""
    context: Characters = 200
    """Characters that are cut out on each side (GPT-3: 200)."""
    min_piece: Characters = 200
    """Characters that a piece must have to stay (GPT-3: 200)."""
    max_pieces: Count = 10
    """Pieces above which a document is dropped (GPT-3: 10)."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.sets:
            raise ValueError("sets: none are given; leave the stage out")
        if self.fields is not None and not self.fields:
            raise ValueError("fields: none are named; null takes all")
        if self.min_item_words > self.ngram:
            raise ValueError(f"min_item_words: above ngram ({self.ngram})")
        return self

    def _paths(self) -> dict[str, Path]:
        """The files of the sets, by name. Raises EvaluationError, or `models.ModelNotFound`."""
        if isinstance(self.sets, Mapping):
            return {name: models.find(path) for name, path in self.sets.items()}
        found: dict[str, Path] = {}
        for path in (path for pattern in self.sets for path in evaluation.expand(pattern)):
            name = evaluation.stem(path)
            if name in found:
                raise EvaluationError(f"sets: two are called {name!r}; give names: {{name: path}}")
            found[name] = models.find(path)
        return found

    def depends(self) -> dict[str, str]:
        """What makes n-grams the same."""
        return versions()

    def files(self) -> dict[str, Path]:
        """The sets. They are read here once, so that a damaged one stops before any work."""
        found = self._paths()
        self._load(found)
        return found

    def load(self) -> Sets:
        """The items and their n-grams; read once per process. Raises EvaluationError."""
        return self._load(self._paths())

    def _load(self, paths: Mapping[str, Path]) -> Sets:
        files = {name: (path, models.digest(path)) for name, path in paths.items()}
        return evaluation.load(files, self.fields, self.id_field, self.ngram, self.min_item_words)

    def items(self) -> Iterator[Item]:
        """The items with their passages, in the order of `load`. Raises EvaluationError."""
        for name, path in sorted(self._paths().items()):
            yield from evaluation.read(name, path, self.fields, self.id_field)

    def memory(self) -> int:
        """Bytes of the tables of n-grams."""
        return self.load().nbytes

    def no_records(self) -> np.ndarray:
        return np.empty(0, RECORD)

    def prepare(self, docs: Documents) -> np.ndarray:
        """A record of each n-gram of the sets, in order of row and place."""
        view = docs.view
        hits = self.load().find(view, gram_words(view))
        records = np.empty(len(hits.numbers), RECORD)
        rows = docs["row"].cast(pa.uint32()).to_numpy(zero_copy_only=False)  # or it raises
        records["row"], records["ngram"] = rows[hits.documents], hits.numbers
        records["start"], records["stop"] = hits.starts, hits.stops
        for a, b in _runs(hits.documents):
            d = hits.documents[a]
            _surround(records[a:b], view.data[view.begins[d] : view.ends[d]], self.context)
        return records

    def phases(self) -> tuple[Phase, ...]:
        """How many documents of each group of units have an n-gram; then of all."""
        return (Phase("grams", "units"), Phase("counts", "whole", ("grams", "counts")))

    def sizes(self) -> dict[tuple[str, str], float]:
        """Of documents with `TYPICAL` n-grams; theirs has no bound."""
        return {
            ("", "records"): TYPICAL * RECORD.itemsize,
            ("grams", "counts"): TYPICAL * COUNT.itemsize,
        }

    def exchange(
        self, phase: str, part: int, parts: int, sources: Sources
    ) -> Mapping[str, np.ndarray]:
        if phase == "grams":
            return {"counts": _summed([_documents(sources.records(u)) for u in sources.units])}
        return {"counts": _summed(list(sources.arrays("grams", "counts")))}

    def collate(self, sources: Sources) -> Iterator[Edits]:
        sets = self.load()
        [counts] = sources.arrays("counts", "counts")
        ignored = self.common(counts)
        for unit in sources.units:
            records = sources.records(unit)
            yield self.decide(records[~np.isin(records["ngram"], ignored)], sets)

    def common(self, counts: np.ndarray) -> np.ndarray:
        """The n-grams that more than `max_documents` documents have."""
        if self.max_documents is None:
            return np.empty(0, np.uint32)
        return np.array(counts["ngram"][counts["documents"] > self.max_documents])

    def decide(self, records: np.ndarray, sets: Sets) -> Edits:
        """What becomes of the documents of these records, which are in order of row."""
        spans: list[tuple[int, int, int]] = []
        noted: list[int] = []
        said: dict[str, list[Any]] = {name: [] for name in self.evidence}
        for a, b in _runs(records["row"]):
            mine = records[a:b]
            ngrams = len(np.unique(mine["ngram"]))
            if ngrams < self.min_ngrams:
                continue
            row, pieces = int(mine["row"][0]), None
            cuts: list[tuple[int, int]] = []
            if self.action == "cut":
                pieces, cuts = _cut(mine, self.min_piece)
            gone = pieces is None or pieces > self.max_pieces or not cuts
            if not gone:
                spans += [(row, start, stop) for start, stop in cuts]
            noted.append(row)
            found = {"contaminated": gone, "pieces": pieces, "ngrams": ngrams}
            for name, value in {**found, **_said(matches(mine, sets), sets)}.items():
                said[name].append(value)
        rows, starts, stops = np.array(spans, np.int64).reshape(-1, 3).T
        kinds = {name: pa.type_for_alias(alias) for name, alias in self.evidence.items()}
        evidence = {name: pa.array(said[name], kind) for name, kind in kinds.items()}
        return Edits(rows, starts, stops, np.array(noted, np.int64), evidence)


def _runs(values: np.ndarray) -> Iterable[tuple[int, int]]:
    """Where each run of equal values begins and ends."""
    first = np.flatnonzero(np.diff(values.astype(np.int64), prepend=-1))
    return pairwise([*first.tolist(), len(values)])


def _surround(records: np.ndarray, text: np.ndarray, context: int) -> None:
    """Fills in what lies `context` characters around the n-grams of a text (UTF-8 bytes), and from
    there to white space (ASCII's), where that is no farther away than as much again."""
    at = np.flatnonzero(text & 0xC0 != 0x80)  # where each character begins
    blank = np.flatnonzero(text[at] <= ord(" "))
    size = len(at)
    left = np.maximum(np.searchsorted(at, records["start"]) - context, 0)
    before = np.concatenate([[0], blank + 1])[np.searchsorted(blank, left)]
    left = np.where(left - before <= context, before, left)
    until = np.minimum(np.searchsorted(at, records["stop"]) + context, size)
    after = np.append(blank, size)[np.searchsorted(blank, until)]
    until = np.where(after - until <= context, after, until)
    edges = np.append(at, len(text))
    records["left"], records["until"] = left, until
    records["before"], records["after"] = edges[left], edges[until]
    records["bytes"], records["characters"] = len(text), size


def _documents(records: np.ndarray) -> np.ndarray:
    """In how many documents each n-gram is."""
    pairs = np.unique(records[["row", "ngram"]])
    ngrams, documents = np.unique(pairs["ngram"], return_counts=True)
    counts = np.empty(len(ngrams), COUNT)
    counts["ngram"], counts["documents"] = ngrams, documents
    return counts


def _summed(counts: list[np.ndarray]) -> np.ndarray:
    """Counts of all, from those of parts."""
    every = np.concatenate([np.empty(0, COUNT), *counts])
    ngrams, of = np.unique(every["ngram"], return_inverse=True)
    total = np.zeros(len(ngrams), COUNT)
    total["ngram"] = ngrams
    np.add.at(total["documents"], of, every["documents"])
    return total


def _cut(records: np.ndarray, least: int) -> tuple[int, list[tuple[int, int]]]:
    """Into how many pieces a document falls, and the bytes [start, stop) that go, with the pieces
    of fewer than `least` characters; none where nothing would be left."""
    size, characters = int(records["bytes"][0]), int(records["characters"][0])
    order = np.argsort(records["before"], kind="stable")
    windows = records[order][["before", "after", "left", "until"]].tolist()
    pieces = byte = character = 0
    edges = [0]  # where what goes and what stays begins, in turn
    for before, after, left, until in [*windows, (size, size, characters, characters)]:
        if left > character:
            pieces += 1
            if left - character >= max(least, 1):
                edges += [byte, before]
        byte, character = max(byte, after), max(character, until)
    edges.append(size)
    cuts = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
    return pieces, cuts if len(edges) > 2 else []


def matches(records: np.ndarray, sets: Sets) -> list[Match]:
    """Where one document has n-grams of each item, in order of place and item.

    N-grams that overlap or touch are one match.
    """
    open_: dict[int, Match] = {}
    found: list[Match] = []
    for number, start, stop in records[["ngram", "start", "stop"]].tolist():
        for item in sets.owners_of(number):
            last = open_.get(item)
            if last is not None and start <= last.stop:
                one = Match(item, last.start, max(last.stop, stop), last.ngrams + 1)
            else:
                if last is not None:
                    found.append(last)
                one = Match(item, start, stop, 1)
            open_[item] = one
    return sorted([*found, *open_.values()], key=lambda match: (match.start, match.item))


def _said(found: list[Match], sets: Sets) -> dict[str, Any]:
    """What is noted of the matches of a document."""
    longest = min(found, key=lambda match: (-match.ngrams, match.start, match.item))
    name, item = sets.items[longest.item]
    every = [[*sets.items[m.item], m.start, m.stop, m.ngrams] for m in found]
    return {
        "items": len({match.item for match in found}),
        **{"set": name, "item": item, "start": longest.start, "stop": longest.stop},
        "matches": json.dumps(every, ensure_ascii=False),
    }
