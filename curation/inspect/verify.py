"""Whether a run is what its receipts say.

What may live here: the checks behind `curation verify`.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.engine.gc import released
from curation.engine.plan import Plan, Segment, Task, open_plan
from curation.engine.stats import Books, collect, conservation
from curation.engine.unit import run_task
from curation.read.span import Entry
from manifests.files import file_digest
from manifests.records import Receipt, digest

FIRST = 20  # problems that are shown


def check(plan: Plan, replay: int = 0) -> dict[str, Any]:
    """Digests of receipts and files, row counts, conservation, stats.json; `replay` tasks again.

    `problems` names every fault; `holds` says whether there is none.
    """
    problems: list[str] = []
    files = size = tasks = 0
    loaded: list[tuple[Segment, Receipt]] = []
    books = [Books(segment) for segment in plan.segments]
    gone = released(plan.run)
    for segment in plan.segments:
        for path in sorted(plan.receipts(segment).glob("*.json")):
            receipt = Receipt.load(path)
            tasks += 1
            if receipt is None:
                problems.append(f"{path.relative_to(plan.run)}: damaged receipt")
                continue
            loaded.append((segment, receipt))
            books[segment.index].add(receipt)
            for output in receipt.outputs.values():
                if output.path in gone and not output.locate(plan.run).exists():
                    continue  # removed on purpose
                files += 1
                size += output.bytes
                problems += _file(plan, output.path, output.digest, output.bytes, output.rows)
    if problem := conservation(books):
        problems.append(problem)
    stats = collect(plan, books)
    last = [receipt for segment, receipt in loaded if segment is plan.segments[-1]]
    problems += _final(plan, last, stats["output"])
    problems += _stats(plan, stats)
    replayed = _replay(plan, loaded, replay, problems) if replay else 0
    return {
        "holds": not problems,
        "receipts": tasks,
        "files": files,
        "bytes": size,
        "replayed": replayed,
        "problems": problems,
    }


def _file(plan: Plan, path: str, wanted: str, size: int, rows: int) -> list[str]:
    place = plan.run / path
    try:
        found = file_digest(place)
    except OSError:
        return [f"{path}: missing"]
    if found != (wanted, size):
        return [f"{path}: its bytes are not those of the receipt"]
    if place.suffix == ".parquet" and pq.read_metadata(place).num_rows != rows:
        return [f"{path}: {pq.read_metadata(place).num_rows} rows, the receipt says {rows}"]
    return []


def _final(plan: Plan, receipts: list[Receipt], books: dict[str, Any]) -> list[str]:
    """The documents on disk against the receipts of the last segment and against the books: how
    many, how many bytes, each row once."""
    documents = size = 0
    named = set()
    for receipt in receipts:
        for name, output in receipt.outputs.items():
            if name.startswith("documents"):
                place = output.locate(plan.run)
                named.add(place.name)
                try:
                    text = pq.read_table(place, columns=["text"])["text"]
                except (OSError, pa.ArrowInvalid):
                    continue  # missing or damaged: said already
                documents += len(text)
                size += pc.sum(pc.binary_length(text)).as_py() or 0
    problems = []
    if (documents, size) != (books["documents"], books["bytes"]):
        problems.append(
            f"documents/: {documents} documents of {size} bytes, "
            f"the books say {books['documents']} of {books['bytes']}"
        )
    for path in sorted((plan.run / "documents").glob("*.parquet")):
        if path.name not in named:
            problems.append(f"documents/{path.name}: no receipt names it")
    return problems


def _stats(plan: Plan, stats: dict[str, Any]) -> list[str]:
    path = plan.run / "stats.json"
    try:
        written = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return ["stats.json: missing or damaged (the run has not ended?)"]
    return [] if written == stats else ["stats.json: not the sum of the receipts"]


def _replay(
    plan: Plan, loaded: list[tuple[Segment, Receipt]], count: int, problems: list[str]
) -> int:
    """Does tasks of the map segments again, elsewhere, and compares the bytes."""
    chosen = [
        (segment, receipt)
        for segment, receipt in loaded
        if segment.kind != "exchange" and receipt.status != "quarantined"
    ]
    chosen.sort(key=lambda pair: digest(f"{plan.recipe.settings.seed} {pair[1].key}".encode()))
    for segment, receipt in chosen[:count]:
        with tempfile.TemporaryDirectory(prefix="gristmill-replay-") as directory:
            problems += _again(plan, segment, receipt, Path(directory))
    return min(count, len(chosen))


def _again(plan: Plan, segment: Segment, receipt: Receipt, directory: Path) -> list[str]:
    (directory / "segments").mkdir()
    (directory / "run.json").write_bytes(plan.path.read_bytes())
    for other in plan.segments:
        if other != segment:
            os.symlink(plan.run / other.directory, directory / other.directory)
    known = {(f["stage"], f["row"]): f["class"] for f in receipt.counts["fates"]}
    place = receipt.counts.get("reader", {}).get("first")
    task = Task(
        segment.index,
        receipt.task,
        receipt.key,
        tuple(receipt.counts["units"]),
        entry=Entry(*place) if place else None,  # a byte range may have been told where to begin
    )
    try:
        again = run_task(open_plan(directory), task, known)
    except Exception as error:
        return [f"{segment.name}/{receipt.task}: replay failed: {type(error).__name__}: {error}"]
    found = []
    for name, output in receipt.outputs.items():
        made = again.outputs.get(name)
        fewer = name == "samples" and plan.previous  # others take the places of those that went
        if made and fewer and _are_among(output.locate(plan.run), made.locate(directory)):
            continue
        if made is None or made.digest != output.digest:
            found.append(f"{segment.name}/{receipt.task}: {name} came out differently on replay")
    approximate = receipt.envelope.get("takedown") == "approximate"
    if again.counts != receipt.counts and not approximate:
        found.append(f"{segment.name}/{receipt.task}: the counts came out differently on replay")
    return found


def _are_among(some: Path, others: Path) -> bool:
    """Whether all rows of a table are rows of another one."""
    those = pq.read_table(others).to_pylist()
    return all(row in those for row in pq.read_table(some).to_pylist())


def render(found: dict[str, Any]) -> str:
    lines = [
        f"{found['receipts']:,} receipts, {found['files']:,} files, {found['bytes'] / 1e6:,.1f} MB"
        + (f", {found['replayed']} tasks done again" if found["replayed"] else "")
    ]
    lines += found["problems"][:FIRST]
    if len(found["problems"]) > FIRST:
        lines.append(f"... and {len(found['problems']) - FIRST} more")
    lines.append("holds" if found["holds"] else "does not hold")
    return "\n".join(lines)
