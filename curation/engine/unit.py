"""`run_task(plan, task) -> Receipt`: one task, from what it reads to the receipt. Plain Python.

What may live here: reading a unit in batches, running its chain, writing its files, and committing.
Nothing here knows which executor called.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.document import DOCUMENT_SCHEMA, Documents, RawBatch, RawDocument
from curation.engine.chain import (
    BATCH_BYTES,
    BATCH_DOCUMENTS,
    DECISIONS,
    KEPT,
    Chain,
    Known,
    State,
    first_edit,
    slices,
)
from curation.engine.exchange import (
    DamagedFile,
    load_edits,
    load_removals,
    load_scores,
    run_exchange,
    stored,
    whole,
)
from curation.engine.ledger import Account, ConservationError, Sizes, check_chain, check_reader
from curation.engine.listed import Sealed, mask
from curation.engine.plan import Plan, Segment, Task, Unit, check_models
from curation.engine.progress import Heartbeat
from curation.engine.reapply import Earlier
from curation.engine.recipe import StageSpec
from curation.engine.resources import Usage
from curation.engine.samples import Samples
from curation.engine.tables import (
    ORIGINALS_SCHEMA,
    TEXT_SCHEMA,
    TableWriter,
    read_batches,
    signals_schema,
    write_table,
)
from curation.read import Tally, read_raw
from curation.read.span import Entry
from curation.stage import Edits, GlobalStep, Removals, Stage
from curation.storage import InputError, same_input
from manifests.arrays import load_array, save_array
from manifests.records import Output, Receipt


def run_task(plan: Plan, task: Task, known: Known | None = None) -> Receipt:
    """Does a task and commits its receipt.

    `known` holds failures that a machine decided in an earlier run of the same task (a replay).
    Raises what the task raises; then nothing is committed. Raises OtherModel where a model or list
    on this machine is not the one of the run.
    """
    check_models(plan)
    started, usage = time.time(), Usage()
    origin: dict[str, str] = {}
    segment = plan.segments[task.segment]
    if segment.kind == "exchange":
        status, outputs, counts, timings = run_exchange(plan, segment, task)
    elif task.joins:
        status, outputs, counts, timings = _join(plan, segment, task)
    else:
        earlier = Earlier.of(task)
        status, outputs, counts, timings = _run_map(plan, segment, task, known, earlier)
        origin = {"reapplied": task.base} if earlier is not None else {}
    envelope = {
        **origin,
        "host": platform.node(),
        "pid": os.getpid(),
        "started": started,
        "stage_cpu_seconds": timings,
        **usage.read(),
    }
    receipt = Receipt(segment.name, task.name, task.key, status, outputs, counts, envelope)
    receipt.save(plan.receipt_of(task))
    if task.joins:
        shutil.rmtree(plan.pieces(task), ignore_errors=True)
    return receipt


Done = tuple[Any, dict[str, Output], dict[str, Any], dict[str, float]]


def _run_map(
    plan: Plan, segment: Segment, task: Task, known: Known | None, earlier: Earlier | None
) -> Done:
    types = plan.signal_types(segment)
    seed = plan.recipe.settings.seed
    if earlier is None:
        chain = Chain(segment.stages, segment.removals, types, seed, known)
    else:
        chain = earlier.chain(segment, types, seed)
    files = _Files(plan, segment, task, types)
    tally = Tally()
    seconds = {"(read)": 0.0}
    heart = Heartbeat(plan.receipts(segment), task.name)
    first, last = _share(plan, segment, task)
    row = 0  # of the task: the first of the next batch
    try:
        for ordinal in task.units:
            unit = plan.units[ordinal]
            states: Iterator[State]
            if earlier is not None:
                states = timed(earlier.states(unit.salt), seconds, "(read)")
            else:
                if segment.kind == "read":
                    reading = batches(read_unit(plan, unit, tally, task.entry))
                else:
                    reading = stored(plan, plan.before(segment), unit.name)
                decisions = [(spec, _decision(plan, spec, unit)) for spec in segment.removals]
                for spec in segment.applies[len(segment.removals) :]:
                    scores = load_scores(plan, plan.exchange_of(spec), unit)
                    reading = map(scores.onto, reading)
                mine = _between(timed(reading, seconds, "(read)"), first - row, last - row)
                states = (_decided(chain, chain.enter(d, unit.salt), decisions) for d in mine)
            for state in chain.finish(chain.stages(states)):
                files.write(ordinal, state)
                heart.beat(files.documents, files.kept["documents"])
            if task.is_piece and segment.kind != "read":  # a reading task has one unit
                row += _documents_of(plan, segment, unit)
        counts = _counts(task, files, chain.accounts, chain.fates)
        if segment.kind == "read":
            reader = reader_record(tally) if earlier is None else earlier.reader
            check_reader(reader)
            if not task.is_piece and reader["documents"] != files.documents:
                raise ConservationError(
                    f"{reader['documents']} documents read, {files.documents} came in"
                )
            counts["reader"] = reader
        outputs = files.close(chain.samples)
    except BaseException:
        files.discard()
        raise
    finally:
        heart.end()
    seconds.update({account.name: account.cpu for account in chain.accounts})
    seconds["(write)"] = files.cpu
    status = "incomplete" if tally.incomplete else "done"
    return status if earlier is None else earlier.status, outputs, counts, seconds


def _share(plan: Plan, segment: Segment, task: Task) -> tuple[int, int]:
    """The documents that a task takes, by their place among those of its units: all, or a piece."""
    if not task.is_piece:
        return 0, sys.maxsize
    units = [plan.units[ordinal] for ordinal in task.units]
    if segment.kind == "read":
        tally = Tally()
        for unit in units:
            for _ in read_unit(plan, unit, tally, task.entry):
                pass
        total = tally.documents
    else:
        total = sum(_documents_of(plan, segment, unit) for unit in units)
    return task.piece * total // task.pieces, (task.piece + 1) * total // task.pieces


def _counts(
    task: Task, files: _Files, accounts: list[Account], fates: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the receipt of a map task counts, but for the reader. Raises ConservationError."""
    check_chain(accounts, files.documents)
    return {
        "documents": files.documents,
        "stages": [account.plain() for account in accounts],
        "output": files.kept,
        "fates": sorted(fates, key=lambda fate: (fate["row"], fate["stage"])),
        "units": list(task.units),
    }


