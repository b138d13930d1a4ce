"""The special cases as the open hash table that `kernels` read.

What may live here: the building of that table.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curation.text.datatrove import special_cases, units
from curation.text.datatrove.reference import affected
from curation.text.reference import bytes_hash

SLOTS = 4096  # for about 1,450 entries


@cache
def case_tables() -> tuple[NDArray[Any], ...]:
    """`slots`, `pieces`, `sizes` and `borders` of the special cases and units; see `kernels`."""
    slots = np.zeros(SLOTS, np.uint64)
    pieces = np.full(SLOTS, -1, np.int32)
    sizes: list[int] = []
    borders = np.zeros(512, np.uint64)

    def put(key: int, value: int) -> None:
        slot = key % SLOTS
        while slots[slot]:
            slot = (slot + 1) % SLOTS
        slots[slot], pieces[slot] = key, value

    for case, parts in special_cases().items():
        data = case.encode()
        put(bytes_hash(data), len(sizes) << 1 | affected(case))
        borders[[data[0], 256 + data[-1]]] |= np.uint64(1 << len(data))
        sizes += [*(len(part.encode()) for part in parts), 0]
    for unit in units():
        put(bytes_hash(unit.encode()) ^ 1, -1)
    return slots, pieces, np.array(sizes, np.int32), borders
