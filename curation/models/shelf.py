"""The shelf: which models are known, which of them are here, and what else is.

What may live here: what `curation models list` and `where` say. It reads cards and the sizes of
files; only `where` reads the files themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from curation import models
from curation.models import card, table


def everything() -> list[dict[str, Any]]:
    """A row for each model of the table and each other one that lies in `models.directories()`.

    `bytes` is what it takes here, else what is fetched, `about` whether that is only roughly known;
    of `path` and `command`, which brings it, one is null. `problem`: why it cannot be used.
    """
    rows = [_known(entry) for entry in table.entries()]
    names = {row["name"] for row in rows}
    return rows + [row for row in _others() if row["name"] not in names]


def _known(entry: table.Entry) -> dict[str, Any]:
    row = {
        "name": entry.name,
        "kind": entry.kind,
        "purpose": entry.purpose,
        "license": entry.license,
        "source": entry.source,
        "language": entry.language,
        "bytes": entry.size if entry.size is not None else entry.about,
        "about": entry.size is None and entry.about is not None,
        "files": [asdict(file) for file in entry.files],
        "path": None,
        "command": entry.command,
        "problem": None,
        "demonstration": False,
    }
    try:
        path = models.find(entry.name)
    except models.ModelNotFound:
        return row
    return {**row, "about": False, "command": None, **_on_disk(path, entry.settings is not None)}


def _on_disk(path: Path, with_card: bool = False) -> dict[str, Any]:
    try:
        if with_card and path.is_dir():
            card.read(path)
        shown = (path / card.NAME).is_file() and card.read(path).demonstration
        found = {"path": str(path), "bytes": models.size(path), "problem": None}
        return {**found, "demonstration": shown}
    except (card.CardError, OSError) as error:
        return {"path": str(path), "bytes": None, "problem": str(error)}


def _others() -> Iterator[dict[str, Any]]:
    """Directories with a card, of names that the table does not have."""
    seen = set()
    for root in models.directories():
        for directory, inner, files in os.walk(root):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            if card.NAME not in files:
                continue
            inner.clear()
            name = Path(directory).relative_to(root).as_posix()
            if name not in seen:
                seen.add(name)
                yield _other(name, Path(directory))


def _other(name: str, path: Path) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(("kind", "purpose", "license", "source"), "")
    row |= {"name": name, "language": None, "about": False, "files": [], "command": None}
    row |= {"demonstration": False}
    row |= _on_disk(path)
    try:
        said = card.read(path)
    except card.CardError:
        return row
    return row | {
        "kind": said.kind,
        "purpose": "trained here",
        "license": said.license,
        "source": said.source,
        "language": said.language,
    }


def render(rows: list[dict[str, Any]]) -> str:
    """An aligned table. CCNet's models that are not here are one line."""
    ccnet = [r for r in rows if r["name"].startswith("kenlm/ccnet-") and r["path"] is None]
    lines = [("name", "kind", "licence", "size", "where")]
    for row in rows:
        if row in ccnet:
            if row is ccnet[0]:
                every = " ".join(r["language"] for r in ccnet)
                how = "not here: curation models fetch kenlm/ccnet-LANG"
                lines.append(("kenlm/ccnet-LANG", "kenlm", row["license"], "?", f"{how} ({every})"))
            continue
        where = row["problem"] or row["path"] or f"not here: {row['command']}"
        where += "  (a demonstration)" if row["demonstration"] else ""
        lines.append((row["name"], row["kind"], row["license"], _size(row), where))
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join(
        f"{n:<{widths[0]}}  {k:<{widths[1]}}  {li:<{widths[2]}}  {s:>{widths[3]}}  {w}".rstrip()
        for n, k, li, s, w in lines
    )


def _size(row: dict[str, Any]) -> str:
    if row["bytes"] is None:
        return "?"
    unit, size = ("kB", 1e3) if row["bytes"] < 1e6 else ("MB", 1e6)
    return f"{'~' if row['about'] else ''}{row['bytes'] / size:,.1f} {unit}"


def one(name: str) -> dict[str, Any]:
    """Where a model lies, its bytes and its digest, which a run records.

    Raises ModelNotFound, UnknownModel for a name that nothing explains, CardError.
    """
    path = models.find(name)
    return {
        "name": name,
        "path": str(path),
        "bytes": models.size(path),
        "sha256": models.digest(path),
    }


def render_one(found: dict[str, Any]) -> str:
    """Lines for a person; the path alone is the first word of the first line."""
    return f"{found['path']}\nsha256 {found['sha256']}, {found['bytes']:,} bytes"
