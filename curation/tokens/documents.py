"""Packed rows taken apart again: the tokens without padding, and whole documents.

What may live here: what can be said of rows in memory, without files.
"""

from __future__ import annotations

import numpy as np

from manifests.rows import Rows


def filled_tokens(rows: Rows) -> np.ndarray:
    """The tokens of all pieces one after the other, without padding: (tokens,)."""
    tokens: np.ndarray = rows.tokens[np.arange(rows.tokens.shape[1]) < rows.filled()[:, None]]
    return tokens


def whole_documents(rows: Rows, eos: int) -> tuple[np.ndarray, np.ndarray]:
    """The documents of rows that hold all pieces of each: their tokens, and the length of each.

    A document longer than a row lies in several, which shuffling has moved apart; they are joined
    again by id and offset. Documents come in the order in which their beginnings lie in the rows.
    Of a document that is repeated, any piece that goes on where one ended will do: copies are
    equal. Raises ValueError where a piece is missing: a document begins at offset 0 and ends with
    `eos`, and nothing else does.
    """
    flat = filled_tokens(rows)
    lengths = rows.lengths.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    ended = flat[starts + lengths - 1] == eos
    begins = rows.offsets == 0
    number = np.cumsum(begins) - 1  # of the document, right where a piece begins one
    if begins.all() and ended.all():
        return flat, lengths
    number[~begins] = -1
    _join(rows, begins, ended, number)
    order = np.lexsort((rows.offsets, number))
    fresh = np.cumsum(lengths[order]) - lengths[order]
    place = np.repeat(starts[order] - fresh, lengths[order]) + np.arange(len(flat))
    return flat[place], np.bincount(number, weights=lengths).astype(np.int64)


def _join(rows: Rows, begins: np.ndarray, ended: np.ndarray, number: np.ndarray) -> None:
    """Gives every later piece the number of its document. Only documents in several pieces are
    looked at one by one."""
    waiting: dict[tuple[int, int, int], list[int]] = {}
    for piece in np.flatnonzero(~begins)[::-1].tolist():  # taken from the end: the first one first
        high, low = rows.ids[piece].tolist()
        waiting.setdefault((high, low, int(rows.offsets[piece])), []).append(piece)
    for piece in np.flatnonzero(begins & ~ended).tolist():
        high, low = rows.ids[piece].tolist()
        document = number[piece]
        while not ended[piece]:
            key = (high, low, int(rows.offsets[piece] + rows.lengths[piece]))
            if not waiting.get(key):
                raise ValueError(f"document {high:016x}{low:016x}: no piece at token {key[2]}")
            piece = waiting[key].pop()
            number[piece] = document
    for (high, low, offset), left in waiting.items():
        if left:
            raise ValueError(
                f"document {high:016x}{low:016x}: a piece at {offset} without its beginning"
            )
