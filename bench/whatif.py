"""`curation whatif` over a million documents: seconds of the whole command, and its peak memory.

The run directory is made here by the project's own planner, writers and receipts, without texts:
signals are drawn so that every rule drops some documents. Forty signals of four filters of one
group, then an exact dedup that removed every tenth document.

What may live here: this measurement alone: the made-up run and the clock around the command.

    python bench/whatif.py [--documents N] [--units N]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from curation.engine.plan import Plan, Segment, build, freeze
from curation.engine.recipe import load
from curation.engine.tables import TableWriter, signals_schema
from curation.stage import Filter
from manifests.records import Output, Receipt

STAGE = """
from typing import ClassVar
from curation import Filter, Rule


class {name}(Filter):
    version: ClassVar[int] = 1
    group: ClassVar[str | None] = "heuristics"
    rules: ClassVar[tuple[Rule, ...]] = (
        {rules}
    )
    {parameters}

    def score(self, docs):
        return {{name: [0.5] * len(docs) for name in ({signals})}}
"""
STAGES = {"Repetition": 13, "Quality": 10, "Web": 4, "Lines": 13}  # signals, one rule each
DROPS = 0.01  # share of documents that violate a rule; drawn alone
BATCH = 50_000


def write_stages(folder: Path) -> None:
    """A module with the filters, as a user would name them."""
    source = "from __future__ import annotations\n"
    for name, count in STAGES.items():
        source += STAGE.format(
            name=name,
            rules="\n        ".join(
                f'Rule("high_{i}", signal="s{i}", above="max_{i}"),' for i in range(count)
            ),
            parameters="\n    ".join(f"max_{i}: float = {1 - DROPS}" for i in range(count)),
            signals=", ".join(f'"s{i}"' for i in range(count)),
        )
    (folder / "made_up.py").write_text(source)


def made_up(folder: Path, documents: int, units: int) -> Plan:
    """A finished run of so many documents, without their texts."""
    write_stages(folder)
    sys.path.insert(0, str(folder))
    for unit in range(units):
        (folder / f"{unit:04d}.jsonl").write_text("")
    stages = [{f"made_up:{name}": {}} for name in STAGES]
    recipe = {
        "kind": "documents",
        "name": "made-up",
        "input": {"kind": "jsonl", "paths": [str(folder)]},
        "stages": [*stages, {"exact_dedup": {}}],
    }
    plan = build(load(recipe), folder / "run")
    freeze(plan)
    random = np.random.default_rng(1)
    first, last = plan.segments[0], plan.segments[-1]
    sizes = [documents * (u + 1) // units - documents * u // units for u in range(units)]
    everything = plan.run / last.directory / "signals" / "part-00000.parquet"
    final = TableWriter(everything, signals_schema(plan.signal_types(last)))
    for unit, size in zip(plan.units, sizes, strict=True):
        path = plan.run / first.directory / "signals" / f"{unit.name}.parquet"
        writer = TableWriter(path, signals_schema(plan.signal_types(first)))
        for table in tables(plan, first, unit.ordinal, size, random):
            writer.write(table)
            kept = table.filter(pa.compute.equal(table["decision"], "kept"))
            final.write(removed(kept, final.schema))
        commit(plan, first, unit.name, writer.close(plan.run), [unit.ordinal])
    commit(plan, last, "part-00000", final.close(plan.run), list(range(units)))
    return plan


def tables(
    plan: Plan, segment: Segment, unit: int, size: int, random: np.random.Generator
) -> Iterator[pa.Table]:
    """The signals of a unit, with the decisions that its rules take."""
    for start in range(0, size, BATCH):
        n = min(BATCH, size - start)
        columns: dict[str, pa.Array] = head(unit, start, n, random)
        reached = np.full(n, len(segment.stages) - 1)
        reason = np.full(n, None, object)
        for place, spec in enumerate(segment.stages):
            assert isinstance(spec.stage, Filter)
            for rule in spec.stage.rules:
                # Counts over counts: few different values, as shares of lines or words are.
                whole = random.integers(20, 400, n)
                values = random.integers(0, whole) / whole
                columns[f"{spec.name}.{rule.signal}"] = pa.array(values)
                first = (values > 1 - DROPS) & (reason == None)  # noqa: E711
                reached[first], reason[first] = place, rule.name
        columns["reached"] = pa.array(segment.accounts).take(pa.array(reached))
        columns["reason"] = pa.array(reason.tolist(), pa.string())
        decision = (reason != None).astype(int)  # noqa: E711
        columns["decision"] = pa.array(["kept", "dropped"]).take(pa.array(decision))
        yield pa.table(columns)


def head(unit: int, start: int, n: int, random: np.random.Generator) -> dict[str, pa.Array]:
    """Identity, origin and sizes of documents."""
    data = random.bytes(16 * n).hex()
    ids = [data[i : i + 32] for i in range(0, len(data), 32)]
    words = random.integers(50, 3000, n)
    return {
        "unit": pa.array(np.full(n, unit, np.int32)),
        "row": pa.array(np.arange(start, start + n)),
        "id": pa.array(ids),
        "url": pa.array([f"https://example.org/{name[:12]}" for name in ids]),
        "source": pa.nulls(n, pa.string()),
        "crawl": pa.nulls(n, pa.string()),
        "language": pa.array(["en"] * n),
        "warc_offset": pa.array(random.integers(0, 2**30, n)),
        "warc_length": pa.array(random.integers(1000, 50_000, n)),
        "words": pa.array(words),
        "bytes": pa.array(words * 6),
    }


def removed(kept: pa.Table, schema: pa.Schema) -> pa.Table:
    """What the dedup decided: every tenth document is the duplicate of another."""
    n = len(kept)
    hit = np.arange(n) % 10 == 0
    columns = {name: kept[name] for name in schema.names if name in kept.column_names}
    columns["reached"] = pa.array(["exact_dedup"] * n)
    columns["decision"] = pa.array(["kept", "dropped"]).take(pa.array(hit.astype(int)))
    columns["reason"] = pa.array(np.where(hit, "text", None).tolist(), pa.string())
    columns["exact_dedup.survivor"] = pa.array(
        [name if gone else None for name, gone in zip(kept["id"].to_pylist(), hit, strict=True)],
        pa.string(),
    )
    return pa.table(columns)


def commit(plan: Plan, segment: Segment, task: str, signals: Output, units: list[int]) -> None:
    receipt = Receipt(segment.name, task, "made-up", "done", {"signals": signals}, {"units": units})
    receipt.save(plan.receipt_path(segment, task))


def measure(command: list[str], folder: Path) -> tuple[float, float, str]:
    """Seconds by the clock and of processor, and what was printed."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--units", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gristmill-whatif-") as directory:
        folder = Path(directory)
        plan = made_up(folder, options.documents, options.units)
        size = sum(path.stat().st_size for path in plan.run.rglob("*.parquet"))
        print(f"{options.documents:,} documents, {options.units} units, {size / 1e6:,.0f} MB")
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core, for the commands too
        command = [sys.executable, "-m", "curation", "whatif", str(plan.run)]
        for settings in (
            ["Repetition.max_3=0.95", "Quality.max_2=0.98"],  # stricter
            ["Repetition.max_3=1.0", "Lines.max_7=1.0"],  # looser
        ):
            flags = [flag for setting in settings for flag in ("--set", setting)]
            seconds, cpu, shown = measure([*command, *flags], folder)
            print("\n".join(shown.splitlines()[:4]))
            print(
                f"{' '.join(settings)}: {seconds:.2f} s ({cpu:.2f} s of processor), "
                f"{options.documents / seconds:,.0f} documents/s"
            )
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(f"peak {peak / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