def _documents_of(plan: Plan, segment: Segment, unit: Unit) -> int:
    """How many documents of a unit enter a segment after the first."""
    receipt = Receipt.load(plan.receipt_path(plan.before(segment), unit.name))
    if receipt is None:
        raise DamagedFile(f"{plan.before(segment).directory}/receipts/{unit.name}.json")
    documents: int = receipt.counts["output"]["documents"]
    return documents


def _between(reading: Iterator[Documents], first: int, last: int) -> Iterator[Documents]:
    """The documents `[first, last)` of a stream, which is read to its end."""
    start = 0
    for docs in reading:
        place = np.arange(start, start + len(docs))
        start += len(docs)
        mine = (place >= first) & (place < last)
        if mine.all():
            yield docs
        elif mine.any():
            yield docs.take(mine)


def _join(plan: Plan, segment: Segment, task: Task) -> Done:
    """The outputs of a divided task from those of its pieces, in order: as if it had been whole."""
    files = _Files(plan, segment, task, plan.signal_types(segment))
    accounts = [Account(name) for name in segment.accounts]
    samples = Samples(plan.recipe.settings.seed)
    fates: list[dict[str, Any]] = []
    seconds: Counter[str] = Counter()
    pieces = []
    try:
        for piece in range(task.pieces):
            place = replace(task, piece=piece)
            receipt = Receipt.load(plan.receipt_of(place))
            if receipt is None or receipt.key != task.key:
                raise DamagedFile(str(plan.receipt_of(place).relative_to(plan.run)))
            pieces.append(receipt)
            files.append(receipt)
            for account, plain in zip(accounts, receipt.counts["stages"], strict=True):
                account.merge(plain)
            samples.merge(pq.read_table(whole(plan, receipt.outputs["samples"])))
            fates += receipt.counts["fates"]
            seconds.update(receipt.envelope["stage_cpu_seconds"])
        counts = _counts(task, files, accounts, fates)
        if segment.kind == "read":
            counts["reader"] = pieces[0].counts["reader"]
            if any(p.counts["reader"] != counts["reader"] for p in pieces):
                raise ConservationError("the pieces of the unit did not read the same")
            if counts["reader"]["documents"] != files.documents:
                raise ConservationError(f"{files.documents} documents in the pieces of the unit")
        outputs = files.close(samples)
    except BaseException:
        files.discard()
        raise
    return pieces[0].status, outputs, counts, dict(seconds)


