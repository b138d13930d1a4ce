"""A directory that a command fills: new, or of the very same command, which then goes on.

What may live here: how a directory is claimed, and how it is told from another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manifests.files import write_bytes
from manifests.records import canonical


class NotOurs(ValueError):
    """The directory holds something else; nothing was written into it."""


def claim(directory: Path, name: str, said: Mapping[str, Any]) -> None:
    """Makes a directory this command's own: the file `name` in it says what it is made from.

    One that the same command has begun is taken up again, and what a kill left in it is removed.
    Raises NotOurs where it is not empty and was not begun by the same command.
    """
    mark = directory / name
    if directory.exists() and not directory.is_dir():
        raise NotOurs(f"{directory}: a file; a directory is wanted")
    if mark.is_file():
        if _read(mark) != said:
            raise NotOurs(f"{directory}: {name} there tells of another one; choose another")
    elif directory.is_dir() and set(directory.iterdir()) - set(directory.glob(f".{name}.*.tmp")):
        raise NotOurs(f"{directory}: not empty, and not of this command; choose another")
    for leftover in directory.rglob(".*.tmp"):
        leftover.unlink()
    write_bytes(mark, canonical(said) + b"\n")


def _read(mark: Path) -> Any:
    try:
        return json.loads(mark.read_bytes())
    except ValueError:
        return None
