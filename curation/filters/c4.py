"""Lines and pages by the rules of C4.

What may live here: the editor `c4` and its lists of bad words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from glob import escape, glob
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import model_validator

from curation.document import Documents
from curation.filters.parameters import ByLanguage, Count
from curation.stage import Edited, Editor, Rule
from curation.text.lines import Kept, c4_lines
from curation.text.view import TextView, versions

#: Languages in whose texts a bad word counts wherever it occurs, for want of spaces.
SPACELESS = ("ja", "th", "zh")

#: Not counted, since they are parts of common words: each would drop more than a tenth of the pages
#: of its language (mC4).
ALLOWED = {"ja": {"sm", "グロ", "女の子"}, "zh": {"性"}}


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
    """Path of a list of words, one a line, in UTF-8; `{language}` stands for a document's language.

    In the form of the List of Dirty, Naughty, Obscene or Otherwise Bad Words, as mC4 uses it: in
    lower case, between characters that are not of words, or anywhere in Chinese, Japanese, Thai.
    """
    max_bad_words: ByLanguage[Count] = 0
    """Times that bad words occur in the text that is left."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.terminal_punctuation and not self.end_marks:
            raise ValueError(
                "end_marks: without a mark no line is kept; terminal_punctuation: false keeps all"
            )
        if self.bad_words is not None and not any(_lists(self.bad_words)):
            raise ValueError(f"bad_words: no such file: {self.bad_words}")
        return self

    def depends(self) -> dict[str, str]:
        """The definitions of the text view."""
        return versions(self.words)

    def files(self) -> dict[str, Path]:
        """The lists of bad words."""
        return {p.name: p for p in _lists(self.bad_words)} if self.bad_words is not None else {}

    def needs_language(self) -> list[str]:
        """Thresholds by language, and lists of bad words by language."""
        own = ["bad_words"] if self.bad_words is not None and "{language}" in self.bad_words else []
        return super().needs_language() + own

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
        bad_words = self._bad_words(text, docs)
        return Edited(text, {**counts, "sentences": sentences, "bad_words": bad_words})

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

    def _bad_words(self, text: pa.LargeStringArray, docs: Documents) -> pa.Array:
        if self.bad_words is None:
            return pa.nulls(len(docs), pa.int64())
        languages = docs["language"] if "language" in docs else pa.nulls(len(docs), pa.string())
        found: list[int | None] = []
        for page, language in zip(text.to_pylist(), languages.to_pylist(), strict=True):
            pattern = _pattern(self.bad_words, language)
            found.append(pattern and sum(1 for _ in pattern.finditer(page.lower())))
        return pa.array(found, pa.int64())


def _lists(path: str) -> Iterator[Path]:
    """The files that a path with `{language}` may mean, in order."""
    return map(Path, sorted(glob(escape(path).replace("{language}", "*"))))


@lru_cache(maxsize=256)
def _pattern(path: str, language: str | None) -> re.Pattern[str] | None:
    """What finds bad words in a language; None where there is no list of its own.

    A list of `zh` is also that of `zh-Hans`.
    """
    base = (language or "").split("-")[0]
    names = [path.replace("{language}", tag) for tag in (language, base) if tag]
    names = names if "{language}" in path else [path]
    file = next((Path(name) for name in names if Path(name).is_file()), None)
    if file is None:
        return None
    entries = set(map(str.strip, file.read_text(encoding="utf-8").lower().splitlines()))
    words = sorted(entries - ALLOWED.get(base, set()) - {""}, key=lambda word: (-len(word), word))
    if not words:
        return None
    either = "|".join(map(re.escape, words))
    return re.compile(either if base in SPACELESS else rf"(?<!\w)(?:{either})(?!\w)")
