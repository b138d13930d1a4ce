"""What a terminal is told: how wide it is, whether it shows bold, and text that cannot command it.

What may live here: what views need to know of the place where they are read.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass

#: Characters that would move the cursor, change colours or turn the direction of a line, and what
#: is shown in their place: U+2400 and on are the pictures of the control characters.
_HARMLESS = {
    **{code: 0x2400 + code for code in range(32)},
    0x7F: 0x2421,
    **{code: 0xFFFD for code in range(0x80, 0xA0)},
    **{code: 0xFFFD for code in (0x061C, 0x200E, 0x200F)},
    **{code: 0xFFFD for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}


@dataclass(frozen=True)
class Terminal:
    """`width` in columns; `bold`: whether passages can be shown in bold."""

    width: int
    bold: bool

    @staticmethod
    def here() -> Terminal:
        """The one that stdout is; 120 columns where nobody says how wide it is.

        No bold where stdout is none, with NO_COLOR (no-color.org), or where TERM is `dumb`.
        """
        width = shutil.get_terminal_size((120, 24)).columns
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return Terminal(width, sys.stdout.isatty() and not plain)


def one_line(text: str) -> str:
    """A text as a terminal may have it: runs of white space as one space, and nothing that
    commands."""
    return " ".join(text.split()).translate(_HARMLESS)
