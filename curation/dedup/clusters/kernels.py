"""Compiled kernels of candidate groups, components and the walk; see the package's docstring.

What may live here: loops over documents and pairs, on arrays that the caller has made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curation.dedup.kernels import intersection, matches
from curation.text.cache import inline, kernel, pointer

#: Bits by which keys are sorted at a time.
DIGIT = 11


@kernel
def sort_by_digit(
    keys: Any, values: Any, shift: Any, other_keys: Any, other_values: Any, counts: Any
) -> None:
    """Moves keys and their values into the order of one digit of the keys, from bit `shift` on;
    equal ones stay in their order."""
    source, target, ends = pointer(keys), pointer(other_keys), pointer(counts)
    carried, put = pointer(values), pointer(other_values)
    mask = np.uint64((1 << DIGIT) - 1)
    counts[:] = 0
    for i in range(len(keys)):
        ends[np.int64(source[i] >> shift & mask)] += 1
    place = np.int64(0)
    for digit in range(1 << DIGIT):
        size = ends[digit]
        ends[digit] = place
        place += size
    for i in range(len(keys)):
        digit_of = np.int64(source[i] >> shift & mask)
        at = ends[digit_of]
        ends[digit_of] = at + 1
        target[at] = source[i]
        put[at] = carried[i]


@kernel
def count_edges(hashes: Any) -> Any:
    """How many of the sorted hashes equal the one before."""
    count = 0
    for i in range(1, len(hashes)):
        count += hashes[i] == hashes[i - 1]
    return count


@kernel
def find_edges(hashes: Any, documents: Any, pairs: Any) -> None:
    """The pairs of each but the last document of a run of equal hashes with the last."""
    last, n = len(hashes) - 1, 0
    for i in range(len(hashes) - 2, -1, -1):
        if hashes[i] != hashes[i + 1]:
            last = i
        else:
            pairs[n, 0], pairs[n, 1] = documents[i], documents[last]
            n += 1


@inline
def _root(parents: Any, i: Any) -> Any:
    """The root of a tree; the way to it is halved."""
    while parents[i] != i:
        parents[i] = parents[parents[i]]
        i = parents[i]
    return i


@kernel
def join(parents: Any, pairs: Any) -> None:
    for k in range(len(pairs)):
        a, b = _root(parents, np.int64(pairs[k, 0])), _root(parents, np.int64(pairs[k, 1]))
        if a < b:
            parents[b] = a
        elif b < a:
            parents[a] = b


@kernel
def label(parents: Any) -> Any:
    """From parents, none of them greater than its child, to numbers of components."""
    count = len(parents)
    for i in range(count):  # flat: a parent comes before its children
        parents[i] = parents[parents[i]]
    # Roots that have children are marked by -2, and get their number when they come up again.
    for i in range(count):
        root = parents[i]
        if root >= 0 and root != i and parents[root] == root:
            parents[root] = -2
    n = 0
    for i in range(count):
        if parents[i] == i:
            parents[i] = -1
        elif parents[i] == -2:
            parents[i] = -3 - n
            n += 1
        else:
            parents[i] = parents[parents[i]]
    for i in range(count):
        if parents[i] <= -3:
            parents[i] = -3 - parents[i]
    return n


@inline
def _jaccard(offsets: Any, hashes: Any, a: Any, b: Any) -> Any:
    """Exact Jaccard of two sorted sets; 0 where both are empty."""
    left, left_stop, right, right_stop = offsets[a], offsets[a + 1], offsets[b], offsets[b + 1]
    common = intersection(hashes, left, left_stop, hashes, right, right_stop)
    total = left_stop - left + right_stop - right - common
    return common / total if total else 0.0


@inline
def _slot(slots: Any, heads: Any, key: Any, mask: Any) -> Any:
    """Where a key lies in an open hash table, or where it would."""
    slot = key & mask
    while heads[slot] >= 0 and slots[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def walk(
    starts: Any,
    signatures: Any,
    bands: Any,
    fixed: Any,
    threshold: Any,
    exact: Any,
    offsets: Any,
    hashes: Any,
    slots: Any,
    heads: Any,
    tails: Any,
    nodes: Any,
    links: Any,
    seen: Any,
    survivors: Any,
    similarities: Any,
    jaccards: Any,
) -> None:
    """See `walk` of the package.

    An open hash table of the component's bands (`slots`) leads to the list of the kept documents
    of each band, earliest first (`heads`, `tails`; `nodes` and their `links`). Of a document, each
    kept one is verified at most once (`seen`), and a list is left at the first that verifies.
    """
    width, count = signatures.shape[1], bands.shape[1]
    data = pointer(signatures)
    for component in range(len(starts) - 1):
        first, end = starts[component], starts[component + 1]
        size = 4
        while size < 2 * (end - first) * count:
            size *= 2
        for slot in range(size):
            heads[slot] = -1
        mask = np.uint64(size - 1)
        used = 0
        for i in range(first, end):
            best = np.int64(-1)
            if not fixed[i]:
                for band in range(count):
                    node = heads[_slot(slots, heads, bands[i, band], mask)]
                    while node >= 0:
                        other = nodes[node]
                        if best >= 0 and other >= best:
                            break
                        if seen[other] != i:
                            seen[other] = i
                            similarity = (
                                matches(data, i * width, data, other * width, width) / width
                            )
                            jaccard = np.nan
                            if exact:
                                jaccard = _jaccard(offsets, hashes, i, other)
                            if (jaccard if exact else similarity) >= threshold:
                                best = other
                                survivors[i] = other
                                similarities[i] = similarity
                                jaccards[i] = jaccard
                                break
                        node = links[node]
            if best >= 0:
                continue
            for band in range(count):
                key = bands[i, band]
                slot = _slot(slots, heads, key, mask)
                nodes[used] = i
                links[used] = -1
                if heads[slot] < 0:
                    slots[slot] = key
                    heads[slot] = used
                elif nodes[tails[slot]] == i:
                    continue  # two bands of one document with the same hash
                else:
                    links[tails[slot]] = used
                tails[slot] = used
                used += 1
