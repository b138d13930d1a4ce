"""Line hashes in plain Python: what the kernel must compute, in its most readable form.

What may live here: the key of a line, and the plain function behind the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from curation.text.characters import FORMAT, MARK, NUMBER, SPACE
from curation.text.reference import character_class, fold, word_hash


def key(line: str) -> str | None:
    """What a line is compared by (`curation.dedup.line_hashes`); None where it has no letter."""
    found = ""
    lettered = attached = spaced = False
    for character in line:
        kind = character_class(character)
        if kind >= NUMBER or (kind == MARK and attached):
            found += " " * (spaced and found != "")
            found += "0" if kind == NUMBER else fold(character)
            lettered |= kind > NUMBER
            attached, spaced = True, False
        elif kind != FORMAT:  # which is as if it were not there
            attached = False
            spaced |= kind == SPACE
    return found if lettered else None


def line_hashes(text: str) -> Iterator[tuple[int, int, int]]:
    """Hash, start and stop (in UTF-8 bytes) of each line that has a key."""
    start = 0
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        stop = start + len(line.encode()) + 1
        if (found := key(line)) is not None:
            last = number == len(lines)
            yield word_hash(found), max(start - last, 0), stop - last
        start = stop
