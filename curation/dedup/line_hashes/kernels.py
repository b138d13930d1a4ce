"""The compiled kernel that hashes lines.

What may live here: loops over UTF-8 bytes in numba; each has its plain reference in `reference.py`.
"""

from __future__ import annotations

import numpy as np

from curation.text.cache import kernel, pointer
from curation.text.characters import FOLD_SHIFT, FORMAT, MARK, NUMBER, SPACE
from curation.text.kernels import (
    CLASS,
    SEED,
    Bytes,
    Hashes,
    Ints,
    Longs,
    Table,
    decode,
    finalise,
    mix,
)

NEWLINE, BLANK, ZERO = 10, 32, 48


@kernel
def hash_lines(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    table: Table,
    documents: Ints,
    hashes: Hashes,
    starts: Ints,
    stops: Ints,
) -> int:
    """Per line that has a key: the columns of `LineHashes`. Returns the number of these lines."""
    text, classes = pointer(data), pointer(table)
    n = 0
    for d in range(begins.size):
        begin, end = begins[d], ends[d]
        i = begin
        while i < end:
            start = i
            state = SEED
            empty = True
            lettered = False
            attached = False  # the last character is one of the key
            spaced = False  # white space since then
            point = 0
            while i < end:
                point, size = decode(text, i, end)
                i += size
                if point == NEWLINE:
                    break
                kind = classes[point] & CLASS
                if kind >= NUMBER or (kind == MARK and attached):
                    if spaced and not empty:
                        state = mix(state, BLANK)
                    folded = point ^ np.int64(classes[point] >> FOLD_SHIFT)
                    state = mix(state, ZERO if kind == NUMBER else folded)
                    lettered |= kind > NUMBER
                    attached = True
                    empty = spaced = False
                elif kind != FORMAT:
                    attached = False
                    spaced |= kind == SPACE
            if lettered:
                last = point != NEWLINE
                documents[n] = d
                hashes[n] = finalise(state)
                starts[n] = max(start - last, begin) - begin
                stops[n] = i - begin
                n += 1
    return n
