"""The compiled kernels of packing.

What may live here: loops over lengths of pieces in numba. Each has its plain Python reference of
the same meaning in `reference.py`. Lengths are at least 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from curation.text.cache import inline, kernel, pointer

Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@kernel
def counting_sort(values: Longs, limit: int, order: Longs) -> None:
    """`order`: the indices of the values, which are from 0 to `limit`, ascending and stable."""
    starts = np.zeros(limit + 2, np.int64)
    for value in values:
        starts[value + 1] += 1
    for value in range(limit):
        starts[value + 1] += starts[value]
    for i in range(values.size):
        order[starts[values[i]]] = i
        starts[values[i]] += 1


@inline
def find_room(tree: Any, leaves: Any, wanted: Any) -> Any:
    """The least room, at least `wanted`, that some row has; -1 where none has.

    `tree[leaves + r]` says whether a row with room `r` is there, each node above whether one of its
    two children says so.
    """
    node = leaves + wanted
    if tree[node]:
        return wanted
    while node > 1 and (node & 1 or not tree[node + 1]):
        node >>= 1
    if node <= 1:
        return -1
    node += 1
    while node < leaves:
        node *= 2
        if not tree[node]:
            node += 1
    return node - leaves


@inline
def mark(tree: Any, node: Any) -> None:
    """A room is there from now on."""
    while node and not tree[node]:
        tree[node] = 1
        node >>= 1


@inline
def unmark(tree: Any, node: Any) -> None:
    """A room is there no longer."""
    tree[node] = 0
    node >>= 1
    while node and not (tree[2 * node] or tree[2 * node + 1]):
        tree[node] = 0
        node >>= 1


@kernel
def best_fit(
    lengths: Longs, order: Longs, length: int, most: int, row_of: Longs, nodes: Bytes
) -> int:
    """The row of each piece, placed in this order; returns how many rows there are.

    `nodes`: twice as many zeros as the least power of two above `length`. They are the caller's,
    as an array of the kernel's own would be freed once it has become a pointer.

    A piece goes to the row with the least room that has enough, among equals to the one that got a
    piece last, else to a new row. A row has room for `length` tokens and `most` pieces.
    """
    leaves = nodes.size // 2
    latest = np.full(length + 1, -1, np.int64)  # by room: the row that came to it last
    before = np.empty(lengths.size, np.int64)  # by row: the one that came to its room before it
    pieces = np.zeros(lengths.size, np.int64)
    tree = pointer(nodes)
    rows = 0
    for i in order:
        room = find_room(tree, leaves, lengths[i])
        if room < 0:
            row, room = rows, length
            rows += 1
        else:
            row = latest[room]
            latest[room] = before[row]
            if latest[room] < 0:
                unmark(tree, leaves + room)
        row_of[i] = row
        pieces[row] += 1
        room -= lengths[i]
        if room and pieces[row] < most:
            if latest[room] < 0:
                mark(tree, leaves + room)
            before[row] = latest[room]
            latest[room] = row
    return rows


@kernel
def concat(
    lengths: Longs, length: int, most: int, document: Longs, offset: Longs, row_of: Longs
) -> tuple[int, int]:
    """Documents one after the other, cut where a row is full; returns how many pieces and rows.

    Of each piece its document, its first token there and its row. A row ends with `most` pieces.
    There are at most as many pieces as documents and full rows.
    """
    n = rows = pieces = 0
    room = 0
    for d in range(lengths.size):
        begin = 0
        while begin < lengths[d]:
            if room == 0 or pieces == most:
                rows += 1
                room, pieces = length, 0
            size = min(room, lengths[d] - begin)
            document[n], offset[n], row_of[n] = d, begin, rows - 1
            n += 1
            pieces += 1
            begin += size
            room -= size
    return n, rows


@kernel
def copy_pieces(source: Bytes, starts: Longs, sizes: Longs, places: Longs, target: Bytes) -> None:
    """`sizes[i]` bytes from `source[starts[i]]` to `target[places[i]]`, for each i."""
    here, there = pointer(source), pointer(target)
    for i in range(starts.size):
        start, place = starts[i], places[i]
        for k in range(sizes[i]):
            there[place + k] = here[start + k]
