"""Lines and pages by the rules of C4.

What may live here: the editor `c4`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import model_validator

from curation.document import Documents
from curation.filters import bad_words
from curation.filters.parameters import ByLanguage, Count
from curation.stage import Edited, Editor, Rule
from curation.text import phrases
from curation.text.lines import Kept, c4_lines
from curation.text.view import TextView, versions


class C4(Editor):
    """Remove lines that are not prose, drop pages with code or too few sentences (C4).

    Raffel et al. 2020 (JMLR 21), section 2.2, in the order of its code in TensorFlow Datasets. What
    `str.splitlines` gives is stripped and goes through these rules; the first one broken counts:

    1. a token (run without white space) is longer than `max_word_length`: `too_long_word`;
    2. citations are cut out: digits in square brackets, `[]`, `[edit]`, `[citation needed]`;
    3. it does not end with one of `end_marks`, or ends with "...": `no_terminal_mark`;
    4. it has fewer tokens than `min_words_per_line`, citations included: `too_few_words`;
    5. "lorem ipsum" drops the page, in any case;
    6. it mentions "javascript", in any case: `javascript_lines`;
    7. "{" drops the page;
    8. it is a cookie or legal notice, in English (`curation.text.lines.POLICIES`): `policy_lines`.

    The lines that are left are joined by newlines; a page without any is dropped as `empty`, which
    the originals call too few sentences. Then sentences and bad words are counted.

    Implementations differ: TensorFlow Datasets asks for 5 tokens a line (without citations) and 3
    sentences, the paper and datatrove for 3 and 5. To datatrove "'" is an end mark too. Sentences
    are those of NLTK in the original, of spaCy's Sentencizer in datatrove (`words: datatrove`), and
    of the text view here, summed over lines. The paper drops pages for "lorem ipsum" and "{"
    anywhere; all code looks for them only in lines that got so far (`page_rules: lines`).
    """

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("lorem_ipsum", signal="lorem_ipsum", above="max_lorem_ipsum"),
        Rule("curly_bracket", signal="curly_brackets", above="max_curly_brackets"),
        Rule("too_few_sentences", signal="sentences", below="min_sentences"),
        Rule("bad_words", signal="bad_words", above="max_bad_words"),
    )
    types: ClassVar[dict[str, str]] = {"bad_words": "int64"}

    words: Literal["unicode", "datatrove"] = "unicode"
    """Whose sentences."""
    terminal_punctuation: bool = True
    """Whether lines need a mark at their end."""
    end_marks: str = '.?!"'
    """These marks, one character each."""
    min_words_per_line: Count = 3
    """Tokens between white space."""
    max_word_length: Count | None = 1000
    """Code points of a token."""
    citations: bool = True
    """Whether citations are cut out."""
    javascript: bool = True
    """Whether lines with "javascript" are removed."""
    policy: bool = True
    """Whether cookie and legal notices are removed."""
    page_rules: Literal["lines", "page"] = "lines"
    """Where the next two are looked for: in lines that are still there, or on the whole page."""
    max_lorem_ipsum: ByLanguage[Count] = 0
    """Times that "lorem ipsum" occurs."""
    max_curly_brackets: ByLanguage[Count] = 0
    """Times that "{" occurs."""
    min_sentences: ByLanguage[Count] = 5
    """Sentences of the text that is left."""
    bad_words: str | None = None
    """Name or path of a list of words in the form of LDNOOBW (`words/ldnoobw`), or of a directory
    with one for each language; `{language}` in a path stands for a document's language. None counts
    none. See `curation.filters.bad_words`."""
    max_bad_words: ByLanguage[Count] = 0
    """Times that bad words occur in the text that is left."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.terminal_punctuation and not self.end_marks:
            raise ValueError(
                "end_marks: without a mark no line is kept; terminal_punctuation: false keeps all"
            )
        if self.bad_words is not None:
            bad_words.check("bad_words", self.bad_words)
        return self

    def depends(self) -> dict[str, str]:
        """The definitions of the text view, and of what bad words are."""
        return versions(self.words) | (phrases.versions() if self.bad_words is not None else {})

    def files(self) -> dict[str, Path]:
        """The lists of bad words."""
        return bad_words.files(self.bad_words) if self.bad_words is not None else {}

    def needs_language(self) -> list[str]:
        """Thresholds by language, and lists of bad words by language."""
        own = self.bad_words is not None and bad_words.by_language(self.bad_words)
        return super().needs_language() + ["bad_words"] * own

    def english(self, language: str) -> tuple[str, str] | None:
        """The notices."""
        return ("English cookie and legal notices", "set policy: false") if self.policy else None

    def edit(self, docs: Documents) -> Edited:
        """The lines that are left; int64: `lines` that are not blank, those removed by reason,
        `lorem_ipsum`, `curly_brackets`, `sentences`, `bad_words` (null without a list)."""
        text, counts, kept = c4_lines(
            docs.view,
            end_marks=self.end_marks if self.terminal_punctuation else None,
            min_words=self.min_words_per_line,
            max_word_length=self.max_word_length,
            javascript=self.javascript,
            policy=self.policy,
            citations=self.citations,
            page_rules=self.page_rules,
        )
        sentences = self._sentences(docs.view, text, kept)
        hits = pa.nulls(len(docs), pa.int64())
        if self.bad_words is not None:
            hits, _ = bad_words.count(self.bad_words, TextView(text), docs)
        return Edited(text, {**counts, "sentences": sentences, "bad_words": hits})

    def _sentences(self, old: TextView, text: pa.LargeStringArray, kept: Kept) -> NDArray[np.int64]:
        """Sentences of the lines that are left.

        spaCy's words are costly: where no citation was cut out, those of the old text will do.
        """
        if self.words == "unicode":
            return TextView(text).sentence_counts()
        counts = old.datatrove_sentences(kept.lines)
        cut = ~kept.uncut
        if cut.any():
            counts[cut] = TextView(text.filter(pa.array(cut))).sentence_counts("datatrove")
        return counts
