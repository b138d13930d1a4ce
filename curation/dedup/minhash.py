"""Near-duplicates by MinHash and locality-sensitive hashing (DESIGN section 7).

What may live here: the global step, its records, and how they go through files. What a signature
is lies in `signatures.py`, who survives in `clusters/`.

Documents are candidates when a band of their signatures is equal; candidates are not duplicates.
All documents stand in a total order: rank of the crawl, rank of the source, policy, id, content
hash, path and row. A document is removed if and only if an earlier *kept* document of its scope
shares a band with it and verifies; it names the first such document as its survivor. So nothing
depends on files, workers or partitions; A ~ B ~ C with A unlike C keeps A and C; and what is
decided about earlier crawls does not change when later ones come.

The exchange, with the bytes that each document takes on disk (14 bands of 8 rows):

| phase | a task for each | makes |
| --- | --- | --- |
| lines | group of units | `bands`: hash and document, sorted by hash, 12 bytes a band; `docs`: 24 |
| pairs | range of hashes | `edges`: pairs that connect the documents of a band, 8 bytes |
| components | (one) | `labels`: the component of each document, 4 bytes; `parts` and `cuts` |
| members | group of units | `members`: records of those in a component, sorted by it, 336 bytes |
| clusters | part: some components | `removed` and `counts`, sorted by unit and row |

Documents are numbered in order of group and place; the numbers take 64 bits from 2**32 on.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field

from curation.dedup import clusters
from curation.dedup.exact import COUNT, hexadecimal
from curation.dedup.policy import Policy, places, signals_of
from curation.dedup.signatures import SIGNATURE_VERSION, band_hashes, shingles, signatures
from curation.document import Documents, id_words
from curation.stage import (
    TOMBSTONE,
    GlobalStep,
    Phase,
    Removals,
    Sources,
    between,
    key_range,
    of_units,
    task_bytes,
)
from curation.text.reference import bytes_hash
from curation.text.view import versions

#: A band of a document: its hash, and the number of the document within its group.
BAND = np.dtype([("hash", "<u8"), ("doc", "<u4")])
#: Where a document lies, and how many shingles it has.
DOC = np.dtype([("unit", "<i8"), ("row", "<i8"), ("shingles", "<i8")])
#: What is decided: who removed whom, and on which evidence.
VERDICT = np.dtype(
    [
        *[("unit", "<i8"), ("row", "<i8"), ("by_id", "<u8", 2), ("by_batch", "<i8")],
        *[("similarity", "<f8"), ("jaccard", "<f8"), ("group", "<i8")],
    ]
)
#: A document of the index that is in a component: its number among all of the index.
OLD = np.dtype([("component", "<i8"), ("doc", "<i8")])
PART_BYTES = 256 << 20  # of members (and shingles) per task that walks, at most
SPILL_BYTES = 512 << 20  # larger arrays lie in a file instead of memory
EDGES = 1 << 22  # pairs that are joined at a time

_TEXT = re.compile(r"text(?:\((\d*\.?\d+)\))?")


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError(f"{max(names, key=names.count)!r} is named twice: it has one place")
    return names


def _verify(value: float | str) -> float | str:
    if isinstance(value, str) and not _TEXT.fullmatch(value):
        raise ValueError("a number from 0 to 1, text or text(0.9) is wanted")
    if not 0 <= _threshold(value) <= 1:
        raise ValueError("the similarity must lie between 0 and 1")
    return value


def _directory(value: str | None) -> str | None:
    if value is not None and (not value or "://" in value):
        raise ValueError("a directory that all workers see is wanted")
    return None if value is None else os.path.abspath(value)


def _threshold(value: float | str) -> float:
    if not isinstance(value, str):
        return value
    match = _TEXT.fullmatch(value)
    return float(match[1] or 0.8) if match else 0.8


class MinHashDedup(GlobalStep):
    """Keeps one of the documents whose sets of word n-grams are nearly the same.

    Documents with fewer words than `ngram` are like no other.
    """

    version = 1
    reasons: ClassVar[tuple[str, ...]] = ("near_duplicate",)
    evidence: ClassVar[Mapping[str, str]] = {
        "similarity": "double",  # estimated Jaccard with the survivor
        "jaccard": "double",  # exact; null unless asked for
        "group_size": "int64",  # documents that the survivor stands for here, itself included
        "batch": "string",  # of the index, which has the survivor; null: it is of this run
    }

    bands: int = Field(default=14, ge=1, le=10_000)
    """Bands of the signature: documents that agree in one are candidates (FineWeb: 14 of 8)."""
    rows: int = Field(default=8, ge=1, le=1_000)
    """Values in a band. `curation bands` shows what bands x rows find."""
    ngram: int = Field(default=5, ge=1, le=100)
    """Words of a shingle."""
    verify: Annotated[float | str, AfterValidator(_verify)] = 0.8
    """Jaccard from which candidates are duplicates: a number (estimated from the signatures),
    `text` (exact, 0.8) or `text(0.9)`. 0 takes every candidate, as systems without verification."""
    scope: Literal["run", "crawl", "language", "source"] = "run"
    """Documents are compared with those of the same crawl, language or source only, or with all."""
    policy: Policy = "first_id"
    """Who comes first, and so survives: `first_id`, `longest` (bytes of text), `newest` (by date)
    or `highest(stage.signal)` (of an earlier stage); those without a date or signal come last."""
    sources: Annotated[tuple[str, ...], AfterValidator(_distinct)] = ()
    """Sources, the best first: they come before the policy. Others come after them."""
    crawls: Annotated[tuple[str, ...], AfterValidator(_distinct)] = ()
    """Crawls, the earliest first: they come before all else. Others come after them."""
    index: Annotated[str | None, AfterValidator(_directory)] = None
    """Directory of an index: what earlier runs kept comes before all documents of this one, which
    adds what it keeps. Made if need be."""
    places: ClassVar[frozenset[str]] = frozenset(("index",))

    def depends(self) -> dict[str, str]:
        return {**versions(), "signature": str(SIGNATURE_VERSION)}

    def signals(self) -> tuple[str, ...]:
        return signals_of(self.policy)

    @property
    def record(self) -> np.dtype:
        """What `prepare` notes: where a document stands in the order, its scope, its signature."""
        return np.dtype(
            [
                *[("row", "<i8"), ("weight", "<i8"), ("id", "<u8", 2), ("content", "<u8")],
                *[("crawl", "<u4"), ("source", "<u4"), ("policy", "<u8"), ("scope", "<u8")],
                *[("shingles", "<i8"), ("signature", "<u2", self.bands * self.rows)],
            ]
        )

    @property
    def member(self) -> np.dtype:
        """A record with its component, its unit, and where its shingles lie (in `verify: text`).

        `batch` counts those of the index, and after them this run; of a document of the index,
        unit and row are its place there.
        """
        more = [("component", "<i8"), ("batch", "<i8"), ("unit", "<i8")]
        return np.dtype([*more, ("start", "<i8"), ("length", "<i8"), *_fields(self.record)])

    @property
    def exact(self) -> bool:
        """Whether texts verify, not signatures."""
        return isinstance(self.verify, str)

    def no_records(self) -> np.ndarray:
        return np.empty(0, self.record)

    def prepare(self, docs: Documents) -> np.ndarray:
        records = np.zeros(len(docs), self.record)
        records["row"] = docs["row"].to_numpy(zero_copy_only=False)
        records["weight"] = docs["duplicate_count"].to_numpy(zero_copy_only=False)
        records["id"] = id_words(docs["id"])
        records["content"] = docs.view.content_hashes()
        records["crawl"] = _ranks(docs["crawl"], self.crawls)
        records["source"] = _ranks(docs["source"], self.sources)
        records["policy"] = places(self.policy, docs)
        if self.scope != "run":
            records["scope"] = _salts(docs[self.scope])
        size = self.bands * self.rows
        records["signature"], records["shingles"] = signatures(docs.view, self.ngram, size)
        return records

    def index_directory(self) -> str | None:
        return self.index

    def index_form(self) -> dict[str, Any]:
        names = ("bands", "rows", "ngram", "scope")
        exact = {"texts": "shingles" if self.exact else "none"}
        return {**{name: getattr(self, name) for name in names}, **exact, **self.depends()}

    def phases(self) -> tuple[Phase, ...]:
        more = (Phase("index", "units", memory=4),) if self.index else ()
        return (
            Phase("lines", "units", memory=4),
            Phase("pairs", "range", ("lines", "bands"), memory=6),
            Phase("components", "whole", ("lines", "docs"), memory=1),
            Phase("members", "units", memory=4),
            Phase("clusters", "rows", ("components", "parts"), memory=4),
            *more,
        )

    def sizes(self) -> dict[tuple[str, str], float]:
        return {
            ("", "records"): self.record.itemsize,
            ("lines", "bands"): BAND.itemsize * self.bands,
            ("lines", "docs"): DOC.itemsize,
            ("components", "parts"): self.member.itemsize,  # without shingles
        }

    def exchange(
        self, phase: str, part: int, parts: int, sources: Sources
    ) -> Mapping[str, np.ndarray]:
        if phase == "lines":
            return self._lines(sources)
        if phase == "pairs":
            return _pairs(part, parts, sources)
        if phase == "components":
            return self._components(sources)
        if phase == "members":
            return self._members(part, sources)
        if phase == "index":
            return self._kept(sources)
        return self._clusters(part, sources)

    def _records(self, unit: int, sources: Sources) -> np.ndarray:
        """The records of a unit that have a signature."""
        records = sources.records(unit)
        return records[records["shingles"] > 0]

    def _lines(self, sources: Sources) -> dict[str, np.ndarray]:
        docs, hashes = [np.empty(0, DOC)], [np.empty((0, self.bands), np.uint64)]
        for unit in sources.units:
            records = self._records(unit, sources)
            found = np.empty(len(records), DOC)
            found["unit"] = unit
            found["row"], found["shingles"] = records["row"], records["shingles"]
            docs.append(found)
            hashes.append(self._bands(records))
        return {"docs": np.concatenate(docs), "bands": _sorted_bands(np.concatenate(hashes))}

    def _bands(self, records: np.ndarray) -> np.ndarray:
        return band_hashes(records["signature"], self.bands, self.rows, records["scope"])

    def _components(self, sources: Sources) -> dict[str, np.ndarray]:
        old = _indexed(sources)
        total = old + sum(sources.rows("lines", "docs"))
        labels = _room(total, np.dtype(np.int32 if total < 1 << 31 else np.int64), sources)
        clusters.forest(labels)
        for pairs in sources.arrays("pairs", "edges"):
            for start in range(0, len(pairs), EDGES):
                clusters.join(labels, np.array(pairs[start : start + EDGES]))
        weights = np.zeros(clusters.label(labels), np.int64)
        place = 0
        known = (records for _, records in sources.index("records"))
        for docs in chain(known, sources.arrays("lines", "docs")):
            own = labels[place : place + len(docs)]
            place += len(docs)
            inside = np.flatnonzero(own >= 0)
            size = np.full(len(inside), self.member.itemsize, np.int64)
            if self.exact:
                size += 8 * docs["shingles"][inside]
            np.add.at(weights, own[inside], size)
        cuts, parts = _divide(weights, task_bytes(int(weights.sum()), PART_BYTES))
        inside = np.flatnonzero(labels[:old] >= 0)
        found = np.empty(len(inside), OLD)
        found["component"], found["doc"] = labels[inside], inside
        found = found[np.argsort(found["component"], kind="stable")]
        return {"labels": labels, "cuts": cuts, "parts": parts, "old": found}

    def _members(self, part: int, sources: Sources) -> dict[str, np.ndarray]:
        [labels] = sources.arrays("components", "labels")
        place = _indexed(sources) + sum(sources.rows("lines", "docs")[:part])
        pieces = [np.empty(0, self.member)]
        for unit in sources.units:
            records = self._records(unit, sources)
            own = np.array(labels[place : place + len(records)])
            place += len(records)
            inside = own >= 0
            members = _with_fields(self.member, records[inside])
            members["component"], members["unit"] = own[inside], unit
            members["batch"] = len(sources.batches)
            pieces.append(members)
        members = np.concatenate(pieces)
        made = {}
        if self.exact:
            made["shingles"] = self._shingles(members, sources)
        return {"members": members[np.argsort(members["component"], kind="stable")], **made}

    def _shingles(self, members: np.ndarray, sources: Sources) -> np.ndarray:
        """The shingles of members, which are in order of unit and row; notes where each lies."""
        found = _room(int(members["shingles"].sum()), np.dtype(np.uint64), sources)
        used = 0
        for unit in sources.units:
            start, stop = np.searchsorted(members["unit"], [unit, unit + 1])
            mine = members[start:stop]  # a view
            for docs in sources.texts(unit) if len(mine) else ():
                rows = docs["row"].to_numpy(zero_copy_only=False)
                at = np.flatnonzero(np.isin(mine["row"], rows))
                docs = docs.take(np.isin(rows, mine["row"]))
                offsets, hashes = shingles(docs.view, self.ngram)
                found[used : used + len(hashes)] = hashes
                mine["start"][at] = used + offsets[:-1]
                mine["length"][at] = np.diff(offsets)
                used += len(hashes)
        return found[:used]

    def _clusters(self, part: int, sources: Sources) -> dict[str, np.ndarray]:
        [cuts] = sources.arrays("components", "cuts")
        low, high = (int(cut) for cut in cuts[part : part + 2])
        pieces, sets = self._old(low, high, sources)
        hashes = sources.arrays("members", "shingles") if self.exact else repeat(None)
        for array, own in zip(sources.arrays("members", "members"), hashes, strict=False):
            some = np.array(array[between(array["component"], low, high)])  # the map can go
            pieces.append(some)
            sets += _sets(some, own)
        members = _gathered(pieces, sources)
        del pieces
        order = np.lexsort([members[name] for name in ("row", "unit", "content")]
            + [members["id"][:, 1], members["id"][:, 0]]
            + [members[name] for name in ("policy", "source", "crawl", "batch", "component")]
        )  # fmt: skip
        members = members[order]
        ends = np.flatnonzero(np.diff(members["component"])) + 1
        starts = np.concatenate([[0], ends, [len(members)]]).astype(np.int64)
        found = clusters.walk(
            starts,
            np.ascontiguousarray(members["signature"]),
            self._bands(members),
            members["batch"] < len(sources.batches),
            _threshold(self.verify),
            _in_order(sets, order) if self.exact else None,
        )
        return _verdicts(members, found, len(sources.batches))

    def _old(
        self, low: int, high: int, sources: Sources
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Of these components, the documents of the index, and their shingles."""
        [old] = sources.arrays("components", "old")
        old = old[between(old["component"], low, high)]
        pieces, sets, place = [np.empty(0, self.member)], list[np.ndarray](), 0
        hashes = sources.index("shingles") if self.exact else repeat((0, None))
        for number, ((batch, records), (_, own)) in enumerate(
            zip(sources.index("records"), hashes, strict=False)
        ):
            at = old["doc"] - place
            place += len(records)
            here = (at >= 0) & (at < len(records))
            at = at[here]
            members = _with_fields(self.member, records[at])
            members["component"], members["batch"] = old["component"][here], batch
            members["unit"], members["row"] = number, at
            pieces.append(members)
            sets += _sets(members, own)
        return pieces, sets

    def _kept(self, sources: Sources) -> dict[str, np.ndarray]:
        """What an index keeps of the documents of this task that stay."""
        removed = _decided(sources, "removed", VERDICT)
        pieces = [np.empty(0, self.member)]
        for unit in sources.units:
            records = self._records(unit, sources)
            gone = removed["row"][between(removed["unit"], unit, unit + 1)]
            records = records[~np.isin(records["row"], gone)]
            members = _with_fields(self.member, records)
            members["unit"] = unit
            pieces.append(members)
        members = np.concatenate(pieces)
        made = {"shingles": self._shingles(members, sources)} if self.exact else {}
        names = [name for name in self.member.names or () if name not in _OF_A_RUN]
        kind = np.dtype([(name, *_shape(self.member[name])) for name in names])
        records = _with_fields(kind, members)
        return {"records": records, "bands": _sorted_bands(self._bands(records)), **made}

    def collate(self, sources: Sources) -> Iterator[Removals]:
        removed = _decided(sources, "removed", VERDICT)
        counts = _decided(sources, "counts", COUNT)
        for unit in sources.units:
            gone = removed[between(removed["unit"], unit, unit + 1)]
            kept = counts[between(counts["unit"], unit, unit + 1)]
            yield Removals(
                gone["row"],
                ["near_duplicate"] * len(gone),
                hexadecimal(gone["by_id"]),
                kept["row"],
                kept["count"],
                {
                    "similarity": gone["similarity"],
                    "jaccard": gone["jaccard"],
                    "group_size": gone["group"],
                    "batch": _names(gone["by_batch"], sources.batches),
                },
            )


