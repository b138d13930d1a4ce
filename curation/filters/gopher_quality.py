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
from curation.filters.words import WordFilter
from curation.stage import Rule, Signals, by_language
from curation.text import reference
from curation.text.characters import MARKED
from curation.text.datatrove import SYMBOLS_ONLY
from curation.text.view import TextView, share

#: Rae et al. 2021, section A.1.1.
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


class GopherQuality(WordFilter):
    """Drop documents that do not look like prose (Rae et al. 2021, section A.1.1).

    `words` names whose definitions of words and lines are taken:

    - `unicode`: those of the text view, where a word is never a symbol; lines that are not blank.
      The share of alphabetic words is one of white-space separated tokens: only among them are
      there the pure symbols ('|', '--') that the rule is about. Bullets are the union of three
      lists (`characters.BULLETS`). Stop words in any case.
    - `datatrove`: punctuation marks are words where it divides by words and looks for letters, so
      that its ratios are lower, and it drops good prose for few alphabetic words; they are not
      where it counts words and takes the mean of their lengths. Lines are those of
      `str.splitlines`, blank ones too; bullets U+2022 and '-'. Stop words as they are written
      ("The" is none).
    - `dolma`: white-space separated words, the median of their lengths, bullets '*' and '-' and
      ellipses U+2026 at the very ends of lines, blank ones counting; `hash_ratio` is the share of
      words with '#' or U+2026, and `ellipsis_ratio` is not scored. Stop words as they are written.

    '#' and ellipses are counted as in datatrove and RedPajama v2: every '#'; every U+2026 and every
    "..." without overlap ("...." is one, "......" two). Different stop words count, as the paper
    has it ("at least two of the following"); Dolma and DCLM's configuration count occurrences
    (`distinct_stop_words: false`).

    A threshold that equals the signal keeps; None switches a rule off. Shares of nothing (no words,
    tokens or lines) are null.
    """

    version: ClassVar[int] = 2
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
    """Words of `stop_words` that occur."""
    stop_words: Annotated[tuple[str, ...], Field(strict=False)] = STOP_WORDS
    """Words looked for; an empty list switches the rule off."""
    distinct_stop_words: bool = True
    """Whether different stop words count, or all occurrences."""

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
        wanted = [n for n in by_language(self.min_stop_words).values() if n is not None]
        most = max(wanted, default=0)
        if self.stop_words and self.distinct_stop_words and most > different:
            raise ValueError(
                f"min_stop_words ({most}) is more than the {different} different stop_words: "
                "nothing would be kept"
            )
        return self

    def score(self, docs: Documents) -> Signals:
        """`words`, `stop_words` (int64), the others float64, null where they divide by nothing.

        `stop_words` is null when there are none to look for.
        """
        view, definition = self.view(docs), self.words
        stop_words: np.ndarray | pa.Array = pa.nulls(len(docs), pa.int64())
        if self.stop_words:  # before the totals of words, which come with the words
            stop_words = view.vocabulary_counts(
                self.stop_words, definition, self.distinct_stop_words
            )
        lines = view.line_totals_of(definition)
        return {
            **getattr(self, f"_of_{definition}")(view),
            "bullet_lines": share(lines.bullets, lines.lines),
            "ellipsis_lines": share(lines.ellipses, lines.lines),
            "stop_words": stop_words,
        }

    def _of_unicode(self, view: TextView) -> Signals:
        words, symbols, tokens = view.word_totals, view.mark_totals, view.token_totals
        return {
            "words": words.words,
            "mean_word_length": share(words.code_points, words.words),
            "hash_ratio": share(symbols.hashes, words.words),
            "ellipsis_ratio": share(symbols.ellipses, words.words),
            "alphabetic_words": share(tokens.alphabetic, tokens.tokens),
        }

    def _of_datatrove(self, view: TextView) -> Signals:
        plain = view.word_sums("datatrove", without=SYMBOLS_ONLY)
        every = np.diff(view.words_of("datatrove").offsets)
        symbols = view.mark_totals
        return {
            "words": plain.words,
            "mean_word_length": share(plain.code_points, plain.words),
            "hash_ratio": share(symbols.hashes, every),
            "ellipsis_ratio": share(symbols.ellipses, every),
            "alphabetic_words": share(plain.alphabetic, every),
        }

    def _of_dolma(self, view: TextView) -> Signals:
        plain = view.word_sums("dolma", without=MARKED)
        every = np.diff(view.words_of("dolma").offsets)
        return {
            "words": every,
            "mean_word_length": view.median_word_lengths("dolma"),
            "hash_ratio": share(every - plain.words, every),
            "ellipsis_ratio": pa.nulls(len(every), pa.float64()),
            "alphabetic_words": share(plain.alphabetic, every),
        }
