"""The plain Python of `kernels`: slow, and meant to be read.

What may live here: one function per kernel, of the same meaning, over `str`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby

from curation.text.characters import ALPHABETIC
from curation.text.datatrove import (
    ALPHA,
    DIVIDING,
    ENDS_SENTENCE,
    HOST,
    ICON,
    LETTER,
    LOWER,
    PREFIX,
    PUNCT,
    PUNCT_ONLY,
    QUOTE,
    SENTENCE_END,
    STOPPED,
    SUFFIX,
    SYMBOL,
    SYMBOLS_ONLY,
    TERMINAL,
    UPPER,
    special_cases,
    table,
    units,
)

_URL = re.compile(
    # scheme, user, then labels that are checked one by one, then port and path
    r"(?P<host>[^:/?#@]+)(?::[0-9]{2,5})?(?:[/?#].*)?",
    re.DOTALL,
)


def bits(character: str) -> int:
    return int(table()[ord(character)])


def _is_digit(character: str) -> bool:
    return character in "0123456789" and character != ""


def prefix(text: str) -> int:
    """Characters that are cut off the front."""
    if text.startswith(".."):
        return len(text) - len(text.lstrip("."))
    for money in ("US$", "C$", "A$"):
        if text.startswith(money):
            return len(money)
    if text[0] == "+":
        return int(not _is_digit(text[1:2]))
    return int(bits(text[0]) & PREFIX != 0)


def suffix(text: str) -> int:
    """Characters that are cut off the end: the longest that fits."""
    if not text:
        return 0
    if text.endswith(".."):
        return len(text) - len(text.rstrip("."))
    if text[-1] == ".":
        left = text[-2:-1]
        degree = re.search("°[FfCcKk][.]$", text) is not None
        capitals = len(text) > 2 and all(bits(c) & UPPER for c in text[-3:-1])
        return int(bool(left and bits(left) & STOPPED) or capitals or degree)
    found = int(bits(text[-1]) & SUFFIX != 0)
    if text.endswith("\u2026\u2026") or re.search("['\u2019][sS]$", text):
        found = 2
    tail = re.search("[0-9]([^0-9]+)$", text)
    if tail and tail[1] in units():
        found = max(found, len(tail[1]))
    return found


def infix(text: str, i: int) -> int:
    """Where the mark that divides the word at `i` ends; `i` where none does."""
    here = bits(text[i])
    if here & ICON:
        return i + 1
    if not here & DIVIDING:
        return i
    if text.startswith("..", i):
        return i + len(text[i:]) - len(text[i:].lstrip("."))
    left, right = (text[i - 1] if i else ""), text[i + 1 : i + 2]
    if not left or not right:
        return i
    mark, a, b = text[i], bits(left), bits(right)
    if mark == ".":
        return i + int(bool(a & (LOWER | QUOTE) and b & (UPPER | QUOTE)))
    if mark == ",":
        return i + int(bool(a & ALPHA and b & ALPHA))
    if mark in "+-*^" and _is_digit(left) and (_is_digit(right) or right == "-"):
        return i + 1
    if not (a & ALPHA or _is_digit(left)) or mark in "+*^":
        return i
    for run in {"-": (1, 2, 3), "\u2014": (1, 2)}.get(mark, (1,)):
        after = text[i + run : i + run + 1]
        if text[i : i + run] == mark * run and after and bits(after) & ALPHA:
            return i + run
    return i


def is_url(text: str) -> bool:
    """Whether the word is an address: `[scheme://][user@]host[:port][/path]`."""
    begins = {0} | {i + 1 for i, c in enumerate(text) if c == "@" and i > 0}
    scheme = re.match(r"[\w+.-]*", text)
    length = scheme.end() if scheme else 0
    if length >= 2 and text.startswith("://", length):
        begins.add(length + 3)
    return any(_is_host(text[i:]) for i in begins)


def _is_host(text: str) -> bool:
    found = _URL.fullmatch(text)
    if not found:
        return False
    *labels, domain = found["host"].split(".")
    return (
        bool(labels)
        and all(_is_label(label) for label in labels)
        and 2 <= len(domain) <= 63
        and all(bits(c) & LOWER for c in domain)
    )


def _is_label(label: str) -> bool:
    return (
        0 < len(label) <= 64
        and bool(bits(label[0]) & bits(label[-1]) & HOST)
        and all(c in "_-" or bits(c) & HOST for c in label)
    )


def divide(run: str) -> list[str]:
    """The words of a run without white space."""
    cases = special_cases()
    front: list[str] = []
    back: list[str] = []
    text, size = run, -1
    while text and len(text) != size:
        if text in cases:
            break
        size = len(text)
        pre = prefix(text)
        if pre and text[pre:] in cases:
            front.append(text[:pre])
            text = text[pre:]
            break
        suf = suffix(text[pre:])
        if suf and text[:-suf] in cases:
            back.append(text[-suf:])
            text = text[:-suf]
            break
        if pre:
            front.append(text[:pre])
        if suf:
            back.append(text[len(text) - suf :])
        text = text[pre : len(text) - suf]
    middle: list[str] = []
    if text in cases:
        middle = list(cases[text])
    elif text and is_url(text):
        middle = [text]
    elif text:
        start = i = 0
        while i < len(text):
            end = infix(text, i)
            if end > i and i > 0:
                middle += [text[start:i], text[i:end]]
                start = end
            i = max(end, i + 1)
        middle.append(text[start:])
    return _join_cases([word for word in [*front, *middle, *reversed(back)] if word])


def affected(case: str) -> bool:
    """Whether the rules alone would divide a special case: it may then come out in pieces."""
    return bool(prefix(case) or suffix(case) or any(infix(case, i) > i for i in range(len(case))))


@cache
def joining_cases() -> dict[str, tuple[str, ...]]:
    return {case: pieces for case, pieces in special_cases().items() if affected(case)}


def _join_cases(words: list[str]) -> list[str]:
    """Neighbours that make up a special case are divided as it says; the longest first come."""
    found: list[str] = []
    i = 0
    cases = joining_cases()
    while i < len(words):
        ends = [j for j in range(i + 1, len(words) + 1) if "".join(words[i:j]) in cases]
        end = ends[-1] if ends else i + 1
        text = "".join(words[i:end])
        found += cases.get(text, (text,))
        i = end
    return found


def words(text: str) -> Iterator[str]:
    """The words of a text."""
    for blank, run in groupby(text, key=str.isspace):
        if not blank:
            yield from divide("".join(run))


def flags(word: str) -> int:
    """The flags of a word."""
    every = SYMBOL | PUNCT | SENTENCE_END
    some = 0
    for character in word:
        every &= bits(character)
        some |= bits(character)
    return (
        ALPHABETIC * bool(some & LETTER)
        | SYMBOLS_ONLY * bool(every & SYMBOL)
        | PUNCT_ONLY * bool(every & PUNCT)
        | ENDS_SENTENCE * (len(word) == 1 and bool(every & SENTENCE_END))
    )


def line_forms(text: str) -> tuple[int, int, int]:
    """Lines, those that begin with a bullet, those that end with an ellipsis."""
    lines = text.splitlines()
    bullets = sum(line.lstrip().startswith(("\u2022", "-")) for line in lines)
    ellipses = sum(line.rstrip().endswith(("...", "\u2026")) for line in lines)
    return len(lines), bullets, ellipses


def line_ends(text: str, most: int, trimmed: bool) -> tuple[int, int, int, int]:
    """Lines that are not blank; those with a terminal mark at the end; short ones; newlines."""
    lines = [line.strip() if trimmed else line for line in text.split("\n") if line.strip()]
    ended = sum(bool(bits(line[-1]) & TERMINAL) for line in lines)
    return len(lines), ended, sum(len(line) <= most for line in lines), text.count("\n")


def sentences(text: str) -> int:
    """The sentences of the stripped lines of a text, each as spaCy's Sentencizer has it."""
    count = 0
    for line in text.split("\n"):
        seen = begun = False
        for blank, run in groupby(line.strip(), key=str.isspace):
            space = "".join(run)
            for word in [""] * (space != " ") if blank else divide(space):
                form = flags(word) if word else 0
                if not begun and word:
                    count, begun = count + 1, True
                elif seen and not form & (PUNCT_ONLY | ENDS_SENTENCE):
                    count, seen = count + 1, False
                seen = seen or bool(form & ENDS_SENTENCE)
    return count