#: What of a member means nothing to a later run.
_OF_A_RUN = frozenset(("component", "batch", "unit", "row"))


def _names(places: np.ndarray, batches: Sequence[str]) -> pa.Array:
    """Names of batches; null for this run, which comes after them."""
    return pa.array([*batches, None], pa.string()).take(pa.array(places))


def _sorted_bands(hashes: np.ndarray) -> np.ndarray:
    """The lines of documents, given the hashes of their bands (documents, bands)."""
    documents = np.repeat(np.arange(len(hashes), dtype=np.uint32), hashes.shape[1])
    bands = np.empty(hashes.size, BAND)
    bands["hash"], bands["doc"] = clusters.in_order(hashes.reshape(-1), documents)
    return bands


def _sets(members: np.ndarray, shingles: np.ndarray | None) -> list[np.ndarray]:
    """The shingles of each member, where they are there."""
    if shingles is None:
        return []
    places = zip(members["start"].tolist(), members["length"].tolist(), strict=True)
    return [np.array(shingles[start : start + length]) for start, length in places]


def _fields(kind: np.dtype) -> list[Any]:
    """The fields of a structured type, as numpy takes them."""
    return [(name, *_shape(kind[name])) for name in kind.names or ()]


def _shape(kind: np.dtype) -> tuple[Any, ...]:
    return (kind,) if kind.subdtype is None else kind.subdtype


