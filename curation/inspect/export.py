"""Documents of a run as the files of other systems.

What may live here: the work behind `curation export`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from curation.datatrove import id_of, metadata_of
from curation.document import DOCUMENT_SCHEMA
from curation.engine.attempts import RunFailed
from curation.engine.exchange import DamagedFile, whole
from curation.engine.plan import Plan
from curation.engine.recipe import RecipeError
from curation.engine.stats import Books, ended, receipts, unfinished
from curation.engine.tables import read_batches
from manifests.files import AtomicFile
from manifests.records import Output

_LEVEL = 6  # of gzip


def to_datatrove(plan: Plan, directory: Path) -> dict[str, Any]:
    """Writes the documents of a run as datatrove's JSON lines: a `.jsonl.gz` per Parquet file.

    A file appears when it is whole, under a name that tells what it was made from: the same command
    goes on where it was stopped. `unfinished` names inputs that the run has not read to their end.
    Raises RunFailed where the run has not ended or is damaged, RecipeError where other files lie in
    the directory, which datatrove would read with them.
    """
    if ended(plan.run) is None:
        raise RunFailed(f"{plan.run}: the run has not ended; only a finished one can be exported")
    parts = {_name(output): output for output in _documents(plan)}
    _make_ready(directory, set(parts))
    for name, output in parts.items():
        if not (directory / name).exists():
            _write(plan, output, directory / name)
    return {
        "directory": str(directory),
        "files": sorted(parts),
        "documents": sum(output.rows for output in parts.values()),
        "unfinished": unfinished(plan, Books.of(plan, plan.segments[0])),
    }


def _documents(plan: Plan) -> list[Output]:
    """The files of `documents/`."""
    return [
        output
        for receipt in receipts(plan, plan.segments[-1])
        for kind, output in receipt.outputs.items()
        if kind.startswith("documents")
    ]


def _name(output: Output) -> str:
    return f"{Path(output.path).stem}-{output.digest[:8]}.jsonl.gz"


def _make_ready(directory: Path, names: set[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for leftover in directory.glob(".part-*.tmp"):  # of an export that was killed
        leftover.unlink()
    for path in sorted(directory.iterdir()):
        if path.name not in names:
            raise RecipeError(f"{directory}: {path.name} is no file of this export; choose another")


def _write(plan: Plan, output: Output, target: Path) -> None:
    try:
        source = whole(plan, output)
    except DamagedFile as error:
        raise RunFailed(f"{plan.run}: {error}") from None
    with (
        AtomicFile(target) as file,
        # without a name and a time: the same documents, the same bytes
        gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed,
    ):
        for line in _lines(source):
            packed.write(line)


def _lines(path: Path) -> Iterator[bytes]:
    schema = DOCUMENT_SCHEMA.metadata[b"gristmill.schema"].decode()
    for table in read_batches(path, schema):
        for row in table.to_pylist():
            line = json.dumps(document(row), ensure_ascii=False, separators=(",", ":"))
            yield line.encode() + b"\n"


def document(row: Mapping[str, Any]) -> dict[str, Any]:
    """A document of datatrove from a row of ours."""
    return {"text": row["text"], "id": id_of(row), "media": [], "metadata": metadata_of(row)}


def render(found: Mapping[str, Any]) -> str:
    return f"{found['documents']:,} documents in {len(found['files'])} files: {found['directory']}"
