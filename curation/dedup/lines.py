"""Line deduplication: lines that many documents share are deleted from their texts.

What may live here: which lines of all documents go, and the global step around it. What makes two
lines the same is in `curation.dedup.line_hashes`. Lines meet in sorted, fixed-width arrays, one
range of hashes per task: a task holds the lines of its range and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from curation.dedup.line_hashes import KEY_VERSION, line_hashes
from curation.document import Documents, id_words
from curation.stage import Edits, GlobalStep, Phase, Sources, key_range, of_units
from curation.text.characters import table_version

#: What is noted of a line: 28 bytes. `id` is the first half of the document's, `start` and `stop`
#: are the bytes of the text to be deleted with it.
RECORD = np.dtype(
    [("hash", "<u8"), ("id", "<u8"), ("row", "<u4"), ("start", "<u4"), ("stop", "<u4")]
)
#: A line in the exchange: 32 bytes, sorted by hash.
LINE = np.dtype([*RECORD.descr, ("unit", "<u4")])
#: A line that goes: 16 bytes, sorted.
SPAN = np.dtype([("unit", "<u4"), ("row", "<u4"), ("start", "<u4"), ("stop", "<u4")])

TYPICAL = 40  # lines of a web page, for the plan

Keep = Literal["first", "none"]

#: Bytes that the phases take at most, as multiples of the bytes of their records and lines.
LINES_MEMORY, REPEATED_MEMORY = 5, 5


class LineDedup(GlobalStep):
    """Deletes lines that occur more than `above` times in a window, from every document.

    Every occurrence counts, also a second one in the same document. Their order is that of the
    first 64 bits of the document's id, then of path and row, then of the place in the text; so
    which one is the first depends on no machine, batch or file. A deleted line takes its newline
    with it; all other bytes stay, blank lines too.

    The defaults are those of CCNet (Wenzek et al. 2020): the first occurrence stays, all others go;
    CCNet's window is 1 to 50 shards of a crawl, in the order of its files. Llama 3
    (Dubey et al. 2024, section 3.1.1) deletes lines seen more than 6 times in windows of 30 million
    documents: `{above: 6, keep: none, window: 30_000_000}`.
    """

    version: ClassVar[int] = 1
    reasons: ClassVar[tuple[str, ...]] = ("empty",)
    edits: ClassVar[bool] = True

    above: int = Field(default=1, ge=1)
    """Occurrences of a line in a window up to which all of them stay."""
    keep: Keep = "first"
    """Which occurrence of a line that is more frequent stays: the first of its window, or none."""
    window: int | None = Field(default=None, ge=1)
    """Documents in a window, on average; null: all are in one. A window takes an equal range of
    the ids, which are hashes; their number is that of the documents with a line that is compared,
    divided by this, rounded up."""

    def depends(self) -> dict[str, str]:
        """What makes lines the same."""
        return {"line_keys": str(KEY_VERSION), "characters": table_version()}

    def no_records(self) -> np.ndarray:
        return np.empty(0, RECORD)

    def prepare(self, docs: Documents) -> np.ndarray:
        """A record of each line that has a key."""
        found = line_hashes(docs.view)
        records = np.empty(len(found.hashes), RECORD)
        records["id"] = id_words(docs["id"])[found.documents, 0]
        rows = docs["row"].cast(pa.uint32()).to_numpy(zero_copy_only=False)  # or it raises
        records["row"] = rows[found.documents]
        records["hash"], records["start"], records["stop"] = found.hashes, found.starts, found.stops
        return records

    def phases(self) -> tuple[Phase, ...]:
        """The lines of every group of units; then equal ones, in a range of hashes."""
        return (
            Phase("lines", "units", memory=LINES_MEMORY),
            Phase("repeated", "range", ("lines", "lines"), memory=REPEATED_MEMORY),
        )

    def sizes(self) -> dict[tuple[str, str], float]:
        """Of documents with `TYPICAL` lines; theirs has no bound."""
        return {
            ("", "records"): TYPICAL * RECORD.itemsize,
            ("lines", "lines"): TYPICAL * LINE.itemsize,
        }

    def exchange(
        self, phase: str, part: int, parts: int, sources: Sources
    ) -> Mapping[str, np.ndarray]:
        if phase == "lines":
            records = [(unit, sources.records(unit)) for unit in sources.units]
            documents = sum(int(_starts(some["row"]).sum()) for _, some in records)
            return {"lines": lines_of(records), "documents": np.array([documents])}
        pieces = (a[key_range(a["hash"], part, parts)] for a in sources.arrays("lines", "lines"))
        lines = np.concatenate([np.empty(0, LINE), *pieces])
        return {"spans": repeated(lines, self.above, self.keep, self._windows(sources))}

    def _windows(self, sources: Sources) -> int:
        """How many windows there are."""
        if self.window is None:
            return 1
        documents = sum(int(array.sum()) for array in sources.arrays("lines", "documents"))
        return max(1, -(-documents // self.window))

    def collate(self, sources: Sources) -> Iterator[Edits]:
        every = sources.arrays("repeated", "spans")
        pieces = [of_units([spans], sources.units, SPAN) for spans in every]
        for unit in sources.units:
            yield Edits(*joined(_in_order(of_units(pieces, [unit], SPAN))))


def lines_of(records: Iterable[tuple[int, np.ndarray]]) -> np.ndarray:
    """The lines of some units, given as (ordinal, records), sorted by hash."""
    pieces = [np.empty(0, LINE)]
    for unit, some in records:
        lines = np.empty(len(some), LINE)
        for field in RECORD.names or ():
            lines[field] = some[field]
        lines["unit"] = unit
        pieces.append(lines)
    lines = np.concatenate(pieces)
    return lines[np.argsort(lines["hash"], kind="stable")]


def repeated(lines: np.ndarray, above: int, keep: Keep, windows: int) -> np.ndarray:
    """The spans of the lines that go, sorted; `lines` are all of every document that have these
    hashes. The parameters are those of `LineDedup`, with windows by their number."""
    order = np.argsort(lines["hash"], kind="stable")
    often = np.repeat(*_more_than(above, _starts(lines["hash"][order])))
    lines = lines[order[often]]  # of all windows together
    window = (lines["id"] >> np.uint64(32)) * np.uint64(windows) >> np.uint64(32)
    if windows > 1:
        order = np.lexsort([window, lines["hash"]])
        lines, window = lines[order], window[order]
    starts = _starts(lines["hash"], window)
    goes = np.repeat(*_more_than(above, starts))
    if keep == "first":
        goes &= ~_first(lines, np.flatnonzero(starts))
    return _in_order(_spans(lines[goes]))


def _starts(*keys: np.ndarray) -> np.ndarray:
    """Where a run of equal keys begins."""
    starts = np.ones(len(keys[0]), bool)
    starts[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return starts


def _more_than(above: int, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each run whether it is longer than `above`, and how long it is."""
    sizes = np.diff(np.flatnonzero(starts), append=len(starts))
    return sizes > above, sizes