Batch = TypeVar("Batch", Documents, State)


def timed(batches: Iterator[Batch], seconds: dict[str, float], name: str) -> Iterator[Batch]:
    """The same batches; the CPU time of this process that they take is added under `name`."""
    while True:
        start = time.process_time()
        batch = next(batches, None)
        seconds[name] += time.process_time() - start
        if batch is None:
            return
        yield batch


def _decision(plan: Plan, spec: StageSpec, unit: Unit) -> Removals | Edits:
    """What a global step has decided about a unit."""
    assert isinstance(spec.stage, GlobalStep)
    load = load_edits if spec.stage.edits else load_removals
    return load(plan, plan.exchange_of(spec), unit)


def _decided(
    chain: Chain, state: State, decisions: list[tuple[StageSpec, Removals | Edits]]
) -> State:
    for spec, decision in decisions:
        if isinstance(decision, Edits):
            chain.delete(spec, state, decision)
        else:
            chain.remove(spec, state, decision)
    return state


def reader_record(tally: Tally) -> dict[str, Any]:
    """The reader's balance as the receipt keeps it."""
    return {
        "records": tally.records,
        "documents": tally.documents,
        "skipped": dict(sorted(tally.skipped.items())),
        "notes": dict(sorted(tally.notes.items())),
        "problems": [
            {"reason": p.reason, "offset": p.offset, "detail": p.detail} for p in tally.problems
        ],
        "problem_counts": dict(sorted(tally.problem_counts.items())),
        "bytes": tally.bytes,
        "digest": tally.digest,
        "first": _place(tally.first),
        "next": _place(tally.next),
    }


def _place(entry: Entry | None) -> list[Any] | None:
    return None if entry is None else [entry.offset, entry.single]


def encoded(plan: Plan, unit: Unit) -> bool:
    """Whether the documents of a unit come as payloads, which `extract` decodes."""
    return plan.recipe.settings.inputs[unit.member].reader in ("warc", "wet", "text")


Raw = RawDocument | RawBatch | None


def read_unit(plan: Plan, unit: Unit, tally: Tally, entry: Entry | None = None) -> Iterator[Raw]:
    """The documents of a unit, with what the recipe knows of all of them filled in; None in place
    of one that the recipe's takedown lists: the others have the rows that they have without it.

    An input that cannot be read, or is not what was listed, makes the unit incomplete. `entry`: see
    `Task`.
    """
    file, settings = unit.input, plan.recipe.settings.inputs[unit.member]
    listed = plan.recipe.settings.listed
    span = None if unit.span is None else replace(unit.span, entry=entry)
    crawl = settings.crawl_of(file.path)
    try:
        if not same_input(file):
            tally.problem("changed", 0, "since the run was planned")
            return
        known = {"source": settings.source, "crawl": crawl, "license": settings.license}
        reading = read_raw(settings.reader, file.path, tally, settings.options(), span)
        for raw in _left(reading, plan.recipe.takedown, tally):
            if isinstance(raw, RawBatch):
                yield _filled(raw, known, listed)
                continue
            if listed and raw is not None:
                raw.source = settings.source or raw.source
            for name, value in known.items() if raw is not None else ():
                setattr(raw, name, getattr(raw, name) or value)
            yield raw
        if not same_input(file):
            tally.problem("changed", 0, "while it was read")
    except OSError as error:
        start = span.start if span is not None else 0
        tally.problem("unreadable", start + tally.bytes, error.strerror or str(error))
    except InputError as error:
        tally.problem("unreadable", 0, str(error))


