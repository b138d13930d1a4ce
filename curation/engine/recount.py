"""What the books of a task say of some of its documents, so that these can be taken out of them.

What may live here: the chain gone through once more by documents whose fate is known. Nothing is
read, extracted or scored again: signals say what each filter found, the stored texts what each
editor was given. So the books are made by the same code that made them first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.document import DOCUMENT_SCHEMA, Documents, RawDocument
from curation.engine.chain import (
    DECISIONS,
    Chain,
    State,
    as_column,
    first_edit,
    measure,
    text_from,
)
from curation.engine.exchange import DamagedFile, load_edits, load_removals, whole
from curation.engine.ledger import Account, Sizes
from curation.engine.plan import Plan, Segment, Unit
from curation.engine.recipe import StageSpec
from curation.engine.tables import read_batches
from curation.engine.unit import encoded, read_unit
from curation.read import Tally
from curation.read.span import Entry, Span
from curation.stage import Editor
from manifests.records import Output, Receipt


class OtherStages(RuntimeError):
    """The documents do not come out as they did: the stages are not those that made the run."""


@dataclass(frozen=True)
class Recount:
    """The accounts of documents alone, and how many there are.

    `exact`: as they were booked, to the byte. Else a size that nothing tells any more (a payload
    whose archive is gone, a text that was not stored or came from other stages) was taken to be
    that with which the document left.
    """

    accounts: list[Account]
    kept: dict[str, int]  # documents, words, bytes
    documents: int
    exact: bool


def recount(
    plan: Plan, segment: Segment, receipt: Receipt, unit: Unit, rows: np.ndarray
) -> Recount:
    """What a task with this receipt has booked of these rows of one of its units.

    Raises DamagedFile, and OtherStages where a stage decides otherwise by now.
    """
    known = _known(plan, receipt, unit, rows)
    if not len(known):  # none came as far as this segment
        accounts = [Account(name) for name in segment.accounts]
        return Recount(accounts, {"documents": 0, "words": 0, "bytes": 0}, 0, True)
    texts = _texts(plan, segment, receipt, unit, known)
    payloads = _payloads(plan, segment, unit, known)
    for again in (True, False):  # with the edits done again; if that errs, without
        found = _Past(plan, segment, unit, known, texts, payloads).run(again)
        if found is not None:
            return found
    raise OtherStages(
        f"{segment.name}: documents of {unit.shown} do not come out of its stages as they did; "
        "take them down with the version that made the run"
    )


class _Past(Chain):
    """The chain of a segment for documents that have gone through it, as one batch.

    `known` are their rows of the signals; `texts` (`text` null where it is not stored, `words`) and
    `payloads` (bytes, -1 where nothing tells) are those that they came with, in the same order.
    """

    def __init__(
        self,
        plan: Plan,
        segment: Segment,
        unit: Unit,
        known: pa.Table,
        texts: pa.Table,
        payloads: np.ndarray,
    ) -> None:
        types = plan.signal_types(segment)
        super().__init__(segment.stages, segment.removals, types, plan.recipe.settings.seed)
        self._plan, self._segment, self._unit = plan, segment, unit
        self._names = segment.accounts or [segment.name]
        self._noted, self._texts, self._payloads = known, texts, payloads
        self._end = np.array([self._names.index(name) for name in known["reached"].to_pylist()])
        self._decision = known["decision"].to_pylist()
        self._reason = known["reason"].to_pylist()
        self._words = pc.fill_null(known["words"], 0).to_numpy()
        self._bytes = known["bytes"].to_numpy()
        self._stored = np.asarray(texts["text"].is_valid())
        self._first = _decoded_by(plan, segment, unit)
        #: Whose edits are made again, and whose text is that which the signals measured.
        self._measured = self._stored
        lost = segment.kind == "read" and plan.recipe.settings.store != "all"  # texts before edits
        self._redo = self._stored & (not lost)

    def run(self, again: bool) -> Recount | None:
        """Books the documents, `again`: edits are made again; None if one comes out otherwise."""
        if not again:
            self._redo = np.zeros(len(self._noted), dtype=bool)
        state = self._entered()
        for spec in self._segment.removals:
            exchange = self._plan.exchange_of(spec)
            if getattr(spec.stage, "edits", False):
                self.delete(spec, state, load_edits(self._plan, exchange, self._unit))
            else:
                self.remove(spec, state, load_removals(self._plan, exchange, self._unit))
        [state] = self.finish(self.stages([state]))
        if not self._as_before(state):
            return None
        words = 0 if state.sizes.words is None else int(state.sizes.words.sum())
        kept = {"documents": len(state.index), "words": words}
        kept["bytes"] = int(state.sizes.bytes.sum())
        return Recount(self.accounts, kept, len(self._noted), bool(self._sure().all()))

    def _entered(self) -> State:
        """All documents as they came to the first stage."""
        table = self._texts.set_column(
            self._texts.column_names.index("text"), "text", _filled(self._texts["text"])
        )
        columns = {name: table[name].combine_chunks() for name in table.column_names}
        docs = Documents(columns)
        if self._first:  # payloads, of which only the size is known
            docs = docs.replace(
                content=pa.nulls(len(docs), pa.large_binary()),
                text=pa.nulls(len(docs), pa.large_string()),
            )
        state = self.enter(docs, self._unit.salt)
        if self._first:
            unread = np.where(self._payloads < 0, self._left_with(state), self._payloads)
            state.sizes = Sizes(None, unread, state.sizes.keys)
        else:
            state.sizes = self._told(state, state.sizes, self._stored)
        return state

    def _left_with(self, state: State) -> np.ndarray:
        """Bytes of the texts that are extracted: as stored, else as they left."""
        lengths = pc.fill_null(pc.binary_length(self._texts["text"]), 0).to_numpy()
        return np.asarray(np.where(self._stored, lengths, self._bytes)[state.index])

    def _told(self, state: State, sizes: Sizes, told: np.ndarray) -> Sizes:
        """The sizes of the living; of those whose text is not `told` those that they left with."""
        mine = told[state.index]
        words = np.zeros(len(mine), np.int64) if sizes.words is None else sizes.words
        return Sizes(
            np.where(mine, words, self._words[state.index]),
            np.where(mine, sizes.bytes, self._bytes[state.index]),
            sizes.keys,
        )

    def _measure(self, state: State, keys: np.ndarray) -> Sizes:
        return self._told(state, measure(state.docs, keys), self._measured)

    def _recall(self, spec: StageSpec, state: State) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """What the signals say of the living. Nothing is scored."""
        living = pa.array(state.index)
        names = self._columns(spec, {}, 0)
        noted = {n: self._noted[f"{spec.name}.{n}"].combine_chunks().take(living) for n in names}
        here = self._ordinal[spec.name]
        failures = {
            i: self._reason[place]
            for i, place in enumerate(state.index.tolist())
            if self._end[place] == here and self._decision[place] == "failed"
        }
        return noted, failures

    def _edit(self, spec: StageSpec, states: Iterable[State]) -> Iterator[State]:
        account = self.accounts[self._ordinal[spec.name]]
        for state in states:
            account.enter(state.sizes)
            signals, failures = self._recall(spec, state)
            text = self._extracted(state) if spec.type == "extract" else self._edited(spec, state)
            emptied = (self._end == self._ordinal[spec.name]) & [r == "empty" for r in self._reason]
            blank = pa.array((emptied & ~self._redo)[state.index])
            text = pc.if_else(blank, pa.scalar("", text.type), text)
            self._measured = self._stored if spec.type == "extract" else self._redo
            self._apply_edit(spec, account, state, text, signals, failures)
            yield state

    def _extracted(self, state: State) -> pa.Array:
        """The texts that extraction gave."""
        return _filled(self._texts["text"]).take(pa.array(state.index))

    def _edited(self, spec: StageSpec, state: State) -> pa.Array:
        """The texts after an edit, where it can be made again; the others as they are."""
        assert isinstance(spec.stage, Editor)
        text = state.docs["text"]
        redo = self._redo[state.index]
        if not redo.any():
            return text
        edited = self._edit_safely(spec.stage, state.docs.take(redo)).text
        edited = as_column(edited).cast(text.type)
        return pc.replace_with_mask(text, pa.array(redo), edited)

    def _as_before(self, state: State) -> bool:
        """Whether all have come out as the signals say."""
        decisions = np.array(DECISIONS)[state.decision]
        if (state.stage != self._end).any() or (decisions != self._decision).any():
            return False
        if state.reason.tolist() != self._reason:
            return False
        for at, _, sizes in state.everyone():
            if (sizes.bytes != self._bytes[at]).any():
                return False
            if sizes.words is not None and (sizes.words != self._words[at]).any():
                return False
        return True

    def _sure(self) -> np.ndarray:
        """Of which documents every size is as it was booked."""
        edit = len(self._segment.removals) + first_edit(self._segment.stages)
        passed = np.array([decision == "kept" for decision in self._decision])
        # What has not passed an edit of its text left in the sizes that it came with.
        sure = self._redo | (self._end < edit) | ((self._end == edit) & ~passed)
        if self._first:
            sure &= self._payloads >= 0
        elif start := text_from(self._segment.stages):  # texts that came as such are cleaned, too
            cleaned = self._noted[f"{self._segment.stages[start - 1].name}.sanitised"]
            sure &= pc.fill_null(cleaned, 0).to_numpy() == 0
        return np.asarray(sure)


def _decoded_by(plan: Plan, segment: Segment, unit: Unit) -> int:
    """How many stages of a segment are given payloads of a unit, not texts."""
    reads = segment.kind == "read" and encoded(plan, unit)
    return text_from(segment.stages) if reads else 0


def _filled(texts: pa.ChunkedArray) -> pa.Array:
    """Something in place of texts that are not stored: only their sizes count."""
    return pc.fill_null(texts, "x").combine_chunks()


def _known(plan: Plan, receipt: Receipt, unit: Unit, rows: np.ndarray) -> pa.Table:
    """What the signals of a task say of these rows of a unit."""
    found = []
    for table in read_batches(whole(plan, receipt.outputs["signals"]), "signals/1"):
        mine = (table["unit"].to_numpy() == unit.ordinal) & np.isin(table["row"].to_numpy(), rows)
        found.append(table.filter(pa.array(mine)))
    return pa.concat_tables(found).combine_chunks()


#: What of a document the signals tell as well, also where no text was stored.
_HEAD = ("row", "id", "url", "source", "crawl", "warc_offset", "warc_length")


def _texts(plan: Plan, segment: Segment, receipt: Receipt, unit: Unit, known: pa.Table) -> pa.Table:
    """The documents as they came to the segment, with a null text where it is not stored."""
    reads = segment.kind == "read"
    source = receipt
    if not reads:
        path = plan.receipt_path(plan.before(segment), unit.name)
        found = Receipt.load(path)
        if found is None:
            raise DamagedFile(str(path.relative_to(plan.run)))
        source = found
    stored = _rows(plan, source.outputs["text"], "text/2", known["row"])
    table = stored.select(["row", "words", *DOCUMENT_SCHEMA.names])
    if not reads:
        return table
    for name in _HEAD:
        table = table.set_column(table.column_names.index(name), name, known[name])
    if _decoded_by(
        plan, segment, unit
    ):  # nothing but a stage has told the language of an archive's page
        nothing = pa.nulls(len(table), pa.string())
        table = table.set_column(table.column_names.index("language"), "language", nothing)
    if "originals" in source.outputs:
        before = _rows(plan, source.outputs["originals"], "originals/1", known["row"])["text"]
        text = pc.coalesce(before, table["text"])
        table = table.set_column(table.column_names.index("text"), "text", text)
    return table.drop_columns(["words"])  # of the text after edits


def _rows(plan: Plan, output: Output, schema: str, rows: pa.ChunkedArray) -> pa.Table:
    """These rows of a stored file, in their order; nulls for those that it does not have."""
    batches = read_batches(whole(plan, output), schema, where=("row", rows.combine_chunks()))
    none = pq.read_schema(output.locate(plan.run)).empty_table()
    table = pa.concat_tables([none, *batches]).combine_chunks()
    return table.take(pc.index_in(rows, value_set=table["row"].combine_chunks()))


def _payloads(plan: Plan, segment: Segment, unit: Unit, known: pa.Table) -> np.ndarray:
    """Bytes of the payloads of documents, before extraction; -1 where nothing tells.

    Of a document that extraction did not come to or ended at, the signals tell. For the others
    their records are looked at once more, if the archive is still there: these, and no others.
    """
    first = _decoded_by(plan, segment, unit)
    sizes = known["bytes"].to_numpy().copy()
    after = [spec.name for spec in segment.stages[first:]]
    passed = np.isin(known["reached"].to_pylist(), after)
    passed |= np.array(known["decision"].to_pylist()) == "kept"
    if first and passed.any():
        sizes[passed] = -1
        _look(plan, unit, known, sizes)
    return np.asarray(sizes)


def _look(plan: Plan, unit: Unit, known: pa.Table, sizes: np.ndarray) -> None:
    """Fills in the sizes of payloads that are -1 from the input, if it is still what it was."""
    missing = np.flatnonzero(sizes < 0).tolist()
    if known["warc_offset"].null_count:  # of files that have no records
        rows = {known["row"][i].as_py(): i for i in missing}
        for row, raw in enumerate(read_unit(plan, unit, Tally())):
            if row in rows and isinstance(raw, RawDocument):
                sizes[rows[row]] = len(raw.content or b"")
        return
    for i in missing:
        start, name = known["warc_offset"][i].as_py(), known["id"][i].as_py()
        place = replace(unit, span=Span(start, start + 1))
        for raw in read_unit(plan, place, Tally(), Entry(start)):
            if isinstance(raw, RawDocument) and raw.id == name:
                sizes[i] = len(raw.content or b"")
