"""The plain Python of `kernels`: slow, and meant to be read.

What may live here: packing over lists of lengths, sorting and copying over lists.
"""

from __future__ import annotations

from collections.abc import Sequence


def counting_sort(values: Sequence[int]) -> list[int]:
    """The indices of the values, ascending and stable."""
    return sorted(range(len(values)), key=lambda i: values[i])


def best_fit(lengths: Sequence[int], length: int, most: int) -> list[int]:
    """The row of each piece by best-fit-decreasing, equal pieces in their order."""
    rows: list[list[int]] = []  # of each its pieces, in the order in which they came
    decreasing = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    came = {i: moment for moment, i in enumerate(decreasing)}
    row_of = [0] * len(lengths)
    for i in decreasing:
        fitting = []
        for row, pieces in enumerate(rows):
            room = length - sum(lengths[piece] for piece in pieces)
            if room >= lengths[i] and len(pieces) < most:
                fitting.append((room, -came[pieces[-1]], row))
        if not fitting:
            fitting.append((length, 0, len(rows)))
            rows.append([])
        row_of[i] = min(fitting)[2]
        rows[row_of[i]].append(i)
    return row_of


def concat(lengths: Sequence[int], length: int, most: int) -> list[tuple[int, int, int]]:
    """(document, first token, row) of each piece of the documents one after the other."""
    pieces: list[tuple[int, int, int]] = []
    row, used, count = 0, 0, 0
    for document, tokens in enumerate(lengths):
        for token in range(tokens):
            if used == length or (token == 0 and count == most):
                row, used, count = row + 1, 0, 0
            if token == 0 or used == 0:
                pieces.append((document, token, row))
                count += 1
            used += 1
    return pieces


def copy_pieces(
    source: bytes, starts: Sequence[int], sizes: Sequence[int], places: Sequence[int], target: bytes
) -> bytes:
    """The target after each piece of the source was written to its place."""
    written = bytearray(target)
    for start, size, place in zip(starts, sizes, places, strict=True):
        written[place : place + size] = source[start : start + size]
    return bytes(written)
