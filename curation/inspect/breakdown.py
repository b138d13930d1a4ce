"""What a run read and kept, by language, source, crawl or domain.

What may live here: the view behind `curation stats --by`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import pyarrow.compute as pc

from curation.engine.plan import Plan
from curation.inspect.signals import batches

UNKNOWN = "(unknown)"


def collect(plan: Plan, by: str) -> list[dict[str, Any]]:
    """Documents read, dropped by stage, failed and kept, and words and bytes kept, of each value.

    The most documents first. Documents have a language from the language stage on.
    """
    read: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    words: Counter[str] = Counter()
    size: Counter[str] = Counter()
    dropped: dict[str, Counter[str]] = {}
    column = "url" if by == "domain" else by
    last = plan.maps[-1]
    for segment in plan.maps:
        wanted = [column, "decision", "reached", "words", "bytes"]
        for table in batches(plan, segment, wanted):
            names = table[column].to_pylist()
            if by == "domain":
                names = [domain(name) for name in names]
            rows = zip(
                names,
                table["decision"].to_pylist(),
                table["reached"].to_pylist(),
                pc.fill_null(table["words"], 0).to_pylist(),
                table["bytes"].to_pylist(),
                strict=True,
            )
            for name, decision, reached, count, length in rows:
                value = name or UNKNOWN
                if segment is plan.maps[0]:
                    read[value] += 1
                if decision == "failed":
                    failed[value] += 1
                elif decision == "dropped":
                    dropped.setdefault(value, Counter())[reached] += 1
                elif segment is last:
                    kept[value] += 1
                    words[value] += count
                    size[value] += length
    return [
        {
            "value": value,
            "documents": count,
            "kept": kept[value],
            "failed": failed[value],
            "dropped": dict(sorted(dropped.get(value, Counter()).items())),
            "words": words[value],
            "bytes": size[value],
        }
        for value, count in sorted(read.items(), key=lambda item: (-item[1], item[0]))
    ]


def domain(url: str | None) -> str | None:
    """The host of a URL without `www.`, lower case."""
    if not url:
        return None
    try:
        return (urlsplit(url).hostname or "").removeprefix("www.") or None
    except ValueError:
        return None


def render(rows: list[dict[str, Any]], by: str, most: int = 40) -> str:
    shown = rows[:most]
    width = max([len(row["value"]) for row in shown] + [len(by)])
    lines = [f"{by:<{width}}  {'documents':>10}  {'kept':>10}  {'share':>6}  {'words':>12}"]
    for row in shown:
        share = row["kept"] / row["documents"] if row["documents"] else 0
        lines.append(
            f"{row['value']:<{width}}  {row['documents']:>10,}  {row['kept']:>10,}  "
            f"{share:>6.1%}  {row['words']:>12,}"
        )
    if len(rows) > most:
        lines.append(f"... and {len(rows) - most} more (--json has all)")
    return "\n".join(lines)
