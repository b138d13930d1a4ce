"""The drop table: the first thing a user reads.

What may live here: how `stats.json` is shown to a person.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from curation.engine.recipe import StageSpec
from curation.stage import rules_of

_HEAD = ("", "documents", "of input", "of before", "words", "text")


def render(stats: Mapping[str, Any]) -> str:
    """Records, then each stage with what it kept and, indented, why it dropped; then the output."""
    reader = stats["reader"]
    rows: list[Sequence[str]] = [_HEAD]
    records, documents = reader["records"], reader["documents"]
    rows.append(("records", _count(records), "", "", "", ""))
    for reason, count in _largest(reader["skipped"]):
        rows.append((f"  skipped {reason}", _count(count), "", _share(count, records), "", ""))
    rows.append(
        (
            "documents",
            _count(documents),
            _share(documents, documents),
            _share(documents, records),
            "",
            "",
        )
    )
    for stage in stats["stages"]:
        entered, kept = stage["in"]["documents"], stage["kept"]
        rows.append(
            (
                stage["name"],
                _count(kept["documents"]),
                _share(kept["documents"], documents),
                _share(kept["documents"], entered),
                _count(kept["words"]),
                _size(kept["bytes"], kept["words"]),
            )
        )
        reasons = {reason: amount["documents"] for reason, amount in stage["dropped"].items()}
        for reason, count in _largest(reasons):
            words = stage["dropped"][reason]["words"]
            size = _size(stage["dropped"][reason]["bytes"], words)
            rows.append(_less(f"  dropped {reason}", count, documents, entered, words, size))
        for error, count in _largest(stage["failures"]):
            rows.append(_less(f"  failed {error}", count, documents, entered, None, ""))
        rows += _edited(stage)
    output = stats["output"]
    rows.append(
        (
            "output",
            _count(output["documents"]),
            _share(output["documents"], documents),
            "",
            _count(output["words"]),
            _size(output["bytes"], output["words"]),
        )
    )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    rule = "-" * max(len(line) for line in lines)
    shown = [lines[0], rule, *lines[1:-1], rule, lines[-1]]
    units = stats["units"]
    for status in ("incomplete", "quarantined"):
        if units[status]:
            shown.append(f"{units[status]:,} of {units['all']:,} inputs {status}")
    if problems := reader["problems"]:
        listed = ", ".join(f"{reason} {count:,}" for reason, count in _largest(problems))
        shown.append(f"problems of inputs: {listed} (`curation stats` says where)")
    left = units["all"] - units["done"] - units["incomplete"] - units["quarantined"]
    if left:
        shown.append(f"{left:,} of {units['all']:,} inputs not read yet")
    return "\n".join(shown)


def rules(stats: Mapping[str, Any], stages: Sequence[StageSpec]) -> list[dict[str, Any]]:
    """Each rule with its threshold: documents that it is the first to drop, and that it would drop
    of all who came to its group of stages (or, after an edit, to the stage)."""
    found = []
    for spec, stage in zip(stages, stats["stages"], strict=True):
        for rule in rules_of(spec.stage):
            dropped = stage["dropped"].get(rule.name, {"documents": 0})["documents"]
            found.append(
                {
                    "rule": f"{spec.name}:{rule.name}",
                    "parameter": rule.parameter,
                    "threshold": getattr(spec.stage, rule.parameter) if rule.parameter else None,
                    "drops": dropped,
                    "would_drop": stage["would_drop"].get(rule.name, 0),
                }
            )
    return found


def render_rules(found: Sequence[Mapping[str, Any]]) -> str:
    """The rules as a table; they are applied in this order."""
    rows = [("rule", "threshold", "drops", "would drop")]
    for rule in found:
        threshold = rule["threshold"]
        shown = "by language" if isinstance(threshold, Mapping) else json.dumps(threshold)
        if isinstance(threshold, (list, tuple)):
            shown = ", ".join(map(str, threshold))
        name = f"{rule['parameter']} {shown}" if rule["parameter"] else ""
        rows.append((rule["rule"], name, _count(rule["drops"]), _count(rule["would_drop"])))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}"
        for a, b, c, d in rows
    )


def _edited(stage: Mapping[str, Any]) -> list[Sequence[str]]:
    """A line of what a stage that had text changed of it; the documents stay, and are no column."""
    count = stage["edited"]["documents"]
    if not count or stage["in"]["words"] is None:
        return []
    words, size = (stage["inserted"][unit] - stage["removed"][unit] for unit in ("words", "bytes"))
    sign = "-" if size < 0 else "+" if size else ""
    return [
        (
            f"  edited {_count(count)} documents",
            *("", "", ""),
            f"{words:+,}" if words else "0",
            sign + _size(abs(size), words),
        )
    ]


def _less(
    name: str, count: int, documents: int, entered: int, words: int | None, size: str
) -> Sequence[str]:
    """A line of what a stage took away: with a minus sign, so that a column adds up by eye."""
    return (
        name,
        f"-{_count(count)}",
        f"-{_share(count, documents)}",
        f"-{_share(count, entered)}",
        f"-{_count(words)}" if words is not None else "",
        f"-{size}" if size else "",
    )


def _largest(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _size(value: int, words: int | None) -> str:
    """Bytes of text for a person; nothing before extraction, where bytes are payload."""
    if words is None:
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.1f} {unit}" if unit != "B" else f"{value} B"
        value /= 1000  # type: ignore[assignment]
    raise AssertionError
