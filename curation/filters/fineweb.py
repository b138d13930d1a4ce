"""The rules that FineWeb found by comparing good and bad crawls.

What may live here: the filter `fineweb`.
"""

from __future__ import annotations

from typing import ClassVar

from curation.document import Documents
from curation.filters.parameters import ByLanguage, Count, Number, Share
from curation.filters.words import WordFilter
from curation.stage import Rule, Signals
from curation.text import repetition
from curation.text.view import share, versions


class FineWeb(WordFilter):
    """Drop documents that are lists of short or repeated lines (Penedo et al. 2024, section 3.6).

    A terminal mark is one of the 160 or so of all scripts that datatrove lists. `words` names whose
    definitions are taken: by `unicode` lines are trimmed before their ends and lengths are looked
    at, and words are those of the text view; by `datatrove` a space after a full stop hides it, and
    punctuation marks are words; `dolma` has lines as datatrove, and words between white space.
    Lines are those that are not blank, newlines are all that there are.

    The paper (arXiv 2406.17557) drops from the threshold on; here, as in datatrove's code, a
    document at the threshold is kept. Two numbers differ: the paper drops from 0.1 of characters in
    duplicated lines, datatrove's default is 0.01; the rule on newlines is in the code alone. None
    switches a rule off.
    """

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("few_punctuated_lines", "line_punctuation", below="min_line_punctuation"),
        Rule("many_short_lines", "short_lines", above="max_short_lines"),
        Rule("dup_line_chars", "dup_line_chars", above="max_dup_line_chars"),
        Rule("many_newlines", "newline_ratio", above="max_newline_ratio"),
    )

    min_line_punctuation: ByLanguage[Share] = 0.12
    """Share of lines that end with a terminal mark."""
    max_short_lines: ByLanguage[Share] = 0.67
    """Share of lines of at most `short_line` characters."""
    short_line: Count = 30
    """Code points."""
    max_dup_line_chars: ByLanguage[Share] = 0.10
    """Share of characters that are in lines which occurred before."""
    max_newline_ratio: ByLanguage[Number] = 0.30
    """Newlines per word."""

    def depends(self) -> dict[str, str]:
        """The definitions of the text view, and the terminal marks."""
        return {**versions("datatrove"), **super().depends()}

    def score(self, docs: Documents) -> Signals:
        """`line_punctuation`, `short_lines`, `dup_line_chars`, `newline_ratio` (float64).

        Null where there are no lines, or no words.
        """
        view, trimmed = self.view(docs), self.words == "unicode"
        lines = view.line_ends(self.short_line, trimmed)
        if trimmed:
            pieces, _ = repetition.lines_and_paragraphs(view)
            again = repetition.duplicates(pieces)
            whole = again.total
        else:
            again = repetition.duplicates(repetition.between_newlines(view, blank=False))
            whole = view.mark_totals.code_points - lines.newlines
        words = view.word_counts(self.words)
        return {
            "line_punctuation": share(lines.terminal, lines.lines),
            "short_lines": share(lines.short, lines.lines),
            "dup_line_chars": share(again.chars, whole),
            "newline_ratio": share(lines.newlines, words),
        }
