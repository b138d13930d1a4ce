"""Repetition within a document by the rules of MassiveText (Gopher).

What may live here: the filter `gopher_repetition`.
"""

from __future__ import annotations

from typing import ClassVar

from curation.document import Documents
from curation.filters.parameters import ByLanguage, Share
from curation.filters.words import WordFilter
from curation.stage import Rule, Signals
from curation.text import repetition


class GopherRepetition(WordFilter):
    """Drop documents that repeat themselves (Rae et al. 2021, section A.1.1 and Table A1).

    Each parameter is the largest share that is kept. What counts as a duplicate, and what its
    characters are divided by, differs between implementations: `words` names whose definitions are
    taken (`curation.text.repetition` has them). The thresholds are the paper's; Dolma's published
    configuration has 0.30 for `max_dup_line_chars`.

    All shares are null where there is nothing to divide by; those of n-grams also where a document
    has fewer words, and those of paragraphs for `words: dolma`. None switches a rule off.
    """

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("dup_paragraphs", "dup_paragraph_fraction", above="max_dup_paragraph_fraction"),
        Rule("dup_paragraph_chars", "dup_paragraph_chars", above="max_dup_paragraph_chars"),
        Rule("dup_lines", "dup_line_fraction", above="max_dup_line_fraction"),
        Rule("dup_line_chars", "dup_line_chars", above="max_dup_line_chars"),
        *(Rule(f"top_{n}_gram", f"top_{n}_gram", above=f"max_top_{n}_gram") for n in (2, 3, 4)),
        *(
            Rule(f"dup_{n}_grams", f"dup_{n}_gram", above=f"max_dup_{n}_gram")
            for n in (5, 6, 7, 8, 9, 10)
        ),
    )

    max_dup_line_fraction: ByLanguage[Share] = 0.30
    """Share of lines."""
    max_dup_paragraph_fraction: ByLanguage[Share] = 0.30
    """Share of paragraphs."""
    max_dup_line_chars: ByLanguage[Share] = 0.20
    """Share of characters that are in duplicated lines."""
    max_dup_paragraph_chars: ByLanguage[Share] = 0.20
    """Share of characters that are in duplicated paragraphs."""
    max_top_2_gram: ByLanguage[Share] = 0.20
    """Share of characters that are in the most common pair of words."""
    max_top_3_gram: ByLanguage[Share] = 0.18
    """Share of characters, three words."""
    max_top_4_gram: ByLanguage[Share] = 0.16
    """Share of characters, four words."""
    max_dup_5_gram: ByLanguage[Share] = 0.15
    """Share of characters that are in duplicated runs of five words."""
    max_dup_6_gram: ByLanguage[Share] = 0.14
    """Share of characters, six words."""
    max_dup_7_gram: ByLanguage[Share] = 0.13
    """Share of characters, seven words."""
    max_dup_8_gram: ByLanguage[Share] = 0.12
    """Share of characters, eight words."""
    max_dup_9_gram: ByLanguage[Share] = 0.11
    """Share of characters, nine words."""
    max_dup_10_gram: ByLanguage[Share] = 0.10
    """Share of characters, ten words."""

    def score(self, docs: Documents) -> Signals:
        """One share (float64) per parameter, named as it is without `max_`."""
        view = self.view(docs)
        shares = repetition.ngram_shares(view, self.words)
        top = {f"top_{n}_gram": shares[n] for n in repetition.TOP_NGRAMS}
        duplicated = {f"dup_{n}_gram": shares[n] for n in repetition.DUPLICATED_NGRAMS}
        return {**repetition.line_shares(view, self.words), **top, **duplicated}
