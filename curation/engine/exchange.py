"""The exchange of a global step: its tasks on files, and the removals that come out.

What may live here: how run files and removals are stored and found again. What they mean is the
business of the step.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curation.engine.plan import Plan, Segment, Task, Unit
from curation.engine.tables import write_table
from curation.stage import GlobalStep, Removals, Verdicts
from manifests.files import AtomicFile, file_digest
from manifests.records import Output, Receipt

COLLATE = "collate"

REMOVALS_SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("reason", pa.string()),  # null: kept, and counted for others
        ("survivor", pa.string()),
        ("duplicate_count", pa.int64()),
    ],
    metadata={"gristmill.schema": "removals/1"},
)


def save_array(path: Path, array: np.ndarray, run: Path) -> Output:
    """Stores an array as .npy; it is read memory-mapped."""
    header = io.BytesIO()
    np.lib.format.write_array_header_2_0(header, np.lib.format.header_data_from_array_1_0(array))
    with AtomicFile(path) as file:
        file.write(header.getvalue())
        if array.size:
            file.write(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
    return Output(str(path.relative_to(run)), file.size, len(array), file.digest)


def load_array(path: Path) -> np.ndarray:
    """A stored array, memory-mapped where it has rows."""
    try:
        array: np.ndarray = np.load(path, mmap_mode="r")
    except ValueError:  # no rows: an empty range cannot be mapped
        array = np.load(path)
    return array


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


class RunSources:
    """What a global step reads, by name: run files of the units, arrays of earlier phases.

    `check`: whether the run files are held against their receipts (by one task of each phase).
    """

    def __init__(self, plan: Plan, segment: Segment, check: bool = False) -> None:
        assert segment.step is not None
        self._plan, self._segment, self._step = plan, segment, segment.step
        self._source = plan.before(segment)
        self._check = check
        steps = self._source.prepares
        self._earlier = [plan.exchange_of(step) for step in steps[: steps.index(segment.step)]]

    def units(self, name: str) -> Iterator[np.ndarray]:
        for unit in self._plan.units:
            yield self._unit(unit, name)

    def _unit(self, unit: Unit, name: str) -> np.ndarray:
        receipt = Receipt.load(self._plan.receipt_path(self._source, unit.name))
        step = self._step.stage
        assert isinstance(step, GlobalStep)
        if receipt is None or receipt.status == "quarantined":
            return step.runs(step.no_records())[name]
        output = receipt.outputs[f"{self._step.name}.{name}"]
        path = whole(self._plan, output) if self._check else output.locate(self._plan.run)
        try:
            return load_array(path)
        except FileNotFoundError:
            raise DamagedFile(output.path) from None

    def earlier(self, unit: int) -> Verdicts:
        removed, rows, counts = [_NONE], [_NONE], [_NONE]
        for segment in self._earlier:
            found = load_removals(self._plan, segment, self._plan.units[unit])
            removed.append(found.rows)
            rows.append(found.counted_rows)
            counts.append(found.counts)
        # A later step's count includes an earlier one's: the last word on each row.
        last = dict(
            zip(np.concatenate(rows).tolist(), np.concatenate(counts).tolist(), strict=True)
        )
        return Verdicts(
            np.unique(np.concatenate(removed)),
            np.array(list(last), dtype=np.int64),
            np.array(list(last.values()), dtype=np.int64),
        )

    def phase(self, phase: str, name: str) -> Iterator[np.ndarray]:
        directory = self._plan.receipts(self._segment)
        for path in sorted(directory.glob(f"{phase}-*.json")):
            receipt = Receipt.load(path)
            if receipt is None:
                raise DamagedFile(str(path.relative_to(self._plan.run)))
            yield load_array(receipt.outputs[name].locate(self._plan.run))


_NONE = np.empty(0, dtype=np.int64)


def run_exchange(
    plan: Plan, segment: Segment, task: Task
) -> tuple[Any, dict[str, Output], dict[str, Any], dict[str, float]]:
    """One task of an exchange: a part of a phase, or the collation of one unit's removals."""
    assert segment.step is not None
    step = segment.step.stage
    assert isinstance(step, GlobalStep)
    sources = RunSources(plan, segment, check=task.phase != COLLATE and task.part == 0)
    root = plan.run / segment.directory
    if task.phase != COLLATE:
        arrays = step.exchange(task.phase, task.part, task.parts, sources)
        outputs = {
            name: save_array(root / "work" / f"{task.name}.{name}.npy", array, plan.run)
            for name, array in arrays.items()
        }
        return "done", outputs, {}, {}
    removals = step.collate(task.units[0], sources)
    path = root / "removals" / f"{task.name}.parquet"
    table = _removals_table(removals)
    return (
        "done",
        {"removals": write_table(path, table, plan.run)},
        {"rows": len(removals.rows)},
        {},
    )


def _removals_table(removals: Removals) -> pa.Table:
    removed, counted = len(removals.rows), len(removals.counted_rows)
    return pa.table(
        {
            "row": np.concatenate([removals.rows, removals.counted_rows]),
            "reason": pa.array([*removals.reasons, *[None] * counted], pa.string()),
            "survivor": pa.array([*removals.survivors, *[None] * counted], pa.string()),
            "duplicate_count": pa.array([*[None] * removed, *removals.counts.tolist()], pa.int64()),
        }
    ).cast(REMOVALS_SCHEMA)


def load_removals(plan: Plan, segment: Segment, unit: Unit) -> Removals:
    """The removals of one unit by one global step."""
    receipt = Receipt.load(plan.receipt_path(segment, collate_name(unit)))
    if receipt is None:
        raise DamagedFile(f"{segment.directory}/receipts/{collate_name(unit)}.json")
    table = pq.read_table(whole(plan, receipt.outputs["removals"]))
    gone = table.filter(table["reason"].is_valid())
    counted = table.filter(table["reason"].is_null())
    return Removals(
        gone["row"].to_numpy(),
        gone["reason"].to_pylist(),
        gone["survivor"].to_pylist(),
        counted["row"].to_numpy(),
        counted["duplicate_count"].to_numpy(),
    )


def collate_name(unit: Unit) -> str:
    """The task that collates a unit's removals."""
    return f"{COLLATE}-{unit.name}"
