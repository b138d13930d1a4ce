"""Exact deduplication: the same canonical URL, or the same text after normalisation.

What may live here: the two digests, and the sort that brings equal ones together. Documents meet in
sorted, fixed-width run files, one slice of the digest range per task; no table of all documents is
ever held in memory.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal
from urllib.parse import urlsplit

import numpy as np
from pydantic import Field

from curation.document import Documents
from curation.stage import GlobalStep, Removals, Sources

#: What `prepare` notes of a document: 64 bytes. A zero digest means "nothing to compare", `weight`
#: is the number of documents that it stands for already.
RECORD = np.dtype(
    [("id", "<u8", 2), ("row", "<i8"), ("weight", "<i8"), ("url", "<u8", 2), ("text", "<u8", 2)]
)
#: A line of a run file: 48 bytes, sorted by (digest, id, row).
LINE = np.dtype([("digest", "<u8", 2), ("id", "<u8", 2), ("row", "<i8"), ("weight", "<i8")])
#: What a phase says of a document: who removed it, or how many it stands for.
VERDICT = np.dtype(
    [("unit", "<i8"), ("row", "<i8"), ("by_unit", "<i8"), ("by_row", "<i8"), ("by_id", "<u8", 2)]
)
COUNT = np.dtype([("unit", "<i8"), ("row", "<i8"), ("count", "<i8")])

_TRACKING = re.compile(r"utm_|(fbclid|gclid|dclid|msclkid|yclid|mc_cid|mc_eid|igshid|_ga)(=|$)")


def canonical_url(url: str | None) -> str | None:
    """The address without what does not change the page; None where there is none.

    Lower-case host without `www.`, no scheme, no default port, no fragment, no tracking parameters
    (utm_*, fbclid, gclid and the like), parameters sorted by name (those of one name keep their
    order), no trailing slash. Path and query keep their case and their escapes: a query may be in
    any encoding. What has no host is no address of a page.
    """
    if not url:
        return None
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return None
    host = host.removeprefix("www.")
    if not host:
        return None
    if port is not None and port != {"http": 80, "https": 443}.get(parts.scheme.lower()):
        host = f"{host}:{port}"
    pairs = [pair for pair in parts.query.split("&") if not _TRACKING.match(pair.lower())]
    query = "&".join(sorted(filter(None, pairs), key=lambda pair: pair.partition("=")[0]))
    return host + parts.path.rstrip("/") + ("?" + query if query else "")


def normalised_text(text: str) -> str:
    """Text as it is compared: NFC, lower case, runs of white space as one space, ends trimmed."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.lower().split())


def _digest(value: str) -> bytes:
    found = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return found if any(found) else b"\x01" + found[1:]


