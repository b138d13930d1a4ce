"""The definitions in plain Python: what each kernel must compute, in its most readable form.

What may live here: one plain function per kernel, on `str` and `unicodedata` alone. The property
tests hold kernels and references together. `python -m curation.text.reference` prints the
character table (`characters.txt`) that the kernels read.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from curation.text.characters import (
    APOSTROPHE,
    APOSTROPHES,
    BULLET,
    BULLETS,
    CLOSING,
    FORMAT,
    FULL_STOPS,
    KATAKANA,
    LETTER,
    LOWER,
    MARK,
    NUMBER,
    OTHER,
    SINGLE,
    SINGLE_NAMES,
    SPACE,
    TERMINAL,
    TERMINALS,
    UPPER,
)

MASK = (1 << 64) - 1


def character_class(character: str) -> int:
    """The class of one character (see `curation.text.characters`)."""
    category = unicodedata.category(character)
    name = unicodedata.name(character, "")
    if character.isspace():
        return SPACE
    if character in BULLETS:
        return BULLET
    if character in APOSTROPHES:
        return APOSTROPHE
    if category == "Cf" and character != "\u200b":  # U+200B is a zero width *space*
        return FORMAT
    if category[0] == "M":
        return MARK
    if category[0] == "L":
        if name.startswith(SINGLE_NAMES):
            return SINGLE
        return KATAKANA if "KATAKANA" in name else LETTER
    return NUMBER if category[0] == "N" else OTHER


def character_flags(character: str) -> int:
    """The flags of one character (see `curation.text.characters`)."""
    closing = character in "\"'" or unicodedata.category(character) in ("Pe", "Pf", "Pi")
    georgian = "\u10d0" <= character <= "\u10ff"
    return (
        TERMINAL * (character in TERMINALS)
        | CLOSING * closing
        | LOWER * (character.islower() and not georgian)
        | UPPER * character.isupper()
    )


def fold(character: str) -> str:
    """Unicode's simple case folding: one character to one character."""
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character


def _joined(left: int, right: int) -> bool:
    """Whether characters of these classes, side by side, are in one word."""
    return {left, right} <= {NUMBER, LETTER} or left == right == KATAKANA


@dataclass(frozen=True)
class Word:
    """A word: its characters [start, end) of the text, and whether one of them is a letter."""

    text: str
    start: int
    end: int
    alphabetic: bool


def words(text: str) -> Iterator[Word]:
    """The words of a text (the definition is in `curation.text.view`)."""
    classes = [character_class(character) for character in text]
    i = 0
    while i < len(text):
        if classes[i] < NUMBER:
            i += 1
            continue
        start, base = i, classes[i]
        end = i = i + 1
        while i < len(text):
            between = classes[end:i]  # passed over, but not yet known to be inside the word
            if classes[i] == FORMAT or (classes[i] == APOSTROPHE and APOSTROPHE not in between):
                i += 1
            elif (classes[i] == MARK and APOSTROPHE not in between) or _joined(base, classes[i]):
                end = i = i + 1
            else:
                break
        i = end
        alphabetic = any(kind > NUMBER for kind in classes[start:end])
        yield Word(text[start:end], start, end, alphabetic)


def word_hash(word: str, folded: bool = False) -> int:
    """The 64-bit hash of a word's code points, in order, after case folding if `folded`."""
    state = 0x9E3779B97F4A7C15
    for character in word:
        state ^= ord(fold(character) if folded else character)
        state = state * 0xD6E8FEB86659FD93 & MASK
        state ^= state >> 32
    return _finalise(state)


def bytes_hash(data: bytes) -> int:
    """The 64-bit hash of bytes, eight at a time."""
    state = 0x9E3779B97F4A7C15 ^ len(data)
    for i in range(0, len(data), 8):
        state ^= int.from_bytes(data[i : i + 8], "little")
        state = state * 0xD6E8FEB86659FD93 & MASK
        state ^= state >> 32
    return _finalise(state)


def _finalise(state: int) -> int:
    """The finaliser of MurmurHash3."""
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        state ^= state >> 33
        state = state * multiplier & MASK
    return state ^ state >> 33


@dataclass(frozen=True)
class Line:
    """A line: its characters [start, end) of the text, white space trimmed, and its form."""

    text: str
    start: int
    end: int
    bullet: bool
    ellipsis: bool
    paragraph: bool


