"""Packing: the documents of one window as rows of exactly L tokens.

What may live here: windows, and how the documents of one become rows. Loops are in `kernels.py`.

`best_fit` is best-fit-decreasing (Ding et al., "Fewer Truncations Improve Language Modeling",
arXiv:2404.10830): a document of up to L tokens is never cut; a longer one is split beforehand into
pieces of L and a rest, and all pieces are packed. `concat` lays the documents one after the other
and cuts them at the end of a row. Neither loses a token. Both take documents in order of
(key, id, copy), so that rows depend on the documents of the window alone.

The pieces of a row lie in the order in which they were placed: by `best_fit` the longest first,
equal ones by (key, id, copy, piece); by `concat` as they come. The rows are shuffled by a hash.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from curation.tokens import kernels
from manifests.hashing import keys, mix64, salt
from manifests.rows import Rows

VERSION = 1

#: Tokens of a window at most, on average over the windows: 128 or 256 MiB as packed rows.
WINDOW = 1 << 26

#: What a document takes in memory while its window is packed, beside its tokens, in tokens.
DOCUMENT = 128


@dataclass(frozen=True)
class Pieces:
    """Pieces of documents in the order in which they were placed, and their rows."""

    document: np.ndarray  # int64: index into the lengths that were packed
    offset: np.ndarray  # int64: first token inside the document
    length: np.ndarray  # int64
    row: np.ndarray  # int64
    rows: int


def best_fit(lengths: np.ndarray, row_length: int, max_pieces: int) -> Pieces:
    """Best-fit-decreasing over documents of these lengths (int64, at least 1)."""
    counts = -(-lengths // row_length)
    document = np.repeat(np.arange(len(lengths)), counts)
    firsts = np.cumsum(counts) - counts
    offset = (np.arange(len(document)) - firsts[document]) * row_length
    length = np.minimum(lengths[document] - offset, row_length)
    order, row = np.empty_like(length), np.empty_like(length)
    kernels.counting_sort(row_length - length, row_length, order)
    nodes = np.zeros(2 << int(row_length).bit_length(), np.uint8)
    rows = kernels.best_fit(length, order, row_length, max_pieces, row, nodes)
    return Pieces(document[order], offset[order], length[order], row[order], rows)


def concat(lengths: np.ndarray, row_length: int, max_pieces: int) -> Pieces:
    """Documents of these lengths (int64, at least 1) one after the other."""
    most = len(lengths) + int(lengths.sum()) // row_length
    document, offset, row = (np.empty(most, np.int64) for _ in range(3))
    n, rows = kernels.concat(lengths, row_length, max_pieces, document, offset, row)
    document, offset, row = document[:n], offset[:n], row[:n]
    ends = np.append(offset[1:], 0)  # of a document that goes on: where its next piece begins
    length = np.where(ends > 0, ends, lengths[document]) - offset
    return Pieces(document, offset, length, row, rows)


ALGORITHMS: Mapping[str, Callable[[np.ndarray, int, int], Pieces]] = {
    "best_fit": best_fit,
    "concat": concat,
}


def window_bits(tokens: int, documents: int = 0, target: int = WINDOW) -> int:
    """How many bits of the key name the window: so many that one has `target` tokens or fewer on
    average, each document counted as DOCUMENT tokens more."""
    windows = -(-(tokens + DOCUMENT * documents) // target)
    return max(windows - 1, 0).bit_length()


def in_window(docs: np.ndarray, bits: int, window: int) -> np.ndarray:
    """The documents of a window, of the sorted documents of a run file: a slice."""
    bounds = (window << 64 - bits, window + 1 << 64 - bits)
    first, stop = (bisect_left(docs["key"], bound, key=int) for bound in bounds)
    return docs[first:stop]


def pack(
    slices: Sequence[tuple[np.ndarray, np.ndarray]],
    row_length: int,
    max_pieces: int,
    algorithm: str,
    seed: int,
    fill: int,
    source: int = 0,
) -> Rows:
    """The rows of one window.

    `slices` (at least one): of each run file the documents of the window (`encoding.runs.DOC`) and
    all tokens of the file. Their order matters only to documents that agree in key, id and copy.
    `fill` is the token after the last piece of a row, `source` the ordinal of the source that the
    rows are of.

    Memory is that of the rows, of the pages of memory-mapped tokens, which are read from front to
    back, and of some DOCUMENT tokens per document. Raises ValueError where a document has no tokens
    or not those of its file.
    """
    docs = np.concatenate([part for part, _ in slices])
    origin = np.repeat(np.arange(len(slices)), [len(part) for part, _ in slices])
    sizes = np.array([len(tokens) for _, tokens in slices])
    beyond = (docs["start"] < 0) | (docs["start"] + docs["length"] > sizes[origin])
    if np.any(beyond | (docs["length"] < 1)):
        raise ValueError("the documents of a run file are not those of its tokens")
    order = np.lexsort((docs["copy"], docs["id"][:, 1], docs["id"][:, 0], docs["key"]))
    docs, origin = docs[order], origin[order]
    pieces = ALGORITHMS[algorithm](docs["length"].copy(), row_length, max_pieces)
    pieces = _shuffled(pieces, docs, seed)
    starts = np.searchsorted(pieces.row, np.arange(pieces.rows + 1))
    before = np.cumsum(pieces.length) - pieces.length
    dtype = slices[0][1].dtype
    tokens = np.full((pieces.rows, row_length), fill, dtype)
    _fill(
        tokens,
        [tokens for _, tokens in slices],
        origin[pieces.document],
        docs["start"][pieces.document] + pieces.offset,
        pieces.length,
        pieces.row * row_length + before - before[starts[pieces.row]],
    )
    return Rows(
        tokens,
        starts,
        pieces.length.astype(np.int32),
        pieces.offset,
        docs["id"][pieces.document],
        np.full(pieces.rows, source, np.int16),
    )


def _shuffled(pieces: Pieces, docs: np.ndarray, seed: int) -> Pieces:
    """The same rows by the hashes of their first pieces, and the pieces row by row."""
    first = np.empty(pieces.rows, np.int64)
    first[pieces.row[::-1]] = np.arange(len(pieces.row))[::-1]  # the last one written stays
    begins = docs[pieces.document[first]]
    hashes = keys(salt(seed, "rows"), begins["id"], begins["copy"])
    hashes = mix64(hashes + pieces.offset[first].astype(np.uint64))
    rank = np.empty(pieces.rows, np.int64)
    rank[np.argsort(hashes, kind="stable")] = np.arange(pieces.rows)
    row = rank[pieces.row]
    order = np.empty(len(row), np.int64)
    kernels.counting_sort(row, pieces.rows, order)
    columns = (pieces.document, pieces.offset, pieces.length, row)
    document, offset, length, row = (column[order] for column in columns)
    return Pieces(document, offset, length, row, pieces.rows)


def _fill(
    target: np.ndarray,
    sources: Sequence[np.ndarray],
    origin: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    places: np.ndarray,
) -> None:
    """Copies pieces into the rows, from one source after the other, each from front to back."""
    order = np.lexsort((starts, origin))
    bounds = np.searchsorted(origin[order], np.arange(len(sources) + 1))
    for i, source in enumerate(sources):
        mine = order[bounds[i] : bounds[i + 1]]
        if len(mine):
            copied(source, starts[mine], lengths[mine], places[mine], target)


def copied(
    source: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    places: np.ndarray,
    target: np.ndarray,
) -> None:
    """Copies slices of tokens (`lengths` of them from `starts` on, int64) to `places` in `target`,
    whose rows count as one array."""
    size = target.dtype.itemsize  # bytes, so that one kernel does for both widths
    read_only = np.asarray(source).view(np.uint8)
    read_only.flags.writeable = False  # as memory-mapped ones are: one compiled kernel
    at, sizes, to = (size * column for column in (starts, lengths, places))
    kernels.copy_pieces(read_only, at, sizes, to, target.reshape(-1).view(np.uint8))
