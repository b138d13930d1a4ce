"""What the kernels of this package do, plainly: the reference that tests hold them to.

What may live here: short Python without regard to speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


def components(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """The component of each of `count` documents, numbered by their first document; -1: alone."""
    groups = [{i} for i in range(count)]
    for a, b in pairs:
        if groups[a] is not groups[b]:
            groups[a] |= groups[b]
            for i in groups[b]:
                groups[i] = groups[a]
    numbers: dict[int, int] = {}
    found = []
    for group in groups:
        key = min(group) if len(group) > 1 else -1
        found.append(numbers.setdefault(key, len(numbers)) if key >= 0 else -1)
    return found


def walk(
    bands: Sequence[set[int]], fixed: Sequence[bool], verifies: Callable[[int, int], bool]
) -> list[int]:
    """For each document, in order, the first kept one before it that shares a band and verifies;
    -1: it is kept itself."""
    survivors: list[int] = []
    for i, own in enumerate(bands):
        earlier = [j for j in range(i) if survivors[j] < 0 and own & bands[j] and verifies(i, j)]
        survivors.append(earlier[0] if earlier and not fixed[i] else -1)
    return survivors
