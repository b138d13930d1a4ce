"""The exchange of a global step: its tasks on files, and the removals that come out.

What may live here: how run files and removals are stored and found again. What they mean is the
business of the step.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curation.engine.plan import Plan, Segment, Task, Unit
from curation.engine.tables import write_table
from curation.stage import GlobalStep, Removals
from manifests.files import AtomicFile
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


class RunSources:
    """What a global step reads, by name: run files of the units, arrays of earlier phases."""

    def __init__(self, plan: Plan, segment: Segment) -> None:
        assert segment.step is not None
        self._plan, self._segment, self._step = plan, segment, segment.step
        self._source = plan.before(segment)

    def units(self, name: str) -> Sequence[np.ndarray]:
        return [self._unit(unit, name) for unit in self._plan.units]

    def _unit(self, unit: Unit, name: str) -> np.ndarray:
        receipt = Receipt.load(self._plan.receipt_path(self._source, unit.name))
        step = self._step.stage
        assert isinstance(step, GlobalStep)
        if receipt is None or receipt.status == "quarantined":
            return step.runs(step.no_records())[name]
        return load_array(receipt.outputs[f"{self._step.name}.{name}"].locate(self._plan.run))

    def phase(self, phase: str, name: str) -> Sequence[np.ndarray]:
        directory = self._plan.run / self._segment.directory / "receipts"
        arrays = []
        for path in sorted(directory.glob(f"{phase}-*.json")):
            receipt = Receipt.load(path)
            if receipt is None:
                raise FileNotFoundError(f"{path}: damaged receipt")
            arrays.append(load_array(receipt.outputs[name].locate(self._plan.run)))
        return arrays


def run_exchange(
    plan: Plan, segment: Segment, task: Task
) -> tuple[Any, dict[str, Output], dict[str, Any], dict[str, float]]:
    """One task of an exchange: a part of a phase, or the collation of one unit's removals."""
    assert segment.step is not None
    step = segment.step.stage
    assert isinstance(step, GlobalStep)
    sources = RunSources(plan, segment)
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
        raise FileNotFoundError(f"no removals of {unit.name} in {segment.directory}")
    table = pq.read_table(receipt.outputs["removals"].locate(plan.run))
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
