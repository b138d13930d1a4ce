"""`run_task(plan, task) -> Receipt`: one task, from what it reads to the receipt. Plain Python.

What may live here: reading a unit in batches, running its chain, writing its files, and committing.
Nothing here knows which executor called.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curation.document import DOCUMENT_SCHEMA, Documents, RawDocument
from curation.engine.chain import DECISIONS, KEPT, Chain, Known, State
from curation.engine.exchange import (
    DamagedFile,
    load_removals,
    run_exchange,
    save_array,
    whole,
)
from curation.engine.ledger import check_chain, check_reader
from curation.engine.plan import Plan, Segment, Task
from curation.engine.progress import Heartbeat
from curation.engine.tables import (
    TEXT_SCHEMA,
    TableWriter,
    read_batches,
    signals_schema,
    write_table,
)
from curation.read import Tally, read
from curation.stage import GlobalStep, Removals
from curation.storage import InputError, InputFile, same_input
from manifests.records import Output, Receipt

BATCH_DOCUMENTS = 256
BATCH_BYTES = 8 << 20  # of payload or text


def run_task(plan: Plan, task: Task, known: Known | None = None) -> Receipt:
    """Does a task and commits its receipt.

    `known` holds failures that a machine decided in an earlier run of the same task (a replay).
    Raises what the task raises; then nothing is committed.
    """
    started, cpu = time.time(), _cpu()
    own = time.process_time()
    segment = plan.segments[task.segment]
    if segment.kind == "exchange":
        status, outputs, counts, timings = run_exchange(plan, segment, task)
    else:
        status, outputs, counts, timings = _run_map(plan, segment, task, known)
    envelope = {
        "host": platform.node(),
        "pid": os.getpid(),
        "started": started,
        "seconds": time.time() - started,
        "cpu_seconds": _cpu() - cpu,
        "own_cpu_seconds": time.process_time() - own,
        "stage_cpu_seconds": timings,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "child_peak_bytes": _child_peak(),
    }
    receipt = Receipt(segment.name, task.name, task.key, status, outputs, counts, envelope)
    receipt.save(plan.receipt_path(segment, task.name))
    return receipt


def _cpu() -> float:
    """CPU seconds of this process and of its children, ended or not."""
    import psutil

    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return total + ended.ru_utime + ended.ru_stime


def _child_peak() -> int:
    """Bytes: the largest resident size that a living child has reached."""
    peak = 0
    try:
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        for child in children:
            for line in Path(f"/proc/{child}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    peak = max(peak, int(line.split()[1]) * 1024)
    except OSError:
        return peak
    return peak


Done = tuple[Any, dict[str, Output], dict[str, Any], dict[str, float]]


def _run_map(plan: Plan, segment: Segment, task: Task, known: Known | None) -> Done:
    types = plan.signal_types(segment)
    chain = Chain(segment.stages, segment.removals, types, plan.recipe.settings.seed, known)
    files = _Files(plan, segment, task, types)
    tally = Tally()
    seconds = {"(read)": 0.0}
    heart = Heartbeat(plan.receipts(segment), task.name)
    try:
        if segment.kind == "read":
            unit = plan.units[task.units[0]]
            reading = timed(batches(read_unit(plan, unit.input, tally)), seconds, "(read)")
            states = (chain.enter(docs, unit.salt) for docs in reading)
            for state in chain.finish(chain.stages(states)):
                files.write(unit.ordinal, state)
                heart.beat(files.documents, files.kept["documents"])
        else:
            for ordinal in task.units:
                unit = plan.units[ordinal]
                removals = [
                    (spec, load_removals(plan, plan.exchange_of(spec), unit))
                    for spec in segment.removals
                ]
                reading = timed(stored(plan, plan.before(segment), unit.name), seconds, "(read)")
                states = (
                    _after_removals(chain, chain.enter(docs, unit.salt), removals)
                    for docs in reading
                )
                for state in chain.finish(chain.stages(states)):
                    files.write(ordinal, state)
                    heart.beat(files.documents, files.kept["documents"])
        documents = tally.documents if segment.kind == "read" else files.documents
        check_chain(chain.accounts, documents)
        counts: dict[str, Any] = {
            "documents": documents,
            "stages": [account.plain() for account in chain.accounts],
            "output": files.kept,
            "fates": sorted(chain.fates, key=lambda fate: (fate["row"], fate["stage"])),
            "units": list(task.units),
        }
        if segment.kind == "read":
            counts["reader"] = reader_record(tally)
            check_reader(counts["reader"])
        outputs = files.close(chain)
    except BaseException:
        files.discard()
        raise
    finally:
        heart.end()
    seconds.update({account.name: account.cpu for account in chain.accounts})
    seconds["(write)"] = files.cpu
    return "incomplete" if tally.incomplete else "done", outputs, counts, seconds


def timed(
    batches: Iterator[Documents], seconds: dict[str, float], name: str
) -> Iterator[Documents]:
    """The same batches; the CPU time of this process that they take is added under `name`."""
    while True:
        start = time.process_time()
        docs = next(batches, None)
        seconds[name] += time.process_time() - start
        if docs is None:
            return
        yield docs


def _after_removals(chain: Chain, state: State, removals: list[tuple[Any, Removals]]) -> State:
    for spec, removal in removals:
        chain.remove(spec, state, removal)
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
    }


def read_unit(plan: Plan, file: InputFile, tally: Tally) -> Iterator[RawDocument]:
    """The documents of an input, with what the recipe knows of all of them filled in.

    An input that cannot be read, or is not what was listed, makes the unit incomplete.
    """
    settings = plan.recipe.settings.input
    crawl = settings.crawl_of(file.path)
    try:
        if not same_input(file):
            tally.problem("changed", 0, "since the run was planned")
            return
        for raw in read(settings.reader, file.path, tally, settings.options()):
            raw.source = raw.source or settings.source
            raw.crawl = raw.crawl or crawl
            raw.license = raw.license or settings.license
            yield raw
        if not same_input(file):
            tally.problem("changed", 0, "while it was read")
    except OSError as error:
        tally.problem("unreadable", tally.bytes, error.strerror or str(error))
    except InputError as error:
        tally.problem("unreadable", 0, str(error))


_PLAIN = ("id", "url", "date", "source", "crawl", "license", "language", "media_type", "charset")


def batches(raws_in: Iterator[RawDocument]) -> Iterator[Documents]:
    """Raw documents as batches; nothing that is written depends on where a batch ends."""
    rows: list[int] = []
    raws: list[RawDocument] = []
    size = 0
    for row, raw in enumerate(raws_in):
        rows.append(row)
        raws.append(raw)
        size += len(raw.content or b"") + len(raw.text or "")
        if len(raws) >= BATCH_DOCUMENTS or size >= BATCH_BYTES:
            yield _columns(rows, raws)
            rows, raws, size = [], [], 0
    if raws:
        yield _columns(rows, raws)


def _columns(rows: list[int], raws: list[RawDocument]) -> Documents:
    columns: dict[str, pa.Array] = {
        "row": pa.array(rows, pa.int64()),
        **{name: pa.array([getattr(raw, name) for raw in raws], pa.string()) for name in _PLAIN},
        "language_score": pa.nulls(len(raws), pa.float64()),
        "duplicate_count": pa.array(np.ones(len(raws), dtype=np.int64)),
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


def stored(plan: Plan, segment: Segment, unit: str) -> Iterator[Documents]:
    """The kept documents of a unit as an earlier segment stored them, in order of row."""
    receipt = Receipt.load(plan.receipt_path(segment, unit))
    if receipt is None:
        raise DamagedFile(f"{segment.directory}/receipts/{unit}.json")
    path = whole(plan, receipt.outputs["text"])
    for table in read_batches(path, "text/1"):
        table = table.filter(table["kept"]).drop_columns(["kept"]).combine_chunks()
        for start in range(0, len(table), BATCH_DOCUMENTS):
            part = table.slice(start, BATCH_DOCUMENTS)
            yield Documents(
                {
                    name: column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
                    for name, column in zip(part.column_names, part.columns, strict=True)
                }
            )


class _Files:
    """The files of a map task: signals, texts (or the final documents), samples, run files."""

    def __init__(
        self, plan: Plan, segment: Segment, task: Task, types: dict[str, pa.DataType]
    ) -> None:
        self._plan, self._segment, self._task = plan, segment, task
        self._root = plan.run / segment.directory
        self._names = segment.accounts or [segment.name]
        self._signals = TableWriter(self._path("signals"), signals_schema(types))
        self._final = segment.kind == "documents"
        self._store_all = plan.recipe.settings.store == "all" and segment.kind == "read"
        self._parts: list[Output] = []
        self.cpu = 0.0  # seconds of this process spent encoding tables
        self._text = self._next_text()
        self._prepared: dict[str, list[np.ndarray]] = {s.name: [] for s in segment.prepares}
        self.documents = 0
        self.kept = {"documents": 0, "words": 0, "bytes": 0}

    def _path(self, kind: str) -> Path:
        return self._root / kind / f"{self._task.name}.parquet"

    def _next_text(self) -> TableWriter:
        if not self._final:
            return TableWriter(self._path("text"), TEXT_SCHEMA)
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
        self._signals.write(_signals_table(ordinal, state, self._names))
        storing = state.everyone() if self._store_all else state.everyone()[-1:]
        texts = [_text_table(at, docs, state) for at, docs, _ in storing if "content" not in docs]
        table = pa.concat_tables(texts).sort_by("row") if texts else TEXT_SCHEMA.empty_table()
        if self._final:
            table = table.select(DOCUMENT_SCHEMA.names)
        while len(table := self._text.write(table)):
            self._parts.append(self._close(self._text))
            self._text = self._next_text()
        for spec in self._segment.prepares:
            assert isinstance(spec.stage, GlobalStep)
            if len(state.index):
                self._prepared[spec.name].append(spec.stage.prepare(state.docs))

    def close(self, chain: Chain) -> dict[str, Output]:
        """Commits every file."""
        run = self._plan.run
        outputs = {"signals": self._close(self._signals)}
        self._parts.append(self._close(self._text))
        for number, part in enumerate(self._parts):
            name = "documents" if self._final else "text"
            outputs[name if not number else f"{name}-{number:03d}"] = part
        outputs["samples"] = write_table(self._path("samples"), chain.samples.table(), run)
        for spec in self._segment.prepares:
            step = spec.stage
            assert isinstance(step, GlobalStep)
            parts = self._prepared[spec.name]
            records = np.concatenate(parts) if parts else step.no_records()
            for name, array in step.runs(records).items():
                path = self._root / "work" / f"{self._task.name}.{spec.name}.{name}.npy"
                outputs[f"{spec.name}.{name}"] = save_array(path, array, run)
        return outputs

    def _close(self, writer: TableWriter) -> Output:
        output = writer.close(self._plan.run)
        self.cpu += writer.cpu
        return output

    def discard(self) -> None:
        self._signals.discard()
        self._text.discard()


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


def _text_table(at: np.ndarray, docs: Documents, state: State) -> pa.Table:
    columns = {name: docs[name] for name in ("row", *DOCUMENT_SCHEMA.names)}
    kept = state.decision[at] == KEPT
    return pa.table({**columns, "kept": pa.array(kept)}).select(TEXT_SCHEMA.names).cast(TEXT_SCHEMA)
