"""Character classes: what a code point is to words and lines, and what it folds to.

What may live here: the classes, the characters that are named one by one, the flags of words and
lines that follow from them, and the table that the kernels read. The table is the file
`characters.txt` beside this one, made from `unicodedata` by `python -m curation.text.reference`; so
it is the same under every version of Python.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import numpy as np

# The classes. Their order matters: a word begins at a class from NUMBER on, and a class above
# NUMBER is alphabetic.
OTHER = 0
SPACE = 1  # what `str.isspace` holds for: Unicode White_Space and the separators U+001C..U+001F
BULLET = 2
FORMAT = 3  # category Cf: joiners, soft hyphens, direction marks; not U+200B ZERO WIDTH SPACE
APOSTROPHE = 4
MARK = 5  # categories M*
NUMBER = 6  # categories N*
LETTER = 7  # categories L* that are not one of the next two
KATAKANA = 8
SINGLE = 9  # letters that are a word each, with their marks, for want of spaces

#: Characters that make a line a bullet line when it begins with one: the union of what RedPajama v2
#: (the ten others), datatrove (U+2022 and '-') and Dolma ('*' and '-') look for.
BULLETS = frozenset("-*\u2013\u2022\u2023\u25a0\u25a1\u25aa\u25ab\u25b6\u25c0\u25e6")

#: Punctuation that is inside a word when it stands singly between characters that would join:
#: don't, col\u00b7lecci\u00f3, the gershayim of Hebrew acronyms. UAX #29 has these in its classes
#: Single_Quote, MidNumLet and MidLetter (the geresh U+05F3 as a letter); its full stops, colons and
#: opening quotation mark are left out.
APOSTROPHES = frozenset("'\u2019\uff07\u00b7\u0387\u2027\u05f3\u05f4")

#: Names of letters that UAX #29 without a dictionary makes words of their own: Han, Hiragana, and
#: the scripts of south-east Asia that write no spaces between words.
SINGLE_NAMES = (
    "CJK UNIFIED IDEOGRAPH",
    "CJK COMPATIBILITY IDEOGRAPH",
    "IDEOGRAPHIC ",
    "VERTICAL IDEOGRAPHIC ",
    "HIRAGANA",
    "THAI ",
    "LAO ",
    "KHMER ",
    "MYANMAR ",
    "TAI ",
    "NEW TAI LUE ",
)

# Bits of the flags of words and of lines.
ALPHABETIC = 1  # the word has a letter (category L*)
MARKED = 2  # the run without white space has a '#' or U+2026
BULLET_LINE = 1  # the line begins with one of BULLETS
ELLIPSIS_LINE = 2  # the line ends with "..." or U+2026
PARAGRAPH_LINE = 4  # the line is the first of its document or follows a blank line

_PATH = Path(__file__).with_name("characters.txt")

#: Low bits of a table entry that hold the class; the bits above hold `code point ^ folded`.
CLASS_BITS = 4


@cache
def table() -> np.ndarray:
    """The table the kernels read: uint32[0x110000], one entry per code point, read only.

    `entry & 15` is the class, `code_point ^ (entry >> 4)` the simple case folding. 4.4 MB of
    addresses, of which a text touches the pages of its scripts.
    """
    entries = np.zeros(0x110000, dtype=np.uint32)
    for line in _PATH.read_text(encoding="ascii").splitlines()[1:]:
        match line.split():
            case ["fold", source, target]:
                entries[int(source, 16)] |= (int(source, 16) ^ int(target, 16)) << CLASS_BITS
            case [run, kind]:
                first, last = (int(bound, 16) for bound in run.split(".."))
                entries[first : last + 1] = int(kind)
    entries.flags.writeable = False
    return entries


@cache
def table_version() -> str:
    """Names the table: Unicode version and digest. Whatever reads words or lines depends on it."""
    content = _PATH.read_bytes()
    unicode = content.split(b"\n", 1)[0].decode()
    return f"{unicode}, {hashlib.blake2b(content, digest_size=8).hexdigest()}"
