"""Pieces taken out of packed rows, the shape and order of the rows kept.

What may live here: the deletion alone, on rows in memory.
"""

from __future__ import annotations

import numpy as np

from manifests.rows import Rows


def holds(rows: Rows, ids: np.ndarray) -> np.ndarray:
    """Which pieces are of these documents: (pieces,) bool. `ids`: (n, 2) uint64."""
    found: np.ndarray = np.isin(rows.ids[:, 0], ids[:, 0])
    wanted = {tuple(pair) for pair in ids.tolist()}
    for piece in np.flatnonzero(found):  # few: half of an id is 64 bits
        found[piece] = tuple(rows.ids[piece].tolist()) in wanted
    return found


def without(rows: Rows, gone: np.ndarray, pad: int) -> Rows:
    """Rows without some pieces: the rest of each row moved left, `pad` behind it.

    `gone`: (pieces,) bool. There are as many rows as before, and other documents keep their pieces,
    lengths and offsets; a row of which nothing is left is padding alone.
    """
    width = rows.tokens.shape[1]
    room = np.arange(width)
    kept = ~gone
    tokens = rows.tokens[room < rows.filled()[:, None]][np.repeat(kept, rows.lengths)]
    before = np.concatenate([[0], np.cumsum(kept)])
    left = Rows(
        np.full_like(rows.tokens, pad),
        before[rows.starts],
        rows.lengths[kept],
        rows.offsets[kept],
        rows.ids[kept],
        rows.sources,
    )
    left.tokens[room < left.filled()[:, None]] = tokens
    return left
