"""Lines taken out of texts: by the rules of C4, and by those of RefinedWeb.

What may live here: what the rules look for, kernels that give the text that is left and count what
was removed, and their plain reference. The editors are in `curation.filters`.

Case is that of ASCII: "JAVASCRIPT" is found, "javaſcript" is not, whatever `str.lower` makes of it.
Digits, in citations and counters, are those of ASCII as well.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curation.text.characters import table
from curation.text.view import TextView

#: What C4 looks for in a line: for the page rule, the line rule, and cookie and legal notices.
LOREM_IPSUM = "lorem ipsum"
JAVASCRIPT = "javascript"
POLICIES = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)

#: What C4 cuts out of lines, besides digits in brackets.
CITATIONS = ("[edit]", "[citation needed]")

#: What a number counts in a line that is a counter: the list of DCLM's reproduction of RefinedWeb.
COUNTERS = (
    *("likes", "shares", "comments", "retweets", "reposts", "quotes"),
    *("bookmarks", "upvotes", "downvotes", "downloads", "views", "followers"),
)

#: What RefinedWeb cuts out of lines of at most `PHRASE_WORDS` words: at the beginning, anywhere,
#: and at the end.
PREFIX, ANYWHERE, SUFFIXES = "sign-in", "items in cart", ("read more...", "read more\u2026")
PHRASE_WORDS = 10

# What is counted per document: columns of the arrays below.
C4_COUNTS = (
    "lines",  # that are not blank
    "too_long_word",
    "no_terminal_mark",
    "too_few_words",
    "javascript_lines",
    "policy_lines",
    "lorem_ipsum",
    "curly_brackets",
)
REFINEDWEB_COUNTS = (
    "lines",  # that are not blank
    "upper_case_lines",
    "number_lines",
    "counter_lines",
    "short_lines",
    "phrase_lines",
    "removed_words",
)

NO_LIMIT = 1 << 62


def c4_lines(
    view: TextView,
    end_marks: str | None,
    min_words: int,
    max_word_length: int | None,
    javascript: bool,
    policy: bool,
    citations: bool,
    page_rules: Literal["lines", "page"],
) -> tuple[pa.LargeStringArray, dict[str, NDArray[np.int64]]]:
    """The texts that C4's rules leave, and `C4_COUNTS`; the parameters are those of the editor.

    `end_marks` and `max_word_length` are None for no such rule.
    """
    from curation.text.lines import kernels

    counts = np.zeros((len(view), len(C4_COUNTS)), np.int64)
    out, ends = _room(view)
    marks = np.array(sorted(map(ord, end_marks or "")), np.int64)
    longest = NO_LIMIT if max_word_length is None else max_word_length
    kernels.c4_lines(
        *(view.data, view.begins, view.ends, table()),
        *(end_marks is not None, marks, min_words, longest),
        *(javascript, policy, citations, page_rules == "page", out, ends, counts),
    )
    return _texts(out, ends), dict(zip(C4_COUNTS, counts.T, strict=True))


def refinedweb_lines(
    view: TextView,
    max_uppercase: float | None,
    min_words: int,
    numbers: bool,
    counters: bool,
    phrases: bool,
) -> tuple[pa.LargeStringArray, dict[str, NDArray[np.int64]]]:
    """The texts that RefinedWeb's rules leave, and `REFINEDWEB_COUNTS`; parameters as above."""
    from curation.text.lines import kernels

    counts = np.zeros((len(view), len(REFINEDWEB_COUNTS)), np.int64)
    out, ends = _room(view)
    upper = 1.0 if max_uppercase is None else max_uppercase
    kernels.refinedweb_lines(
        *(view.data, view.begins, view.ends, table()),
        *(upper, min_words, numbers, counters, phrases, out, ends, counts),
    )
    return _texts(out, ends), dict(zip(REFINEDWEB_COUNTS, counts.T, strict=True))


def third_longest_lines(view: TextView) -> NDArray[np.int64]:
    """Per document: code points of the third longest of what lies between newlines, 0 of none."""
    from curation.text.lines import kernels

    lengths = np.zeros(len(view), np.int64)
    kernels.third_longest_lines(view.data, view.begins, view.ends, lengths)
    return lengths


def _room(view: TextView) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Bytes for texts that are not longer, and the offset after each (the first is 0)."""
    return np.empty(len(view.data), np.uint8), np.zeros(len(view) + 1, np.int64)


def _texts(out: NDArray[np.uint8], ends: NDArray[np.int64]) -> pa.LargeStringArray:
    out.resize(int(ends[-1]), refcheck=False)  # gives back what was never touched
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)
