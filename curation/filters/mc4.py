"""The page rule of mC4.

What may live here: the filter `mc4`.
"""

from __future__ import annotations

from typing import ClassVar

from curation.document import Documents
from curation.filters.parameters import ByLanguage, Count
from curation.stage import Filter, Rule, Signals
from curation.text.lines import third_longest_lines


class MC4(Filter):
    """Drop pages with fewer than three long lines (Xue et al. 2021, section 3.1; mC4).

    A rule for any language, in place of C4's on marks and sentences. Lines are what lies between
    newlines, as they are.
    """

    version: ClassVar[int] = 1
    group: ClassVar[str | None] = "heuristics"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("few_long_lines", signal="third_longest_line", below="min_line_length"),
    )

    min_line_length: ByLanguage[Count] = 200
    """Code points that three lines have at least."""

    def score(self, docs: Documents) -> Signals:
        """`third_longest_line` (int64, code points): 0 where there are fewer lines."""
        return {"third_longest_line": third_longest_lines(docs.view)}
