"""The rules for source code: what The Stack and StarCoder drop by the text of a file alone.

What may live here: the filter `code`. What is told by a file's path is skipped by its reader.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from curation.document import Documents
from curation.filters.parameters import ByLanguage, Count, Number, Share
from curation.stage import Filter, Rule, Signals
from curation.text.view import TextView, share, versions

#: What generators write at the beginning of a file: codeparrot's three words, and the lines that Go
#: and Meta's tools agreed on.
GENERATED = (
    r"(?i)auto-?generated|automatically generated|@generated\b|code generated .{1,200}do not edit"
)
#: Characters of the beginning in which that, and a declaration of XML, are looked for.
_HEAD, _XML_HEAD = 1000, 100


class Code(Filter):
    """Drop source files that are data, minified or generated (Li et al. 2023, StarCoder, 3.1).

    The numbers are those of the code of BigCode (bigcode-dataset, preprocessing/filtering.py): at
    most 1,000 characters in a line and 100 on average, at least a quarter letters and digits; XML
    is told by its declaration. There the numbers differ by language and ending; here they are one
    for all, or by the `language` of a document, which is that of people. `generated` looks at the
    first 1,000 characters.

    Lines are what lies between newlines, blank ones too; alphanumeric characters are those of the
    words of the text view. None switches a rule off.
    """

    version: ClassVar[int] = 1
    group: ClassVar[str | None] = "heuristics"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("long_line", signal="longest_line", above="max_line"),
        Rule("long_lines", signal="mean_line", above="max_mean_line"),
        Rule("few_alphanumeric", signal="alphanumeric", below="min_alphanumeric"),
        Rule("generated", signal="generated"),
        Rule("xml", signal="xml"),
    )

    max_line: ByLanguage[Count] = 1_000
    """Code points of the longest line."""
    max_mean_line: ByLanguage[Number] = 100.0
    """Code points of a line on average."""
    min_alphanumeric: ByLanguage[Share] = 0.25
    """Share of code points that are in words."""

    def depends(self) -> dict[str, str]:
        """The definitions of the text view."""
        return versions()

    def score(self, docs: Documents) -> Signals:
        """`longest_line` (int64), `mean_line`, `alphanumeric` (float64), `generated`, `xml` (bool).

        Shares and means of nothing are null.
        """
        view = docs.view
        longest, lines, characters = line_lengths(view)
        return {
            "longest_line": longest,
            "mean_line": share(characters, lines),
            "alphanumeric": share(view.word_totals.code_points, view.mark_totals.code_points),
            "generated": pc.match_substring_regex(
                pc.utf8_slice_codeunits(docs.text, 0, _HEAD), GENERATED
            ),
            "xml": pc.match_substring(
                pc.utf8_slice_codeunits(docs.text, 0, _XML_HEAD), "<?xml version="
            ),
        }


def line_lengths(view: TextView) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Per document: code points of the longest line, number of lines, their code points in sum.

    What follows the last newline is a line if it is not empty.
    """
    before = np.concatenate([[0], np.cumsum(view.data & 0xC0 != 0x80, dtype=np.int64)])
    newlines = np.flatnonzero(view.data == ord("\n"))
    longest, lines, characters = (np.zeros(len(view), np.int64) for _ in range(3))
    within = np.searchsorted(newlines, np.stack([view.begins, view.ends]))
    for d, (begin, end) in enumerate(zip(view.begins, view.ends, strict=True)):
        marks = newlines[within[0, d] : within[1, d]]
        starts, stops = np.append(begin, marks + 1), np.append(marks, end)
        lengths = before[stops] - before[starts]
        longest[d] = lengths.max()
        lines[d] = len(lengths) - (lengths[-1] == 0)
        characters[d] = lengths.sum()
    return longest, lines, characters
