"""What a deduplication got right on a planted corpus, beside what MinHash can be expected to get.

What may live here: precision, recall and theory. Both engines are judged by the same functions,
from which documents they kept and, where an engine says so, for which survivor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.planted import Corpus

#: Kept members of its group that a removed document is compared with; pairs and small groups have
#: fewer, and in the large ones any two are about as alike as any others.
COMPARED = 10

LEVELS = (0.475, 0.55, 0.65, 0.75, 0.79, 0.825, 0.875, 0.925, 0.975, 1.0)  # bounds of bands


def candidate(similarity: float, bands: int = 14, rows: int = 8) -> float:
    """Probability that two documents share a band: 1 - (1 - s^r)^b."""
    return 1 - float((1 - similarity**rows) ** bands)


def found(similarity: float, verify: float, bands: int = 14, rows: int = 8) -> float:
    """Probability that two documents share a band and that as many of their signature's values
    agree as `verify` asks for.

    Agreeing values are binomial, and lie anywhere: of the ways to lay m of them into the bands,
    those that fill none are counted by inclusion and exclusion.
    """
    size, total = bands * rows, 0.0
    for m in range(math.ceil(verify * size - 1e-9), size + 1):
        ways = math.comb(size, m)
        none = sum(
            (-1) ** full * math.comb(bands, full) * math.comb(size - rows * full, m - rows * full)
            for full in range(min(bands, m // rows) + 1)
        )
        total += (ways - none) * similarity**m * (1 - similarity) ** (size - m)
    return total


def found_on_text(similarity: float, verify: float, bands: int = 14, rows: int = 8) -> float:
    """The same where the exact similarity of the texts has to reach `verify`."""
    return candidate(similarity, bands, rows) if similarity >= verify else 0.0


@dataclass(frozen=True)
class Band:
    """Pairs (groups of two) whose exact similarity is in a band: how many, which share of them was
    found, and which share theory has for candidates and for those that also pass verification."""

    low: float
    high: float
    pairs: int
    found: float
    candidates: float
    verified: float


@dataclass(frozen=True)
class Score:
    """`evidence` has an exact similarity for each removed document: to its survivor, or to the
    kept document of its group that is most alike; 0 where none was kept, or where it has no group.
    """

    documents: int
    removed: int
    evidence: np.ndarray
    recall: float  # of copies at 0.8 or above: the copy or what it was made from is removed
    copies: int
    lost_groups: int  # of which no document is left
    outsiders: int  # removed documents that were never copied
    bands: tuple[Band, ...]

    def precision(self, similarity: float) -> float:
        """Share of the removed documents for which one at least so similar was kept."""
        return float((self.evidence >= similarity).mean()) if self.removed else 1.0


def score(
    corpus: Corpus,
    truth: pa.Table,
    kept: np.ndarray,
    survivors: np.ndarray | None = None,
    expected: Callable[[float], float] = candidate,
) -> Score:
    """Holds what was kept (bool, by number) against the truth. `survivors`: by number, of the
    removed documents, -1 where there is none. `expected`: what theory has for a pair."""
    numbers, original = (truth[name].cast(pa.int64()).to_numpy() for name in ("id", "original"))
    group = np.arange(corpus.documents)
    group[numbers] = truth["group"].to_numpy()
    removed = np.flatnonzero(~kept)
    left = np.bincount(group[kept], minlength=corpus.documents)
    if survivors is None:
        evidence = _nearest(corpus, kept, group, removed)
    else:
        evidence = np.zeros(len(removed))
        named = np.flatnonzero(survivors[removed] >= 0)
        evidence[named] = corpus.jaccard(removed[named], survivors[removed[named]])

    similarity = truth["jaccard"].to_numpy()
    resolved = ~(kept[numbers] & kept[original])
    kinds = np.asarray(pc.is_in(truth["kind"], value_set=pa.array(["exact", "near", "chain"])))
    copies = kinds & (similarity >= 0.8)
    pairs = kinds & (truth["size"].to_numpy() == 2)
    sizes = np.bincount(group, minlength=corpus.documents)
    return Score(
        corpus.documents,
        len(removed),
        evidence,
        float(resolved[copies].mean()) if copies.any() else 1.0,
        int(copies.sum()),
        int(((left == 0) & (sizes > 0)).sum()),
        int((sizes[group[removed]] == 1).sum()),
        tuple(_bands(similarity[pairs], resolved[pairs], expected)),
    )


def _nearest(
    corpus: Corpus, kept: np.ndarray, group: np.ndarray, removed: np.ndarray
) -> np.ndarray:
    """Similarity of removed documents to the most similar one of the first COMPARED kept ones of
    their groups, whose members have adjacent numbers."""
    order = np.flatnonzero(kept)
    start, end = np.searchsorted(group[order], [group[removed], group[removed] + 1])
    best = np.zeros(len(removed))
    for turn in range(COMPARED):
        some = np.flatnonzero(start + turn < end)
        near = corpus.jaccard(removed[some], order[start[some] + turn])
        best[some] = np.maximum(best[some], near)
    return best


def _bands(
    similarity: np.ndarray, resolved: np.ndarray, expected: Callable[[float], float]
) -> list[Band]:
    bands = []
    for low, high in zip(LEVELS, [*LEVELS[1:], 1.1], strict=True):
        some = (similarity >= low) & (similarity < high)
        if some.any():
            values, counts = np.unique(similarity[some], return_counts=True)
            shares = counts / counts.sum()
            bands.append(
                Band(
                    low,
                    min(high, 1.0),
                    int(some.sum()),
                    float(resolved[some].mean()),
                    float(sum(candidate(s) * w for s, w in zip(values, shares, strict=True))),
                    float(sum(expected(s) * w for s, w in zip(values, shares, strict=True))),
                )
            )
    return bands
