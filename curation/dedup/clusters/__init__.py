"""Groups of near-duplicates: from documents with a common band to who survives.

What may live here: candidate groups, connected components on an array, and the walk that decides
within a component; `kernels.py` does the work, `reference.py` says plainly what it is.

Components only divide the work and decide nothing. Within one, documents are taken in their order,
and one is removed if and only if an earlier kept one shares a band with it and verifies.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

ALONE = -1  # the component of a document that has no candidates


def in_order(
    keys: NDArray[np.uint64], values: NDArray[np.integer]
) -> tuple[NDArray[np.uint64], NDArray[np.integer]]:
    """Keys in ascending order, each with its value; equal ones stay in their order.

    Takes twice as much in memory. Numpy's quick sorts leave equal keys in an order that depends on
    the processor.
    """
    kernels = _kernels()
    here, there = (keys.copy(), values.copy()), (np.empty_like(keys), np.empty_like(values))
    counts = np.empty(1 << kernels.DIGIT, np.int64)
    for shift in range(0, 64, kernels.DIGIT):  # the lowest digit first
        kernels.sort_by_digit(*here, np.uint64(shift), *there, counts)
        here, there = there, here
    return here


def edges(hashes: NDArray[np.uint64], documents: NDArray[np.integer]) -> NDArray[np.integer]:
    """Pairs (n, 2) that connect the documents of equal hash: each other one with the last.

    `hashes` and the numbers of their `documents` lie side by side, in any order.
    """
    hashes, documents = in_order(hashes, documents)
    pairs = np.empty((_kernels().count_edges(hashes), 2), documents.dtype)
    _kernels().find_edges(hashes, documents, pairs)
    return pairs


def forest(parents: NDArray[np.integer]) -> None:
    """Makes every document of a union-find array its own root."""
    parents[:] = np.arange(len(parents), dtype=parents.dtype)


def join(parents: NDArray[np.integer], pairs: NDArray[np.integer]) -> None:
    """Joins the trees of each pair: the root of the smaller number stays."""
    _kernels().join(parents, pairs)


def label(parents: NDArray[np.integer]) -> int:
    """Replaces parents by the number of the component, counted by its first document, or ALONE;
    how many components there are."""
    return int(_kernels().label(parents))


@dataclass(frozen=True)
class Found:
    """What the walk found out of each document, in its order."""

    survivors: NDArray[np.int64]  # position of the kept document that it repeats; -1: it is kept
    similarities: NDArray[np.float64]  # estimated Jaccard with it; NaN where kept
    jaccards: NDArray[np.float64]  # exact Jaccard with it; NaN where kept or not asked for


def walk(
    starts: NDArray[np.int64],
    signatures: NDArray[np.uint16],
    bands: NDArray[np.uint64],
    fixed: NDArray[np.bool_],
    threshold: float,
    shingles: tuple[NDArray[np.int64], NDArray[np.uint64]] | None = None,
) -> Found:
    """Decides about documents that are sorted by component and, within, by their order.

    `starts`: where each component begins, and the number of documents at the end; `signatures` and
    `bands`: a row for each document; `fixed`: documents that are kept in any case. `threshold`: of
    the share of equal signature values; with `shingles` (offsets, sorted distinct hashes), of the
    exact Jaccard.
    """
    count = len(signatures)
    found = Found(np.full(count, -1, np.int64), np.full(count, np.nan), np.full(count, np.nan))
    exact = shingles is not None
    offsets, hashes = shingles or (np.zeros(1, np.int64), np.zeros(0, np.uint64))
    largest = int(np.diff(starts).max(initial=0)) * (bands.shape[1] if count else 1)
    slots = 2 << max(largest, 1).bit_length()
    _kernels().walk(
        *(starts, signatures, bands, fixed, threshold, exact, offsets, hashes),
        *(np.zeros(slots, np.uint64), np.full(slots, -1, np.int64), np.full(slots, -1, np.int64)),
        *(np.empty(largest, np.int64), np.empty(largest, np.int64)),
        np.full(count, -1, np.int64),
        *(found.survivors, found.similarities, found.jaccards),
    )
    return found


def _kernels() -> ModuleType:
    """The kernels; imported only when one is to run, since numba takes its time."""
    from curation.dedup.clusters import kernels

    return kernels
