"""Insults, slurs, obscenities: documents dropped, and sentences removed, for being toxic.

What may live here: the filter `toxicity`, the editor `toxic_sentences`, and what they share: the
scores of sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, model_validator

from curation import models
from curation.document import Documents
from curation.filters import bad_words
from curation.filters.parameters import ByLanguage, Count, Share
from curation.models import classifier
from curation.stage import Edited, Editor, Filter, Rule, Signals
from curation.text import phrases
from curation.text.view import Spans, offsets_of, share, versions

#: The score from which on Dolma takes a sentence for toxic (Soldaini et al. 2024, arXiv 2402.00159:
#: the higher of its two thresholds; its classifiers are trained on Jigsaw's comments).
DOLMA = 0.40

#: Names or paths of classifiers.
Names = Annotated[tuple[str, ...], Field(strict=False)]


class Toxicity(Filter):
    """Drop documents of which much is toxic: insults, slurs, obscenities.

    Words are counted by a list (`curation.filters.bad_words`). C4 drops a page for one word of
    LDNOOBW (`words: words/ldnoobw`, `max_words: 0`); its editor `c4` has that as `bad_words` too.
    The default is a share of the page's words: with a short list of our own, at a threshold that no
    page of prose comes near and that no single word reaches on a page of 50 words, the fewest that
    Gopher keeps.

    Sentences, those of the text view, are scored by classifiers of kind `classifier` and
    granularity `sentence` (`curation models train-classifier`), as Dolma has it. Of several (hate,
    obscenity) the highest score counts. A classifier scores the documents of the language that its
    card names, and those whose language is not known. Dolma removes toxic sentences: that is the
    editor `toxic_sentences`. Here nothing is dropped for sentences unless a threshold is given:
    how far a classifier errs on prose is its own (docs/quality.md).
    """

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("many_bad_words", signal="words", above="max_words"),
        Rule("high_word_share", signal="word_share", above="max_word_share"),
        Rule("many_different_words", signal="distinct", above="max_distinct"),
        Rule("many_toxic_sentences", signal="sentence_share", above="max_sentence_share"),
        Rule("toxic_sentence", signal="max_score", above="max_sentence_score"),
    )
    types: ClassVar[dict[str, str]] = {
        "words": "int64",
        "word_share": "double",
        "distinct": "int64",
        "sentence_share": "double",
        "max_score": "double",
    }

    words: str | None = bad_words.BUILT_IN
    """`built-in` (English); the name or path of a list in the form of LDNOOBW, or of a directory
    with one for each language; or a path with `{language}`. None counts none."""
    max_words: ByLanguage[Count] = None
    """Times that entries occur (C4: 0)."""
    max_word_share: ByLanguage[Share] = 0.03
    """Times that entries occur, per word of the text view."""
    max_distinct: ByLanguage[Count] = None
    """Different entries that occur."""
    models: Names = ()
    """Classifiers of sentences."""
    threshold: Share = DOLMA
    """Score from which on a sentence is toxic."""
    max_sentence_share: ByLanguage[Share] = None
    """Share of the document's sentences that are toxic."""
    max_sentence_score: ByLanguage[Share] = None
    """The highest score of a sentence."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.words is not None:
            bad_words.check("words", self.words)
        elif not self.models:
            raise ValueError("words: without a list and without models nothing is scored")
        for name in ("max_sentence_share", "max_sentence_score"):
            if not self.models and getattr(self, name) is not None:
                raise ValueError(f"{name}: without models no sentence is scored")
        _refuse_others(self.models)
        return self

    def depends(self) -> dict[str, str]:
        """The definitions of the text view and of phrases, and fastText's version."""
        fasttext = _fasttext() if self.models else {}
        return versions() | (phrases.versions() if self.words is not None else {}) | fasttext

    def files(self) -> dict[str, Path]:
        """The lists and the classifiers."""
        lists = bad_words.files(self.words) if self.words is not None else {}
        return lists | {name: models.find(name) for name in self.models}

    def memory(self) -> int:
        """Bytes of the classifiers, loaded once per process."""
        return _memory(self.models)

    def needs_language(self) -> list[str]:
        """Thresholds by language, and lists of words by language."""
        own = self.words is not None and bad_words.by_language(self.words)
        return super().needs_language() + ["words"] * own

    def score(self, docs: Documents) -> Signals:
        """`words`, `distinct` (int64) and `word_share`, null without a list of the language;
        `sentence_share` and `max_score` (0 to 1), null where no classifier scores. The share of
        nothing is null."""
        found: dict[str, pa.Array] = {
            name: pa.nulls(len(docs), kind) for name, kind in self.types.items()
        }
        if self.words is not None:
            hits, distinct = bad_words.count(self.words, docs.view, docs)
            parts = share(hits.fill_null(0).to_numpy(), docs.view.word_counts())
            unknown = hits.is_null().to_numpy(zero_copy_only=False) | np.isnan(parts)
            found |= {"words": hits, "distinct": distinct}
            found["word_share"] = pa.array(parts, mask=unknown)
        if self.models:
            sentences, scores = _scores(self.models, docs)
            toxic, scored = _sums(sentences, scores >= self.threshold, ~np.isnan(scores))
            highest = _maxima(sentences, scores)
            found["sentence_share"] = pa.array(share(toxic, scored), mask=scored == 0)
            found["max_score"] = pa.array(highest, mask=scored == 0)
        return found


