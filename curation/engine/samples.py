"""Samples: per stage and reason the k documents with the smallest hash(seed, stage, reason, id).

What may live here: how documents are chosen to be looked at, and the schema in which they are kept.
The choice depends on identity alone: never on the order, the batch or the worker.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from curation import document
from manifests.hashing import mix64

PER_REASON = 8  # documents per unit, stage and reason
MAX_TEXT = 20_000  # characters of a sample's text

SAMPLE_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),  # kept | dropped | failed | near_passed | near_failed
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("hash", pa.uint64()),
        ("row", pa.int64()),
        ("id", pa.string()),
        ("url", pa.string()),
        ("value", pa.string()),  # of the signal that decided
        ("threshold", pa.string()),
        ("text", pa.large_string()),
    ],
    metadata={"gristmill.schema": "samples/1"},
)


def id_words(ids: pa.Array) -> np.ndarray:
    """The first 64 bits of each id (32 hex digits), as uint64."""
    return np.ascontiguousarray(document.id_words(ids)[:, 0])


class Samples:
    """The smallest hashes of every (kind, stage, reason) of one task."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._kept: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        self._salts: dict[tuple[str, str, str], np.uint64] = {}

    def offer(
        self,
        kind: str,
        stage: str,
        reason: str,
        docs: Any,
        indices: np.ndarray,
        words: np.ndarray,
        values: pa.Array | None = None,
        threshold: Any = None,
    ) -> None:
        """Considers the documents `indices` of a batch; `words` are the batch's `id_words`.

        `threshold` is one for all, or an Arrow array of one per document.
        """
        if not len(indices):
            return
        key = (kind, stage, reason)
        if key not in self._salts:
            salt = hashlib.blake2b(repr((self._seed, *key)).encode(), digest_size=8).digest()
            self._salts[key] = np.uint64(int.from_bytes(salt, "big"))
        hashes = mix64(words[indices] ^ self._salts[key])
        best = self._kept.setdefault(key, [])
        for position in np.argsort(hashes, kind="stable")[:PER_REASON]:
            value = int(hashes[position])
            if len(best) == PER_REASON and value >= best[-1]["hash"]:
                break
            index = int(indices[position])
            best.append(
                {
                    "kind": kind,
                    "stage": stage,
                    "reason": reason,
                    "hash": value,
                    "row": docs["row"][index].as_py(),
                    "id": docs["id"][index].as_py(),
                    "url": docs["url"][index].as_py(),
                    "value": _shown(values[index].as_py()) if values is not None else None,
                    "threshold": _shown(
                        threshold[index].as_py() if isinstance(threshold, pa.Array) else threshold
                    ),
                    "text": _text(docs, index),
                }
            )
            best.sort(key=lambda sample: (sample["hash"], sample["id"], sample["row"]))
            del best[PER_REASON:]

    def merge(self, table: pa.Table) -> None:
        """Considers the samples of another task."""
        for sample in table.to_pylist():
            key = (sample["kind"], sample["stage"], sample["reason"])
            self._kept.setdefault(key, []).append(sample)
        for best in self._kept.values():
            best.sort(key=lambda sample: (sample["hash"], sample["id"], sample["row"]))
            del best[PER_REASON:]

    def table(self) -> pa.Table:
        rows = [sample for key in sorted(self._kept) for sample in self._kept[key]]
        return pa.Table.from_pylist(rows, schema=SAMPLE_SCHEMA)


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _text(docs: Any, index: int) -> str | None:
    if "text" not in docs:
        return None
    text = docs["text"][index].as_py()
    return None if text is None else text[:MAX_TEXT]