def _ranks(names: pa.Array, order: Sequence[str]) -> np.ndarray:
    """The place of each name in the order; those that are not in it come after all."""
    if not order:
        return np.zeros(len(names), np.uint32)
    found = pc.fill_null(pc.index_in(names, value_set=pa.array(order, pa.string())), len(order))
    return np.asarray(found.to_numpy(zero_copy_only=False), np.uint32)


def _salts(names: pa.Array) -> np.ndarray:
    """A number for each name; those without one have a scope of their own together."""
    encoded = names.dictionary_encode()
    salts = [bytes_hash(name.encode()) | 1 for name in encoded.dictionary.to_pylist()]
    places = pc.fill_null(encoded.indices, len(salts)).to_numpy(zero_copy_only=False)
    return np.asarray(np.array([*salts, 2], np.uint64)[places])


def _pairs(part: int, parts: int, sources: Sources) -> dict[str, np.ndarray]:
    sizes = [len(records) for _, records in sources.index("records")]
    first = sum(sizes)  # of this run
    sizes += sources.rows("lines", "docs")
    kind = np.dtype(np.uint32 if sum(sizes) < 1 << 32 else np.uint64)
    hashes, documents = [np.empty(0, np.uint64)], [np.empty(0, kind)]
    place = 0
    old = _living(sources)
    for size, bands in zip(sizes, chain(old, sources.arrays("lines", "bands")), strict=True):
        some = bands[key_range(bands["hash"], part, parts)]
        hashes.append(np.array(some["hash"]))
        documents.append(some["doc"].astype(kind) + kind.type(place))
        place += size
    edges = clusters.edges(np.concatenate(hashes), np.concatenate(documents))
    return {"edges": edges[edges[:, 1] >= first]}  # what the index has among itself is decided


