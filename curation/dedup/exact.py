"""Exact deduplication: the same canonical URL, or the same text after normalisation.

What may live here: the two digests, and the sort that brings equal ones together. Documents meet in
sorted, fixed-width lines, one slice of the digest range per task; no table of all documents is ever
held in memory.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal
from urllib.parse import urlsplit

import numpy as np
from pydantic import Field

from curation.dedup.policy import Policy, places, signals_of
from curation.document import Documents, id_words
from curation.stage import GlobalStep, Phase, Removals, Sources, between, key_range, of_units

#: What `prepare` notes of a document: 72 bytes. A zero digest means "nothing to compare", `weight`
#: is the number of documents that it stands for already, `policy` its place by the policy.
RECORD = np.dtype(
    [
        *[("id", "<u8", 2), ("row", "<i8"), ("weight", "<i8"), ("policy", "<u8")],
        *[("url", "<u8", 2), ("text", "<u8", 2)],
    ]
)
#: What a document is looked for by: 64 bytes, sorted by the first half of the digest.
LINE = np.dtype(
    [
        *[("digest", "<u8", 2), ("policy", "<u8"), ("id", "<u8", 2)],
        *[("unit", "<i8"), ("row", "<i8"), ("weight", "<i8")],
    ]
)
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

    The survivor is the first by the policy, then the one with the smallest id; where ids repeat,
    the first by (path, offset). Documents without a URL, or whose normalised text is empty, equal
    nothing.
    """

    version = 2
    reasons: ClassVar[tuple[str, ...]] = ("url", "text")
    by: tuple[Literal["url", "text"], ...] = Field(default=("url", "text"), min_length=1)
    policy: Policy = "first_id"
    """Who comes first, and so survives: `first_id`, `longest` (bytes of text), `newest` (by date)
    or `highest(stage.signal)` (of an earlier stage); those without a date or signal come last."""

    def depends(self) -> dict[str, str]:
        return {"unicode": unicodedata.unidata_version}

    def signals(self) -> tuple[str, ...]:
        return signals_of(self.policy)

    def no_records(self) -> np.ndarray:
        return np.empty(0, RECORD)

    def prepare(self, docs: Documents) -> np.ndarray:
        records = np.zeros(len(docs), RECORD)
        records["row"] = docs["row"].to_numpy(zero_copy_only=False)
        records["weight"] = docs["duplicate_count"].to_numpy(zero_copy_only=False)
        records["id"] = id_words(docs["id"])
        records["policy"] = places(self.policy, docs)
        if "url" in self.by:
            urls = [canonical_url(url) for url in docs["url"].to_pylist()]
            records["url"] = _digests(urls)
        if "text" in self.by:
            texts = [normalised_text(text) or None for text in docs.text.to_pylist()]
            records["text"] = _digests(texts)
        return records

    def phases(self) -> tuple[Phase, ...]:
        """Of each digest: lines of every group of units, then equal ones within a digest range."""
        found: list[Phase] = []
        for name in self.by:
            lines = Phase(f"{name}_lines", "units")
            found += [lines, Phase(name, "range", (lines.name, "lines"))]
        return tuple(found)

    def sizes(self) -> dict[tuple[str, str], float]:
        lines = {(f"{name}_lines", "lines"): float(LINE.itemsize) for name in self.by}
        return {("", "records"): RECORD.itemsize, **lines}

    def exchange(
        self, phase: str, part: int, parts: int, sources: Sources
    ) -> Mapping[str, np.ndarray]:
        if phase in self.by:
            return _equal(_slices(sources.arrays(f"{phase}_lines", "lines"), part, parts))
        return {"lines": self._lines(phase.removesuffix("_lines"), sources)}

    def _lines(self, name: str, sources: Sources) -> np.ndarray:
        """The documents of some units that still take part, sorted by a digest."""
        pieces = [np.empty(0, LINE)]
        for unit in sources.units:
            records = sources.records(unit)
            some = records[records[name].any(axis=1)]
            lines = np.empty(len(some), LINE)
            lines["digest"], lines["unit"] = some[name], unit
            for field in ("id", "row", "weight", "policy"):
                lines[field] = some[field]
            pieces.append(lines)
        lines = np.concatenate(pieces)
        for earlier in self.by[: self.by.index(name)]:
            gone = of_units(sources.arrays(earlier, "removed"), sources.units, VERDICT)
            lines = lines[~_find(gone, lines["unit"], lines["row"])[0]]
            counted = of_units(sources.arrays(earlier, "counts"), sources.units, COUNT)
            found, at = _find(counted, lines["unit"], lines["row"])
            lines["weight"][found] = counted["count"][at[found]]
        return lines[np.argsort(lines["digest"][:, 0], kind="stable")]

    def collate(self, sources: Sources) -> Iterator[Removals]:
        removed, counted = [], []
        for position, name in enumerate(self.by):
            gone = of_units(sources.arrays(name, "removed"), sources.units, VERDICT)
            for later in self.by[position + 1 :]:
                _replace_survivors(gone, sources.arrays(later, "removed"))
            removed.append(gone)
            counted.append(of_units(sources.arrays(name, "counts"), sources.units, COUNT))
        reasons = np.repeat(np.array(self.by), [len(gone) for gone in removed])
        gone, counts = np.concatenate(removed), np.concatenate(counted)
        order = np.lexsort((gone["row"], gone["unit"]))
        gone, reasons = gone[order], reasons[order]
        # What a later phase counted of a document includes what an earlier one did.
        order = np.lexsort((np.arange(len(counts)), counts["row"], counts["unit"]))
        counts = counts[order]
        last = np.ones(len(counts), dtype=bool)
        last[:-1] = (counts["unit"][1:] != counts["unit"][:-1]) | (
            counts["row"][1:] != counts["row"][:-1]
        )
        counts = counts[last & ~_find(gone, counts["unit"], counts["row"])[0]]
        for unit in sources.units:
            mine = between(gone["unit"], unit, unit + 1)
            kept = counts[between(counts["unit"], unit, unit + 1)]
            yield Removals(
                gone["row"][mine],
                reasons[mine].tolist(),
                hexadecimal(gone["by_id"][mine]),
                kept["row"],
                kept["count"],
            )


