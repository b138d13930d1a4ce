"""What an `encode` task makes of documents: tokens in order of key, and where each came from.

What may live here: validation or train, how often a document is repeated, the sort, and the table
of provenance. Memory: the tokens of the task three times at most, and its provenance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from curation.document import DOCUMENT_SCHEMA, id_words
from curation.tokens.encoding.batches import encode
from curation.tokens.encoding.loaded import Loaded
from curation.tokens.packing import copied
from manifests.hashing import below, keys, salt
from manifests.tokens import SPLITS

#: A document copy: its key, id and number; tokens with EOS (and BOS); the first of them in the
#: tokens of the run file; its row in the provenance.
DOC = np.dtype(
    [("key", "<u8"), ("id", "<u8", 2), ("copy", "<i4"), ("length", "<i8"), ("start", "<i8"),
     ("row", "<i8")]
)  # fmt: skip

_KEPT = ("id", "url", "date", "source", "crawl", "license", "language", "duplicate_count",
         "warc_file", "warc_offset", "warc_length")  # fmt: skip
#: One row for each distinct document, in order of the key of its first copy. Its text is row `row`
#: of `file`; `tokens` are those of one copy.
PROVENANCE = pa.schema(
    [
        *(DOCUMENT_SCHEMA.field(name) for name in _KEPT),
        ("copies", pa.int32()),
        ("tokens", pa.int64()),
        ("file", pa.string()),
        ("row", pa.int64()),
    ]
)

#: FineWeb-2's rehydration (arXiv 2506.20920; its repository): documents that stand for so many are
#: taken so many times. Those that are most often repeated are mostly boilerplate.
FINEWEB2 = ((1, 1), (2, 2), (3, 3), (5, 5), (100, 8), (1000, 1))

Repeats = Sequence[tuple[int, int]]


def repeats(value: Literal["none", "fineweb2"] | Sequence[Sequence[int]]) -> Repeats:
    """A table of (duplicate_count from here on, times), ascending, as a recipe gives it.

    Raises ValueError: one line. Counts below the first of a table are taken once.
    """
    if value == "none":
        return ((1, 1),)
    if value == "fineweb2":
        return FINEWEB2
    wrong = ValueError(f"repeat {value!r}: none, fineweb2, or [[count, times], ...] ascending")
    if isinstance(value, str):
        raise wrong
    try:
        table = [(int(count), int(times)) for count, times in value]
    except (TypeError, ValueError):
        raise wrong from None
    counts = [count for count, _ in table]
    if not table or counts != sorted(set(counts)) or min(t for _, t in table) < 1 or counts[0] < 1:
        raise wrong
    return ((1, 1), *table) if counts[0] > 1 else tuple(table)


def times(counts: pa.Array, table: Repeats) -> np.ndarray:
    """How often each document is taken (int64) by its `duplicate_count`, of which null is 1."""
    known = np.maximum(counts.fill_null(1).to_numpy(zero_copy_only=False), 1)
    bounds = np.array([count for count, _ in table])
    taken: np.ndarray = np.array([t for _, t in table])[np.searchsorted(bounds, known, "right") - 1]
    return taken


@dataclass(frozen=True)
class RunFile:
    """The documents of one split: `docs` (DOC) sorted by (key, id, copy), their `tokens` in this
    order, and their provenance."""

    docs: np.ndarray
    tokens: np.ndarray
    provenance: pa.Table


def run_files(
    batches: Iterable[Mapping[str, pa.Array]],
    loaded: Loaded,
    *,
    file: str,
    seed: int,
    validation: float,
    repeat: Repeats = ((1, 1),),
) -> dict[str, RunFile]:
    """Both splits of one file of documents, given as batches of its columns, in order of row.

    `file` as provenance names it; rows count from 0 through the batches. `validation`: the share of
    documents that are of it, by id; they are taken once, others as `repeat` says. Columns that the
    batches lack are null. The same documents in other batches give the same arrays.
    """
    gathered = [_Encoded.of(batch, loaded) for batch in batches]
    one = _Encoded.join(gathered, loaded)
    chosen = keys(salt(seed, "validation"), one.ids) < below(validation)
    taken = np.where(chosen, 1, times(one.columns["duplicate_count"], repeat))
    places = pa.array([file] * len(chosen), pa.string()), pa.array(np.arange(len(chosen)))
    columns = {**one.columns, "copies": pa.array(taken.astype(np.int32)),
               "tokens": pa.array(one.lengths), "file": places[0], "row": places[1]}  # fmt: skip
    table = pa.table([columns[name] for name in PROVENANCE.names], schema=PROVENANCE)
    return {
        split: _sorted(one, np.flatnonzero(chosen == (split == "validation")), taken, table, seed)
        for split in SPLITS
    }


@dataclass(frozen=True)
class _Encoded:
    """Documents in the order in which they came: columns, ids as words, tokens of each."""

    columns: Mapping[str, Any]
    ids: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray

    @staticmethod
    def of(batch: Mapping[str, pa.Array], loaded: Loaded) -> _Encoded:
        size = len(batch["id"])
        columns = {
            name: batch[name] if name in batch else pa.nulls(size, DOCUMENT_SCHEMA.field(name).type)
            for name in _KEPT
        }
        return _Encoded(columns, id_words(batch["id"]), *encode(loaded, batch["text"]))

    @staticmethod
    def join(parts: Sequence[_Encoded], loaded: Loaded) -> _Encoded:
        kinds = {name: DOCUMENT_SCHEMA.field(name).type for name in _KEPT}
        return _Encoded(
            {n: pa.concat_arrays([pa.array([], kinds[n]), *(p.columns[n] for p in parts)])
             for n in _KEPT},
            np.concatenate([np.empty((0, 2), np.uint64), *(part.ids for part in parts)]),
            np.concatenate([np.empty(0, loaded.dtype), *(part.tokens for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)]),
        )  # fmt: skip


def _sorted(
    one: _Encoded, rows: np.ndarray, taken: np.ndarray, table: pa.Table, seed: int
) -> RunFile:
    """The run file of the documents at `rows`: each as often as it is taken, sorted."""
    salted = salt(seed, "packing")
    first = keys(salted, one.ids[rows])
    rows = rows[np.lexsort((one.ids[rows, 1], one.ids[rows, 0], first))]
    counts = taken[rows]
    row = np.repeat(np.arange(len(rows)), counts)
    docs = np.zeros(len(row), DOC)
    docs["row"], docs["id"], docs["length"] = row, one.ids[rows[row]], one.lengths[rows[row]]
    docs["copy"] = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    docs["key"] = keys(salted, docs["id"], docs["copy"])
    docs = docs[np.lexsort((docs["copy"], docs["id"][:, 1], docs["id"][:, 0], docs["key"]))]
    docs["start"] = np.cumsum(docs["length"]) - docs["length"]
    begins = (np.cumsum(one.lengths) - one.lengths)[rows[docs["row"]]]
    tokens = np.empty(int(docs["length"].sum()), one.tokens.dtype)
    copied(one.tokens, begins, docs["length"], docs["start"], tokens)
    return RunFile(docs, tokens, table.take(rows))
