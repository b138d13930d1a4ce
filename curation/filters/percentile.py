"""The best share of a run by a signal: exact ranks, over all documents at once.

What may live here: the global step `percentile`.

A threshold on a score means something else for each model, language and crawl; a share does not.
CCNet cuts perplexities at their 30th and 60th percentile in each language (arXiv 1911.00359, 3.4),
DCLM keeps the tenth of the documents that a classifier scores highest (arXiv 2406.11794, 4.4). The
ranks are exact: values are sorted in ranges of equal size, each in one task, on files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from curation.document import Documents
from curation.filters.parameters import ByLanguage, Share
from curation.stage import (
    Filter,
    GlobalStep,
    Phase,
    Rule,
    Scores,
    Signals,
    Sources,
    between,
    by_language,
    of_units,
)

#: What `prepare` notes of a document that has a value, and what is sorted: `group` is a digest of
#: its language (or source, crawl), `place` orders the values, the best first.
RECORD = np.dtype([("row", "<i8"), ("group", "<u8"), ("place", "<u8")])
LINE = np.dtype([("group", "<u8"), ("place", "<u8"), ("unit", "<i8"), ("row", "<i8")])
RANK = np.dtype([("unit", "<i8"), ("row", "<i8"), ("rank", "<f8")])
BORDER = np.dtype([("group", "<u8"), ("place", "<u8")])

#: Bytes of lines that a task ranks, about; and one in how many lines is looked at to divide them.
RANGE_BYTES = 64 << 20
EVERY = 1024


class Percentile(GlobalStep, Filter):
    """Keeps the documents that are among the best `keep` of their group by a signal.

    The signal is one of a stage between this one and the global step before, so that every document
    that has come so far has a value; one without (null, not scored) is in no group, and stays.
    Removals of global steps right before count: ranks are among the documents that they left.

    `rank` (float64): (1 + documents of the group with a better value) / documents of the group. So
    the best has 1/n, equal values have equal ranks, and `keep: 0.1` keeps just a tenth but for ties
    at the border, which stay together. What-if re-tunes `keep` from stored ranks.
    """

    version: ClassVar[int] = 1
    reasons: ClassVar[tuple[str, ...]] = ()
    evidence: ClassVar[Mapping[str, str]] = {"rank": "double"}
    types: ClassVar[Mapping[str, str]] = {"rank": "double", "bucket": "string"}
    rules: ClassVar[tuple[Rule, ...]] = (Rule("beyond", signal="rank", above="keep"),)

    signal: str
    """`<stage>.<signal>` of an earlier stage, such as `perplexity.perplexity`; a number."""
    best: Literal["lowest", "highest"]
    """Which values are good: the lowest (perplexity) or the highest (quality)."""
    keep: ByLanguage[Share] = None
    """Share of a group's documents, from the best on; null keeps all, and only notes ranks."""
    by: Literal["run", "language", "source", "crawl"] = "language"
    """What a group is. Perplexities of two languages cannot be compared."""
    buckets: Annotated[dict[str, Share] | None, Field(strict=False)] = None
    """Names of shares, from the best on: {head: 0.3, middle: 0.6, tail: 1} as CCNet has them."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if "." not in self.signal:
            raise ValueError(f"signal: {self.signal!r}: STAGE.SIGNAL is wanted")
        if 0 in by_language(self.keep).values():
            raise ValueError("keep: 0 drops every document; null keeps all")
        if self.buckets is not None and not all(self.buckets or {"": 0}):
            raise ValueError("buckets: names and shares are wanted; null makes none")
        bounds = list((self.buckets or {}).values())
        if bounds != sorted(set(bounds)):
            raise ValueError("buckets: shares ascend, from the best documents on")
        return self

    def signals(self) -> tuple[str, ...]:
        return (self.signal,)

    # Ranks judge

    def score(self, docs: Documents) -> Signals:
        """`rank`, and `bucket` where there are any (null beyond the last)."""
        rank = docs["rank"]
        if self.buckets is None:
            return {"rank": rank}
        names, bounds = list(self.buckets), np.array(list(self.buckets.values()))
        at = np.searchsorted(bounds, rank.fill_null(2.0).to_numpy(zero_copy_only=False))
        return {"rank": rank, "bucket": pa.array([*names, None], pa.string()).take(pa.array(at))}

    def scores(self, docs: Documents) -> Mapping[str, np.ndarray]:
        """The ranks of documents that are at hand, all at once."""
        records = self.prepare(docs.replace(row=pa.array(np.arange(len(docs)))))
        ranks = np.full(len(docs), np.nan)
        for group in np.unique(records["group"]):
            mine = records[records["group"] == group]
            better = np.searchsorted(np.sort(mine["place"]), mine["place"])
            ranks[mine["row"]] = (1 + better) / len(mine)
        return {"rank": ranks}

    # How they are found

    def no_records(self) -> np.ndarray:
        return np.empty(0, RECORD)

    def prepare(self, docs: Documents) -> np.ndarray:
        values = docs[self.signal].cast(pa.float64()).to_numpy(zero_copy_only=False)
        records = np.empty(len(docs), RECORD)
        records["row"] = docs["row"].to_numpy(zero_copy_only=False)
        records["place"] = ordered(values if self.best == "lowest" else -values)
        records["group"] = _groups(docs, self.by)
        known: np.ndarray = records[~np.isnan(values)]
        return known

    def phases(self) -> tuple[Phase, ...]:
        """Sorted lines of every group of units; borders of ranges of about equal size; the ranks
        in each range."""
        return (
            Phase("lines", "units"),
            Phase("borders", "whole", ("lines", "lines"), memory=0.1),
            Phase("ranks", "rows", ("borders", "weights"), memory=4),
        )

    def sizes(self) -> dict[tuple[str, str], float]:
        line = float(LINE.itemsize)
        found = {("lines", "lines"): line, ("borders", "weights"): line}
        return {("", "records"): RECORD.itemsize, **found}

    def exchange(
        self, phase: str, part: int, parts: int, sources: Sources
    ) -> Mapping[str, np.ndarray]:
        if phase == "lines":
            return {"lines": _lines(sources)}
        if phase == "borders":
            borders = _borders(sources)
            return {"borders": borders, "weights": _weights(sources, borders)}
        return {"ranks": _ranks(sources, part)}

    def collate(self, sources: Sources) -> Iterator[Scores]:
        ranks = of_units(sources.arrays("ranks", "ranks"), sources.units, RANK)
        ranks = ranks[np.lexsort((ranks["row"], ranks["unit"]))]
        for unit in sources.units:
            mine = ranks[between(ranks["unit"], unit, unit + 1)]
            yield Scores(mine["row"], {"rank": np.ascontiguousarray(mine["rank"])})


def ordered(values: np.ndarray) -> np.ndarray:
    """Numbers (float64) as uint64 that compare as they do; -0.0 is 0.0."""
    bits = (values + 0.0).view(np.uint64)
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


def _groups(docs: Documents, by: str) -> np.ndarray:
    """A digest of what a document's group is called, uint64; documents of none are one, too."""
    if by == "run":
        return np.zeros(len(docs), np.uint64)
    names = docs[by].dictionary_encode()
    known = np.array([_digest(by, n) for n in [*names.dictionary.to_pylist(), None]], np.uint64)
    at = names.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(known[at])