def _living(sources: Sources) -> Iterator[np.ndarray]:
    """The bands of the index, but for those of documents that were taken down."""
    buried = [np.empty(0, TOMBSTONE), *(tombs for _, tombs in sources.index("tombstones"))]
    tombs = np.concatenate(buried)
    files = Counter[int]()  # of each batch, that have been read
    for place, bands in sources.index("bands"):
        if len(tombs):
            batch = int(sources.batches[place].partition("-")[0])
            here = (tombs["batch"] == batch) & (tombs["file"] == files[place])
            bands = bands[~np.isin(bands["doc"], tombs["doc"][here])] if here.any() else bands
        files[place] += 1
        yield bands


def _room(length: int, kind: np.dtype, sources: Sources) -> np.ndarray:
    """An array in memory, or in a file where it is large."""
    if length * kind.itemsize < SPILL_BYTES:
        return np.empty(length, kind)
    path = sources.scratch / f"{len(list(sources.scratch.iterdir()))}.npy"
    return np.lib.format.open_memmap(path, "w+", kind, (length,))


def _gathered(pieces: Sequence[np.ndarray], sources: Sources) -> np.ndarray:
    """All pieces in one array."""
    found = _room(sum(map(len, pieces)), pieces[0].dtype, sources)
    place = 0
    for piece in pieces:
        found[place : place + len(piece)] = piece
        place += len(piece)
    return found


