"""Packed rows taken apart again: the tokens without padding, and whole documents.

What may live here: what can be said of rows in memory, without files.
"""

from __future__ import annotations

import numpy as np

from curation.tokens.kernels import copy_pieces
from manifests.rows import Rows


def filled_tokens(rows: Rows) -> np.ndarray:
    """The tokens of all pieces one after the other, without padding: (tokens,)."""
    return _gathered(rows, np.arange(len(rows.lengths)))


def whole_documents(rows: Rows, eos: int) -> tuple[np.ndarray, np.ndarray]:
    """The documents of rows that hold all pieces of each: their tokens, and the length of each.

    A document longer than a row lies in several, which shuffling has moved apart; they are joined
    again by id and offset. Documents come in the order in which their beginnings lie in the rows.
    Of a document that is repeated, any piece that goes on where one ended will do: copies are
    equal. Raises ValueError where a piece is missing: a document begins at offset 0 and ends with
    `eos`, and nothing else does.
    """
    begins = rows.offsets == 0
    ended = rows.tokens.reshape(-1)[_places(rows) + rows.lengths - 1] == eos
    number = np.where(begins, np.cumsum(begins) - 1, -1)  # of the document of a piece
    _join(rows, begins, ended, number)
    lengths = np.bincount(number, weights=rows.lengths).astype(np.int64)
    return _gathered(rows, np.lexsort((rows.offsets, number))), lengths


def _places(rows: Rows) -> np.ndarray:
    """Where each piece begins in the rows laid end to end: int64, in tokens."""
    ends = np.cumsum(rows.lengths, dtype=np.int64)
    begins = ends - rows.lengths
    counts = np.diff(rows.starts)
    filled = rows.filled()
    shifts = np.arange(len(rows)) * rows.tokens.shape[1] - (np.cumsum(filled) - filled)
    places: np.ndarray = begins + np.repeat(shifts, counts)
    return places


def _gathered(rows: Rows, order: np.ndarray) -> np.ndarray:
    """The tokens of the pieces in this order."""
    size = rows.tokens.dtype.itemsize
    lengths = rows.lengths[order].astype(np.int64)
    ends = np.cumsum(lengths)
    tokens = np.empty(int(ends[-1]) if len(ends) else 0, rows.tokens.dtype)
    source = np.ascontiguousarray(rows.tokens).reshape(-1).view(np.uint8)
    source.flags.writeable = False  # as the kernel is compiled for
    copy_pieces(
        source,
        _places(rows)[order] * size,
        lengths * size,
        (ends - lengths) * size,
        tokens.view(np.uint8),
    )
    return tokens


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