def _equal(lines: np.ndarray) -> dict[str, np.ndarray]:
    """Of equal digests the first line by (policy, id, unit, row) stays, and stands for all."""
    lines = lines[np.lexsort((lines["row"], lines["unit"], *_keys(lines)))]
    if not len(lines):
        return {"removed": np.empty(0, VERDICT), "counts": np.empty(0, COUNT)}
    first = np.ones(len(lines), dtype=bool)
    first[1:] = (lines["digest"][1:] != lines["digest"][:-1]).any(axis=1)
    leader = np.maximum.accumulate(np.where(first, np.arange(len(lines)), 0))

    removed = np.empty(int((~first).sum()), VERDICT)
    removed["unit"], removed["row"] = lines["unit"][~first], lines["row"][~first]
    by = leader[~first]
    removed["by_unit"], removed["by_row"] = lines["unit"][by], lines["row"][by]
    removed["by_id"] = lines["id"][by]

    totals = np.add.reduceat(lines["weight"], np.flatnonzero(first))
    counts = np.empty(len(totals), COUNT)
    counts["unit"], counts["row"] = lines["unit"][first], lines["row"][first]
    counts["count"] = totals
    counts = counts[totals > lines["weight"][first]]  # those that now stand for more
    return {
        "removed": removed[np.lexsort((removed["row"], removed["unit"]))],
        "counts": counts[np.lexsort((counts["row"], counts["unit"]))],
    }


def _replace_survivors(gone: np.ndarray, later: Iterable[np.ndarray]) -> None:
    """Of removals whose survivor a later phase removed: whom that one kept instead."""
    by_unit, by_row = gone["by_unit"].copy(), gone["by_row"].copy()
    for removed in later:
        found, at = _find(removed, by_unit, by_row)
        for field in ("by_unit", "by_row", "by_id"):
            gone[field][found] = removed[field][at[found]]


def _digests(values: Sequence[str | None]) -> np.ndarray:
    """128-bit digests as (n, 2) uint64; zero for None."""
    data = b"".join(bytes(16) if value is None else _digest(value) for value in values)
    return np.frombuffer(data, ">u8").reshape(-1, 2)


def _keys(lines: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sort keys of lines for `lexsort`, least significant first: (digest, policy, id)."""
    ids, digests = lines["id"], lines["digest"]
    return ids[:, 1], ids[:, 0], lines["policy"], digests[:, 1], digests[:, 0]


def _slices(arrays: Iterable[np.ndarray], part: int, parts: int) -> np.ndarray:
    """The lines of all groups of units whose digest falls in a part of the range."""
    pieces = [np.empty(0, LINE)]
    for array in arrays:
        pieces.append(np.array(array[key_range(array["digest"][:, 0], part, parts)]))
    return np.concatenate(pieces)


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


def hexadecimal(ids: np.ndarray) -> list[str]:
    """Ids of documents, (n, 2) uint64, as they are written."""
    text = ids.astype(">u8").tobytes().hex()
    return [text[i : i + 32] for i in range(0, len(text), 32)]
