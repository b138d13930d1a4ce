"""The corpus of a tokens run as its tasks read it: files of documents, each of one source.

What may live here: `phases/corpus.json`, the list of these files, and reading documents from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from curation.document import SCHEMA_VERSION
from curation.engine.exchange import DamagedFile
from curation.engine.plan import open_plan
from curation.engine.tables import read_batches
from curation.engine.tokens.plan import TokensPlan
from manifests.files import file_digest, write_bytes
from manifests.records import Output, Receipt, canonical

BATCH = 1_024  # documents that are encoded at once


@dataclass(frozen=True)
class Part:
    """A file of the corpus: documents of one source. The path of `output` is relative to the
    corpus."""

    number: int
    source: str
    output: Output

    @property
    def name(self) -> str:
        """Of the tasks that read it."""
        return f"{self.number:05d}"

    def text_bytes(self, corpus: Path) -> int:
        """Bytes of its texts, as the file says (a few more per document)."""
        about = pq.read_metadata(self.output.locate(corpus))
        column = about.schema.to_arrow_schema().get_field_index("text")
        groups = range(about.num_row_groups)
        return sum(about.row_group(i).column(column).total_uncompressed_size for i in groups)


def freeze(plan: TokensPlan) -> list[Part]:
    """The files of a finished corpus, in order; those without documents are none."""
    corpus = open_plan(plan.corpus)
    segment = corpus.segments[-1]
    outputs = [
        output
        for path in corpus.receipts(segment).glob("*.json")
        if (receipt := Receipt.load(path)) is not None
        for name, output in receipt.outputs.items()
        if name.startswith("documents") and output.rows
    ]
    found = []
    for number, output in enumerate(sorted(outputs, key=lambda output: output.path)):
        with pq.ParquetFile(output.locate(plan.corpus)) as file:
            first = next(file.iter_batches(1, columns=["source"]))["source"][0].as_py()
        found.append(Part(number, first, output))
    write_bytes(_path(plan), canonical([asdict(part) for part in found]) + b"\n")
    return found


def parts(plan: TokensPlan) -> list[Part]:
    """The same for a task."""
    path = _path(plan)
    return _read(path, path.stat().st_mtime_ns)


def part(plan: TokensPlan, number: int) -> Part:
    """One of these files."""
    return parts(plan)[number]


def _path(plan: TokensPlan) -> Path:
    return plan.run / "phases" / "corpus.json"


@lru_cache(maxsize=2)
def _read(path: Path, version: int) -> list[Part]:
    record = json.loads(path.read_bytes())
    return [Part(p["number"], p["source"], Output(**p["output"])) for p in record]


def documents(
    plan: TokensPlan, one: Part, columns: Sequence[str] | None = None
) -> Iterator[dict[str, Any]]:
    """The documents of a file, some at a time: Arrow arrays by the names of the columns.

    Raises DamagedFile where its bytes are not those that the corpus has written.
    """
    path = one.output.locate(plan.corpus)
    if not path.is_file() or file_digest(path) != (one.output.digest, one.output.bytes):
        raise DamagedFile(f"corpus/{one.output.path}")
    for table in read_batches(path, f"documents/{SCHEMA_VERSION}", columns):
        for batch in table.combine_chunks().to_batches(max_chunksize=BATCH):
            yield dict(zip(batch.schema.names, batch.columns, strict=True))