def _digest(by: str, name: str | None) -> int:
    return int.from_bytes(hashlib.blake2b(repr((by, name)).encode(), digest_size=8).digest())


def _lines(sources: Sources) -> np.ndarray:
    pieces = [np.empty(0, LINE)]
    for unit in sources.units:
        records = sources.records(unit)
        lines = np.empty(len(records), LINE)
        lines["unit"] = unit
        for name in ("group", "place", "row"):
            lines[name] = records[name]
        pieces.append(lines)
    lines = np.concatenate(pieces)
    order = np.lexsort((lines["row"], lines["unit"], lines["place"], lines["group"]))
    return np.asarray(lines[order])


def _borders(sources: Sources) -> np.ndarray:
    """Where ranges begin: the first at nothing, and no two lines of equal value in two ranges."""
    samples, total = [np.empty(0, BORDER)], 0
    for lines in sources.arrays("lines", "lines"):
        total += len(lines)
        some = lines[EVERY // 2 :: EVERY]
        sample = np.empty(len(some), BORDER)
        sample["group"], sample["place"] = some["group"], some["place"]
        samples.append(sample)
    sample = np.sort(np.concatenate(samples), order=("group", "place"))
    ranges = min(-(-total * LINE.itemsize // RANGE_BYTES), len(sample) + 1)
    at = np.arange(1, ranges) * len(sample) // max(ranges, 1)
    return np.unique(np.concatenate([np.zeros(1, BORDER), sample[at]]))


def _weights(sources: Sources, borders: np.ndarray) -> np.ndarray:
    """Bytes of the lines in each range."""
    counts = np.zeros(len(borders), np.int64)
    for lines in sources.arrays("lines", "lines"):
        starts = [_first(lines, border) for border in borders]
        counts += np.diff([*starts, len(lines)])
    return counts * LINE.itemsize


def _first(lines: np.ndarray, border: np.void) -> int:
    """Where the lines from a border on begin."""
    group = between(lines["group"], int(border["group"]), int(border["group"]) + 1)
    below = between(lines["place"][group], 0, int(border["place"]))
    return int(group.start + below.stop)


def _ranks(sources: Sources, part: int) -> np.ndarray:
    """The ranks of the documents of one range."""
    [borders] = sources.arrays("borders", "borders")
    pieces = [np.empty(0, LINE)]
    for lines in sources.arrays("lines", "lines"):
        stop = len(lines) if part + 1 == len(borders) else _first(lines, borders[part + 1])
        pieces.append(np.array(lines[_first(lines, borders[part]) : stop]))
    lines = np.concatenate(pieces)
    lines = lines[np.lexsort((lines["place"], lines["group"]))]
    groups, first, counts = np.unique(lines["group"], return_index=True, return_counts=True)
    sizes, before = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    # Of a group whose values lie in several ranges: all its documents, and those of earlier ranges.
    for array in sources.arrays("lines", "lines"):
        start = _first(array, borders[part])
        for position, group in enumerate(groups.tolist()):
            mine = between(array["group"], group, group + 1)
            sizes[position] += mine.stop - mine.start
            before[position] += max(0, min(start, mine.stop) - mine.start)
    of = np.repeat(np.arange(len(groups)), counts)
    fresh = np.ones(len(lines), dtype=bool)  # the first of those with one value
    fresh[1:] = (lines["group"][1:] != lines["group"][:-1]) | (
        lines["place"][1:] != lines["place"][:-1]
    )
    leader = np.maximum.accumulate(np.where(fresh, np.arange(len(lines)), 0))
    ranks = np.empty(len(lines), RANK)
    ranks["unit"], ranks["row"] = lines["unit"], lines["row"]
    ranks["rank"] = (before[of] + leader - first[of] + 1) / sizes[of]
    return ranks[np.lexsort((ranks["row"], ranks["unit"]))]
