"""The compiled kernel of run files: tokens of documents into another order.

What may live here: loops over tokens in numba, each with its plain Python reference beside it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from curation.text.cache import kernel

Units = NDArray[np.uint16]
Longs = NDArray[np.int64]


@kernel
def gather(source: Units, starts: Longs, lengths: Longs, target: Units) -> None:
    """Copies the slices of `source` that begin at `starts`, one after the other, into `target`,
    which has just the room."""
    at = 0
    for i in range(len(starts)):
        begin = starts[i]
        for j in range(lengths[i]):
            target[at + j] = source[begin + j]
        at += lengths[i]


def gather_reference(source: Units, starts: Longs, lengths: Longs) -> Units:
    """The same in numpy, which needs a list of all slices."""
    slices = [source[a : a + n] for a, n in zip(starts, lengths, strict=True)]
    return np.concatenate([source[:0], *slices])
