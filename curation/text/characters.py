"""Character classes: what a code point is to words and lines, and what it folds to.

What may live here: the classes, the characters that are named one by one, the flags of characters,
words and lines, and the table that the kernels read. The table is the file
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

#: Runs of code points with Unicode's property Sentence_Terminal (PropList.txt of Unicode 17.0;
#: `unicodedata` lacks it).
_TERMINAL_RUNS = (
    "21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E "
    "1735-1736 17D4-17D5 1803 1809 1944-1945 1AA8-1AAB 1B4E-1B4F 1B5A-1B5B 1B5E-1B5F 1B7D-1B7F "
    "1C3B-1C3C 1C7E-1C7F 2024 203C-203D 2047-2049 2CF9-2CFB 2E2E 2E3C 2E53-2E54 2E60-2E61 3002 "
    "A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE12 "
    "FE15-FE16 FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 "
    "11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C "
    "112A9 113D4-113D5 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946 "
    "11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 "
    "16B44 16D6E-16D6F 16E98 1BC9F 1DA88"
)


def _codes(run: str, between: str) -> range:
    """The code points of a run such as `61D-61F`."""
    bounds = [int(bound, 16) for bound in run.split(between)]
    return range(bounds[0], bounds[-1] + 1)


#: Marks that end a sentence, in any script.
TERMINALS = frozenset(chr(code) for run in _TERMINAL_RUNS.split() for code in _codes(run, "-"))

#: Full stops, which may also end an abbreviation: UAX #29's class ATerm.
FULL_STOPS = frozenset(".\u2024\ufe52\uff0e")

# Bits of the flags of characters, beside the class.
TERMINAL = 1  # one of TERMINALS
CLOSING = 2  # may follow a terminal mark: categories Pe, Pf, Pi, and the ASCII quotes
LOWER = 4  # lower case, but for Georgian, which begins sentences with it: UAX #29's class Lower
UPPER = 8  # upper case, as `str.isupper` has it

# Bits of the flags of words and of lines.
ALPHABETIC = 1  # the word has a letter (category L*)
MARKED = 2  # the run without white space has a '#' or U+2026
BULLET_LINE = 1  # the line begins with one of BULLETS
ELLIPSIS_LINE = 2  # the line ends with "..." or U+2026
PARAGRAPH_LINE = 4  # the line is the first of its document or follows a blank line

_PATH = Path(__file__).with_name("characters.txt")

#: Low bits of a table entry that hold the class; the flags of the character are above it, and above
#: them `code point ^ folded`.
CLASS_BITS = 4
FOLD_SHIFT = 8


@cache
def table() -> np.ndarray:
    """The table the kernels read: uint32[0x110000], one entry per code point, read only.

    `entry & 15` is the class, `entry >> 4 & 15` the flags, `code_point ^ (entry >> 8)` the simple
    case folding. 4.4 MB of addresses, of which a text touches the pages of its scripts.
    """
    entries = np.zeros(0x110000, dtype=np.uint32)
    for line in _PATH.read_text(encoding="ascii").splitlines()[1:]:
        match line.split():
            case ["fold", source, target]:
                entries[int(source, 16)] |= (int(source, 16) ^ int(target, 16)) << FOLD_SHIFT
            case ["flags", run, bits]:
                entries[_codes(run, "..")] |= int(bits) << CLASS_BITS
            case [run, kind]:
                entries[_codes(run, "..")] |= int(kind)
    entries.flags.writeable = False
    return entries


@cache
def table_version() -> str:
    """Names the table: Unicode version and digest. Whatever reads words or lines depends on it."""
    content = _PATH.read_bytes()
    unicode = content.split(b"\n", 1)[0].decode()
    return f"{unicode}, {hashlib.blake2b(content, digest_size=8).hexdigest()}"
