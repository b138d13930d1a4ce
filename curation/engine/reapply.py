"""New thresholds on a unit that an earlier run has read: from its stored texts and signals.

What may live here: what a task takes from a base run, and from which stage on its documents go
through the chain again. Whether that is possible is for `base.py` to say.

What the stages before the first one with another decision did is copied: their accounts, samples
and the documents that they ended. All others go on from there as the chain always does it, so that
nothing but the source of a score differs: a filter takes it from the signals, and scores a document
only where the earlier run had not come so far with it. Edits are done again, on the text as it was
before the first of them; so the documents start no later than there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.document import DOCUMENT_SCHEMA, Documents
from curation.engine.chain import (
    DECISIONS,
    FAILED,
    KEPT,
    Chain,
    Memory,
    State,
    measure,
    slices,
)
from curation.engine.exchange import DamagedFile, whole
from curation.engine.ledger import Sizes, row_keys
from curation.engine.plan import Segment, Task, open_plan
from curation.engine.samples import id_words
from curation.engine.tables import ORIGINALS_SCHEMA, TEXT_SCHEMA, read_batches
from curation.stage import Filter
from manifests.records import Receipt

#: Document columns that the signals have too, also of documents that never had a text.
_HEAD = ("row", "id", "url", "source", "crawl", "language", "warc_offset", "warc_length")


class Earlier:
    """What a base run has of one unit."""

    def __init__(self, receipt: Receipt, files: Mapping[str, Path], start: int) -> None:
        self._receipt, self._files, self._start = receipt, files, start
        self.status = receipt.status
        self.reader: dict[str, Any] = receipt.counts["reader"]
        self._names: list[str] = [stage["name"] for stage in receipt.counts["stages"]]
        self._types: Mapping[str, pa.DataType] = {}
        self._filled: list[str] = []

    @staticmethod
    def of(task: Task) -> Earlier | None:
        """What the task's base run has for it; None where there is none, or it is damaged: then
        the input is read. The pieces of a divided task read, too."""
        if not task.base or task.pieces:
            return None
        base = open_plan(task.base)
        receipt = Receipt.load(base.receipt_path(base.segments[0], task.name))
        if receipt is None:
            return None
        names = {"signals", "text", "samples", "originals"} & {*receipt.outputs}
        try:
            files = {name: whole(base, receipt.outputs[name]) for name in names}
        except DamagedFile:
            return None
        return Earlier(receipt, files, task.start)

    def chain(self, segment: Segment, types: Mapping[str, pa.DataType], seed: int) -> Chain:
        """The chain from the start on, with the books of the stages before it."""
        past = set(self._names[: self._start])
        fates = self._receipt.counts["fates"]
        known = {(f["stage"], f["row"]): f["class"] for f in fates if f["stage"] not in past}
        chain = Chain(segment.stages, (), types, seed, known, self._start)
        for account, plain in zip(chain.accounts, self._receipt.counts["stages"], strict=True):
            if account.name in past:
                account.merge(plain)
        chain.fates += [fate for fate in fates if fate["stage"] in past]
        samples = pq.read_table(self._files["samples"])
        chain.samples.merge(samples.filter(pc.is_in(samples["stage"], pa.array(past, pa.string()))))
        self._types = types
        later = [spec.stage for spec in segment.stages[self._start :]]
        self._filled = [name for s in later if isinstance(s, Filter) for name in s.adds]
        return chain

    def states(self, salt: int) -> Iterator[State]:
        """The documents of the unit, whose salt is given, batch by batch: those that reached the
        start as they were there, the others as they ended."""
        texts = _Rows(self._files["text"], TEXT_SCHEMA)
        originals = _Rows(self._files.get("originals"), ORIGINALS_SCHEMA)
        for table in read_batches(self._files["signals"], "signals/1"):
            for part in _batches(table):
                last = part["row"][-1].as_py()
                yield self._state(part, texts.until(last), originals.until(last), salt)

    def _state(self, part: pa.Table, texts: pa.Table, originals: pa.Table, salt: int) -> State:
        """A batch of rows of the signals, with the texts that are stored of them."""
        rows = _numbers(part, "row")
        keys = row_keys(salt, rows)
        places = {name: place for place, name in enumerate(self._names)}
        reached = np.array([places.get(n, 0) for n in part["reached"].to_pylist()], np.int16)
        decision = np.array([DECISIONS.index(d) for d in part["decision"].to_pylist()], np.uint8)
        reason = np.array([*part["reason"].to_pylist(), None], object)[:-1]
        again = (reached >= self._start) | (decision == KEPT)
        stored = np.isin(rows, _numbers(texts, "row"))  # the others ended before they had a text
        before = _with_originals(texts, originals).drop_columns(["words"])  # of the text after
        docs = _documents(before, again[stored])
        # What later stages fill is empty before them: `base.py` sees to it.
        nothing = {n: pa.nulls(len(docs), DOCUMENT_SCHEMA.field(n).type) for n in self._filled}
        signals = {name: part[name].combine_chunks() for name in self._types}
        past = tuple(f"{name}." for name in self._names[: self._start])
        ended = pa.array(~again)
        failed = np.flatnonzero(decision == FAILED).tolist()
        reasons = reason.copy()
        reasons[again] = None
        return State(
            docs.replace(**nothing),
            np.flatnonzero(again),
            len(part),
            measure(docs, keys[again]),
            id_words(docs["id"]),
            np.where(again, 0, reached).astype(np.int16),
            np.where(again, KEPT, decision).astype(np.uint8),
            reasons,
            {
                name: column if name.startswith(past) else pc.if_else(ended, column, None)
                for name, column in signals.items()
            },
            _gone(part, texts, stored, again, keys),
            memory=Memory(signals, {i: (self._names[reached[i]], reason[i]) for i in failed}),
        )


def _gone(
    part: pa.Table, texts: pa.Table, stored: np.ndarray, again: np.ndarray, keys: np.ndarray
) -> list[tuple[np.ndarray, Documents, Sizes]]:
    """The documents that ended before the start, in the sizes that they had: with a text or
    before they had one."""
    words, size = _numbers(part, "words"), _numbers(part, "bytes")
    gone = []
    if (mask := stored & ~again).any():
        docs = _documents(texts, mask[stored])
        gone.append((np.flatnonzero(mask), docs, Sizes(words[mask], size[mask], keys[mask])))
    if (mask := ~stored).any():
        docs = _documents(part.select(_HEAD), mask)
        docs = docs.replace(content=pa.nulls(len(docs), pa.large_binary()))
        gone.append((np.flatnonzero(mask), docs, Sizes(None, size[mask], keys[mask])))
    return gone


class _Rows:
    """The rows of a stored file as a stream; none where there is no file."""

    def __init__(self, path: Path | None, schema: pa.Schema) -> None:
        name = schema.metadata[b"gristmill.schema"].decode()
        self._tables = iter(()) if path is None else read_batches(path, name)
        self._pending = schema.empty_table()

    def until(self, last: int) -> pa.Table:
        """The rows up to number `last` that were not given yet."""
        parts = []
        while True:
            count = int(np.searchsorted(_numbers(self._pending, "row"), last, side="right"))
            parts.append(self._pending.slice(0, count))
            if count < len(self._pending):
                self._pending = self._pending.slice(count)
                return pa.concat_tables(parts)
            following = next(self._tables, None)
            self._pending = self._pending.slice(count) if following is None else following
            if following is None:
                return pa.concat_tables(parts)


def _batches(table: pa.Table) -> Iterator[pa.Table]:
    """A table in slices, bounded in documents and in bytes of text."""
    return (table.slice(*place) for place in slices(_numbers(table, "bytes")))


def _with_originals(texts: pa.Table, originals: pa.Table) -> pa.Table:
    """The texts as they were before they were edited."""
    edited = pa.array(np.isin(_numbers(texts, "row"), _numbers(originals, "row")))
    column = texts["text"].combine_chunks()
    before = pc.replace_with_mask(column, edited, originals["text"].combine_chunks())
    return texts.set_column(texts.column_names.index("text"), "text", before)


def _documents(table: pa.Table, mask: np.ndarray) -> Documents:
    """The rows under a mask as documents."""
    table = table.filter(pa.array(mask)).combine_chunks()
    columns = {name: table[name].combine_chunks() for name in table.column_names if name != "kept"}
    return Documents(columns)


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    """A column of integers; 0 where it is null."""
    return np.asarray(pc.fill_null(table[name], 0).to_numpy())
