"""The simple rules that textbooks and tutorials begin with.

What may live here: the filter `basic`.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from curation.document import Documents
from curation.filters.parameters import ByLanguage, Count, Number, Share, refuse_empty_range
from curation.stage import Filter, Rule, Signals
from curation.text import repetition
from curation.text.view import share, versions


class Basic(Filter):
    """Drop documents by length, symbols and repeated lines, before anything finer is asked.

    There is no paper behind these; the numbers are those in common use, and two of them are
    Gopher's (Rae et al. 2021, A.1.1: 50 words, 0.1 symbols per word). Words and lines are those of
    the text view. A symbol is a character that is neither letter, mark, number nor white space (nor
    a format character, which is part of a spelling): punctuation counts.

    A threshold that equals the signal keeps; None switches a rule off. Shares of nothing are null.
    """

    version: ClassVar[int] = 1
    group: ClassVar[str | None] = "heuristics"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("too_short", signal="chars", below="min_chars"),
        Rule("many_symbols", signal="symbols", above="max_symbols"),
        Rule("many_symbols_per_word", signal="symbol_word_ratio", above="max_symbol_word_ratio"),
        Rule("repeated_lines", signal="repeated_lines", above="max_repeated_lines"),
        Rule("too_few_words", signal="words", below="min_words"),
        Rule("too_many_words", signal="words", above="max_words"),
    )

    min_chars: ByLanguage[Count] = 200
    """Code points."""
    max_symbols: ByLanguage[Share] = 0.30
    """Share of code points that are symbols."""
    max_symbol_word_ratio: ByLanguage[Number] = 0.10
    """'#' and ellipses ("..." or U+2026), together, per word."""
    max_repeated_lines: ByLanguage[Count] = 3
    """Times that a line may stand in a row, blank lines aside."""
    min_words: ByLanguage[Count] = 50
    """Words."""
    max_words: ByLanguage[Count] = 10_000
    """Words."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        refuse_empty_range(self, "min_words", "max_words")
        return self

    def depends(self) -> dict[str, str]:
        """The definitions of the text view."""
        return versions()

    def score(self, docs: Documents) -> Signals:
        """`chars`, `repeated_lines`, `words` (int64), `symbols`, `symbol_word_ratio` (float64)."""
        marks, words = docs.view.mark_totals, docs.view.word_counts()
        lines, _ = repetition.lines_and_paragraphs(docs.view)
        return {
            "chars": marks.code_points,
            "symbols": share(docs.view.symbol_counts(), marks.code_points),
            "symbol_word_ratio": share(marks.hashes + marks.ellipses, words),
            "repeated_lines": repetition.longest_runs(lines),
            "words": words,
        }
