"""Bytes taken out of texts.

What may live here: the deletion of spans from a batch of texts, for edits that are decided
elsewhere.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curation.text.view import TextView, offsets_of


def delete_spans(
    view: TextView,
    documents: NDArray[np.int64],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
) -> pa.LargeStringArray:
    """The texts of a batch without the bytes [start, stop) of these documents (by place).

    Spans are ascending, not empty, disjoint, and begin and end between characters. All other bytes
    are kept. Raises ValueError for a span that is not within its document.
    """
    sizes = view.byte_counts()
    if (starts < 0).any() or (stops > sizes[documents]).any():
        raise ValueError("a span to be deleted does not lie within its document")
    edges = np.zeros(len(view.data) + 1, np.int8)
    edges[view.begins[documents] + starts] += 1
    edges[view.begins[documents] + stops] -= 1  # may be where the next one starts
    left = view.data[np.cumsum(edges[:-1], dtype=np.int8) == 0]
    gone = np.bincount(documents, stops - starts, minlength=len(view)).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets_of(sizes - gone)), pa.py_buffer(left)]
    return pa.Array.from_buffers(pa.large_string(), len(view), buffers)
