"""The tasks of a tokens run: what each reads, computes through `curation.tokens`, and leaves behind.

What may live here: from a task to its receipt. Plain Python: every executor runs the same.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from curation.engine import tables
from curation.engine.exchange import DamagedFile
from curation.engine.plan import Task
from curation.engine.resources import Usage
from curation.engine.tokens import orders, places, vocabulary
from curation.engine.tokens.plan import TokensPlan
from curation.tokens import packing, sharding
from manifests.arrays import load_array, save_array
from manifests.files import file_digest
from manifests.records import Output, Receipt
from manifests.rows import Rows

Done = tuple[dict[str, Output], dict[str, Any]]


def run_task(plan: TokensPlan, task: Task) -> Receipt:
    """Does a task and commits its receipt. Raises what the task raises; then nothing is
    committed."""
    started, usage = time.time(), Usage()
    outputs, counts = _TASKS[task.phase](plan, task)
    envelope = {
        "host": platform.node(),
        "pid": os.getpid(),
        "started": started,
        **usage.read(),
    }
    receipt = Receipt(task.phase, task.name, task.key, "done", outputs, counts, envelope)
    receipt.save(plan.receipt_of(task))
    return receipt


def _pack(plan: TokensPlan, task: Task) -> Done:
    """The rows of one window, and where its documents come from."""
    number, ordinal, bits, window = task.units
    split, name = places.SPLITS[number], plan.recipe.names[ordinal]
    settings, about = plan.recipe.settings, vocabulary.of(plan)
    slices, tables_ = [], []
    for receipt in places.encoded(plan, name):
        if f"{split}.docs" not in receipt.outputs:
            continue
        check = window == 0  # the first window holds what it reads against the receipts
        docs = _array(plan, receipt.outputs[f"{split}.docs"], check)
        tokens = _array(plan, receipt.outputs[f"{split}.tokens"], check)
        mine = packing.in_window(docs, bits, window)
        if not len(mine):
            continue
        slices.append((mine, tokens))
        output = receipt.outputs[f"{split}.provenance"]
        tables_.append(_provenance(_place(plan, output, check), bits, window))
    if not slices:
        return {}, {"documents": 0, "copies": 0, "tokens": 0, "pieces": 0, "rows": 0}
    rows = packing.pack(
        slices,
        settings.sequence_length,
        plan.recipe.max_docs_per_row,
        settings.packing.algorithm,
        settings.seed,
        about.fill,
        ordinal,
    )
    path = places.packed(plan.run, split, name, window)
    written = sharding.write_rows(path, [rows], plan.recipe.names, plan.run)
    documents = pa.concat_tables(tables_)
    documents = documents.sort_by([("id", "ascending")])
    origin, sha256 = describe.write_provenance(
        places.provenance(plan.run, split, name, window), documents, plan.run
    )
    counts = {
        "documents": len(documents),
        "copies": int(sum(len(docs) for docs, _ in slices)),
        "tokens": int(rows.filled().sum()),
        "pieces": len(rows.lengths),
        "rows": len(rows),
        "sha256": {"rows": written.sha256, "provenance": sha256},
        "by_source": written.tokens,
    }
    came = sum(int(docs["length"].sum()) for docs, _ in slices)
    if came != counts["tokens"]:
        raise RuntimeError(f"{came} tokens came to the window and {counts['tokens']} are in rows")
    return {"rows": written.output, "provenance": origin}, counts


def _scatter(plan: TokensPlan, task: Task) -> Done:
    """The rows of some packed files of a source, in the order of the samples that want them."""
    order = orders.read(plan)
    first, stop = task.units
    files = order.files[first:stop]
    for file in files:
        _place(plan, file.output, True)
    outputs = sharding.scatter(
        order.order,
        files[0].source,
        [(file.first_row, plan.run / file.output.path) for file in files],
        order.samples,
        plan.recipe.names,
        places.work(plan, task),
        plan.run,
    )
    return outputs, {"rows": outputs["samples"].rows}


def _gather(plan: TokensPlan, task: Task) -> Done:
    """One shard."""
    order, [shard] = orders.read(plan), task.units
    size = plan.recipe.settings.output.shard_rows
    stems = []
    for receipt in places.receipts(plan, "scatter"):
        for output in receipt.outputs.values():
            _place(plan, output, shard == 0)
        stems.append(plan.directory("scatter") / "work" / receipt.task)
    first, stop = shard * size, min((shard + 1) * size, order.samples)
    rows = sharding.gather(stems, first, stop)
    written = sharding.write_rows(
        places.shard(plan.run, shard), [rows], plan.recipe.names, plan.run
    )
    counts = {"rows": len(rows), "sha256": {"rows": written.sha256}, "by_source": written.tokens}
    return {"rows": written.output}, counts


def _place(plan: TokensPlan, output: Output, check: bool) -> Path:
    """Where an output lies, with `check` after its bytes were held against the receipt. Raises
    DamagedFile."""
    path = output.locate(plan.run)
    if not path.is_file() or (check and file_digest(path) != (output.digest, output.bytes)):
        raise DamagedFile(output.path)
    return path


def _array(plan: TokensPlan, output: Output, check: bool) -> Any:
    try:
        return load_array(_place(plan, output, check))
    except (OSError, ValueError):
        raise DamagedFile(output.path) from None


_TASKS = {
    "pack": _pack,
    "scatter": _scatter,
    "gather": _gather,
}
