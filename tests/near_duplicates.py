"""Near-duplicates by brute force: what `minhash_dedup` must decide, and how tests ask it.

What may live here: the decision written as plainly as its definition (all pairs, one total order,
no sorting of hashes, no partitions), pages that are alike as much as a test wants, and the way from
pages to a run and back. No tests, nothing from the step itself: only signatures, which have tests
of their own, are taken from the product.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import exchange
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kit import recipe

from curation import Documents, Filter, Result, Rule, Signals, run
from curation.engine.plan import open_plan
from curation.read.identity import of_native
from curation.text import reference
from curation.text.view import TextView

DEFAULTS: dict[str, Any] = {
    "bands": 14,
    "rows": 8,
    "ngram": 5,
    "verify": 0.8,
    "scope": "run",
    "policy": "first_id",
    "sources": [],
    "crawls": [],
}


@dataclass(frozen=True)
class Page:
    """A document as it goes in: `native` is its id in the input, `rank` the signal `rank.rank`."""

    text: str
    native: str
    date: str | None = None
    source: str | None = None
    crawl: str | None = None
    language: str | None = None
    rank: float | None = None
    weight: int = 1  # documents that it stands for already

    @property
    def id(self) -> str:
        return of_native(self.source, self.native)


@dataclass(frozen=True)
class Kept:
    duplicate_count: int


@dataclass(frozen=True)
class Removed:
    survivor: str  # id
    similarity: float  # share of equal signature values
    jaccard: float | None  # of the shingle sets, where the text is to verify
    group_size: int  # documents kept for by the survivor, itself included


Files = Mapping[str, Sequence[Page]]
Place = tuple[str, int]  # file, row
Decisions = dict[Place, Kept | Removed]


# What must be decided


@lru_cache(maxsize=4096)
def shingles(text: str, ngram: int) -> frozenset[tuple[str, ...]]:
    words = ["".join(map(reference.fold, word.text)) for word in reference.words(text)]
    return frozenset(zip(*(words[i:] for i in range(ngram)), strict=False))


def jaccard(one: str, other: str, ngram: int) -> float:
    """Exact, of the sets of word n-grams; 0.0 for two empty sets."""
    a, b = shingles(one, ngram), shingles(other, ngram)
    return len(a & b) / len(a | b) if a | b else 0.0


def signatures(pages: Sequence[Page], ngram: int, permutations: int) -> np.ndarray:
    """The product's signatures of pages, one row each."""
    from curation.dedup.signatures import signatures

    view = TextView(pa.array([page.text for page in pages], pa.large_string()))
    return signatures(view, ngram, permutations)[0]


def _rank(name: str | None, names: Sequence[str]) -> int:
    """Those that are not named come after those that are."""
    return names.index(name) if name in names else len(names)


def _preference(page: Page, policy: str) -> tuple[bool, float]:
    """Smaller is kept rather; what is missing comes last."""
    if policy == "longest":
        return False, -len(page.text)
    if policy == "newest":
        try:
            day = datetime.fromisoformat(page.date or "")
        except ValueError:
            return True, 0.0
        return False, -(day if day.tzinfo else day.replace(tzinfo=UTC)).timestamp()
    if policy.startswith("highest("):
        return page.rank is None, -(page.rank or 0.0)
    return False, 0.0


def _threshold(verify: float | str) -> tuple[bool, float]:
    """Whether the text is to verify, and what must be reached."""
    if isinstance(verify, str):
        found = re.fullmatch(r"text(?:\((.+)\))?", verify)
        assert found, verify
        return True, float(found[1] or 0.8)
    return False, verify


def decide(files: Files, found: np.ndarray | None = None, **parameters: Any) -> Decisions:
    """The decision by its definition.

    `found` has the signatures of the pages in order of (file, row), where they are not to be the
    product's. Pages of one id must have one text: which of two texts under one id comes first is
    not defined here.
    """
    p = {**DEFAULTS, **parameters}
    by_text, wanted = _threshold(p["verify"])
    places = [(file, row) for file in sorted(files) for row in range(len(files[file]))]
    pages = {(file, row): files[file][row] for file, row in places}
    if found is None:
        found = signatures([pages[at] for at in places], p["ngram"], p["bands"] * p["rows"])
    values = {at: found[i].reshape(p["bands"], p["rows"]) for i, at in enumerate(places)}

    def order(at: Place) -> tuple[Any, ...]:
        page = pages[at]
        ranks = _rank(page.crawl, p["crawls"]), _rank(page.source, p["sources"])
        return *ranks, _preference(page, p["policy"]), page.id, at

    def scope(at: Place) -> str | None:
        return None if p["scope"] == "run" else getattr(pages[at], p["scope"])

    def alike(one: Place, other: Place) -> tuple[float, float | None] | None:
        """Similarity and Jaccard of two that are near-duplicates."""
        if scope(one) != scope(other) or not (values[one] == values[other]).all(axis=1).any():
            return None
        similarity = float((values[one] == values[other]).mean())
        exact = jaccard(pages[one].text, pages[other].text, p["ngram"]) if by_text else None
        return (similarity, exact) if (exact if by_text else similarity) >= wanted else None

    kept: list[Place] = []
    survivors: dict[Place, tuple[Place, float, float | None]] = {}
    for at in sorted(places, key=order):
        if not shingles(pages[at].text, p["ngram"]):
            kept.append(at)
            continue
        for earlier in kept:
            if shingles(pages[earlier].text, p["ngram"]) and (evidence := alike(at, earlier)):
                survivors[at] = (earlier, *evidence)
                break
        else:
            kept.append(at)

    groups = {at: [at] for at in kept}
    for at, (survivor, *_) in survivors.items():
        groups[survivor].append(at)
    decisions: Decisions = {
        at: Kept(sum(pages[member].weight for member in members)) for at, members in groups.items()
    }
    for at, (survivor, similarity, exact) in survivors.items():
        decisions[at] = Removed(pages[survivor].id, similarity, exact, len(groups[survivor]))
    return decisions


