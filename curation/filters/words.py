"""What filters over words share: whose words count, and who divides scripts without spaces.

What may live here: `WordFilter`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, model_validator

from curation.document import Documents
from curation.filters.parameters import ByLanguage
from curation.stage import Filter, by_language, for_language
from curation.text import segmenters
from curation.text.view import Definition, TextView, versions


class WordFilter(Filter):
    """A filter whose signals are counts of words and lines."""

    group: ClassVar[str | None] = "heuristics"

    words: Definition = "unicode"
    """Whose words and lines."""
    segmenter: ByLanguage[Annotated[str, AfterValidator(segmenters.check)]] = None
    """Who divides scripts without spaces into words (jieba, janome, pythainlp, `module:function`),
    or a mapping from languages; else each of their letters is a word."""

    @model_validator(mode="after")
    def _segmenter_of_unicode_words(self) -> Self:
        if self.segmenter is not None and self.words != "unicode":
            raise ValueError(f"segmenter: `words: {self.words}` has words of its own")
        return self

    def depends(self) -> dict[str, str]:
        """The definitions of the text view, and the segmenters."""
        names = {name for name in by_language(self.segmenter).values() if name is not None}
        own = {f"segmenter {name}": segmenters.version(name) for name in names}
        return {**versions(self.words), **own}

    def view(self, docs: Documents) -> TextView:
        """The text view of a batch, with the words of the segmenter where there is one."""
        if self.segmenter is None:
            return docs.view
        if isinstance(self.segmenter, str):
            names = [self.segmenter] * len(docs)
        else:
            names = [for_language(self.segmenter, tag) for tag in docs["language"].to_pylist()]
        return docs.view.segmented(tuple(names))