def _left(
    reading: Iterator[RawDocument | RawBatch], listed: Sealed | None, tally: Tally
) -> Iterator[Raw]:
    """What is not taken down, and None for each document that is; they are counted as skipped."""
    if listed is None:
        yield from reading
        return
    for raw in reading:
        if not isinstance(raw, RawBatch):
            taken = listed.holds(raw.id, raw.url)
            tally.take_down(int(taken))
            yield None if taken else raw
            continue
        urls = raw.columns["url"].to_pylist() if "url" in raw.columns else [None] * len(raw)
        gone = mask(listed, raw.columns["id"].to_pylist(), urls)
        tally.take_down(int(gone.sum()))
        start = 0
        for stop in [*np.flatnonzero(gone).tolist(), len(raw)]:
            yield RawBatch({name: c.slice(start, stop - start) for name, c in raw.columns.items()})
            if stop < len(raw):
                yield None
            start = stop + 1


def _filled(raw: RawBatch, known: Mapping[str, str | None], listed: bool) -> RawBatch:
    """A batch with what the recipe knows of documents that do not say it themselves; of the inputs
    of a list, the name of the source whatever they say."""
    columns = dict(raw.columns)
    for name, value in known.items():
        own = None if listed and name == "source" else columns.get(name)
        if value is not None:
            given = pa.array([value] * len(raw), pa.string())
            columns[name] = given if own is None else pc.if_else(_said(own), own, given)
    return RawBatch(columns)


def _said(values: pa.Array) -> pa.Array:
    return pc.fill_null(pc.not_equal(values, ""), False)


_PLAIN = ("id", "url", "date", "source", "crawl", "license", "language", "media_type", "charset")


def batches(raws_in: Iterator[Raw]) -> Iterator[Documents]:
    """Raw documents as batches; nothing that is written depends on where a batch ends. None has a
    row, too, which no document has."""
    rows: list[int] = []
    raws: list[RawDocument] = []
    size = row = 0
    for raw in raws_in:
        if raw is None:
            row += 1
            continue
        if isinstance(raw, RawBatch):
            if raws:
                yield _columns(rows, raws)
                rows, raws, size = [], [], 0
            yield from _of_batch(row, raw)
            row += len(raw)
            continue
        rows.append(row)
        raws.append(raw)
        row += 1
        size += len(raw.content or b"") + len(raw.text or "")
        if len(raws) >= BATCH_DOCUMENTS or size >= BATCH_BYTES:
            yield _columns(rows, raws)
            rows, raws, size = [], [], 0
    if raws:
        yield _columns(rows, raws)


def _of_batch(row: int, raw: RawBatch) -> Iterator[Documents]:
    """Documents of a batch whose first row is given, in parts that are bounded in bytes, too."""
    size = len(raw)
    kinds = {field.name: field.type for field in DOCUMENT_SCHEMA}
    kinds |= {"media_type": pa.string(), "charset": pa.string()}
    columns = {
        name: raw.columns[name].cast(kind) if name in raw.columns else pa.nulls(size, kind)
        for name, kind in kinds.items()
    }
    columns["row"] = pa.array(np.arange(row, row + size))
    columns["duplicate_count"] = pc.fill_null(columns["duplicate_count"], 1)
    lengths = pc.binary_length(columns["text"]).to_numpy(zero_copy_only=False)
    for start, length in slices(lengths):
        yield Documents({name: c.slice(start, length) for name, c in columns.items()})


def _columns(rows: list[int], raws: list[RawDocument]) -> Documents:
    columns: dict[str, pa.Array] = {
        "row": pa.array(rows, pa.int64()),
        **{name: pa.array([getattr(raw, name) for raw in raws], pa.string()) for name in _PLAIN},
        "language_score": pa.array([raw.language_score for raw in raws], pa.float64()),
        "duplicate_count": pa.array([raw.duplicate_count for raw in raws], pa.int64()),
        "warc_file": pa.array([raw.warc_file for raw in raws], pa.string()),
        "warc_offset": pa.array([raw.warc_offset for raw in raws], pa.int64()),
        "warc_length": pa.array([raw.warc_length for raw in raws], pa.int64()),
        "metadata": pa.array([_metadata(raw) for raw in raws], pa.string()),
        "text": pa.array([raw.text for raw in raws], pa.large_string()),
    }
    if any(raw.content is not None for raw in raws):
        columns["content"] = pa.array([raw.content for raw in raws], pa.large_binary())
    return Documents(columns)


def _metadata(raw: RawDocument) -> str | None:
    if raw.metadata is None:
        return None
    try:
        text = json.dumps(dict(raw.metadata), sort_keys=True, ensure_ascii=False, default=str)
        text.encode()
    except (TypeError, ValueError):  # keys that are no strings, surrogates
        text = json.dumps({str(key): str(value) for key, value in raw.metadata.items()})
    return text


