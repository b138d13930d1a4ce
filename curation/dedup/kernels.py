"""The compiled kernels of near-duplicate search.

What may live here: loops over hashes of shingles and signatures in numba (shingles are the n-grams
of `curation.text.ngrams`). Each has its plain Python reference of the same meaning in
`reference.py`; what the numbers mean is in `signatures.py`.
`offsets` (int64) and `words` (uint64) are those of `curation.text.view.Words`. Parts that other
kernels may call take pointers (`curation.text.cache.pointer`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from curation.text.cache import inline, kernel, pointer
from curation.text.kernels import finalise, mix

Longs = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Halves = NDArray[np.uint32]
Values = NDArray[np.uint16]

GOLDEN = 0x9E3779B97F4A7C15

#: Shingles whose minimum is taken in registers before a signature is touched.
BLOCK = 8


@kernel
def keep_distinct(starts: Longs, hashes: Hashes, offsets: Longs) -> None:
    """Of the sorted hashes of each document the distinct ones, moved to the front of `hashes`.

    Those of document `d` are then `hashes[offsets[d]:offsets[d + 1]]`.
    """
    n = 0
    offsets[0] = 0
    for d in range(starts.size - 1):
        first = n
        for s in range(starts[d], starts[d + 1]):
            value = hashes[s]
            if n == first or value != hashes[n - 1]:
                hashes[n] = value
                n += 1
        offsets[d + 1] = n


@kernel
def find_minima(
    starts: Longs,
    hashes: Hashes,
    multipliers: Halves,
    addends: Halves,
    minima: Halves,
    signatures: Values,
) -> None:
    """Per document: the low 16 bits of the minimum of each permutation over its shingles' hashes.

    `signatures` is flat and zero at first; `minima` is room for one signature.
    """
    source, best, target = pointer(hashes), pointer(minima), pointer(signatures)
    a, b = pointer(multipliers), pointer(addends)
    size = multipliers.size
    half = np.uint64(32)
    for d in range(starts.size - 1):
        first, stop = starts[d], starts[d + 1]
        if first == stop:
            continue
        for p in range(size):
            best[p] = np.uint32(0xFFFFFFFF)
        last = stop - 1
        for s in range(first, stop, BLOCK):
            # A block that is not full ends with the last shingle again: a minimum stays the same.
            x0 = np.uint32(source[s] >> half)
            x1 = np.uint32(source[min(s + 1, last)] >> half)
            x2 = np.uint32(source[min(s + 2, last)] >> half)
            x3 = np.uint32(source[min(s + 3, last)] >> half)
            x4 = np.uint32(source[min(s + 4, last)] >> half)
            x5 = np.uint32(source[min(s + 5, last)] >> half)
            x6 = np.uint32(source[min(s + 6, last)] >> half)
            x7 = np.uint32(source[min(s + 7, last)] >> half)
            for p in range(size):
                low = min(np.uint32(a[p] * x0 + b[p]), np.uint32(a[p] * x1 + b[p]))
                low = min(low, min(np.uint32(a[p] * x2 + b[p]), np.uint32(a[p] * x3 + b[p])))
                low = min(low, min(np.uint32(a[p] * x4 + b[p]), np.uint32(a[p] * x5 + b[p])))
                low = min(low, min(np.uint32(a[p] * x6 + b[p]), np.uint32(a[p] * x7 + b[p])))
                best[p] = min(best[p], low)
        for p in range(size):
            target[d * size + p] = np.uint16(best[p])


@kernel
def hash_bands(signatures: Values, bands: int, rows: int, salts: Hashes, hashes: Hashes) -> None:
    """Per document and band: a hash of the salt, the band's number and its values. All flat."""
    source, target = pointer(signatures), pointer(hashes)
    size = signatures.size // max(salts.size, 1)
    for d in range(salts.size):
        for k in range(bands):
            state = finalise(salts[d] + np.uint64(k) * np.uint64(GOLDEN))
            at = d * size + k * rows
            for r in range(rows):
                state = mix(state, source[at + r])
            target[d * bands + k] = finalise(state)


@inline
def matches(left: Any, i: Any, right: Any, j: Any, size: Any) -> Any:
    """How many of the `size` values from `left[i]` and `right[j]` on are equal."""
    total = np.int64(0)
    for start in range(0, size, 32_768):
        count = np.uint16(0)  # as wide as the values: so the loop fills whole vector registers
        for k in range(start, min(start + 32_768, size)):
            count = np.uint16(count + np.uint16(left[i + k] == right[j + k]))
        total += np.int64(count)
    return total


@inline
def intersection(left: Any, i: Any, i_stop: Any, right: Any, j: Any, j_stop: Any) -> Any:
    """How many values `left[i:i_stop]` and `right[j:j_stop]`, sorted and distinct, share."""
    count = 0
    while i < i_stop and j < j_stop:
        a, b = left[i], right[j]
        count += a == b
        i += a <= b
        j += b <= a
    return count


@kernel
def count_matches(left: Values, right: Values) -> int:
    """`matches` of two signatures."""
    return int(matches(pointer(left), 0, pointer(right), 0, left.size))


@kernel
def count_common(left: Hashes, right: Hashes) -> int:
    """`intersection` of two sorted arrays."""
    return int(intersection(pointer(left), 0, left.size, pointer(right), 0, right.size))
