"""Documents of datatrove, and how they become ours and go back.

What may live here: the names that their metadata and our columns have for the same thing. Nothing
of datatrove is imported: its documents are JSON objects `{"text", "id", "media", "metadata"}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: Entries of their metadata that are columns of ours: what datatrove's readers and filters write,
#: and the names of FineWeb's columns (`dump`, `file_path`).
STRINGS = {
    "url": "url",
    "date": "date",
    "source": "source",
    "dump": "crawl",
    "license": "license",
    "language": "language",
}
#: Their id of a document, which our metadata keeps: our ids are made otherwise.
NATIVE_ID = "datatrove_id"
_NUMBERS = ("language_score", "warc_offset", "warc_length")


def metadata_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that datatrove should see of a document, given our columns.

    `duplicate_count` is there for documents that stand for others, too.
    """
    found = _metadata(row)
    found.pop(NATIVE_ID, None)
    for theirs, ours in (*STRINGS.items(), ("file_path", "warc_file")):
        if row.get(ours) is not None:
            found[theirs] = row[ours]
    found |= {name: row[name] for name in _NUMBERS if row.get(name) is not None}
    if (row.get("duplicate_count") or 1) > 1:
        found["duplicate_count"] = row["duplicate_count"]
    return found


def id_of(row: Mapping[str, Any]) -> str:
    """The id that datatrove knows a document by: its own where it came from there, else ours."""
    native = _metadata(row).get(NATIVE_ID)
    return native if isinstance(native, str) else str(row["id"])


def _metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    """Our column `metadata`; NaN and infinities, which JSON does not know, become null."""
    found = (
        json.loads(row["metadata"], parse_constant=lambda _: None) if row.get("metadata") else {}
    )
    return found if isinstance(found, dict) else {"metadata": found}