def lines(text: str) -> Iterator[Line]:
    """The lines of a text that are not blank."""
    position = 0
    paragraph = True
    for line in text.split("\n"):
        trimmed = line.strip()
        if trimmed:
            start = position + line.index(trimmed)
            yield Line(
                text=trimmed,
                start=start,
                end=start + len(trimmed),
                bullet=trimmed[0] in BULLETS,
                ellipsis=trimmed.endswith(("...", "\u2026")),
                paragraph=paragraph,
            )
        paragraph = not trimmed
        position += len(line) + 1


def symbols(text: str) -> tuple[int, int, int, int, int]:
    """Code points, tokens, tokens with a letter, '#' and ellipses of a text."""
    tokens = text.split()
    alphabetic = sum(any(character.isalpha() for character in token) for token in tokens)
    ellipses = text.count("...") + text.count("\u2026")
    return len(text), len(tokens), alphabetic, text.count("#"), ellipses


def symbol_characters(text: str) -> int:
    """Characters that are neither letter, mark, number, format character nor white space."""
    return sum(character_class(c) in (OTHER, BULLET, APOSTROPHE) for c in text)


#: What a full stop follows without ending a sentence, besides single letters: titles and the like,
#: which stand before a name or number and hardly ever at an end.
ABBREVIATIONS = (
    *("mr", "mrs", "ms", "dr", "prof", "rev", "gen", "sen", "rep", "gov"),
    *("capt", "lt", "col", "sgt", "st", "mt", "vs", "fig"),
)


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """The sentences of a text as characters [start, end) of it (the definition is in
    `curation.text.view`)."""
    begin = 0  # of the line
    for line in text.split("\n"):
        start = i = 0  # of the sentence
        while i < len(line):
            end = i + 1
            if line[i] in TERMINALS:
                while end < len(line) and _after_mark(line[end]):
                    end += 1
                if _lettered(line[start:end]) and _ends_sentence(line, i, end):
                    yield _trimmed(text, begin + start, begin + end)
                    start = end
            i = end
        if _lettered(line[start:]):
            yield _trimmed(text, begin + start, begin + len(line))
        begin += len(line) + 1


def _lettered(text: str) -> bool:
    return any(character_class(character) > NUMBER for character in text)


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Without the white space at both ends."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def _after_mark(character: str) -> bool:
    """Whether a run of terminal marks goes on."""
    more = character_flags(character) & (TERMINAL | CLOSING)
    return bool(more) or character_class(character) in (FORMAT, MARK)


def _ends_sentence(line: str, start: int, end: int) -> bool:
    """Whether the run of marks [start, end) of a line ends a sentence."""
    marks = [character for character in line[start:end] if character in TERMINALS]
    if line[end : end + 1].strip():  # no white space
        return any(mark > "\x7f" and mark not in FULL_STOPS for mark in marks)
    if not FULL_STOPS.issuperset(marks):
        return True
    for character in line[end:]:
        if character in TERMINALS or character_class(character) >= NUMBER:
            if character_flags(character) & LOWER:
                return False
            break
    return len(marks) > 1 or not _abbreviated(line[:start])


def _abbreviated(before: str) -> bool:
    """Whether a text ends with a single letter or one of the abbreviations."""
    start = len(before)
    while start and character_class(before[start - 1]) >= FORMAT:
        start -= 1
    word = before[start:]
    single = len(word) == 1 and character_class(word) == LETTER
    return single or "".join(map(fold, word)) in ABBREVIATIONS


def distinct(text: str, vocabulary: Sequence[str]) -> int:
    """How many different words of the vocabulary the text contains, by case-folded spelling."""
    wanted = {"".join(map(fold, word)) for word in vocabulary}
    return len(wanted & {"".join(map(fold, word.text)) for word in words(text)})


def character_table() -> Iterator[str]:
    """The lines of `characters.txt`: runs `first..last class`, then runs `flags first..last flags`,
    then folds `fold from to`."""
    yield f"unicode {unicodedata.unidata_version}"
    characters = [chr(c) for c in range(sys.maxunicode + 1)]
    for kind, run in groupby(characters, key=character_class):
        members = list(run)
        if kind != OTHER:
            yield f"{ord(members[0]):04X}..{ord(members[-1]):04X} {kind}"
    for flags, run in groupby(characters, key=character_flags):
        members = list(run)
        if flags:
            yield f"flags {ord(members[0]):04X}..{ord(members[-1]):04X} {flags}"
    for character in characters:
        if fold(character) != character:
            yield f"fold {ord(character):04X} {ord(fold(character)):04X}"


if __name__ == "__main__":
    print("\n".join(character_table()))
