"""Document quality by the rules of MassiveText (Gopher).

What may live here: the filter `gopher_quality` and its word list.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from curation.document import Documents
from curation.filters.parameters import ByLanguage, Count, Number, Share, refuse_empty_range
from curation.stage import Filter, Rule, Signals, by_language
from curation.text import reference
from curation.text.view import versions

#: Rae et al. 2021, section A.1.1.
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


class GopherQuality(Filter):
    """Drop documents that do not look like prose (Rae et al. 2021, section A.1.1).

    Words, tokens and lines are those of the text view. Differences to known implementations:

    - A word is never a symbol. To datatrove punctuation marks are words where it divides by words
      and looks for letters: its ratios are lower, and it drops good prose for few alphabetic words.
      Dolma's words are white-space separated tokens.
    - The share of alphabetic words is one of such tokens, as in Dolma: only among them are there
      the pure symbols ('|', '--') that the rule is about.
    - The mean of word lengths, as in the paper and datatrove; Dolma takes the median.
    - '#' and ellipses are counted as in datatrove and RedPajama v2: every '#'; every U+2026 and
      every "..." without overlap ("...." is one, "......" two).
    - Bullets are the union of three lists (`characters.BULLETS`); shares of lines are of lines
      that are not blank, where datatrove and Dolma count the blank ones too.
    - Different stop words count, as the paper has it ("at least two of the following"), in any
      case. datatrove counts different words but not "The", DCLM's configuration counts occurrences.

    A threshold that equals the signal keeps; None switches a rule off. Shares of nothing (no words,
    tokens or lines) are null.
    """

    version: ClassVar[int] = 1
    group: ClassVar[str | None] = "heuristics"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("too_few_words", signal="words", below="min_words"),
        Rule("too_many_words", signal="words", above="max_words"),
        Rule("short_words", signal="mean_word_length", below="min_mean_word_length"),
        Rule("long_words", signal="mean_word_length", above="max_mean_word_length"),
        Rule("many_hashes", signal="hash_ratio", above="max_hash_ratio"),
        Rule("many_ellipses", signal="ellipsis_ratio", above="max_ellipsis_ratio"),
        Rule("many_bullets", signal="bullet_lines", above="max_bullet_lines"),
        Rule("many_ellipsis_lines", signal="ellipsis_lines", above="max_ellipsis_lines"),
        Rule("few_alphabetic", signal="alphabetic_words", below="min_alphabetic_words"),
        Rule("few_stop_words", signal="stop_words", below="min_stop_words"),
    )

    min_words: ByLanguage[Count] = 50
    """Words."""
    max_words: ByLanguage[Count] = 100_000
    """Words."""
    min_mean_word_length: ByLanguage[Number] = 3.0
    """Code points a word."""
    max_mean_word_length: ByLanguage[Number] = 10.0
    """Code points a word."""
    max_hash_ratio: ByLanguage[Number] = 0.1
    """'#' per word."""
    max_ellipsis_ratio: ByLanguage[Number] = 0.1
    """Ellipses ("..." or U+2026) per word."""
    max_bullet_lines: ByLanguage[Share] = 0.9
    """Share of lines that begin with a bullet."""
    max_ellipsis_lines: ByLanguage[Share] = 0.3
    """Share of lines that end with an ellipsis."""
    min_alphabetic_words: ByLanguage[Share] = 0.8
    """Share of white-space separated tokens with at least one letter."""
    min_stop_words: ByLanguage[Count] = 2
    """Different words of `stop_words` that occur."""
    stop_words: Annotated[tuple[str, ...], Field(strict=False)] = STOP_WORDS
    """Words matched in any case; an empty list switches the rule off."""

    @field_validator("stop_words")
    @classmethod
    def _single_words(cls, stop_words: tuple[str, ...]) -> tuple[str, ...]:
        for entry in stop_words:
            if [word.text for word in reference.words(entry)] != [entry]:
                raise ValueError(f"{entry!r} is not a single word")
        return stop_words

    @model_validator(mode="after")
    def _possible(self) -> Self:
        refuse_empty_range(self, "min_words", "max_words")
        refuse_empty_range(self, "min_mean_word_length", "max_mean_word_length")
        different = len({"".join(map(reference.fold, word)) for word in self.stop_words})
        most = max(
            (n for n in by_language(self.min_stop_words).values() if n is not None), default=0
        )
        if self.stop_words and most > different:
            raise ValueError(
                f"min_stop_words ({most}) is more than the {different} different "
                "stop_words: nothing would be kept"
            )
        return self

    def depends(self) -> dict[str, str]:
        """The definitions of the text view."""
        return versions()

    def score(self, docs: Documents) -> Signals:
        """`words`, `stop_words` (int64), the others float64, null where they divide by nothing.

        `stop_words` is null when there are none to look for.
        """
        view = docs.view
        stop_words: np.ndarray | pa.Array = pa.nulls(len(docs), pa.int64())
        if self.stop_words:  # before the totals of words, which come with the words
            stop_words = view.distinct_counts(self.stop_words)
        words, lines, symbols = view.word_totals, view.line_totals, view.symbol_totals
        return {
            "words": words.words,
            "mean_word_length": _ratio(words.code_points, words.words),
            "hash_ratio": _ratio(symbols.hashes, words.words),
            "ellipsis_ratio": _ratio(symbols.ellipses, words.words),
            "bullet_lines": _ratio(lines.bullets, lines.lines),
            "ellipsis_lines": _ratio(lines.ellipses, lines.lines),
            "alphabetic_words": _ratio(symbols.alphabetic_tokens, symbols.tokens),
            "stop_words": stop_words,
        }


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """float64 quotients, NaN where the denominator is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(denominator > 0, numerator / denominator, np.nan)