class ToxicSentences(Editor):
    """Remove toxic sentences, as Dolma does (Soldaini et al. 2024, arXiv 2402.00159).

    Sentences and their scores are those of the filter `toxicity`; those at or above `threshold` are
    removed, with the white space behind them, and a line of which nothing is left with its end. A
    document of which nothing is left is dropped as `empty`. Dolma has sentences by BlingFire and
    leaves the white space.
    """

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("many_removed", signal="removed_share", above="max_removed"),
    )
    types: ClassVar[dict[str, str]] = {"removed_share": "double"}

    models: Names
    """Classifiers of sentences."""
    threshold: Share = DOLMA
    """Score from which on a sentence is removed."""
    max_removed: ByLanguage[Share] = None
    """Share of the document's sentences that are removed."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.models:
            raise ValueError("models: without one no sentence is removed")
        _refuse_others(self.models)
        return self

    def depends(self) -> dict[str, str]:
        """The definitions of the text view, and fastText's version."""
        return versions() | _fasttext()

    def files(self) -> dict[str, Path]:
        """The classifiers."""
        return {name: models.find(name) for name in self.models}

    def memory(self) -> int:
        """Bytes of the classifiers, loaded once per process."""
        return _memory(self.models)

    def edit(self, docs: Documents) -> Edited:
        """The sentences that are left; int64: `sentences`, `removed_sentences`; float64:
        `removed_share`, null for a document that no classifier scores."""
        sentences, scores = _scores(self.models, docs)
        toxic = scores >= self.threshold
        removed, scored = _sums(sentences, toxic, ~np.isnan(scores))
        texts = docs.text.to_pylist()
        data = docs.view.data.tobytes()
        for d in np.flatnonzero(removed).tolist():
            own = slice(sentences.offsets[d], sentences.offsets[d + 1])
            inner = np.stack([sentences.starts[own], sentences.stops[own]], axis=1).ravel()
            edges = [docs.view.begins[d], *inner, docs.view.ends[d]]
            parts = [data[start:stop].decode() for start, stop in pairwise(edges)]
            texts[d] = without(parts, toxic[own].tolist())
        return Edited(
            pa.array(texts, pa.large_string()),
            {
                "sentences": np.diff(sentences.offsets),
                "removed_sentences": removed,
                "removed_share": pa.array(share(removed, scored), mask=scored == 0),
            },
        )


def without(parts: Sequence[str], removed: Sequence[bool]) -> str:
    """A text without some of its sentences.

    `parts`: what is before the first sentence, the first sentence, what is between it and the
    second, and so on; what is behind the last. `removed`: one per sentence.
    """
    first, *others = *parts[:-1], parts[-1] + "\n"  # so that every line has an end
    left = [first]  # white space at its end is all in the last piece
    for sentence, behind, gone in zip(others[::2], others[1::2], removed, strict=True):
        if not gone:
            left += [sentence, behind]
            continue
        rest = _BLANKS.sub("", behind, count=1)
        if rest.startswith("\n"):
            left.append(_BLANKS_AT_END.sub("", left.pop()))
            before = next(filter(None, reversed(left)), "\n")
            rest = rest[before.endswith("\n") :]
        if rest:
            left.append(rest)
    return "".join(left).removesuffix("\n")


#: White space within a line.
_BLANKS = re.compile(r"\A[^\S\n]+")
_BLANKS_AT_END = re.compile(r"(?<![^\S\n])[^\S\n]+\Z")


def _scores(names: Sequence[str], docs: Documents) -> tuple[Spans, NDArray[np.float64]]:
    """The sentences of a batch, and of each the highest score (0 to 1), NaN where there is none."""
    sentences, data = docs.view.sentences, docs.view.data.tobytes()
    scores = np.full(len(sentences.starts), np.nan)
    documents = np.repeat(np.arange(len(docs)), np.diff(sentences.offsets))
    for name in names:
        model = classifier.load(name)
        at = np.flatnonzero(_reads(model.card.language, docs)[documents])
        spans = zip(sentences.starts[at].tolist(), sentences.stops[at].tolist(), strict=True)
        own = model.probabilities(data[start:stop].decode() for start, stop in spans)
        scores[at] = np.fmax(scores[at], own)
    return sentences, scores


def _reads(language: str | None, docs: Documents) -> NDArray[np.bool_]:
    """Which documents are in the language of a classifier, for all that is known."""
    if language is None or "language" not in docs:
        return np.ones(len(docs), bool)
    own, tags = language.split("-")[0], docs["language"].to_pylist()
    return np.array([tag is None or tag.split("-")[0] == own for tag in tags], bool)


def _sums(sentences: Spans, *of: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
    """Per document: how many of its sentences are so."""
    for each in of:
        sums = offsets_of(each.astype(np.int64))
        yield np.asarray(np.diff(sums[sentences.offsets]))


def _maxima(sentences: Spans, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per document: the highest score of its sentences, 0 where there is none."""
    highest = np.zeros(len(sentences.offsets) - 1)
    documents = np.repeat(np.arange(len(highest)), np.diff(sentences.offsets))
    np.fmax.at(highest, documents, scores)
    return highest


def _refuse_others(names: Sequence[str]) -> None:
    """Raises ValueError for models that cannot be asked about sentences of any page.

    A model that is not there is refused later, by whoever needs it.
    """
    for name in names:
        try:
            said = classifier.load(name).card
        except models.ModelNotFound:
            continue
        if said.settings.get("granularity") != "sentence":
            raise ValueError(f"models: {name} is no classifier of sentences")
        if said.demonstration:
            raise ValueError(f"models: {name} is a demonstration: it may not judge real pages")


def _memory(names: Sequence[str]) -> int:
    return sum(models.size(models.find(name)) for name in names)


def _fasttext() -> dict[str, str]:
    return {"fasttext": metadata.version("fasttext-community")}
