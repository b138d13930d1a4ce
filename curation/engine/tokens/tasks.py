"""The tasks of a tokens run: what each reads, computes through `curation.tokens`, and leaves.

What may live here: from a task to its receipt. Plain Python: every executor runs the same.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.document import id_words
from curation.engine import tables
from curation.engine.exchange import DamagedFile
from curation.engine.plan import Task
from curation.engine.resources import Usage
from curation.engine.tokens import corpus, orders, places, vocabulary
from curation.engine.tokens.plan import TokensPlan
from curation.tokens import bpe, overlap, packing, report, sharding
from curation.tokens.encoding.runs import PROVENANCE, RunFile, run_files
from manifests.arrays import load_array, save_array
from manifests.files import AtomicFile, file_digest, sha256
from manifests.hashing import below, keys, salt
from manifests.records import Output, Receipt, canonical
from manifests.tokens import SPLITS

Done = tuple[dict[str, Output], dict[str, Any]]

REPORTED = 4 << 20  # bytes of text of a file of the corpus that the tokenizer is judged by

_TEXTS = pa.schema([("text", pa.large_string())], metadata={"gristmill.schema": "texts/1"})
_PROVENANCE = PROVENANCE.with_metadata({"gristmill.schema": "provenance/1"})


def run_task(plan: TokensPlan, task: Task) -> Receipt:
    """Does a task and commits its receipt. Raises what the task raises; then nothing is
    committed."""
    # Tasks run side by side, one for each processor; only training has them all to itself.
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if task.phase == "train" else "false"
    started, usage = time.time(), Usage()
    outputs, counts = _TASKS[task.phase](plan, task)
    envelope = {"host": platform.node(), "pid": os.getpid(), "started": started, **usage.read()}
    receipt = Receipt(task.phase, task.name, task.key, "done", outputs, counts, envelope)
    receipt.save(plan.receipt_of(task))
    return receipt


# ---------------------------------------------------------------- documents to tokens


def _held_out(plan: TokensPlan, source: str, ids: np.ndarray) -> np.ndarray:
    """Which documents are of validation."""
    said = plan.recipe.settings.validation
    if said is None or said.share is None:
        return np.full(len(ids), said is not None and said.source == source)
    drawn = keys(salt(plan.recipe.settings.seed, "validation"), ids)
    held: np.ndarray = drawn < below(said.share)
    return held


def _sample(plan: TokensPlan, task: Task) -> Done:
    """Texts of a file of the corpus to train the tokenizer on, none of validation."""
    number, share = task.units
    part, seed = corpus.part(plan, number), plan.recipe.settings.seed
    writer = tables.TableWriter(places.work(plan, task).with_suffix(".parquet"), _TEXTS)
    documents = size = 0
    try:
        for batch in corpus.documents(plan, part, ["id", "text"]):
            ids = id_words(batch["id"])
            chosen = bpe.drawn(ids, seed, share / 2**32) & ~_held_out(plan, part.source, ids)
            texts = batch["text"].filter(pa.array(chosen))
            writer.write(pa.table({"text": texts}))
            documents += len(texts)
            size += int(pc.sum(pc.binary_length(texts)).as_py() or 0)
        output = writer.close(plan.run)
    except BaseException:
        writer.discard()
        raise
    return {"texts": output}, {"share": share, "documents": documents, "bytes": size}


def _train(plan: TokensPlan, task: Task) -> Done:
    """The tokenizer."""
    said = plan.recipe.settings.tokenizer.train
    assert said is not None
    plan.trained.parent.mkdir(exist_ok=True)
    tokenizer = bpe.train(_sampled(plan), said.options(), plan.trained.parent)
    with AtomicFile(plan.trained) as file:
        file.write(tokenizer.to_str(pretty=True).encode())
    output = Output(str(plan.trained.relative_to(plan.run)), file.size, 1, file.digest)
    return {"tokenizer": output}, {"entries": tokenizer.get_vocab_size()}


def _sampled(plan: TokensPlan) -> Iterator[str]:
    """The texts of the sample, file by file."""
    for receipt in places.receipts(plan, "sample"):
        path = _place(plan, receipt.outputs["texts"], True)
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group)["text"].to_pylist()


def _report(plan: TokensPlan, task: Task) -> Done:
    """How well the tokenizer fits texts: of validation, else those that were not drawn to train it
    (the second unit: the share that was), else all; some REPORTED bytes of each file at most."""
    held, *shares = task.units
    tokenizers = {"this": replace(vocabulary.of(plan).loaded, bos=None), **report.beside()[0]}
    texts = "validation" if held else "not trained on" if shares else "all"
    batches = _reported(plan, bool(held), shares)
    path = plan.run / "tokenizer" / "report.json"
    with AtomicFile(path) as file:
        file.write(canonical(report.measure(tokenizers, batches, texts)) + b"\n")
    return {"report": Output(str(path.relative_to(plan.run)), file.size, 1, file.digest)}, {}


def _reported(plan: TokensPlan, held: bool, shares: list[int]) -> Iterator[dict[str, pa.Array]]:
    """The texts of the report, by their sources and languages."""
    seed = plan.recipe.settings.seed
    for number, part in enumerate(corpus.parts(plan)):
        size = 0
        for batch in corpus.documents(plan, part, ["id", "text", "source", "language"]):
            ids = id_words(batch["id"])
            chosen = np.ones(len(ids), bool)
            if held:
                chosen = _held_out(plan, part.source, ids)
            elif shares:
                chosen = ~bpe.drawn(ids, seed, shares[number] / 2**32)
            mine = {name: column.filter(pa.array(chosen)) for name, column in batch.items()}
            size += int(pc.sum(pc.binary_length(mine["text"])).as_py() or 0)
            yield mine
            if size > REPORTED:
                break


def _encode(plan: TokensPlan, task: Task) -> Done:
    """The tokens of a file of the corpus, by split and in order of key."""
    part, settings = corpus.part(plan, task.units[0]), plan.recipe.settings
    source = next(source for source in settings.sources if source.name == part.source)
    held = settings.validation
    whole = float(held is not None and held.source == part.source)
    columns = [name for name in PROVENANCE.names if name not in ("copies", "tokens", "file", "row")]
    found = run_files(
        corpus.documents(plan, part, [*columns, "text"]),
        vocabulary.of(plan).loaded,
        file=f"corpus/{part.output.path}",
        seed=settings.seed,
        validation=held.share if held is not None and held.share is not None else whole,
        repeat=source.repeat,
    )
    outputs: dict[str, Output] = {}
    counts: dict[str, Any] = {"source": part.source, "documents": part.output.rows}
    for split, one in found.items():
        counts[split] = {
            "documents": len(one.provenance),
            "copies": len(one.docs),
            "tokens": len(one.tokens),
        }
        if len(one.provenance):
            outputs.update(_save(plan, task, split, one))
    return outputs, counts


def _save(plan: TokensPlan, task: Task, split: str, one: RunFile) -> dict[str, Output]:
    """The arrays of a split as files, and its provenance as one that is read memory-mapped."""
    stem = places.work(plan, task)
    outputs = {
        f"{split}.{name}": save_array(
            stem.with_name(f"{task.name}.{split}.{name}.npy"), a, plan.run
        )
        for name, a in (("docs", one.docs), ("tokens", one.tokens))
    }
    path = stem.with_name(f"{task.name}.{split}.provenance.arrow")
    with (
        AtomicFile(path) as file,
        pa.ipc.new_file(pa.PythonFile(file, mode="w"), PROVENANCE) as out,
    ):
        out.write_table(one.provenance.combine_chunks(), max_chunksize=len(one.provenance))
    output = Output(str(path.relative_to(plan.run)), file.size, len(one.provenance), file.digest)
    return {**outputs, f"{split}.provenance": output}


# ---------------------------------------------------------------- validation against train


def _texts(plan: TokensPlan, part: corpus.Part, held: bool) -> Iterator[pa.LargeStringArray]:
    """The texts of a file that are of validation, or those that are not."""
    for batch in corpus.documents(plan, part, ["id", "text"]):
        mask = _held_out(plan, part.source, id_words(batch["id"])) == held
        if mask.any():
            yield batch["text"].filter(pa.array(mask))


def _grams(plan: TokensPlan, task: Task) -> Done:
    """The n-grams of the validation documents of a file."""
    number, share = task.units
    hashes = overlap.collect(_texts(plan, corpus.part(plan, number), True), share=share / 2**32)
    return {"hashes": _saved(plan, task, "hashes", hashes)}, {}


def _known(plan: TokensPlan, task: Task) -> Done:
    """Those of all files."""
    arrays = (_stored(plan, r.outputs["hashes"]) for r in places.receipts(plan, "grams"))
    return {"hashes": _saved(plan, task, "hashes", overlap.merged(arrays))}, {}


def _shared(plan: TokensPlan, task: Task) -> Done:
    """Which of them the train documents of a file have."""
    number, share = task.units
    [receipt] = places.receipts(plan, "known")
    known = _stored(plan, receipt.outputs["hashes"])
    texts = _texts(plan, corpus.part(plan, number), False)
    mask = overlap.found(texts, known, share=share / 2**32)
    return {"mask": _saved(plan, task, "mask", np.packbits(mask))}, {}


def _common(plan: TokensPlan, task: Task) -> Done:
    """Those that any of them has."""
    [receipt] = places.receipts(plan, "known")
    known = _stored(plan, receipt.outputs["hashes"])
    bits = np.zeros(-(-len(known) // 8), np.uint8)
    for receipt in places.receipts(plan, "shared"):
        bits |= _stored(plan, receipt.outputs["mask"])
    hashes = known[np.unpackbits(bits, count=len(known)).astype(bool)]
    return {"hashes": _saved(plan, task, "hashes", hashes)}, {"known": len(known)}


def _overlap(plan: TokensPlan, task: Task) -> Done:
    """What the validation documents of a file have in common with train."""
    number, share = task.units
    [receipt] = places.receipts(plan, "common")
    common = _stored(plan, receipt.outputs["hashes"])
    texts = _texts(plan, corpus.part(plan, number), True)
    return {}, asdict(overlap.report(texts, common, share=share / 2**32))


def _saved(plan: TokensPlan, task: Task, name: str, array: np.ndarray) -> Output:
    stem = places.work(plan, task)
    return save_array(stem.with_name(f"{task.name}.{name}.npy"), array, plan.run)


def _stored(plan: TokensPlan, output: Output) -> np.ndarray:
    return _array(_place(plan, output, True), plan)


# ---------------------------------------------------------------- tokens to shards


def _pack(plan: TokensPlan, task: Task) -> Done:
    """The rows of one window, and where its documents come from."""
    number, ordinal, bits, window = task.units
    split, name = SPLITS[number], plan.recipe.names[ordinal]
    settings = plan.recipe.settings
    slices, origins = [], []
    for receipt in places.encoded(plan, name):
        if f"{split}.docs" not in receipt.outputs:
            continue
        # The task of the first window holds what it reads against the receipts.
        docs, tokens, origin = (
            _place(plan, receipt.outputs[f"{split}.{what}"], window == 0)
            for what in ("docs", "tokens", "provenance")
        )
        mine = packing.in_window(_array(docs, plan), bits, window)
        if len(mine):
            slices.append((mine, _array(tokens, plan)))
            origins.append(_origins(origin, mine))
    if not slices:
        none = dict.fromkeys(("documents", "copies", "tokens", "pieces", "rows"), 0)
        return {}, {**none, "by_source": {}, "sha256": {}}
    rows = packing.pack(
        slices,
        settings.sequence_length,
        plan.recipe.max_docs_per_row,
        settings.packing.algorithm,
        settings.seed,
        vocabulary.of(plan).fill,
        ordinal,
    )
    came = sum(int(docs["length"].sum()) for docs, _ in slices)
    if came != int(rows.filled().sum()):
        raise RuntimeError(f"{came} tokens came and {int(rows.filled().sum())} are in rows")
    path = places.packed(plan.run, split, name, window)
    output, file = sharding.write_rows(path, [rows], plan.recipe.names, plan.run)
    path = places.provenance(plan.run, split, name, window)
    order = [(column, "ascending") for column in ("id", "file", "row")]
    known = tables.write_table(path, pa.concat_tables(origins).sort_by(order), plan.run)
    counts = {
        "documents": sum(int(np.sum(docs["copy"] == 0)) for docs, _ in slices),
        "copies": sum(len(docs) for docs, _ in slices),
        "tokens": came,
        "pieces": len(rows.lengths),
        "rows": len(rows),
        "by_source": dict(file.tokens),
        "sha256": {"rows": file.sha256, "provenance": sha256(path)},
    }
    return {"rows": output, "provenance": known}, counts


def _origins(path: Path, docs: np.ndarray) -> pa.Table:
    """The provenance of documents that have a copy among these: each once."""
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
        found = table.take(pa.array(np.unique(docs["row"])))
    return found.replace_schema_metadata(_PROVENANCE.metadata)


def _scatter(plan: TokensPlan, task: Task) -> Done:
    """The rows of some packed files of a source, in the order of the samples that want them."""
    frozen = orders.read(plan)
    first, stop = task.units
    files = frozen.files[first:stop]
    outputs = sharding.scatter(
        frozen.order,
        files[0].source,
        [(file.first_row, _place(plan, file.output, True)) for file in files],
        frozen.samples,
        plan.recipe.names,
        places.work(plan, task),
        plan.run,
    )
    return outputs, {"rows": outputs["samples"].rows}


def _gather(plan: TokensPlan, task: Task) -> Done:
    """One shard."""
    frozen, [shard] = orders.read(plan), task.units
    size = plan.recipe.settings.output.shard_rows
    stems = []
    for receipt in places.receipts(plan, "scatter"):
        for output in receipt.outputs.values():
            _place(plan, output, shard == 0)  # the first one holds them against the receipts
        stems.append(plan.directory("scatter") / "work" / receipt.task)
    rows = sharding.gather(stems, shard * size, min((shard + 1) * size, frozen.samples))
    path = places.shard(plan.run, shard)
    output, file = sharding.write_rows(path, [rows], plan.recipe.names, plan.run)
    counts = {
        "rows": len(rows),
        "sha256": {"rows": file.sha256},
        "by_source": dict(file.tokens),
    }
    return {"rows": output}, counts


def _place(plan: TokensPlan, output: Output, check: bool) -> Path:
    """Where an output lies, with `check` after its bytes were held against the receipt. Raises
    DamagedFile."""
    path = output.locate(plan.run)
    if not path.is_file() or (check and file_digest(path) != (output.digest, output.bytes)):
        raise DamagedFile(output.path)
    return path


def _array(path: Path, plan: TokensPlan) -> np.ndarray:
    try:
        return load_array(path)
    except (OSError, ValueError):
        raise DamagedFile(str(path.relative_to(plan.run))) from None


_TASKS = {
    "sample": _sample,
    "train": _train,
    "grams": _grams,
    "known": _known,
    "shared": _shared,
    "common": _common,
    "overlap": _overlap,
    "report": _report,
    "encode": _encode,
    "pack": _pack,
    "scatter": _scatter,
    "gather": _gather,
}
