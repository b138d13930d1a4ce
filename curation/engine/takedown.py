"""A run without some of its documents: every file without their rows, every book without them.

What may live here: how a run is written once more. Nothing is read, extracted, scored or decided
again: whatever is said of other documents stays as it is. So a near-duplicate that was removed in
favour of a document that goes does not come back: the text that is to be gone would come with it.

The new run is made under a hidden name and gets its own at the end, so it is whole or not there.
Files that hold nothing of the documents are linked, where the file system can; no file of a run is
ever changed in place. What only global steps read (`work/` of an exchange) refers to documents by
their place and is left out, as by `gc --intermediates`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.document import id_words
from curation.engine import collapse, index
from curation.engine.driver import link
from curation.engine.exchange import (
    COLLAPSE,
    COLLATE,
    GROUPS,
    RETENTION,
    DamagedFile,
    load_removals,
    whole,
)
from curation.engine.gc import RELEASED, released
from curation.engine.lease import Lease, LeaseHeld, holders
from curation.engine.ledger import Account, Amount, check_chain, check_reader
from curation.engine.listed import Listed, mask_of
from curation.engine.plan import Plan, Segment, Unit, edits, open_plan, reading_tasks
from curation.engine.recount import Recount, recount
from curation.engine.samples import PER_REASON
from curation.engine.stats import books_of, collect, conservation, ended, timings
from curation.engine.tables import TableWriter, read_batches, write_table
from manifests.arrays import load_array, save_array
from manifests.files import write_bytes
from manifests.records import Output, Receipt, canonical, digest, digest_of


class Refused(RuntimeError):
    """A run that cannot be taken from, or written to; the message says why, in one line."""


@dataclass
class Hits:
    """The documents of a run that are listed: rows by the ordinal of their unit, and all ids."""

    rows: dict[int, np.ndarray] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    urls: list[tuple[str, str | None]] = field(default_factory=list)  # (id, url) of each

    def __len__(self) -> int:
        return len(self.urls)

    def among(self, ids: pa.ChunkedArray) -> pa.ChunkedArray:
        """Which of these are ids of listed documents."""
        return pc.is_in(ids, value_set=pa.array(sorted(self.ids), pa.string()))


def find(plan: Plan, listed: Listed) -> Hits:
    """The listed documents of a run. Raises DamagedFile."""
    hits = Hits()
    for unit, receipt in _units(plan):
        rows = [np.empty(0, np.int64)]
        path = whole(plan, receipt.outputs["signals"])
        for table in read_batches(path, "signals/1", ["row", "id", "url"]):
            found = table.filter(pa.array(mask_of(listed, table)))
            rows.append(found["row"].to_numpy())
            hits.urls += zip(found["id"].to_pylist(), found["url"].to_pylist(), strict=True)
        if len(mine := np.concatenate(rows)):
            hits.rows[unit.ordinal] = mine
    hits.ids.update(name for name, _ in hits.urls)
    return hits


def _units(plan: Plan) -> Iterator[tuple[Unit, Receipt]]:
    """The units that were read, with their receipts."""
    for unit in plan.units:
        receipt = _receipt(plan, plan.receipt_path(plan.segments[0], unit.name))
        if receipt.status != "quarantined":
            yield unit, receipt


def _receipt(plan: Plan, path: Path) -> Receipt:
    receipt = Receipt.load(path)
    if receipt is None:
        raise DamagedFile(str(path.relative_to(plan.run)))
    return receipt


def rewrite(plan: Plan, listed: Listed, output: Path) -> Hits:
    """Writes a finished run anew without the listed documents, and buries them in the indexes that
    the run has added to. Raises Refused, DamagedFile, OtherStages."""
    target = Path(os.path.abspath(output))
    _refuse(plan, target)
    hidden = target.parent / f".{target.name}.takedown"
    hidden.mkdir(parents=True, exist_ok=True)
    try:
        lease = Lease(hidden)
    except LeaseHeld as held:
        raise Refused(str(held)) from None
    try:
        for left in hidden.iterdir():  # of an attempt that was killed
            if not left.name.startswith("lease"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        hits = _Rewriting(plan, listed, hidden).run()
        _bury(plan, hits, listed)
    except Exception:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    finally:
        lease.close()
    os.rename(hidden, target)
    return hits


def _bury(plan: Plan, hits: Hits, listed: Listed) -> None:
    """Lets no later run take the documents for earlier ones."""
    ids = id_words(pa.array(sorted(hits.ids | listed.ids), pa.string()))
    for spec, directory in plan.indexed():
        try:
            index.bury(directory, ids)
        except index.IndexUnusable as error:
            raise Refused(f"{spec.name}: index: {error}") from None


def _refuse(plan: Plan, target: Path) -> None:
    """Raises Refused unless the run has ended and the target can be made."""
    if alive := [holder for holder in holders(plan.run) if holder.alive]:
        raise Refused(f"{plan.run}: {alive[0]}")
    if ended(plan.run) is None:
        raise Refused(f"{plan.run}: the run has not ended (no stats.json)")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Refused(f"{target}: the output is there already and not empty")
    if target.is_relative_to(plan.run):
        raise Refused(f"{target}: the output lies in the run itself")


class _Rewriting:
    """One run written as another."""

    def __init__(self, old: Plan, listed: Listed, run: Path) -> None:
        self.old, self.listed, self.path = old, listed, run
        self.hits = find(old, listed)
        self.new = self._plan()
        self.before, self.keys = (
            {task.name: task.key for task in reading_tasks(plan)} for plan in (old, self.new)
        )
        self.gone = released(old.run)  # outputs that the old run has no more
        self.left_out: set[str] = set()  # outputs that the new run does not have
        #: Steps and units in which somebody was removed in favour of a listed document.
        self.orphans = self._orphans()

    def run(self) -> Hits:
        for segment in self.old.segments:
            for path in sorted(self.old.receipts(segment).glob("*.json")):
                receipt = _receipt(self.old, path)
                if segment.kind == "exchange":
                    made = self._exchange(segment, receipt)
                elif receipt.status == "quarantined":
                    made = replace(receipt, key=self.keys[receipt.task])
                else:
                    made = self._map(segment, receipt)
                made.save(self.new.receipt_path(segment, receipt.task))
        if self.left_out:
            record = {"schema": 1, "outputs": sorted(self.left_out)}
            write_bytes(self.path / RELEASED, canonical(record) + b"\n")
        books = books_of(self.new)
        if problem := conservation(books):
            raise RuntimeError(problem)
        write_bytes(self.path / "stats.json", canonical(collect(self.new, books)) + b"\n")
        write_bytes(self.path / "timings.json", canonical(timings(books)) + b"\n")
        (self.path / "documents").mkdir(exist_ok=True)
        return self.hits

    def _plan(self) -> Plan:
        """The plan of the new run: the same but for the list, and a word of what it was before."""
        before = self.old.recipe.takedown
        sealed = self.listed.sealed()
        all_of_them = sorted(sealed.digests | (before.digests if before else frozenset()))
        data = self.old.path.read_bytes()
        record = json.loads(data)
        record["takedown"] = {"digests": all_of_them, "previous": digest(data)}
        write_bytes(self.path / "run.json", canonical(record) + b"\n")
        return open_plan(self.path)

    def _orphans(self) -> set[tuple[str, str]]:
        found = set()
        for segment in self.old.segments:
            if segment.step is None or not getattr(segment.step.stage, "removes", False):
                continue
            for path in sorted(self.old.receipts(segment).glob(f"{COLLATE}-*.json")):
                for name, output in _receipt(self.old, path).outputs.items():
                    if name not in (RETENTION, GROUPS):
                        table = pq.read_table(whole(self.old, output), columns=["survivor"])
                        if pc.any(self.hits.among(table["survivor"])).as_py():
                            found.add((segment.name, name))
        return found

    # Segments that documents pass through

    def _map(self, segment: Segment, receipt: Receipt) -> Receipt:
        units = [self.old.units[ordinal] for ordinal in receipt.counts["units"]]
        names = [spec.name for spec in segment.removals]
        orphaned = any((n, u.name) in self.orphans for n in names for u in units)
        touched = orphaned or any(unit.ordinal in self.hits.rows for unit in units)
        if not touched:
            outputs = {name: self._same(output) for name, output in receipt.outputs.items()}
            return replace(receipt, key=self._key(segment, receipt, True), outputs=outputs)
        counts, booked = self._counts(segment, receipt, units)
        outputs, exact = {}, booked
        for name, output in receipt.outputs.items():
            outputs[name], whole_one = self._output(segment, units, name, output)
            exact &= whole_one
        key = self._key(segment, receipt, exact)
        envelope = dict(receipt.envelope)
        if not booked:
            envelope["takedown"] = "approximate"
        return replace(receipt, key=key, outputs=outputs, counts=counts, envelope=envelope)

    def _key(self, segment: Segment, receipt: Receipt, exact: bool) -> str:
        """What was read is what a run that begins with the list reads, if it is so to the byte: it
        has that key and can be a base. All else has a key that no other run has."""
        if segment.kind == "read" and exact and receipt.key == self.before[receipt.task]:
            return self.keys[receipt.task]
        previous = self.new.previous
        return digest_of([receipt.key, "takedown", previous, self.listed.sealed().plain()])

    def _counts(
        self, segment: Segment, receipt: Receipt, units: list[Unit]
    ) -> tuple[dict[str, Any], bool]:
        """The counts of a receipt without the documents, and whether all are exact."""
        counts = json.loads(canonical(receipt.counts))
        accounts = [Account.of(plain) for plain in counts["stages"]]
        exact = True
        for unit in units:
            if unit.ordinal not in self.hits.rows:
                continue
            rows = self.hits.rows[unit.ordinal]
            taken = recount(self.old, segment, receipt, unit, rows)
            exact &= taken.exact
            _take(counts, accounts, taken)
        _settle(accounts)
        for account, spec in zip(accounts, (*segment.removals, *segment.stages), strict=True):
            removes = spec in segment.removals and not edits(spec)
            if removes or not counts["documents"]:
                account.would_drop = +account.would_drop  # reasons that nobody has occur nowhere
        counts["stages"] = [account.plain() for account in accounts]
        counts["fates"] = [f for f in counts["fates"] if f["id"] not in self.hits.ids]
        check_chain(accounts, counts["documents"])
        if segment.kind == "read":
            check_reader(counts["reader"])
        return counts, exact

    def _output(
        self, segment: Segment, units: list[Unit], name: str, output: Output
    ) -> tuple[Output, bool]:
        """An output without the rows of the documents. Whether it is what the task would write if
        it had never seen them: samples would have others in place of those that go."""
        survivors = [f"{spec.name}.survivor" for spec in segment.removals if not edits(spec)]
        if output.path in self.gone and not output.locate(self.old.run).exists():
            return self._without(output), False
        if name == "signals":
            return self._table(output, self._rows_of(units), self._nulled(survivors)), True
        if name == "samples":
            full = self._full(output)
            steps = [spec.name for spec in segment.removals]
            return self._table(output, self._unlisted, self._forgotten(steps)), not full
        if name.startswith("documents"):
            return self._table(output, self._unlisted), True
        if name.endswith(".records"):
            array = load_array(whole(self.old, output))
            array = array[~np.isin(array["row"], self.hits.rows.get(units[0].ordinal, ()))]
            return save_array(self._path(output), array, self.path), True
        return self._table(output, self._rows_in(units[0])), True  # text, originals

    def _full(self, output: Output) -> bool:
        """Whether a listed document is among samples that were chosen from more."""
        table = pq.read_table(whole(self.old, output))
        names = ["kind", "stage", "reason"]
        many = table.group_by(names).aggregate([([], "count_all")])
        many = many.filter(pc.greater_equal(many["count_all"], PER_REASON))
        listed = table.filter(pa.array(mask_of(self.listed, table)))
        return len(listed.join(many, names, join_type="inner")) > 0

    # The exchanges

    def _exchange(self, segment: Segment, receipt: Receipt) -> Receipt:
        key = self._key(segment, receipt, False)
        outputs: dict[str, Output] = {}
        counts = dict(receipt.counts)
        units = {unit.name: unit for unit in self.old.units}
        for name, output in receipt.outputs.items():
            if name in units and receipt.task.startswith(f"{COLLATE}-"):
                outputs[name] = self._decided(segment, units[name], output, counts)
            elif receipt.task.startswith(f"{COLLAPSE}-"):
                outputs[name] = self._collapsed(segment, name, output)
            else:
                outputs[name] = self._without(output)
        if receipt.task.startswith(f"{COLLAPSE}-"):
            counts["documents"] -= sum(len(self._arrived(segment, u)) for u in self.hits.rows)
        return replace(receipt, key=key, outputs=outputs, counts=counts)

    def _decided(
        self, segment: Segment, unit: Unit, output: Output, counts: dict[str, Any]
    ) -> Output:
        """What a step decided about a unit, without the documents."""
        assert segment.step is not None
        removes = getattr(segment.step.stage, "removes", False)
        if not (unit.ordinal in self.hits.rows or (segment.name, unit.name) in self.orphans):
            return self._same(output)
        nulled = self._nulled(["survivor"]) if removes else None
        made = self._table(output, self._rows_in(unit), nulled)
        before = pq.read_table(whole(self.old, output))
        after = pq.read_table(made.locate(self.path))
        if removes:
            counts["documents"] -= len(self._arrived(segment, unit.ordinal))
            before, after = (t.filter(t["reason"].is_valid()) for t in (before, after))
        counts["rows"] -= len(before) - len(after)
        return made

    def _arrived(self, segment: Segment, ordinal: int) -> pa.Table:
        """The listed documents of a unit that the segment before an exchange kept."""
        before = self.old.before(segment)
        unit = self.old.units[ordinal]
        receipt = _receipt(self.old, self.old.receipt_path(before, unit.name))
        names = ["row", "source", "language", "url", "decision"]
        rows = pa.array(self.hits.rows.get(ordinal, []), pa.int64())
        path = whole(self.old, receipt.outputs["signals"])
        tables = list(read_batches(path, "signals/1", names, where=("row", rows)))
        none = pq.read_schema(path).empty_table().select(names)
        table = pa.concat_tables([none, *tables])
        return table.filter(pc.equal(table["decision"], "kept"))

    def _came(self, segment: Segment, ordinal: int) -> pa.Table:
        """Those of them that came to the step itself, past the steps beside it."""
        assert segment.step is not None
        table = self._arrived(segment, ordinal)
        steps = self.old.before(segment).prepares
        for step in steps[: steps.index(segment.step)]:
            found = load_removals(self.old, self.old.exchange_of(step), self.old.units[ordinal])
            table = table.filter(pa.array(~np.isin(table["row"].to_numpy(), found.rows)))
        return table

    def _collapsed(self, segment: Segment, name: str, output: Output) -> Output:
        """What is left of sources, languages and hosts, and the largest groups."""
        if name == GROUPS:
            return self._table(output, self._unlisted)
        assert name == RETENTION
        total = [pq.read_table(whole(self.old, output))]
        for ordinal in self.hits.rows:
            came = self._came(segment, ordinal)
            rows = load_removals(self.old, segment, self.old.units[ordinal]).rows
            counted = collapse.retention(came, np.isin(came["row"].to_numpy(), rows))
            for column in ("documents", "removed"):
                at = counted.column_names.index(column)
                counted = counted.set_column(at, column, pc.negate(counted[column]))
            total.append(counted.cast(collapse.RETENTION_SCHEMA))
        table = collapse.merged(total)
        table = table.filter(pc.greater(table["documents"], 0))
        return write_table(self._path(output), table, self.path)

    # Files

    def _path(self, output: Output) -> Path:
        """Where an output lies in the new run; a base run's is its own there."""
        parts = Path(output.path).parts
        if "segments" in parts:
            at = len(parts) - 1 - parts[::-1].index("segments")
            parts = parts[at:]
        return self.path.joinpath(*parts)

    def _same(self, output: Output) -> Output:
        """A file that holds nothing of the documents."""
        if output.path in self.gone and not output.locate(self.old.run).exists():
            return self._without(output)
        path = self._path(output)
        link(whole(self.old, output), path)
        return replace(output, path=str(path.relative_to(self.path)))

    def _without(self, output: Output) -> Output:
        """A file that the new run does not have."""
        path = str(self._path(output).relative_to(self.path))
        self.left_out.add(path)
        return replace(output, path=path)

    def _table(
        self,
        output: Output,
        keep: Callable[[pa.Table], np.ndarray],
        change: Callable[[pa.Table], pa.Table] | None = None,
    ) -> Output:
        """A Parquet file with the rows that are kept, in its own schema."""
        source = whole(self.old, output)
        writer = TableWriter(self._path(output), pq.read_schema(source))
        try:
            with pq.ParquetFile(source) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group)
                    table = table.filter(pa.array(keep(table)))
                    writer.write(table if change is None else change(table))
            return writer.close(self.path)
        except BaseException:
            writer.discard()
            raise

    def _unlisted(self, table: pa.Table) -> np.ndarray:
        return ~mask_of(self.listed, table)

    def _rows_in(self, unit: Unit) -> Callable[[pa.Table], np.ndarray]:
        """Of a file of one unit, the rows that stay."""
        rows = self.hits.rows.get(unit.ordinal, np.empty(0, np.int64))
        return lambda table: ~np.isin(table["row"].to_numpy(), rows)

    def _rows_of(self, units: list[Unit]) -> Callable[[pa.Table], np.ndarray]:
        """Of a file of several units (column `unit`), the rows that stay."""

        def keep(table: pa.Table) -> np.ndarray:
            gone = np.zeros(len(table), dtype=bool)
            for unit in units:
                mine = table["unit"].to_numpy() == unit.ordinal
                gone |= mine & ~self._rows_in(unit)(table)
            return ~gone

        return keep

    def _nulled(self, columns: list[str]) -> Callable[[pa.Table], pa.Table]:
        """Takes the ids of the documents out of columns that name survivors."""

        def change(table: pa.Table) -> pa.Table:
            for name in columns:
                at, values = table.column_names.index(name), table[name]
                nothing = pa.scalar(None, values.type)
                values = pc.if_else(self.hits.among(values), nothing, values)
                table = table.set_column(at, name, values)
            return table

        return change

    def _forgotten(self, steps: list[str]) -> Callable[[pa.Table], pa.Table]:
        """Samples whose value is a survivor that goes."""

        def change(table: pa.Table) -> pa.Table:
            names = pc.is_in(table["stage"], value_set=pa.array(steps, pa.string()))
            hit = pc.and_(names, self.hits.among(table["value"]))
            values = pc.if_else(hit, pa.scalar(None, pa.string()), table["value"])
            return table.set_column(table.column_names.index("value"), "value", values)

        return change


def _settle(accounts: list[Account]) -> None:
    """Where no document is left, no word or byte is. What guessed sizes have left there was of the
    documents that went, so it goes also from before: they passed those stages in the same sizes."""
    passes = [a.entered for a in accounts[:1]] + [a.kept for a in accounts]
    rest = next((replace(amount) for amount in passes if not amount.documents), Amount())
    if rest.bytes or rest.words:
        for account in accounts:
            account.settle(rest)


def _take(counts: dict[str, Any], accounts: list[Account], taken: Recount) -> None:
    """Takes documents out of the counts of a receipt and out of its accounts."""
    counts["documents"] -= taken.documents
    for name, amount in taken.kept.items():
        counts["output"][name] -= amount
    for account, other in zip(accounts, taken.accounts, strict=True):
        account.take(other)
    if reader := counts.get("reader"):
        reader["documents"] -= taken.documents
        skipped = reader["skipped"]
        skipped["takedown"] = skipped.get("takedown", 0) + taken.documents
        reader["skipped"] = dict(sorted(skipped.items()))