def _first(lines: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Which line of each run comes first by (id, unit, row, start); runs begin at `at`."""
    first = np.ones(len(lines), bool)
    for name in ("id", "unit", "row", "start") if len(lines) else ():
        values = lines[name].copy()
        values[~first] = np.iinfo(values.dtype).max
        least = np.minimum.reduceat(values, at)
        first &= values == np.repeat(least, np.diff(at, append=len(lines)))
    return first


def _spans(lines: np.ndarray) -> np.ndarray:
    spans = np.empty(len(lines), SPAN)
    for name in SPAN.names or ():
        spans[name] = lines[name]
    return spans


def _in_order(spans: np.ndarray) -> np.ndarray:
    rows = spans["unit"].astype(np.uint64)
    rows <<= np.uint64(32)
    rows |= spans["row"]
    return spans[np.lexsort([spans["start"], rows])]


def joined(spans: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, starts and stops (int64) of what is deleted from a unit, given its sorted spans.

    Neighbouring lines go in one piece. A last line takes the newline before it; where the line that
    this newline ends goes as well, it takes its own, and the piece the one before it.
    """
    row, start, stop = (spans[name].astype(np.int64) for name in ("row", "start", "stop"))
    opens = np.ones(len(spans), bool)
    opens[1:] = (row[1:] != row[:-1]) | (start[1:] > stop[:-1])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(spans))[: len(first)] - 1
    at_end = (last > first) & (start[last] < stop[last - 1])
    return row[first], np.maximum(start[first] - at_end, 0), stop[last]
