"""The driver: segment after segment, the tasks that have no receipt yet.

What may live here: the order of segments and tasks, reuse of receipts, retries, the failure
ceiling, and what a finished run writes (`stats.json`, `timings.json`). Receipts are the only state.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from curation.engine.exchange import COLLATE, collate_name
from curation.engine.executors import Executor, TaskFailed
from curation.engine.plan import Plan, Segment, Task, freeze, open_plan, reading_tasks, tasks_of
from curation.engine.progress import Progress
from curation.engine.recipe import RecipeError
from curation.engine.stats import collect, conservation, timings
from curation.stage import GlobalStep
from manifests.files import file_digest, write_bytes
from manifests.records import Output, Receipt, canonical, digest_of

EXCHANGE_BYTES = 256 << 20  # of run files per exchange task
CEILING_DOCUMENTS = 1_000  # the failure ceiling is looked at from here on
CEILING_UNITS = 50
REPAIRS = 10  # damaged files that are made again in one go
ATTEMPTS = 2  # a task that fails twice is quarantined


class RunFailed(RuntimeError):
    """The run stopped: what it has done stays, and the same command goes on from there."""


def drive(
    plan: Plan, executor: Executor, progress: Progress, base: str | Path | None = None
) -> dict[str, Any]:
    """Runs or resumes a plan; its stats. Raises RecipeError before any work, RunFailed after."""
    reusable = _base(plan, base)
    freeze(plan)
    return _Driver(open_plan(plan.run), executor, reusable, progress).drive()


def _base(plan: Plan, base: str | Path | None) -> dict[str, tuple[Receipt, Path]]:
    """The receipts of a base run by key."""
    if base is None:
        return {}
    other = open_plan(base)
    if other.run == plan.run:
        raise RecipeError(f"--base {base}: a run cannot be based on itself")
    found = {}
    for path in sorted(other.run.glob("segments/*/receipts/*.json")):
        receipt = Receipt.load(path)
        if receipt is not None and receipt.status != "quarantined":
            found[receipt.key] = (receipt, other.run)
    return found


class _Damaged(Exception):
    """A file of the run turned out to be damaged; `path` as its receipt has it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class _Driver:
    def __init__(
        self,
        plan: Plan,
        executor: Executor,
        reusable: dict[str, tuple[Receipt, Path]],
        progress: Progress,
    ) -> None:
        self.plan, self.executor, self.progress = plan, executor, progress
        self.reusable = reusable
        self.based, self.borrowed = bool(reusable), 0  # whether there is a base; tasks reused
        self.receipts: dict[int, dict[str, Receipt]] = {}  # segment -> task -> receipt

    def drive(self) -> dict[str, Any]:
        """All segments in order, then the reports. Damaged files are made again."""
        for _ in range(REPAIRS):
            try:
                self._segments()
                break
            except _Damaged as damage:
                self._forget(damage)
            finally:
                self.progress.end()
        else:
            raise RunFailed("files of the run are damaged again and again")
        self._check_between()
        stats = collect(self.plan)
        write_bytes(self.plan.run / "stats.json", canonical(stats) + b"\n")
        write_bytes(self.plan.run / "timings.json", canonical(timings(self.plan)) + b"\n")
        self._tidy()
        return stats

    def _forget(self, damage: _Damaged) -> None:
        """Removes the receipt of a damaged file, and with it the file counts as not made."""
        self.progress.say(f"{damage.path}: damaged, it is made again")
        for segment in self.plan.segments:
            for path in self.plan.receipts(segment).glob("*.json"):
                receipt = Receipt.load(path)
                named = receipt is None or damage.path in {o.path for o in receipt.outputs.values()}
                if named or str(path.relative_to(self.plan.run)) == damage.path:
                    path.unlink(missing_ok=True)
                    self.reusable.pop(receipt.key if receipt else "", None)
        self.receipts.clear()

    def _segments(self) -> None:
        for segment in self.plan.segments:
            if segment.kind == "exchange":
                self._exchange(segment)
            elif segment.kind == "read":
                self._segment(segment, reading_tasks(self.plan))
            else:
                self._segment(segment, self._following(segment))

    # What there is to do

    def _following(self, segment: Segment) -> list[Task]:
        """Tasks of a segment that reads texts of an earlier one, with its slices of removals."""
        before = self.receipts[self.plan.before(segment).index]
        consumed: dict[int, str] = {}
        sizes = [0] * len(self.plan.units)
        for unit in self.plan.units:
            receipt = before.get(unit.name)
            if receipt is None or receipt.status == "quarantined":
                continue
            text = receipt.outputs["text"]
            slices = [
                self.receipts[self.plan.exchange_of(step).index][collate_name(unit)]
                .outputs["removals"]
                .digest
                for step in segment.removals
            ]
            consumed[unit.ordinal] = digest_of([text.digest, slices])
            sizes[unit.ordinal] = _kept_size(receipt, text)
        return tasks_of(self.plan, segment, consumed, sizes)

    def _exchange(self, segment: Segment) -> None:
        """The phases of a global step one after the other, then the collation by unit."""
        assert segment.step is not None
        step = segment.step.stage
        assert isinstance(step, GlobalStep)
        before = self.receipts[self.plan.before(segment).index]
        names = [unit.name for unit in self.plan.units]
        inputs = {
            name: receipt.outputs
            for name in names
            if (receipt := before.get(name)) and receipt.status != "quarantined"
        }
        prefix = segment.step.name + "."
        steps = self.plan.before(segment).prepares
        earlier = [
            self.receipts[self.plan.exchange_of(other).index]
            for other in steps[: steps.index(segment.step)]
        ]
        consumed = digest_of(
            [
                [
                    name,
                    {k: o.digest for k, o in outputs.items() if k.startswith(prefix)},
                    [done[f"{COLLATE}-{name}"].outputs["removals"].digest for done in earlier],
                ]
                for name, outputs in inputs.items()
            ]
        )
        for phase in step.phases():
            size = sum(outputs[prefix + phase].bytes for outputs in inputs.values())
            parts = max(1, -(-size // EXCHANGE_BYTES))
            tasks = [
                Task(
                    segment.index,
                    f"{phase}-{part:05d}",
                    digest_of([segment.key, phase, part, parts, consumed]),
                    phase=phase,
                    part=part,
                    parts=parts,
                    weight=size // parts,
                )
                for part in range(parts)
            ]
            receipts = self._segment(segment, tasks, f"{phase}-*")
            consumed = digest_of([consumed, [[t.name, _digests(receipts[t.name])] for t in tasks]])
        self._segment(
            segment,
            [
                Task(
                    segment.index,
                    collate_name(unit),
                    digest_of([segment.key, COLLATE, unit.name, consumed]),
                    (unit.ordinal,),
                    phase=COLLATE,
                )
                for unit in self.plan.units
                if unit.name in inputs
            ],
            f"{COLLATE}-*",
        )

    # Doing it

    def _segment(
        self, segment: Segment, tasks: list[Task], pattern: str = "*"
    ) -> dict[str, Receipt]:
        """Makes sure that every task has a receipt; those of the whole segment so far.

        `pattern`: of the receipts that these tasks account for. Another one of it is a leftover, of
        an attempt that had other inputs (a unit was quarantined then), and would be counted.
        """
        names = {f"{task.name}.json" for task in tasks}
        directory = self.plan.receipts(segment)
        for path in directory.glob(f"{pattern}.json"):
            if path.name not in names:
                path.unlink(missing_ok=True)
        receipts = self.receipts.setdefault(segment.index, {})
        todo: list[Task] = []
        phase = tasks[0].phase if tasks else ""
        name = f"{segment.name} ({phase})" if phase else segment.name
        borrowed = self.borrowed
        for task in tasks:
            receipt = self._found(segment, task)
            if receipt is None:
                todo.append(task)
            else:
                receipts[task.name] = receipt
        self._ceiling(segment, receipts)
        if self.based:
            self.progress.say(f"{name}: {self.borrowed - borrowed} of {len(tasks)} tasks reused")
        self.progress.begin(name, directory, tasks, receipts)
        todo.sort(key=lambda task: (-task.weight, task.name))  # the largest first
        attempts: dict[str, int] = {}
        while todo:
            again: list[Task] = []
            for task, outcome in self.executor.run(self.plan.run, todo):
                if isinstance(outcome, TaskFailed):
                    if outcome.damaged:
                        raise _Damaged(outcome.damaged)
                    if outcome.hopeless:
                        raise RunFailed(f"{segment.name}/{task.name}: {outcome}")
                    attempts[task.name] = attempts.get(task.name, 0) + 1
                    if attempts[task.name] < ATTEMPTS:
                        self.progress.say(f"{segment.name}/{task.name}: {outcome}; trying again")
                        again.append(task)
                        continue
                    outcome = self._quarantine(segment, task, str(outcome))
                receipts[task.name] = outcome
                self.progress.done(task, outcome)
                self._ceiling(segment, receipts)
            todo = again
        self.progress.end()
        return receipts

    def _found(self, segment: Segment, task: Task) -> Receipt | None:
        """The valid receipt of a task: this run's, or one of the base's by the same key."""
        path = self.plan.receipt_path(segment, task.name)
        receipt = Receipt.load(path)
        if (
            receipt is not None
            and receipt.key == task.key
            and receipt.status != "quarantined"
            and self._whole(receipt)
        ):
            return receipt
        if task.key in self.reusable:
            receipt = self._borrow(segment, task, *self.reusable[task.key])
            if receipt is not None:
                receipt.save(path)
                self.borrowed += 1
                return receipt
        return None

    def _whole(self, receipt: Receipt) -> bool:
        """Whether the outputs still lie where the receipt says, in their full size."""
        for output in receipt.outputs.values():
            try:
                if output.locate(self.plan.run).stat().st_size != output.bytes:
                    return False
            except OSError:
                return False
        return True

    def _borrow(self, segment: Segment, task: Task, receipt: Receipt, base: Path) -> Receipt | None:
        """A base run's receipt as one of this run: outputs by reference, `documents/` by link."""
        outputs: dict[str, Output] = {}
        for name, output in receipt.outputs.items():
            source = output.locate(base)
            if file_digest(source) != (output.digest, output.bytes) if source.exists() else True:
                return None
            path = str(source)
            if segment.kind == "documents" and name.startswith("documents"):
                path = f"documents/{task.name}{source.stem.removeprefix(receipt.task)}.parquet"
                link(source, self.plan.run / path)
            outputs[name] = replace(output, path=path)
        return replace(
            receipt,
            segment=segment.name,
            task=task.name,
            outputs=outputs,
            envelope={**receipt.envelope, "from": str(base)},
        )

    def _quarantine(self, segment: Segment, task: Task, error: str) -> Receipt:
        if segment.kind != "read":
            raise RunFailed(f"{segment.name}/{task.name} failed twice: {error}")
        receipt = Receipt(segment.name, task.name, task.key, "quarantined", {}, {"error": error})
        receipt.save(self.plan.receipt_path(segment, task.name))
        return receipt

    def _ceiling(self, segment: Segment, receipts: Mapping[str, Receipt]) -> None:
        """Stops the run where too many documents fail or too many units are quarantined."""
        if segment.kind == "exchange":
            return
        ceiling = self.plan.recipe.settings.failure_ceiling
        ended = list(receipts.values())
        documents = sum(r.counts.get("documents", 0) for r in ended)
        failed = sum(
            stage["failed"]["documents"] for r in ended for stage in r.counts.get("stages", [])
        )
        if documents >= CEILING_DOCUMENTS and failed > ceiling * documents:
            raise RunFailed(
                f"{segment.name}: {failed} of {documents} documents failed, "
                f"above failure_ceiling {ceiling}"
            )
        quarantined = sum(r.status == "quarantined" for r in ended)
        if len(ended) >= CEILING_UNITS and quarantined > ceiling * len(ended):
            raise RunFailed(
                f"{segment.name}: {quarantined} of {len(ended)} units are quarantined, "
                f"above failure_ceiling {ceiling}"
            )

    def _check_between(self) -> None:
        """What one segment kept must be what the next received, by rows, words and bytes."""
        if problem := conservation(self.plan):
            raise RunFailed(problem)

    def _tidy(self) -> None:
        """Removes files of documents/ that no receipt names: left by an attempt that was killed."""
        last = self.receipts[self.plan.segments[-1].index].values()
        named = {Path(o.path).name for r in last for o in r.outputs.values()}
        directory = self.plan.run / "documents"
        directory.mkdir(exist_ok=True)
        for path in directory.iterdir():
            if path.name not in named and not path.name.startswith("."):
                path.unlink()


def _digests(receipt: Receipt) -> dict[str, str]:
    return {name: output.digest for name, output in receipt.outputs.items()}


def _kept_size(receipt: Receipt, text: Output) -> int:
    """Bytes on disk that the kept documents of a stored unit will take, by their share of bytes."""
    kept = receipt.counts["output"]["bytes"]
    stages = receipt.counts["stages"]
    extracted = max([stage["kept"]["bytes"] for stage in stages] or [kept])
    return int(text.bytes * kept / extracted) if extracted else 0


def link(source: Path, target: Path) -> None:
    """The same file under a second name; a copy where the file system cannot."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
