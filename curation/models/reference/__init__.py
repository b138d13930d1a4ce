"""Reference prose: what the small models that ship with the package are trained on.

What may live here: plain English of the encyclopaedic and of the everyday kind, written for this
purpose and taken from nowhere; a file for each field, a text a line, with empty lines between them.
It is far too little to say anything of real pages.
"""

from __future__ import annotations

from pathlib import Path


def texts() -> list[str]:
    """All texts, in order of file and line."""
    files = sorted(Path(__file__).parent.glob("*.txt"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line]
