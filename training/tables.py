"""Numbers, times and tables as people read them.

What may live here: text of values, and columns that align.
"""

from __future__ import annotations

from collections.abc import Sequence


def count(number: float) -> str:
    """A number as people say it: 1.21B."""
    for size, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{name}"
    return f"{number:.0f}"


def span(hours: float) -> str:
    """A time as people say it."""
    if hours < 1 / 60:
        return f"{hours * 3600:.1f} s"
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.1f} h" if hours < 72 else f"{hours / 24:,.1f} days"


def size(number: float) -> str:
    """Bytes as people say them: 67.5 GiB."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number:.0f} B"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns that align: the first to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = []
    for row in (head, *rows):
        first, *others = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *others]).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def pairs(found: Sequence[tuple[str, str]]) -> str:
    """Names, and what they are, in two columns."""
    width = max(len(name) for name, _ in found)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in found)
