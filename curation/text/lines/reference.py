"""The rules on lines in plain Python: what the kernels must compute, in its most readable form.

What may live here: one plain function per kernel. The property tests hold both together.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter

from curation.text.characters import NUMBER
from curation.text.lines import (
    ANYWHERE,
    CITATIONS,
    COUNTERS,
    JAVASCRIPT,
    LOREM_IPSUM,
    PHRASE_WORDS,
    POLICIES,
    PREFIX,
    SUFFIXES,
)
from curation.text.reference import character_class
from curation.text.reference import words as words_of

_CITATION = re.compile(r"\[[0-9]*\]|" + "|".join(map(re.escape, CITATIONS)))
_COUNTER = re.compile(rf"\W*[0-9][0-9.,]*[kmb]?\s+({'|'.join(COUNTERS)})\W*")
_ANYWHERE = re.compile(r"\s?" + ANYWHERE)
_PREFIX = re.compile(PREFIX + r"\s?")
_SUFFIX = re.compile(rf"\s?({'|'.join(map(re.escape, SUFFIXES))})$")
_LOWER = str.maketrans({chr(c): chr(c + 32) for c in range(ord("A"), ord("Z") + 1)})


def lower(text: str) -> str:
    """The text with the capitals of ASCII in lower case."""
    return text.translate(_LOWER)


def c4_lines(
    text: str,
    end_marks: str | None,
    min_words: int,
    max_word_length: int | None,
    javascript: bool,
    policy: bool,
    citations: bool,
    page_rules: str,
) -> tuple[str, Counter[str]]:
    """The text that is left, and what was counted."""
    counts: Counter[str] = Counter()
    kept = []
    for line in map(str.strip, text.splitlines()):
        words = line.split()
        counts["lines"] += bool(line)
        if max_word_length is not None and any(len(word) > max_word_length for word in words):
            counts["too_long_word"] += 1
            continue
        if citations:
            line = _CITATION.sub("", line)
        marked = end_marks is None or (line[-1:] in [*end_marks] and not line.endswith("..."))
        if not marked or len(words) < min_words:
            counts["too_few_words" if marked else "no_terminal_mark"] += bool(words)
            continue
        lowered = lower(line)
        counts["lorem_ipsum"] += lowered.count(LOREM_IPSUM)
        if javascript and JAVASCRIPT in lowered:
            counts["javascript_lines"] += 1
            continue
        counts["curly_brackets"] += line.count("{")
        if policy and any(phrase in lowered for phrase in POLICIES):
            counts["policy_lines"] += 1
            continue
        kept.append(line)
    if page_rules == "page":
        counts["lorem_ipsum"] = lower(text).count(LOREM_IPSUM)
        counts["curly_brackets"] = text.count("{")
    return "\n".join(kept).strip(), counts


def refinedweb_lines(
    text: str,
    max_uppercase: float | None,
    min_words: int,
    numbers: bool,
    counters: bool,
    phrases: bool,
) -> tuple[str, Counter[str]]:
    """The text that is left, and what was counted."""
    counts: Counter[str] = Counter()
    kept: list[str] = []
    for whole in text.split("\n"):
        line = whole.strip()
        if not line:
            kept.append(whole)
            continue
        counts["lines"] += 1
        upper = sum(map(str.isupper, line)) / len(line)
        words = len(line.split())
        if max_uppercase is not None and upper > max_uppercase:
            counts["upper_case_lines"] += 1
        elif numbers and all(character_class(character) == NUMBER for character in line):
            counts["number_lines"] += 1
        elif counters and _COUNTER.fullmatch(lower(line)):
            counts["counter_lines"] += 1
        elif words < min_words:
            counts["short_lines"] += 1
        else:
            rest = without_phrases(line) if phrases and words <= PHRASE_WORDS else line
            counts["phrase_lines"] += rest != line
            if rest == line:
                kept.append(whole)
            elif rest.strip():
                kept.append(rest.strip())
    left = "\n".join(kept).strip()
    counts["removed_words"] = len(list(words_of(text))) - len(list(words_of(left)))
    return left, counts


def without_phrases(line: str) -> str:
    """A trimmed line without what RefinedWeb cuts out."""
    start = found.end() if (found := _PREFIX.match(lower(line))) else 0
    line = line[start:]
    for found in reversed(list(_ANYWHERE.finditer(lower(line)))):
        line = line[: found.start()] + line[found.end() :]
    found = _SUFFIX.search(lower(line))
    return line[: found.start()] if found else line


def third_longest_line(text: str) -> int:
    """Characters of the third longest of what lies between newlines, 0 of none."""
    longest = heapq.nlargest(3, map(len, text.split("\n")))
    return longest[2] if len(longest) == 3 else 0
