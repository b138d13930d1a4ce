"""The compiled kernel that finds phrases.

What may live here: loops over UTF-8 bytes in numba; each has its plain reference in `reference.py`.
They take what those of `curation.text` take, and the arrays of `Phrases`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curation.text.cache import inline, kernel, part, pointer
from curation.text.characters import FOLD_SHIFT, NUMBER
from curation.text.kernels import (
    CLASS,
    SEED,
    Bools,
    Bytes,
    Hashes,
    Ints,
    Longs,
    Table,
    decode,
    finalise,
    mix,
)

UNDERSCORE = 95


@inline
def is_word(point: Any, entry: Any) -> Any:
    """Whether a code point, with its entry of the table, is of a word."""
    return entry & CLASS >= NUMBER or point == UNDERSCORE


@inline
def folded(point: Any, entry: Any) -> Any:
    return point ^ np.int64(entry >> FOLD_SHIFT)


@part
def phrase_end(
    data: Any, i: Any, end: Any, table: Any, bounded: Any, points: Any, first: Any, last: Any
) -> Any:
    """Where the phrase `points[first:last]` ends that is at byte `i`; 0 if it is not there."""
    for k in range(first, last):
        if i >= end:
            return 0
        point, size = decode(data, i, end)
        if folded(point, table[point]) != points[k]:
            return 0
        i += size
    if bounded and i < end:
        point, _ = decode(data, i, end)
        if is_word(point, table[point]):
            return 0
    return i


@kernel
def count_phrases(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    table: Table,
    bounded: bool,
    slots: Hashes,
    firsts: Ints,
    points: Ints,
    at: Longs,
    lasts: Bools,
    seen: Longs,
    hits: Longs,
    distinct: Longs,
) -> None:
    """Per document: how often phrases occur, and how many different ones (int64 each).

    `seen` (int64, one per phrase, -1 at first) holds the last document that contained it.
    """
    text, classes, letters = pointer(data), pointer(table), pointer(points)
    mask = np.uint64(slots.size - 1)
    for d in range(begins.size):
        end = ends[d]
        i = begins[d]
        found = 0
        different = 0
        inside = False  # the character before `i` is of a word
        while i < end:
            point, size = decode(text, i, end)
            entry = classes[point]
            word = is_word(point, entry)
            begun = inside and bounded  # nothing begins here
            inside = word
            state = mix(SEED, folded(point, entry))
            after = i + size
            while bounded and word and after < end:
                point, size = decode(text, after, end)
                entry = classes[point]
                if not is_word(point, entry):
                    break
                state = mix(state, folded(point, entry))
                after += size
            if not begun:
                value = finalise(state)
                s = value & mask
                while slots[s] != value and slots[s] != 0:
                    s = (s + np.uint64(1)) & mask
                if slots[s] == value:
                    p = firsts[s]
                    while True:
                        stop = phrase_end(text, i, end, classes, bounded, letters, at[p], at[p + 1])
                        if stop:
                            found += 1
                            different += seen[p] != d
                            seen[p] = d
                            after = stop
                            last = np.int64(letters[at[p + 1] - 1])
                            inside = is_word(last, classes[last])
                            break
                        if lasts[p]:
                            break
                        p += 1
            i = after
        hits[d] = found
        distinct[d] = different
