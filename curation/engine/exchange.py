"""The exchange of a global step: its tasks on files, and the removals that come out.

What may live here: how records, arrays and removals are stored and found again. What they mean is
the business of the step.
"""

from __future__ import annotations

import shutil
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.document import Documents
from curation.engine import collapse, index
from curation.engine.chain import BATCH_DOCUMENTS, as_column
from curation.engine.plan import Plan, Segment, Task, Unit
from curation.engine.tables import read_batches, signals_schema, write_table
from curation.stage import Edits, GlobalStep, Removals, Scores
from manifests.arrays import load_array, save_array
from manifests.files import file_digest
from manifests.records import Output, Receipt

COLLATE, COLLAPSE = "collate", "collapse"
RETENTION, GROUPS = "(retention)", "(groups)"  # outputs beside those of units


class DamagedFile(RuntimeError):
    """A file of the run whose bytes are not those of its receipt."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: its bytes are not those of the receipt")
        self.path = path

    def __reduce__(self) -> tuple[type[DamagedFile], tuple[str]]:
        return DamagedFile, (self.path,)


def whole(plan: Plan, output: Output) -> Path:
    """Where an output lies, after its bytes were held against the receipt. Raises DamagedFile."""
    path = output.locate(plan.run)
    if not path.exists() or file_digest(path) != (output.digest, output.bytes):
        raise DamagedFile(output.path)
    return path


def stored(plan: Plan, segment: Segment, unit: str) -> Iterator[Documents]:
    """The kept documents of a unit as an earlier segment stored them, in order of row."""
    receipt = Receipt.load(plan.receipt_path(segment, unit))
    if receipt is None:
        raise DamagedFile(f"{segment.directory}/receipts/{unit}.json")
    path = whole(plan, receipt.outputs["text"])
    for table in read_batches(path, "text/2"):
        table = table.filter(table["kept"]).drop_columns(["kept"]).combine_chunks()
        for start in range(0, len(table), BATCH_DOCUMENTS):
            part = table.slice(start, BATCH_DOCUMENTS)
            yield Documents(
                {
                    name: column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
                    for name, column in zip(part.column_names, part.columns, strict=True)
                }
            )


class RunSources:
    """What a task of an exchange reads: records of units, arrays of earlier phases.

    The first task of each phase holds the arrays that it reads against their receipts, and those of
    an index against its batches.
    """

    def __init__(self, plan: Plan, segment: Segment, task: Task, scratch: Path) -> None:
        assert segment.step is not None
        self._plan, self._segment, self._step = plan, segment, segment.step
        self._source = plan.before(segment)
        self._check = task.part == 0
        steps = self._source.prepares
        self._earlier = [plan.exchange_of(step) for step in steps[: steps.index(segment.step)]]
        self.units = task.units
        self.scratch = scratch

    def receipt(self, unit: int) -> Receipt:
        """Of the segment that prepared a unit."""
        path = self._plan.receipt_path(self._source, self._plan.units[unit].name)
        receipt = Receipt.load(path)
        if receipt is None:
            raise DamagedFile(str(path.relative_to(self._plan.run)))
        return receipt

    def records(self, unit: int) -> np.ndarray:
        output = self.receipt(unit).outputs[f"{self._step.name}.records"]
        records = load_array(whole(self._plan, output))
        gone, counts = self.earlier(unit)
        if not len(gone) and not counts:
            return records
        records = records[~np.isin(records["row"], gone)]
        if counts and "weight" in (records.dtype.names or ()):
            rows = np.array(sorted(counts))
            _, mine, theirs = np.intersect1d(
                records["row"], rows, assume_unique=True, return_indices=True
            )
            records["weight"][mine] = [counts[row] for row in rows[theirs].tolist()]
        return records

    def earlier(self, unit: int) -> tuple[np.ndarray, dict[int, int]]:
        """What the steps just before this one decided: rows removed, and what others stand for."""
        gone = [_NONE]
        counts: dict[int, int] = {}
        for segment in self._earlier:
            found = load_removals(self._plan, segment, self._plan.units[unit])
            gone.append(found.rows)
            counts.update(zip(found.counted_rows.tolist(), found.counts.tolist(), strict=True))
        return np.concatenate(gone), counts

    def documents(self, unit: int) -> pa.Table:
        """Row, id, url, source and language of the documents that `prepare` saw."""
        names = ["row", "id", "url", "source", "language", "decision"]
        path = whole(self._plan, self.receipt(unit).outputs["signals"])
        none = signals_schema({}).empty_table().select(names)
        table = pa.concat_tables([none, *read_batches(path, "signals/1", names)])
        return table.filter(pc.equal(table["decision"], "kept"))

    def texts(self, unit: int) -> Iterator[Documents]:
        yield from stored(self._plan, self._source, self._plan.units[unit].name)

    def arrays(self, phase: str, name: str) -> Iterator[np.ndarray]:
        for output in self._outputs(phase, name):
            path = output.locate(self._plan.run)
            try:
                yield load_array(whole(self._plan, output) if self._check else path)
            except (OSError, ValueError):
                raise DamagedFile(output.path) from None

    @property
    def batches(self) -> Sequence[str]:
        return self._plan.indexes.get(self._step.name, ())

    def index(self, name: str) -> Iterator[tuple[int, np.ndarray]]:
        assert isinstance(self._step.stage, GlobalStep)
        directory = self._step.stage.index_directory()
        if not directory:
            return iter(())
        return index.load(Path(directory), self.batches, name, self._check)

    def rows(self, phase: str, name: str) -> list[int]:
        return [output.rows for output in self._outputs(phase, name)]

    def _outputs(self, phase: str, name: str) -> Iterator[Output]:
        for path in sorted(self._plan.receipts(self._segment).glob(f"{phase}-*.json")):
            receipt = Receipt.load(path)
            if receipt is None:
                raise DamagedFile(str(path.relative_to(self._plan.run)))
            yield receipt.outputs[name]


_NONE = np.empty(0, dtype=np.int64)


def run_exchange(
    plan: Plan, segment: Segment, task: Task
) -> tuple[Any, dict[str, Output], dict[str, Any], dict[str, float]]:
    """One task of an exchange: a part of a phase, or the removals of some units."""
    assert segment.step is not None
    step = segment.step.stage
    assert isinstance(step, GlobalStep)
    root = plan.run / segment.directory
    scratch = root / "work" / f".{task.name}.{uuid.uuid4().hex[:12]}.tmp"
    scratch.mkdir(parents=True)
    try:
        sources = RunSources(plan, segment, task, scratch)
        if task.phase == COLLATE:
            return _collate(plan, segment, task, sources)
        if task.phase == COLLAPSE:
            return _collapse(plan, segment, task)
        arrays = step.exchange(task.phase, task.part, task.parts, sources)
        outputs = {
            name: save_array(root / "work" / f"{task.name}.{name}.npy", array, plan.run)
            for name, array in arrays.items()
        }
        return "done", outputs, {}, {}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _collate(
    plan: Plan, segment: Segment, task: Task, sources: RunSources
) -> tuple[Any, dict[str, Output], dict[str, Any], dict[str, float]]:
    assert segment.step is not None
    step = segment.step.stage
    assert isinstance(step, GlobalStep)
    outputs: dict[str, Output] = {}
    rows = arrived = 0
    kind = "removals" if step.removes else "edits" if step.edits else "scores"
    counted: list[pa.Table] = []
    groups: list[pa.Table] = []
    for ordinal, decided in zip(task.units, step.collate(sources), strict=True):
        name = plan.units[ordinal].name
        path = plan.run / segment.directory / kind / f"{name}.parquet"
        if isinstance(decided, Edits):
            table = _edits_table(decided, step.evidence)
        elif isinstance(decided, Scores):
            table = _scores_table(decided, step.evidence)
        else:
            table = _removals_table(decided, step.evidence)
            documents = sources.documents(ordinal)
            left = pa.array(~np.isin(documents["row"].to_numpy(), sources.earlier(ordinal)[0]))
            came = documents.filter(left)
            weights = _weights(sources.records(ordinal), len(came))
            arrived += int(weights.sum())
            counted.append(collapse.retention(came, np.isin(came["row"].to_numpy(), decided.rows)))
            groups.append(_groups(came, weights, decided, ordinal))
        outputs[name] = write_table(path, table, plan.run)
        rows += len(decided.rows)
    if step.removes:
        path = plan.run / segment.directory / "work" / f"{task.name}.retention.parquet"
        outputs[RETENTION] = write_table(path, collapse.merged(counted), plan.run)
        path = path.with_name(f"{task.name}.groups.parquet")
        outputs[GROUPS] = write_table(path, collapse.largest(groups), plan.run)
    return "done", outputs, {"rows": rows, "documents": arrived}, {}


def _weights(records: np.ndarray, documents: int) -> np.ndarray:
    """How many documents each one that came to a step stands for."""
    if "weight" not in (records.dtype.names or ()):
        return np.ones(documents, np.int64)
    return np.array(records["weight"])


def _groups(documents: pa.Table, weights: np.ndarray, removals: Removals, unit: int) -> pa.Table:
    """The largest groups whose survivors lie in a unit: what the step has joined, whatever the
    survivor stood for before."""
    at = np.searchsorted(documents["row"].to_numpy(), removals.counted_rows)
    sizes = removals.counts - weights[at] + 1
    order = np.argsort(-sizes, kind="stable")[: collapse.GROUPS]
    rows = removals.counted_rows[order]
    found = documents.take(pa.array(at[order]))
    return pa.table(
        {
            "documents": sizes[order],
            "id": found["id"],
            "url": found["url"],
            "unit": np.full(len(rows), unit),
            "row": rows,
        }
    ).cast(collapse.GROUPS_SCHEMA)


def _collapse(
    plan: Plan, segment: Segment, task: Task
) -> tuple[Any, dict[str, Output], dict[str, Any], dict[str, float]]:
    """What a step removed of each source, language and domain, over all units."""
    counted, groups, arrived = [], [], 0
    for path in sorted(plan.receipts(segment).glob(f"{COLLATE}-*.json")):
        receipt = Receipt.load(path)
        if receipt is None:
            raise DamagedFile(str(path.relative_to(plan.run)))
        counted.append(pq.read_table(whole(plan, receipt.outputs[RETENTION])))
        groups.append(pq.read_table(whole(plan, receipt.outputs[GROUPS])))
        arrived += receipt.counts["documents"]
    root = plan.run / segment.directory
    outputs = {
        RETENTION: write_table(root / "retention.parquet", collapse.merged(counted), plan.run),
        GROUPS: write_table(root / "groups.parquet", collapse.largest(groups), plan.run),
    }
    return "done", outputs, {"documents": arrived}, {}


def evidence(plan: Plan, segment: Segment) -> str:
    """Why a run stops after a global step, with what a person needs to judge it; or nothing."""
    receipt = Receipt.load(plan.receipt_path(segment, f"{COLLAPSE}-00000"))
    if receipt is None:
        raise DamagedFile(f"{segment.directory}/receipts/{COLLAPSE}-00000.json")
    lines, groups = collapse.broken(
        pq.read_table(whole(plan, receipt.outputs[RETENTION])),
        pq.read_table(whole(plan, receipt.outputs[GROUPS])),
        plan.recipe.settings.collapse.model_dump(),
        receipt.counts["documents"],
    )
    if not lines:
        return ""
    shown = list(lines)
    if groups:
        shown.append("its largest groups:")
    for row in groups:
        text = _beginning(plan, plan.before(segment), row["unit"], row["row"])
        shown.append(f"{row['documents']:>11,} documents  {row['id']}  {row['url'] or ''}")
        shown.append(f"{'':>11} {text}")
    return "\n".join(shown)


def _beginning(plan: Plan, segment: Segment, unit: int, row: int, most: int = 100) -> str:
    """The first words of a stored text, for a person."""
    for docs in stored(plan, segment, plan.units[unit].name):
        at = pc.index(docs["row"], row).as_py()
        if at >= 0:
            words = " ".join(docs["text"][at].as_py()[: 4 * most].split())
            return "".join(c if c.isprintable() else " " for c in words)[:most]
    return ""


def removals_schema(evidence: Mapping[str, str]) -> pa.Schema:
    """One row per removed document, then those that are kept and stand for others."""
    return pa.schema(
        [
            ("row", pa.int64()),
            ("reason", pa.string()),  # null: kept, and counted for others
            ("survivor", pa.string()),
            *[(name, pa.type_for_alias(alias)) for name, alias in evidence.items()],
            ("duplicate_count", pa.int64()),
        ],
        metadata={"gristmill.schema": "removals/1"},
    )


def _removals_table(removals: Removals, evidence: Mapping[str, str]) -> pa.Table:
    removed, counted = len(removals.rows), len(removals.counted_rows)
    schema = removals_schema(evidence)
    columns = {
        "row": np.concatenate([removals.rows, removals.counted_rows]),
        "reason": pa.array([*removals.reasons, *[None] * counted], pa.string()),
        "survivor": pa.array([*removals.survivors, *[None] * counted], pa.string()),
        "duplicate_count": pa.array([*[None] * removed, *removals.counts.tolist()], pa.int64()),
    }
    for name in evidence:
        kind = schema.field(name).type
        found = as_column(removals.evidence[name]).cast(kind)
        columns[name] = pa.concat_arrays([found, pa.nulls(counted, kind)])
    return pa.table({name: columns[name] for name in schema.names}).cast(schema)


_SPAN = ("row", "start", "stop")


def edits_schema(evidence: Mapping[str, str]) -> pa.Schema:
    """One row per deleted span; then, of a step with evidence, one per document that it notes."""
    said = [(f"said.{name}", pa.type_for_alias(alias)) for name, alias in evidence.items()]
    return pa.schema(
        [*[(name, pa.int64()) for name in _SPAN], *said],  # start is null: evidence alone
        metadata={"gristmill.schema": "edits/1"},
    )


def _edits_table(edits: Edits, evidence: Mapping[str, str]) -> pa.Table:
    schema = edits_schema(evidence)
    spans, noted = len(edits.rows), len(edits.noted)
    none = pa.nulls(noted, pa.int64())
    columns = {
        "row": pa.array(np.concatenate([edits.rows, edits.noted]), pa.int64()),
        "start": pa.concat_arrays([pa.array(edits.starts, pa.int64()), none]),
        "stop": pa.concat_arrays([pa.array(edits.stops, pa.int64()), none]),
    }
    for name, alias in evidence.items():
        kind = pa.type_for_alias(alias)
        said = as_column(edits.evidence[name]).cast(kind)
        columns[f"said.{name}"] = pa.concat_arrays([pa.nulls(spans, kind), said])
    return pa.table(columns, schema=schema)


def _scores_table(scores: Scores, evidence: Mapping[str, str]) -> pa.Table:
    kinds = {name: pa.type_for_alias(alias) for name, alias in evidence.items()}
    schema = pa.schema(
        [("row", pa.int64()), *kinds.items()], metadata={"gristmill.schema": "scores/1"}
    )
    columns = {name: as_column(scores.columns[name]).cast(kind) for name, kind in kinds.items()}
    return pa.table({"row": scores.rows, **columns}, schema=schema)


def load_scores(plan: Plan, segment: Segment, unit: Unit) -> Scores:
    """What a global step that is a filter says of one unit."""
    table = _decided(plan, segment, unit)
    names = table.column_names[1:]
    return Scores(table["row"].to_numpy(), {n: table[n].combine_chunks() for n in names})


def load_edits(plan: Plan, segment: Segment, unit: Unit) -> Edits:
    """What one global step deletes from the texts of one unit."""
    assert segment.step is not None and isinstance(segment.step.stage, GlobalStep)
    table = _decided(plan, segment, unit)
    alone = table["start"].is_null()
    spans, noted = table.filter(pc.invert(alone)), table.filter(alone)
    rows, starts, stops = (spans[name].to_numpy() for name in _SPAN)
    return Edits(
        *(rows, starts, stops),
        noted["row"].to_numpy(),
        {n: noted[f"said.{n}"].combine_chunks() for n in segment.step.stage.evidence},
    )


def load_removals(plan: Plan, segment: Segment, unit: Unit) -> Removals:
    """The removals of one unit by one global step."""
    assert segment.step is not None
    step = segment.step.stage
    assert isinstance(step, GlobalStep)
    table = _decided(plan, segment, unit)
    gone = table.filter(table["reason"].is_valid())
    counted = table.filter(table["reason"].is_null())
    return Removals(
        gone["row"].to_numpy(),
        gone["reason"].combine_chunks(),
        gone["survivor"].combine_chunks(),
        counted["row"].to_numpy(),
        counted["duplicate_count"].to_numpy(),
        {name: gone[name].combine_chunks() for name in step.evidence},
    )


def _decided(plan: Plan, segment: Segment, unit: Unit) -> pa.Table:
    """What the exchange of a global step has stored of a unit in the end."""
    name = collating(plan, segment, unit.ordinal)
    receipt = Receipt.load(plan.receipt_path(segment, name))
    if receipt is None or unit.name not in receipt.outputs:
        raise DamagedFile(f"{segment.directory}/receipts/{name}.json")
    return pq.read_table(whole(plan, receipt.outputs[unit.name]))


def group_name(phase: str, units: Sequence[int]) -> str:
    """A task that concerns neighbouring units is called after the first of them."""
    return f"{phase}-{units[0]:07d}"


def collating(plan: Plan, segment: Segment, unit: int) -> str:
    """The task that collated the removals of a unit: the last one that begins no later."""
    names = sorted(path.stem for path in plan.receipts(segment).glob(f"{COLLATE}-*.json"))
    at = bisect_right(names, group_name(COLLATE, [unit]))
    return names[max(at - 1, 0)] if names else group_name(COLLATE, [unit])