class _Records:
    """What a global step notes of the documents of a task, in a nameless file: a unit of a million
    documents has hundreds of megabytes of them."""

    def __init__(self, step: Stage) -> None:
        assert isinstance(step, GlobalStep)
        self._none = step.no_records()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115

    def add(self, records: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(records, self._none.dtype).view(np.uint8).data)

    def discard(self) -> None:
        self._file.close()

    @contextmanager
    def whole(self) -> Iterator[np.ndarray]:
        """All of them; the file is gone afterwards."""
        with self._file as file:
            size = file.tell() // self._none.dtype.itemsize
            file.flush()
            yield np.memmap(file, self._none.dtype, "r", shape=(size,)) if size else self._none


class _Files:
    """The files of a map task: signals, texts (or the final documents), samples, records."""

    def __init__(
        self, plan: Plan, segment: Segment, task: Task, types: dict[str, pa.DataType]
    ) -> None:
        self._plan, self._segment, self._task = plan, segment, task
        self._piece = task.is_piece  # its files are joined later
        self._root = plan.run / segment.directory
        if self._piece:
            self._root = plan.pieces(task) / str(task.piece)
        self._names = segment.accounts or [segment.name]
        self._signals = TableWriter(self._path("signals"), signals_schema(types))
        self._final = segment.kind == "documents"
        self._store_all = plan.recipe.settings.store == "all" and segment.kind == "read"
        #: None where no edit can have changed a text that the first segment stores.
        self._originals: TableWriter | None = None
        if self._store_all and first_edit(segment.stages) < len(segment.stages):
            self._originals = TableWriter(self._path("originals"), ORIGINALS_SCHEMA)
        self._parts: list[Output] = []
        self.cpu = 0.0  # seconds of this process spent encoding tables
        self._text = self._next_text()
        self._prepared = {spec.name: _Records(spec.stage) for spec in segment.prepares}
        self.documents = 0
        self.kept = {"documents": 0, "words": 0, "bytes": 0}

    def _path(self, kind: str) -> Path:
        return self._root / kind / f"{self._task.name}.parquet"

    def _next_text(self) -> TableWriter:
        if not self._final:
            return TableWriter(self._path("text"), TEXT_SCHEMA)
        if self._piece:
            return TableWriter(self._path("documents"), DOCUMENT_SCHEMA)
        suffix = f"-{len(self._parts):03d}" if self._parts else ""
        path = self._plan.run / "documents" / f"{self._task.name}{suffix}.parquet"
        return TableWriter(path, DOCUMENT_SCHEMA, self._plan.recipe.settings.output.file_size)

    def write(self, ordinal: int, state: State) -> None:
        """Stores what became of a batch."""
        self.documents += state.size
        self.kept["documents"] += len(state.index)
        self.kept["bytes"] += int(state.sizes.bytes.sum())
        if state.sizes.words is not None:
            self.kept["words"] += int(state.sizes.words.sum())
        storing = state.everyone() if self._store_all else state.everyone()[-1:]
        texts = [_text_table(state, *some) for some in storing if "content" not in some[1]]
        table = pa.concat_tables([TEXT_SCHEMA.empty_table(), *texts])
        if len(texts) > 1:
            table = table.sort_by("row")
        if self._final:
            table = table.select(DOCUMENT_SCHEMA.names)
        self._signals.write(_signals_table(ordinal, state, self._names))
        self._write_text(table)
        if self._originals is not None:
            self._originals.write(_originals_table(state))
        for spec in self._segment.prepares:
            assert isinstance(spec.stage, GlobalStep)
            if len(state.index):
                living = pa.array(state.index)
                signals = {name: state.signals[name].take(living) for name in spec.stage.signals()}
                self._prepared[spec.name].add(spec.stage.prepare(state.docs.replace(**signals)))

    def _write_text(self, table: pa.Table) -> None:
        while len(table := self._text.write(table)):
            self._parts.append(self._close(self._text))
            self._text = self._next_text()

    def append(self, piece: Receipt) -> None:
        """Stores what a piece of this task has stored."""
        self.documents += piece.counts["documents"]
        for name in self.kept:
            self.kept[name] += piece.counts["output"][name]
        for table in read_batches(whole(self._plan, piece.outputs["signals"]), "signals/1"):
            self._signals.write(table)
        text = piece.outputs["documents" if self._final else "text"]
        schema = (DOCUMENT_SCHEMA if self._final else TEXT_SCHEMA).metadata[b"gristmill.schema"]
        for table in read_batches(whole(self._plan, text), schema.decode()):
            self._write_text(table)
        if self._originals is not None:
            path = whole(self._plan, piece.outputs["originals"])
            for table in read_batches(path, "originals/1"):
                self._originals.write(table)
        for spec in self._segment.prepares:
            records = load_array(whole(self._plan, piece.outputs[f"{spec.name}.records"]))
            self._prepared[spec.name].add(records)

    def close(self, samples: Samples) -> dict[str, Output]:
        """Commits every file."""
        run = self._plan.run
        outputs = {"signals": self._close(self._signals)}
        self._parts.append(self._close(self._text))
        for number, part in enumerate(self._parts):
            name = "documents" if self._final else "text"
            outputs[name if not number else f"{name}-{number:03d}"] = part
        if self._originals is not None:
            outputs["originals"] = self._close(self._originals)
        outputs["samples"] = write_table(self._path("samples"), samples.table(), run)
        for spec in self._segment.prepares:
            path = self._root / "work" / f"{self._task.name}.{spec.name}.records.npy"
            with self._prepared[spec.name].whole() as records:
                outputs[f"{spec.name}.records"] = save_array(path, records, run)
        return outputs

    def _close(self, writer: TableWriter) -> Output:
        output = writer.close(self._plan.run)
        self.cpu += writer.cpu
        return output

    def discard(self) -> None:
        for writer in (self._signals, self._text, self._originals):
            if writer is not None:
                writer.discard()
        for records in self._prepared.values():
            records.discard()


