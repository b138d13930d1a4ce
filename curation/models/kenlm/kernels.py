"""The compiled kernels of estimating n-gram models.

What may live here: loops over the tokens of a corpus, and filling hash tables, in numba. Each has
its plain Python reference of the same meaning in `reference.py`. `tokens` are the ids of a `Corpus`
(`estimate.py`): those up to `BOUNDARY` stand before a sentence's first word, and no n-gram reaches
beyond one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from curation.text.cache import kernel

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Hashes = NDArray[np.uint64]

#: `<unk>` (0) and `<s>` (1): see `estimate.Corpus`.
BOUNDARY = 1


@kernel
def extend_order(tokens: Ints, starts: Longs, places: Ints, result: Ints) -> None:
    """From the places in order of the k tokens that end there to those in order of k + 1.

    A counting sort, stable: the place after each of `places`, in turn, goes to its token's next
    free slot. `starts` (changed) has the first slot of each token. Before the first place comes the
    last one.
    """
    for i in range(places.size):
        place = places[i] + 1
        if place == places.size:
            place = 0
        token = tokens[place]
        result[starts[token]] = place
        starts[token] += 1


@kernel
def compare_neighbours(
    tokens: Ints, places: Ints, order: int, depths: Bytes, shared: Bytes
) -> None:
    """Of each place, in order: how long n-grams that end there can be (at most `order`), and how
    many of their last tokens are those of the place before; `order` where all are."""
    for i in range(places.size):
        place, before = places[i], places[i - 1]
        depth = 1
        while depth < order and tokens[place - depth + 1] > BOUNDARY:
            depth += 1
        depths[i] = depth
        same = 0
        while i > 0 and same < depth and tokens[place - same] == tokens[before - same]:
            same += 1
        shared[i] = order if same == depth else same


@kernel
def probe(hashes: Hashes, taken: Bytes, slots: Longs) -> None:
    """The slot of each hash, in turn, in a table with linear probing; `taken` is 0 at first."""
    for i in range(hashes.size):
        slot = np.int64(hashes[i] % np.uint64(taken.size))
        while taken[slot]:
            slot += 1
            if slot == taken.size:
                slot = np.int64(0)
        taken[slot] = 1
        slots[i] = slot
