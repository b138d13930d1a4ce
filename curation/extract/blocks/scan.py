"""The scan of a page by the compiled kernel; `reference` is the same in plain Python.

What may live here: `scan` and the tables that its kernel reads.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curation.extract.blocks import kernels
from curation.extract.blocks.page import (
    BITS,
    BLOCK,
    BORDERS,
    ELEMENT,
    KINDS,
    LINK,
    MOST_HINTS,
    RAW,
    SKIPPED,
    TAGS,
    VOID,
    Page,
)
from curation.text import characters


class _Tables(NamedTuple):
    """The tags as the kernel takes them."""

    names: NDArray[np.uint64]
    numbers: NDArray[np.int32]
    traits: NDArray[np.int32]
    hashes: NDArray[np.uint64]
    characters: NDArray[np.uint32]


def scan(source: bytes) -> Page:
    """The page of serialised HTML (UTF-8, below 2 GiB), in time and memory linear in its length."""
    data = np.frombuffer(source, np.uint8)
    tags = kernels.count_tags(data)
    # A block or a run of a link begins after a start tag or the end tag that belongs to it; one
    # record more is the block under way.
    runs = 2 * tags + 2
    sizes = ((tags + 1, ELEMENT), (runs, BLOCK), (runs, LINK))
    elements, blocks, links = (np.empty(size, dtype) for size, dtype in sizes)
    hints = np.empty(min(len(source) // 2, tags * MOST_HINTS) + MOST_HINTS, np.uint32)
    text = np.empty(len(source) + 1, np.uint8)
    state = np.zeros(kernels.STATE_SIZE, np.int64)
    records: tuple[Any, ...] = tuple(array.view(np.int32) for array in (elements, blocks, links))
    kernels.scan(data, *_tables(), *records, hints, text, state)
    found = state.tolist()
    return Page(
        data,
        elements[: found[kernels.ELEMENTS]],
        blocks[: found[kernels.BLOCKS]],
        links[: found[kernels.LINKS]],
        hints[: found[kernels.HINTS]],
        text[: found[kernels.OUT]],
        found[kernels.TITLE],
    )


@cache
def _tables() -> _Tables:
    names = np.zeros(kernels.NAME_SLOTS, np.uint64)
    numbers = np.zeros(kernels.NAME_SLOTS, np.int32)
    hashes = np.array([kernels.name_hash(name) for name in TAGS], np.uint64)
    for tag, value in enumerate(hashes.tolist()):
        slot = value % kernels.NAME_SLOTS
        while names[slot]:
            slot = (slot + 1) % kernels.NAME_SLOTS
        names[slot], numbers[slot] = value, tag
    traits = np.zeros(len(TAGS), np.int32)
    for tag in range(len(TAGS)):
        traits[tag] = (
            kernels.IS_BORDER * (tag in BORDERS)
            | kernels.IS_SKIPPED * (tag in SKIPPED)
            | kernels.IS_VOID * (tag in VOID)
            | kernels.IS_RAW * (tag in RAW)
            | (KINDS.get(tag, -1) + 1) << kernels.KIND_SHIFT
            | BITS.get(tag, 0) << kernels.ANCESTOR_SHIFT
        )
    return _Tables(names, numbers, traits, hashes, characters.table())