# Asking the step


class Rank(Filter):
    """Keeps everything; gives each page the rank that stands in its address."""

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (Rule("low", signal="rank", below="least"),)
    types: ClassVar[Mapping[str, str]] = {"rank": "double"}

    least: float | None = None

    def score(self, docs: Documents) -> Signals:
        ranks = [url and re.search(r"rank=(.+)", url) for url in docs["url"].to_pylist()]
        return {"rank": np.array([float(found[1]) if found else math.nan for found in ranks])}


def batch(pages: Sequence[Page]) -> Documents:
    """The pages of one file as the engine gives them to the step."""
    strings = {
        name: pa.array([getattr(page, name) for page in pages], pa.string())
        for name in ("id", "date", "source", "crawl", "language")
    }
    return Documents(
        {
            **strings,
            "row": pa.array(range(len(pages)), pa.int64()),
            "text": pa.array([page.text for page in pages], pa.large_string()),
            "duplicate_count": pa.array([page.weight for page in pages], pa.int64()),
            "rank.rank": pa.array([page.rank for page in pages], pa.float64()),
        }
    )


def in_memory(files: Files, parts: int, group: int, **parameters: Any) -> Decisions:
    """What the step decides with its exchange in memory; see `exchange.decide`."""
    from curation.dedup.minhash import MinHashDedup

    step = MinHashDedup.model_validate_json(json.dumps(parameters))
    names = sorted(files)
    decisions: Decisions = {
        (name, row): Kept(page.weight) for name in names for row, page in enumerate(files[name])
    }
    units = [batch(files[name]) for name in names]
    for name, found in zip(names, exchange.decide(step, units, parts, group), strict=True):
        assert list(found.rows) == sorted(set(found.rows))
        assert set(found.reasons) <= {"near_duplicate"}
        names = list(Removed.__dataclass_fields__)[1:]
        evidence = [pa.array(found.evidence[key], from_pandas=True).to_pylist() for key in names]
        for row, survivor, *more in zip(found.rows, found.survivors, *evidence, strict=True):
            decisions[name, int(row)] = Removed(survivor, *more)
        for row, count in zip(found.counted_rows, found.counts, strict=True):
            assert isinstance(decisions[name, int(row)], Kept)
            decisions[name, int(row)] = Kept(int(count))
    return decisions


RANK = {"near_duplicates:Rank": {"as": "rank"}}


def write(folder: Path, files: Files) -> Path:
    """JSONL files whose pages have addresses of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, pages in files.items():
        lines = []
        for row, page in enumerate(pages):
            rank = "" if page.rank is None else f"?rank={page.rank}"
            fields = {k: v for k, v in asdict(page).items() if v is not None}
            url = f"https://example.org/{file}/{row}{rank}"
            lines.append(json.dumps({**fields, "id": page.native, "url": url}) + "\n")
        (folder / file).write_text("".join(lines))
    return folder


def stages(*before: Mapping[str, Any], **parameters: Any) -> dict[str, Any]:
    return recipe(RANK, *before, {"minhash_dedup": parameters})


def decided(result: Path, step: str = "minhash_dedup") -> Decisions:
    """What a run decided of the pages that came to the step."""
    plan = open_plan(result)
    names = [Path(unit.input.path).name for unit in plan.units]
    documents = pq.read_table(result / "documents", columns=["url", "duplicate_count"])
    counts = dict(zip(*documents.to_pydict().values(), strict=True))
    decisions: Decisions = {}
    for line in pq.read_table(result / plan.segments[-1].directory / "signals").to_pylist():
        place = names[line["unit"]], line["row"]
        evidence = [line[f"{step}.{name}"] for name in Removed.__dataclass_fields__]
        if line["decision"] == "kept":
            assert evidence == [None] * 4
            decisions[place] = Kept(counts[line["url"]])
        elif line["reached"] == step:
            assert line["reason"] == "near_duplicate"
            decisions[place] = Removed(*evidence)
    return decisions


def rounded(decisions: Decisions) -> Decisions:
    """Equal where they differ by no more than a float32 may."""

    def number(value: float | None) -> float | None:
        return None if value is None else round(value, 5)

    return {
        at: replace(d, similarity=number(d.similarity), jaccard=number(d.jaccard))  # type: ignore[arg-type]
        if isinstance(d, Removed)
        else d
        for at, d in decisions.items()
    }


def ask(folder: Path, files: Files, *before: Mapping[str, Any], **parameters: Any) -> Result:
    """A run of `minhash_dedup` over pages, in this process."""
    inputs = write(folder / "in", files)
    work = stages(*before, **parameters)
    return run(work, inputs=[str(inputs)], output=folder / "run", workers=1)


# Pages that are alike


def words(chance: random.Random, count: int) -> list[str]:
    """Words that no two calls are likely to share."""
    return ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(count)]


def edited(text: str, chance: random.Random, changes: int) -> str:
    """The text with words at `changes` places, far apart, replaced."""
    parts = text.split()
    for i in range(changes):
        parts[(2 * i + 1) * len(parts) // (2 * changes)] = words(chance, 1)[0]
    return " ".join(parts)


def many(chance: random.Random, count: int, length: int) -> Iterator[str]:
    """Unrelated texts."""
    for _ in range(count):
        yield " ".join(words(chance, length))
