"""The driver: segment after segment, the tasks that have no receipt yet.

What may live here: the order of segments and tasks, reuse of receipts, the failure ceiling, and
what a finished run writes (`stats.json`, `timings.json`). Receipts are the only state; of each the
driver keeps what later segments need, since there may be a hundred thousand.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from curation.engine import index, resources
from curation.engine.attempts import REPAIRS, Damaged, RunFailed, ended
from curation.engine.base import Base
from curation.engine.exchange import (
    COLLAPSE,
    COLLATE,
    RETENTION,
    evidence,
    group_name,
)
from curation.engine.executors import Executor, ExecutorLost
from curation.engine.gc import forget_released, released
from curation.engine.lease import Lease, LeaseHeld
from curation.engine.plan import (
    Plan,
    Segment,
    Task,
    freeze,
    make_indexes,
    open_plan,
    reading_tasks,
    tasks_of,
)
from curation.engine.progress import Progress
from curation.engine.recipe import RecipeError, StageSpec
from curation.engine.retry import TaskFailed
from curation.engine.stats import Books, books_of, collect, conservation, timings, unfinished
from curation.read.span import Entry
from curation.stage import GlobalStep, Phase, task_bytes
from manifests.arrays import load_array
from manifests.files import file_digest, write_bytes
from manifests.records import Output, Receipt, canonical, digest_of

EXCHANGE_BYTES = 256 << 20  # of sorted arrays per task of an exchange, at most
GROUP_BYTES = 256 << 20  # of records per task by units, at most,
GROUP_UNITS = 256  # and units
CEILING_DOCUMENTS = 1_000  # the failure ceiling is looked at from here on
CEILING_UNITS = 50
_UNREAD = frozenset(("changed", "unreadable"))  # problems of an input that was not read to its end


class Collapsed(RunFailed):
    """A global step has removed more than the recipe allows; `evidence` has many lines."""

    def __init__(self, step: str, evidence: str) -> None:
        super().__init__(
            f"{step} has removed more than `collapse` of the recipe allows; the same command with "
            "--accept-collapse takes that as it is and goes on"
        )
        self.evidence = evidence


@dataclass(frozen=True)
class Shard:
    """The `number`-th of `count` shares of the units, counted from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def has(self, ordinal: int) -> bool:
        return ordinal % self.count == self.number - 1

    @staticmethod
    def parse(text: str) -> Shard:
        """`2/8`. Raises RecipeError."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise RecipeError(f"--shard {text}: I/N is wanted, with I from 1 to N")
        return Shard(int(number), int(count))


@dataclass(frozen=True)
class Outcome:
    """What a driver has done. `unfinished`: units that are not whole, each with the reason; of a
    shard, its own."""

    stats: dict[str, Any]
    unfinished: dict[str, str]


def drive(
    plan: Plan,
    executor: Executor,
    progress: Progress,
    base: str | Path | None = None,
    shard: Shard | None = None,
    retry_incomplete: bool = False,
    accept_collapse: bool = False,
) -> Outcome:
    """Runs or resumes a plan, or does a shard of its units.

    `retry_incomplete`: units whose input could not be read to its end are read again.
    `accept_collapse`: a global step may remove more than the recipe's `collapse` allows. Raises
    RecipeError before any work, RunFailed after.
    """
    found = None if base is None else Base.of(plan, base, retry_incomplete)
    make_indexes(plan)
    freeze(plan)
    try:
        lease = Lease(plan.run, str(shard or ""))
    except LeaseHeld as held:
        raise RunFailed(str(held)) from None
    try:
        driver = _Driver(
            *(open_plan(plan.run), executor, found, progress, lease, shard),
            *(retry_incomplete, accept_collapse),
        )
        return driver.drive()
    except ExecutorLost as lost:
        raise RunFailed(f"{lost}; the same command goes on from here") from None
    finally:
        lease.close()


@dataclass(frozen=True, slots=True)
class _Done:
    """What the driver keeps of a receipt."""

    status: str
    outputs: dict[str, Output]
    kept: int  # bytes on disk of the documents that go on
    read: bool  # whether the input was there to its end, and stayed what had been listed
    first: Entry | None  # of a byte range: where its first item begins,
    next: Entry | None  # and where the next one after it does; None where it was not read

    @staticmethod
    def of(receipt: Receipt) -> _Done:
        reader = receipt.counts.get("reader", {})
        read = receipt.status != "quarantined" and not _UNREAD & {*reader.get("problem_counts", ())}
        places = [reader.get("first"), reader.get("next") if read else None]
        first, following = (None if place is None else Entry(*place) for place in places)
        text = receipt.outputs.get("text")
        kept = _kept_size(receipt, text) if text else 0
        needed = {k: v for k, v in receipt.outputs.items() if k not in ("signals", "samples")}
        return _Done(receipt.status, needed, kept, read, first, following)


class _Driver:
    def __init__(
        self,
        plan: Plan,
        executor: Executor,
        base: Base | None,
        progress: Progress,
        lease: Lease,
        shard: Shard | None,
        retry_incomplete: bool,
        accept_collapse: bool,
    ) -> None:
        self.plan, self.executor, self.progress, self.lease = plan, executor, progress, lease
        self.base, self.borrowed = base, 0  # tasks reused
        self.spoiled: set[str] = set()  # keys of base receipts whose files turned out damaged
        self.done: dict[int, dict[str, _Done]] = {}  # segment -> task -> what it did
        self.books: dict[int, Books] = {}
        self.shard, self.retry_incomplete = shard, retry_incomplete
        self.accept_collapse = accept_collapse
        self.released = released(plan.run)  # outputs that are missing on purpose

    def drive(self) -> Outcome:
        """All segments in order, then the reports. Damaged files are made again."""
        for _ in range(REPAIRS):
            try:
                self._segments()
                break
            except Damaged as damage:
                self._forget(damage)
            finally:
                self.progress.end()
        else:
            raise RunFailed("files of the run are damaged again and again")
        if self.shard is not None:
            return self._shard_outcome(self.shard)
        books = [self.books[segment.index] for segment in self.plan.segments]
        if problem := conservation(books):
            raise RunFailed(problem)
        stats = collect(self.plan, books)
        write_bytes(self.plan.run / "stats.json", canonical(stats) + b"\n")
        write_bytes(self.plan.run / "timings.json", canonical(timings(books)) + b"\n")
        self._tidy()
        self._publish()
        return Outcome(stats, unfinished(self.plan, books[0]))

    def _publish(self) -> None:
        """Adds what the run has decided to the indexes of its global steps."""
        for spec, directory in self.plan.indexed():
            assert isinstance(spec.stage, GlobalStep)
            done = self.done[self.plan.exchange_of(spec).index]
            arrays: dict[str, list[tuple[Path, Output]]] = {}
            for task in sorted(name for name in done if name.startswith("index-")):
                for name, output in done[task].outputs.items():
                    arrays.setdefault(name, []).append((output.locate(self.plan.run), output))
            name, form = self.plan.recipe.settings.name, spec.stage.index_form()
            run = (name, self.plan.origin, self.plan.files, self.plan.indexes[spec.name])
            try:
                index.publish(directory, form, *run, arrays)
            except (index.IndexUnusable, OSError) as error:
                raise RunFailed(f"{spec.name}: index: {error}") from None

    def _shard_outcome(self, shard: Shard) -> Outcome:
        books = books_of(self.plan)
        left = unfinished(self.plan, books[0])
        mine = {unit.shown for unit in self.plan.units if shard.has(unit.ordinal)}
        return Outcome(
            collect(self.plan, books), {name: why for name, why in left.items() if name in mine}
        )

    def _forget(self, damage: Damaged) -> None:
        """Removes the receipt of a damaged file, and with it the file counts as not made."""
        self.progress.say(f"{damage.path}: damaged, it is made again")
        if damage.path in self.released:  # it is needed after all, and so are the others
            forget_released(self.plan.run)
            self.released = frozenset()
        for segment in self.plan.segments:
            for path in self.plan.receipts(segment).glob("*.json"):
                receipt = Receipt.load(path)
                named = receipt is None or damage.path in {o.path for o in receipt.outputs.values()}
                if named or str(path.relative_to(self.plan.run)) == damage.path:
                    path.unlink(missing_ok=True)
                    self.spoiled.add(receipt.key if receipt else "")
        self.done.clear()
        self.books.clear()

    def _segments(self) -> None:
        for segment in self.plan.segments:
            if segment.kind == "exchange":
                self._exchange(segment)
            elif segment.kind == "read":
                self._read(segment)
                if self.shard is not None:
                    return
            else:
                self._segment(segment, self._following(segment))

    # What there is to do

    def _read(self, segment: Segment) -> None:
        """Every unit, and again those byte ranges that began at a wrong place."""
        tasks = reading_tasks(self.plan)
        done = self._segment(segment, tasks)
        self.retry_incomplete = False  # they have had their second chance
        if self.shard is not None:
            return  # the ranges of a file are held together when all are there
        while wrong := self._broken_chains(tasks, done):
            self.progress.say(
                f"{segment.name}: {len(wrong)} byte ranges began inside a record; read again"
            )
            self._work(segment, wrong)
            self.books[segment.index] = Books.of(self.plan, segment)

    def _broken_chains(self, tasks: Sequence[Task], done: dict[str, _Done]) -> list[Task]:
        """The byte ranges that do not begin where the one before them ended.

        Looking for the first record of a range may err (a nested archive looks like a boundary), so
        a file is read right when its ranges chain from 0 to its end. Of each file the first one
        that is returned is told its true entry. The later ones are told what follows if the wrong
        ranges found the way again before they ended, which is the rule; else they come back.
        """
        wrong = []
        units = self.plan.units
        for file, group in groupby(tasks, key=lambda task: units[task.units[0]].input):
            expected: Entry | None = Entry(0)  # None: not known, since the range before has no end
            for task in group:
                span, here = units[task.units[0]].span, done[task.name]
                if span is None or span.stop is None:
                    expected = None
                elif expected is None or here.first == expected:
                    expected = here.next
                elif expected.offset >= span.stop:  # nothing begins in this range
                    if here.first is not None:
                        wrong.append(replace(task, entry=expected))
                elif here.first is None and not here.read:
                    expected = None  # nothing of it could be read
                else:
                    wrong.append(replace(task, entry=expected))
                    expected = here.next
            if expected is not None and expected.offset != file.size and not wrong:
                at = expected.offset
                raise RunFailed(f"{file.path}: read to {at} of its {file.size} bytes")
        return wrong

    def _following(self, segment: Segment) -> list[Task]:
        """Tasks of a segment that reads texts of an earlier one, with its slices of removals."""
        before = self.done[self.plan.before(segment).index]
        steps = [self._decisions(step) for step in segment.applies]
        consumed: dict[int, str] = {}
        sizes = [0] * len(self.plan.units)
        for unit in self.plan.units:
            here = before[unit.name]
            if here.status == "quarantined":
                continue
            slices = [step[unit.name].digest for step in steps]
            consumed[unit.ordinal] = digest_of([here.outputs["text"].digest, slices])
            sizes[unit.ordinal] = here.kept
        return tasks_of(self.plan, segment, consumed, sizes)

    def _decisions(self, step: StageSpec) -> dict[str, Output]:
        """The removals of a global step by the name of the unit."""
        done = self.done[self.plan.exchange_of(step).index]
        collated = [d.outputs for name, d in done.items() if name.startswith(f"{COLLATE}-")]
        return {unit: output for outputs in collated for unit, output in outputs.items()}

    def _exchange(self, segment: Segment) -> None:
        """The phases of a global step one after the other, then the removals of each unit."""
        assert segment.step is not None
        step = segment.step.stage
        assert isinstance(step, GlobalStep)
        source = self.plan.before(segment)
        before = self.done[source.index]
        units = [u.ordinal for u in self.plan.units if before[u.name].status != "quarantined"]
        names = [self.plan.units[ordinal].name for ordinal in units]
        records = {
            ordinal: before[name].outputs[f"{segment.step.name}.records"]
            for ordinal, name in zip(units, names, strict=True)
        }
        steps = source.prepares
        earlier = [self._decisions(other) for other in steps[: steps.index(segment.step)]]
        consumed = digest_of(
            [
                [name, output.digest, [decided[name].digest for decided in earlier]]
                for name, output in zip(names, records.values(), strict=True)
            ]
        )
        if batches := self.plan.indexes.get(segment.step.name):
            directory = Path(step.index_directory() or "")
            try:
                found = [index.Batch.load(directory / "batches" / name) for name in batches]
            except index.IndexUnusable as error:
                raise RunFailed(f"{segment.name}: index: {error}") from None
            consumed = digest_of([consumed, [batch.digest for batch in found]])
        groups = groups_of({ordinal: output.bytes for ordinal, output in records.items()})
        made: dict[tuple[str, str], list[Output]] = {}
        for phase in _phases(step):
            tasks = []
            for part, (weight, group) in enumerate(shares := self._shares(phase, groups, made)):
                name = group_name(phase.name, group) if group else f"{phase.name}-{part:05d}"
                key = digest_of([segment.key, phase.name, part, len(shares), consumed])
                needed = resources.of_exchange(int(phase.memory * weight))
                task = Task(segment.index, name, key, group, phase.name, part, len(shares))
                tasks.append(replace(task, weight=weight, memory=needed))
            done = self._segment(segment, tasks, f"{phase.name}-*")
            consumed = digest_of([consumed, [[t.name, _digests(done[t.name])] for t in tasks]])
            for task in tasks:
                for name, output in done[task.name].outputs.items():
                    made.setdefault((phase.name, name), []).append(output)
        following = next(s for s in self.plan.maps if s.index > segment.index)
        accepted = self.accept_collapse or any(self.plan.receipts(following).glob("*.json"))
        if step.removes and not accepted and (why := evidence(self.plan, segment)):
            raise Collapsed(segment.name, why)

    def _shares(
        self,
        phase: Phase,
        groups: list[tuple[int, tuple[int, ...]]],
        made: Mapping[tuple[str, str], list[Output]],
    ) -> list[tuple[int, tuple[int, ...]]]:
        """What the tasks of a phase get: bytes, and units where it is divided by them."""
        if phase.by == "units":
            return groups
        outputs = made.get(phase.of, [])
        size = sum(output.bytes for output in outputs)
        if phase.by == "rows":
            return [(weight, ()) for output in outputs for weight in self._weights(output)]
        parts = _parts(size) if phase.by == "range" else 1
        return [(size // parts, ())] * parts

    def _weights(self, output: Output) -> list[int]:
        """An array of weights; where it was removed on purpose they are not needed any more."""
        try:
            return [int(weight) for weight in load_array(output.locate(self.plan.run))]
        except OSError:
            if output.path not in self.released:
                raise Damaged(output.path) from None
            return [0] * output.rows

    # Doing it

    def _segment(self, segment: Segment, tasks: list[Task], pattern: str = "*") -> dict[str, _Done]:
        """Makes sure that every task has a receipt; what those of the whole segment did so far.

        `pattern`: of the receipts that these tasks account for. Another one of it is a leftover, of
        an attempt that had other inputs (a unit was quarantined then), and would be counted.
        """
        names = {f"{task.name}.json" for task in tasks}
        directory = self.plan.receipts(segment)
        for path in directory.glob(f"{pattern}.json"):
            if path.name not in names:
                path.unlink(missing_ok=True)
        done = self.done.setdefault(segment.index, {})
        books = self.books.setdefault(segment.index, Books(segment))
        if self.shard is not None:
            tasks = [task for task in tasks if self.shard.has(task.units[0])]
        todo: list[Task] = []
        phase = tasks[0].phase if tasks else ""
        name = f"{segment.name} ({phase})" if phase else segment.name
        borrowed = self.borrowed
        found: dict[str, int] = {}  # documents
        for task in tasks:
            receipt = self._found(segment, task)
            if receipt is None:
                needed = task.memory or resources.needed_by(segment.stages)
                todo.append(replace(task, memory=needed))
            else:
                done[task.name] = _Done.of(receipt)
                found[task.name] = receipt.counts.get("documents", 0)
                books.add(receipt)
        self._ceiling(books)
        if self.base is not None:
            reused = self.borrowed - borrowed
            self.progress.say(f"{name}: {reused} of {len(tasks)} tasks reused")
            if segment.kind == "read":
                todo = self._reapplied(self.base, todo)
        self.progress.begin(name, directory, tasks, found)
        todo.sort(key=lambda task: (-task.weight, task.name))  # the largest first
        self._work(segment, todo)
        self.progress.end()
        return done

    def _reapplied(self, base: Base, todo: list[Task]) -> list[Task]:
        """The reading tasks with what the base run has for them."""
        todo = [base.offer(task) for task in todo]
        again = sum(bool(task.base) for task in todo)
        if todo:
            why = f" ({base.run}: {base.obstacle})" if base.obstacle else ""
            self.progress.say(f"read: {again} units re-applied, {len(todo) - again} read{why}")
        return todo

    def _work(self, segment: Segment, todo: list[Task]) -> None:
        """Has tasks carried out until each has a receipt."""
        done, books = self.done[segment.index], self.books[segment.index]
        place = self.plan.run, self.executor
        for task, end in ended(*place, todo, segment.name, self.lease, self.progress):
            if isinstance(end, TaskFailed):
                end = self._quarantine(segment, task, str(end))
            done[task.name] = _Done.of(end)
            books.add(end)
            self.progress.done(task, end.counts)
            self._ceiling(books)

    def _found(self, segment: Segment, task: Task) -> Receipt | None:
        """The valid receipt of a task: this run's, or one of the base's by the same key."""
        path = self.plan.receipt_path(segment, task.name)
        receipt = Receipt.load(path)
        if receipt is not None and self._valid(receipt, task):
            return receipt
        base = self.base
        if base is not None and task.key in base.receipts and task.key not in self.spoiled:
            receipt = self._borrow(segment, task, base.receipts[task.key], base.run)
            if receipt is not None:
                receipt.save(path)
                self.borrowed += 1
                return receipt
        return None

    def _valid(self, receipt: Receipt, task: Task) -> bool:
        """Whether a receipt is of this very work, and its outputs still lie there in full size."""
        if receipt.key != task.key or receipt.status == "quarantined":
            return False
        if receipt.status == "incomplete" and self.retry_incomplete:
            return False
        for output in receipt.outputs.values():
            try:
                if os.stat(output.locate(self.plan.run)).st_size != output.bytes:
                    return False
            except OSError:
                if output.path not in self.released:
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
            raise RunFailed(f"{segment.name}/{task.name} failed for good: {error}")
        receipt = Receipt(segment.name, task.name, task.key, "quarantined", {}, {"error": error})
        receipt.save(self.plan.receipt_path(segment, task.name))
        return receipt

    def _ceiling(self, books: Books) -> None:
        """Stops the run where too many documents fail or too many units are quarantined."""
        ceiling, name = self.plan.recipe.settings.failure_ceiling, books.segment.name
        if books.documents >= CEILING_DOCUMENTS and books.failed > ceiling * books.documents:
            raise RunFailed(
                f"{name}: {books.failed} of {books.documents} documents failed, "
                f"above failure_ceiling {ceiling}"
            )
        ended, quarantined = sum(books.status.values()), books.status["quarantined"]
        if ended >= CEILING_UNITS and quarantined > ceiling * ended:
            raise RunFailed(
                f"{name}: {quarantined} of {ended} units are quarantined, "
                f"above failure_ceiling {ceiling}"
            )

    def _tidy(self) -> None:
        """Removes files of documents/ that no receipt names: left by an attempt that was killed."""
        last = self.done[self.plan.segments[-1].index].values()
        named = {Path(o.path).name for done in last for o in done.outputs.values()}
        directory = self.plan.run / "documents"
        directory.mkdir(exist_ok=True)
        for path in directory.iterdir():
            if path.name not in named and not path.name.startswith("."):
                path.unlink()


def _phases(step: GlobalStep) -> list[Phase]:
    """The phases of a global step, and those that the engine adds to each."""
    added = [Phase(COLLATE, "units", memory=3), Phase(COLLAPSE, "whole", (COLLATE, RETENTION))]
    return [*step.phases(), *(added if step.removes else added[:1])]


def _parts(size: int) -> int:
    """Ranges into which arrays of so many bytes are divided."""
    return max(1, -(-size // task_bytes(size, EXCHANGE_BYTES)))


def outlook(step: GlobalStep, documents: int, earlier: int, units: int) -> list[dict[str, Any]]:
    """Tasks of each phase of an exchange, and bytes of memory that one takes at most, for so many
    documents that come to it, beside `earlier` ones of an index."""
    sizes = step.sizes()
    records = int(documents * sizes["", "records"])
    groups = max(-(-records // task_bytes(records, GROUP_BYTES)), -(-units // GROUP_UNITS))
    groups = min(groups, units)  # a unit is not divided
    found = []
    for phase in _phases(step):
        if phase.by == "units":
            tasks, size = max(1, groups), records
        else:
            size = int((documents + earlier) * sizes.get(phase.of, 0))
            tasks = 1 if phase.by == "whole" else _parts(size)
        memory = resources.of_exchange(int(phase.memory * size / tasks))
        found.append({"phase": phase.name, "tasks": tasks, "memory_per_task": memory})
    return found


def groups_of(sizes: Mapping[int, int]) -> list[tuple[int, tuple[int, ...]]]:
    """Neighbouring units that one task of an exchange takes, and their bytes, of units by ordinal.

    Bounded in bytes and in number, and never by who will do the work.
    """
    groups: list[tuple[int, tuple[int, ...]]] = []
    most = task_bytes(sum(sizes.values()), GROUP_BYTES)
    for ordinal, size in sorted(sizes.items()):
        filled, units = groups[-1] if groups else (0, ())
        if not groups or filled + size > most or len(units) == GROUP_UNITS:
            groups.append((size, (ordinal,)))
        else:
            groups[-1] = (filled + size, (*units, ordinal))
    return groups


def _digests(done: _Done) -> dict[str, str]:
    return {name: output.digest for name, output in done.outputs.items()}


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
