"""Line deduplication: lines that many documents share are deleted from their texts.

What may live here: which lines of all documents go, and the global step around it. What makes two
lines the same is in `curation.dedup.line_hashes`. Lines meet in sorted, fixed-width arrays, one
range of hashes per task: a task holds the lines of its range and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

#: What is noted of a line: 28 bytes. `id` is the first half of the document's, `start` and `stop`
#: are the bytes of the text to be deleted with it.
RECORD = np.dtype(
    [("hash", "<u8"), ("id", "<u8"), ("row", "<u4"), ("start", "<u4"), ("stop", "<u4")]
)
#: A line in the exchange: 32 bytes, sorted by hash.
LINE = np.dtype([*RECORD.descr, ("unit", "<u4")])
#: A line that goes: 16 bytes, sorted.
SPAN = np.dtype([("unit", "<u4"), ("row", "<u4"), ("start", "<u4"), ("stop", "<u4")])

Keep = Literal["first", "none"]


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
    return sorted_spans([lines[goes]])


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


def sorted_spans(pieces: Iterable[np.ndarray]) -> np.ndarray:
    """Spans of lines, or lines, as one sorted array of spans."""
    names = [*(SPAN.names or ())]
    spans = np.concatenate([np.empty(0, SPAN), *(piece[names].astype(SPAN) for piece in pieces)])
    rows = spans["unit"].astype(np.uint64) << np.uint64(32) | spans["row"]
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
