"""Lines by the rules of RefinedWeb.

What may live here: the editor `refinedweb_lines`.
"""

from __future__ import annotations

from typing import ClassVar

from curation.document import Documents
from curation.filters.parameters import ByLanguage, Count, Share
from curation.stage import Edited, Editor, Rule
from curation.text.lines import refinedweb_lines
from curation.text.view import share, versions


class RefinedWebLines(Editor):
    """Remove lines that are not prose; drop pages of which that took much (RefinedWeb).

    Penedo et al. 2023 (arXiv 2306.01116), appendix G.2, which names the rules; their numbers and
    lists are those of DCLM's reproduction (Li et al. 2024). Lines lie between newlines; blank ones
    stay. A line goes through these rules, and the first that it breaks counts:

    1. more than `max_uppercase` of its characters are upper case: `upper_case_lines`;
    2. all are numeric: `number_lines`;
    3. it is a counter, as "3 likes" or "1.2k views" (`curation.text.lines.COUNTERS`):
       `counter_lines`;
    4. it has fewer than `min_words` tokens (runs without white space): `short_lines`;
    5. of a line of at most 10 tokens these are cut out, in any case, with a space beside them:
       "sign-in" at the beginning, "items in cart", "read more..." at the end; what is left, if
       anything, is kept: `phrase_lines`.

    A page of which nothing is left is dropped as `empty`. Differences to DCLM: white space at both
    ends of a line counts for nothing; dots are dots (there, "Read more..." is any three characters
    after "Read more"), and U+2026 is three of them. Words are those of the text view.
    """

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("many_words_removed", signal="removed_words", above="max_removed_words"),
    )
    types: ClassVar[dict[str, str]] = {"removed_words": "double"}

    max_uppercase: Share | None = 0.5
    """Share of a line's code points, white space at its ends aside."""
    numbers: bool = True
    """Whether lines of numbers are removed."""
    counters: bool = True
    """Whether counters are removed."""
    min_words: Count = 2
    """Tokens of a line."""
    phrases: bool = True
    """Whether the phrases are cut out."""
    max_removed_words: ByLanguage[Share] = 0.05
    """Share of the page's words."""

    def depends(self) -> dict[str, str]:
        """The definitions of the text view."""
        return versions()

    def english(self, language: str) -> tuple[str, str] | None:
        """Counters and phrases."""
        if not (self.counters or self.phrases):
            return None
        return "English counters and phrases", "set counters: false, phrases: false"

    def edit(self, docs: Documents) -> Edited:
        """The lines that are left; int64: `lines` that are not blank, those removed by reason,
        `phrase_lines`; float64: `removed_words`, null for a page without words."""
        text, counts = refinedweb_lines(
            docs.view,
            max_uppercase=self.max_uppercase,
            min_words=self.min_words,
            numbers=self.numbers,
            counters=self.counters,
            phrases=self.phrases,
        )
        removed = share(counts["removed_words"], docs.view.word_counts())
        return Edited(text, {**counts, "removed_words": removed})