def _divide(weights: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Neighbouring components in parts of at most so many bytes, or of one: where each part begins
    (and the last one ends), and the bytes of each."""
    sums = np.concatenate([[0], np.cumsum(weights)])
    cuts = [0]
    while cuts[-1] < len(weights):
        following = int(np.searchsorted(sums, sums[cuts[-1]] + limit, side="right")) - 1
        cuts.append(max(following, cuts[-1] + 1))
    return np.array(cuts, np.int64), np.diff(sums[cuts])


def _in_order(sets: Sequence[np.ndarray], order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and values of sets, in this order."""
    chosen = [sets[i] for i in order.tolist()]
    offsets = np.concatenate([[0], np.cumsum([len(found) for found in chosen])])
    return offsets.astype(np.int64), np.concatenate([np.empty(0, np.uint64), *chosen])


def _verdicts(members: np.ndarray, found: clusters.Found, run: int) -> dict[str, np.ndarray]:
    """Removals and what survivors of this run (its `batch`) stand for, in order of unit and row."""
    gone = np.flatnonzero(found.survivors >= 0)
    by = found.survivors[gone]
    sizes = np.ones(len(members), np.int64)
    np.add.at(sizes, by, 1)
    weights = members["weight"].copy()
    np.add.at(weights, by, members["weight"][gone])
    removed = np.empty(len(gone), VERDICT)
    for name in ("unit", "row"):
        removed[name] = members[name][gone]
    for name in ("id", "batch"):
        removed[f"by_{name}"] = members[name][by]
    removed["group"] = sizes[by]
    removed["similarity"], removed["jaccard"] = found.similarities[gone], found.jaccards[gone]
    survivors = np.unique(by)
    survivors = survivors[members["batch"][survivors] == run]
    counts = np.empty(len(survivors), COUNT)
    counts["unit"], counts["row"] = members["unit"][survivors], members["row"][survivors]
    counts["count"] = weights[survivors]
    return {
        "removed": removed[np.lexsort((removed["row"], removed["unit"]))],
        "counts": counts[np.lexsort((counts["row"], counts["unit"]))],
    }


def _decided(sources: Sources, name: str, kind: np.dtype) -> np.ndarray:
    """What all clusters say of the units of this task, in order of unit and row."""
    found = of_units(sources.arrays("clusters", name), sources.units, kind)
    return found[np.lexsort((found["row"], found["unit"]))]


def _indexed(sources: Sources) -> int:
    """How many documents the index has."""
    return sum(len(records) for _, records in sources.index("records"))


def _with_fields(kind: np.dtype, records: np.ndarray) -> np.ndarray:
    """Records as another structured type: the fields that both have, zeros in the others."""
    found = np.zeros(len(records), kind)
    for name in kind.names or ():
        if name in (records.dtype.names or ()):
            found[name] = records[name]
    return found
