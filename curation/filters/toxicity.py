"""Insults, slurs, obscenities: whole documents, by how much of them is toxic.

What may live here: the filter `toxicity`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
from pydantic import model_validator

from curation.document import Documents
from curation.filters import bad_words
from curation.filters.parameters import ByLanguage, Count, Share
from curation.stage import Filter, Rule, Signals
from curation.text import phrases
from curation.text.view import share, versions


class Toxicity(Filter):
    """Drop documents of which much is toxic: insults, slurs, obscenities.

    Words are counted by a list (`curation.filters.bad_words`). C4 drops a page for one word of
    LDNOOBW (`words: words/ldnoobw`, `max_words: 0`), which is its `bad_words` too. The default is
    a share of the page's words: with a short list of our own, at a threshold that no page of prose
    comes near and that no single word reaches on a page of 50 words, the fewest that Gopher keeps.
    """

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("many_bad_words", signal="words", above="max_words"),
        Rule("high_word_share", signal="word_share", above="max_word_share"),
        Rule("many_different_words", signal="distinct", above="max_distinct"),
    )
    types: ClassVar[dict[str, str]] = {
        "words": "int64",
        "word_share": "double",
        "distinct": "int64",
    }

    words: str | None = bad_words.BUILT_IN
    """`built-in` (English); the name or path of a list in the form of LDNOOBW, or of a directory
    with one for each language; or a path with `{language}`. None counts none."""
    max_words: ByLanguage[Count] = None
    """Hits."""
    max_word_share: ByLanguage[Share] = 0.03
    """Hits per word of the text view."""
    max_distinct: ByLanguage[Count] = None
    """Different entries."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        bad_words.refuse_nothing("words", self.words)
        return self

    def depends(self) -> dict[str, str]:
        """The definitions of the text view, and of what bad words are."""
        return versions() | phrases.versions()

    def files(self) -> dict[str, Path]:
        """The lists and the model."""
        return bad_words.files(self.words) if self.words is not None else {}

    def needs_language(self) -> list[str]:
        """Thresholds by language, and lists of words by language."""
        own = self.words is not None and bad_words.by_language(self.words)
        return super().needs_language() + ["words"] * own

    def score(self, docs: Documents) -> Signals:
        if self.words is None:
            return {name: pa.nulls(len(docs), kind) for name, kind in self.types.items()}
        hits, distinct = bad_words.count(self.words, docs.view, docs)
        parts = share(hits.fill_null(0).to_numpy(), docs.view.word_counts())
        of_words = pa.array(parts, mask=hits.is_null().to_numpy(False) | np.isnan(parts))
        return {"words": hits, "word_share": of_words, "distinct": distinct}