def _signals_table(ordinal: int, state: State, names: list[str]) -> pa.Table:
    everyone = state.everyone()
    back = pa.array(np.argsort(np.concatenate([at for at, _, _ in everyone]), kind="stable"))
    columns: dict[str, Any] = {}
    for name in ("row", "id", "url", "source", "crawl", "language", "warc_offset", "warc_length"):
        columns[name] = pa.concat_arrays([docs[name] for _, docs, _ in everyone]).take(back)
    words = [
        pa.nulls(len(at), pa.int64()) if sizes.words is None else pa.array(sizes.words)
        for at, _, sizes in everyone
    ]
    columns["words"] = pa.concat_arrays(words).take(back)
    columns["bytes"] = pa.array(np.concatenate([s.bytes for _, _, s in everyone])).take(back)
    columns["unit"] = pa.array(np.full(state.size, ordinal, dtype=np.int32))
    columns["reached"] = pa.array(names).take(pa.array(state.stage.astype(np.int64)))
    columns["decision"] = pa.array(DECISIONS).take(pa.array(state.decision.astype(np.int64)))
    columns["reason"] = pa.array(state.reason.tolist(), pa.string())
    return pa.table({**columns, **state.signals})


def _text_table(state: State, at: np.ndarray, docs: Documents, sizes: Sizes) -> pa.Table:
    columns = {name: docs[name] for name in ("row", *DOCUMENT_SCHEMA.names)}
    columns["kept"], columns["words"] = state.decision[at] == KEPT, sizes.words
    return pa.table(columns).select(TEXT_SCHEMA.names).cast(TEXT_SCHEMA)


def _originals_table(state: State) -> pa.Table:
    """Of the documents that edits have changed, the texts before the first of them."""
    if not state.originals:
        return ORIGINALS_SCHEMA.empty_table()
    # All documents of a batch have rows in ascending order, and so have positions.
    at, first = np.unique(np.concatenate([at for at, _ in state.originals]), return_index=True)
    texts = pa.concat_arrays([texts for _, texts in state.originals]).take(pa.array(first))
    rows = np.empty(state.size, dtype=np.int64)
    for place, docs, _ in state.everyone():
        rows[place] = docs["row"].to_numpy(zero_copy_only=False)
    return pa.table({"row": pa.array(rows[at]), "text": texts})
