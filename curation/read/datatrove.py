"""datatrove's JSON lines as documents: what its `JsonlWriter` writes.

What may live here: which entries of their metadata become columns of ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, BinaryIO

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from curation.datatrove import NATIVE_ID, STRINGS
from curation.document import RawDocument
from curation.read.identity import of_native, of_row
from curation.read.jsonl import objects
from curation.read.tally import Tally

_ARCHIVES = (".warc", ".warc.gz", ".wet", ".wet.gz")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class DatatroveOptions:
    """How datatrove's JSON lines are read.

    `text`, `id`: names of the fields (`text_key`, `id_key` there). `source`: of documents that name
    none; part of their id. `max_record`: bytes of a line.
    """

    text: str = "text"
    id: str = "id"
    source: str | None = None
    max_record: int = 128 << 20


def read_datatrove(
    stream: BinaryIO, path: str, tally: Tally, options: DatatroveOptions
) -> Iterator[RawDocument]:
    """The documents of a file, plain, gzip or Zstandard.

    Fields beside `metadata` belong to it, too (`expand_metadata`). Their id is kept there as
    `datatrove_id`, and goes back when documents are exported. Media are left out and noted.
    """
    for row, value, text in objects(stream, tally, options.text, options.max_record):
        if value.get("media"):
            tally.notes["media"] += 1
        yield _document(value, text, path, row, options)


def _document(
    value: dict[str, Any], text: str, path: str, row: int, options: DatatroveOptions
) -> RawDocument:
    native = value.get(options.id)
    metadata = value.get("metadata")
    found = dict(metadata) if isinstance(metadata, dict) else {}
    if metadata is not None and not isinstance(metadata, dict):
        found["metadata"] = metadata
    known = {options.text, options.id, "media", "metadata"}
    found |= {name: entry for name, entry in value.items() if name not in known}
    columns: dict[str, Any] = {
        ours: found.pop(theirs)
        for theirs, ours in STRINGS.items()
        if isinstance(found.get(theirs), str)
    }
    score = found.get("language_score")
    if isinstance(score, float) and math.isfinite(score):
        columns["language_score"] = found.pop("language_score")
    archive = found.get("file_path")
    if isinstance(archive, str) and archive.endswith(_ARCHIVES):
        columns["warc_file"] = found.pop("file_path")
    source = columns.pop("source", None) or options.source
    identity = of_row(path, row)
    if isinstance(native, str | int) and native != "":
        identity = of_native(source, str(native))
        found[NATIVE_ID] = str(native)
    return RawDocument(
        id=identity,
        text=text,
        media_type="text/plain",
        source=source,
        metadata=found or None,
        **columns,
    )