class ExactDedup(GlobalStep):
    """Keeps one of the documents with equal canonical URL, then one of those with equal text.

    The survivor is the one with the smallest id; where ids repeat, the first by (path, offset).
    Documents without a URL, or whose normalised text is empty, equal nothing.
    """

    version = 1
    reasons: ClassVar[tuple[str, ...]] = ("url", "text")
    by: tuple[Literal["url", "text"], ...] = Field(default=("url", "text"), min_length=1)

    def depends(self) -> dict[str, str]:
        return {"unicode": unicodedata.unidata_version}

    def no_records(self) -> np.ndarray:
        return np.empty(0, RECORD)

    def prepare(self, docs: Documents) -> np.ndarray:
        records = np.zeros(len(docs), RECORD)
        records["row"] = docs["row"].to_numpy(zero_copy_only=False)
        records["weight"] = docs["duplicate_count"].to_numpy(zero_copy_only=False)
        ids = bytes.fromhex("".join(docs["id"].to_pylist()))
        records["id"] = np.frombuffer(ids, ">u8").reshape(-1, 2)
        if "url" in self.by:
            urls = [canonical_url(url) for url in docs["url"].to_pylist()]
            records["url"] = _digests(urls)
        if "text" in self.by:
            texts = [normalised_text(text) or None for text in docs.text.to_pylist()]
            records["text"] = _digests(texts)
        return records

    def runs(self, records: np.ndarray) -> dict[str, np.ndarray]:
        runs: dict[str, np.ndarray] = {}
        for name in self.by:
            some = records[records[name].any(axis=1)]
            lines = np.empty(len(some), LINE)
            lines["digest"] = some[name]
            for field in ("id", "row", "weight"):
                lines[field] = some[field]
            runs[name] = lines[_order(lines)]
        return runs

    def phases(self) -> tuple[str, ...]:
        return self.by

    def exchange(
        self, phase: str, part: int, parts: int, sources: Sources
    ) -> dict[str, np.ndarray]:
        lines, units = _slice(sources, phase, part, parts)
        weight = lines["weight"].copy()
        for earlier in self.by[: self.by.index(phase)]:  # those removed before take no part
            gone = _all(sources.phase(earlier, "removed"), VERDICT)
            stay = ~_find(gone, units, lines["row"])[0]
            lines, units, weight = lines[stay], units[stay], weight[stay]
            counted = _all(sources.phase(earlier, "counts"), COUNT)
            found, at = _find(counted, units, lines["row"])
            weight[found] = counted["count"][at[found]]
        order = np.lexsort((lines["row"], units, *_keys(lines)))
        lines, units, weight = lines[order], units[order], weight[order]
        if not len(lines):
            return {"removed": np.empty(0, VERDICT), "counts": np.empty(0, COUNT)}
        first = np.ones(len(lines), dtype=bool)
        first[1:] = (lines["digest"][1:] != lines["digest"][:-1]).any(axis=1)
        leader = np.maximum.accumulate(np.where(first, np.arange(len(lines)), 0))

        removed = np.empty(int((~first).sum()), VERDICT)
        removed["unit"], removed["row"] = units[~first], lines["row"][~first]
        by = leader[~first]
        removed["by_unit"], removed["by_row"] = units[by], lines["row"][by]
        removed["by_id"] = lines["id"][by]

        totals = np.add.reduceat(weight, np.flatnonzero(first))
        counts = np.empty(len(totals), COUNT)
        counts["unit"], counts["row"], counts["count"] = units[first], lines["row"][first], totals
        counts = counts[totals > weight[first]]  # those that now stand for more
        return {
            "removed": removed[np.lexsort((removed["row"], removed["unit"]))],
            "counts": counts[np.lexsort((counts["row"], counts["unit"]))],
        }

    def collate(self, unit: int, sources: Sources) -> Removals:
        found: dict[int, tuple[str, str]] = {}
        counts: dict[int, int] = {}
        for position, phase in enumerate(self.by):
            for array in sources.phase(phase, "removed"):
                for line in _of_unit(array, unit):
                    found[int(line["row"])] = (phase, self._survivor(line, position, sources))
            for array in sources.phase(phase, "counts"):
                for line in _of_unit(array, unit):
                    counts[int(line["row"])] = int(line["count"])
        rows = sorted(found)
        counted = sorted(set(counts) - set(found))
        return Removals(
            np.array(rows, dtype=np.int64),
            [found[row][0] for row in rows],
            [found[row][1] for row in rows],
            np.array(counted, dtype=np.int64),
            np.array([counts[row] for row in counted], dtype=np.int64),
        )

    def _survivor(self, line: np.ndarray, position: int, sources: Sources) -> str:
        """Id of the kept document behind a removal: its leader, or whom a later phase kept."""
        unit, row, name = line["by_unit"], line["by_row"], line["by_id"]
        for later in self.by[position + 1 :]:
            for array in sources.phase(later, "removed"):
                at = _of_unit(array, int(unit))
                hit = np.searchsorted(at["row"], row)
                if hit < len(at) and at["row"][hit] == row:
                    unit, row, name = at[hit]["by_unit"], at[hit]["by_row"], at[hit]["by_id"]
                    break
        return f"{int(name[0]):016x}{int(name[1]):016x}"


def _digests(values: Sequence[str | None]) -> np.ndarray:
    """128-bit digests as (n, 2) uint64; zero for None."""
    data = b"".join(bytes(16) if value is None else _digest(value) for value in values)
    return np.frombuffer(data, ">u8").reshape(-1, 2)


def _keys(lines: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sort keys of lines for `lexsort`, least significant first: (digest, id)."""
    return lines["id"][:, 1], lines["id"][:, 0], lines["digest"][:, 1], lines["digest"][:, 0]


def _order(lines: np.ndarray) -> np.ndarray:
    return np.lexsort((lines["row"], *_keys(lines)))


def _slice(sources: Sources, phase: str, part: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """The lines of all units whose digest falls in a part of the range, and their unit ordinals."""
    low, high = (part << 64) // parts, ((part + 1) << 64) // parts
    pieces, units = [np.empty(0, LINE)], [np.empty(0, dtype=np.int64)]
    for unit, run in enumerate(sources.units(phase)):
        first = run["digest"][:, 0]
        start = int(np.searchsorted(first, np.uint64(low)))
        stop = len(run) if high >> 64 else int(np.searchsorted(first, np.uint64(high)))
        if stop > start:
            lines = np.array(run[start:stop])
            earlier = sources.earlier(unit)
            lines = lines[~np.isin(lines["row"], earlier.removed)]
            _, mine, theirs = np.intersect1d(
                lines["row"], earlier.counted_rows, assume_unique=True, return_indices=True
            )
            lines["weight"][mine] = earlier.counts[theirs]
            pieces.append(lines)
            units.append(np.full(len(lines), unit, dtype=np.int64))
    return np.concatenate(pieces), np.concatenate(units)


def _all(arrays: Iterable[np.ndarray], kind: np.dtype) -> np.ndarray:
    return np.concatenate([np.empty(0, kind), *arrays])


def _of_unit(array: np.ndarray, unit: int) -> np.ndarray:
    """The slice of an array sorted by (unit, row) that belongs to one unit."""
    start, stop = np.searchsorted(array["unit"], [unit, unit + 1])
    return array[start:stop]


def _find(array: np.ndarray, units: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which (unit, row) are in `array`, and at which position. Rows stay below 2**40."""
    keys = array["unit"] << 40 | array["row"]
    order = np.argsort(keys, kind="stable")
    wanted = units << 40 | rows
    at = np.searchsorted(keys, wanted, sorter=order)
    at = np.minimum(at, max(len(keys) - 1, 0))
    if not len(keys):
        return np.zeros(len(wanted), dtype=bool), at
    at = order[at]
    return keys[at] == wanted, at
