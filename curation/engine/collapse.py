"""Collapse: a global step that removes nearly all of a source, a language or a domain.

What may live here: what is counted of removals, the limits (`collapse` of a recipe), and the
evidence that a run stops with. False clusters have cost others whole sources; a person decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KINDS = ("source", "language", "domain")
#: Values of a kind that are counted of each group of units: the most frequent. A value that is
#: beyond them everywhere is too small to collapse.
VALUES = 50_000
GROUPS = 10  # the largest that evidence shows
SHOWN = 10  # values below a limit that evidence shows

RETENTION_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("value", pa.string()),  # null: unknown
        ("documents", pa.int64()),  # that came to the step
        ("removed", pa.int64()),  # of these
    ],
    metadata={"gristmill.schema": "retention/1"},
)
GROUPS_SCHEMA = pa.schema(
    [
        ("documents", pa.int64()),  # that the survivor stands for
        ("id", pa.string()),
        ("url", pa.string()),
        ("unit", pa.int64()),
        ("row", pa.int64()),
    ],
    metadata={"gristmill.schema": "groups/1"},
)


def retention(documents: pa.Table, removed: np.ndarray) -> pa.Table:
    """How many of the documents (columns source, language, url) of each value were removed."""
    columns = {"source": documents["source"], "language": documents["language"]}
    columns["domain"] = hosts(documents["url"])
    gone = pa.array(removed.astype(np.int64))
    tables = []
    for kind in KINDS:
        table = pa.table({"value": columns[kind].cast(pa.string()), "gone": gone})
        tables.append(_summed(table, "gone", kind))
    return pa.concat_tables(tables)


def _summed(table: pa.Table, gone: str, kind: str) -> pa.Table:
    counts = table.group_by("value").aggregate([(gone, "count"), (gone, "sum")])
    found = pa.table(
        {
            "kind": pa.array([kind] * len(counts), pa.string()),
            "value": counts["value"],
            "documents": counts[f"{gone}_count"],
            "removed": counts[f"{gone}_sum"],
        }
    ).cast(RETENTION_SCHEMA)
    return _largest(found, VALUES)


def _largest(table: pa.Table, count: int) -> pa.Table:
    return table.sort_by([("documents", "descending"), ("value", "ascending")]).slice(0, count)


def merged(tables: Iterable[pa.Table]) -> pa.Table:
    """The same of all parts of a run."""
    total = RETENTION_SCHEMA.empty_table()
    for table in tables:
        both = pa.concat_tables([total, table])
        sums = both.group_by(["kind", "value"]).aggregate(
            [("documents", "sum"), ("removed", "sum")]
        )
        total = pa.table(
            {
                "kind": sums["kind"],
                "value": sums["value"],
                "documents": sums["documents_sum"],
                "removed": sums["removed_sum"],
            }
        ).cast(RETENTION_SCHEMA)
        parts = [total.filter(pc.equal(total["kind"], kind)) for kind in KINDS]
        total = pa.concat_tables(_largest(part, VALUES) for part in parts)
    return total


def largest(tables: Iterable[pa.Table]) -> pa.Table:
    """The largest groups of all, and among equal ones those with the smallest id."""
    order = [("documents", "descending"), *((n, "ascending") for n in ("id", "unit", "row"))]
    return pa.concat_tables([GROUPS_SCHEMA.empty_table(), *tables]).sort_by(order).slice(0, GROUPS)


def hosts(urls: pa.ChunkedArray) -> pa.ChunkedArray:
    """The host of each URL, in lower case and without `www.`; null where there is none."""
    found = pc.extract_regex(urls.cast(pa.string()), r"^[^/?#]*://(?:[^/?#@]*@)?(?P<host>[^/?#:]+)")
    host = pc.utf8_lower(pc.struct_field(found, "host"))
    return pc.replace_substring_regex(host, r"^www\.", "")


def broken(
    table: pa.Table, groups: pa.Table, limits: Mapping[str, Any], documents: int
) -> tuple[list[str], list[dict[str, Any]]]:
    """What lies beyond the limits, a line each, and the largest groups as evidence.

    `documents`: all that came. Nothing where nothing is wrong.
    """
    least = limits["documents"]
    lines = []
    for kind in KINDS:
        share = limits[kind]
        if share is None:
            continue
        rows = table.filter(
            pc.and_(pc.equal(table["kind"], kind), pc.greater_equal(table["documents"], least))
        ).to_pylist()
        below = [r for r in rows if r["documents"] - r["removed"] < share * r["documents"]]
        below.sort(key=lambda row: (-row["removed"], str(row["value"])))
        for row in below[:SHOWN]:
            kept = row["documents"] - row["removed"]
            lines.append(
                f"{kind} {row['value'] or '(unknown)'}: {kept:,} of {row['documents']:,} documents "
                f"kept ({kept / row['documents']:.2%}; collapse.{kind} wants {share:.2%})"
            )
        if len(below) > SHOWN:
            lines.append(f"... and {len(below) - SHOWN:,} more of {kind}")
    found = groups.to_pylist()
    share = limits["group"]
    if share is not None and documents >= least:
        lines += [
            f"group of {row['id']}: {row['documents']:,} of {documents:,} documents "
            f"({row['documents'] / documents:.2%}; collapse.group allows {share:.2%})"
            for row in found
            if row["documents"] > share * documents
        ]
    return lines, found if lines else []
