"""The filter `perplexity`: how well a language model predicts a document.

What may live here: `Perplexity` and its parameters; models are loaded, and perplexity is defined,
in `curation.models.kenlm`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from curation import models
from curation.document import Documents
from curation.filters.parameters import (
    MAPPING,
    SINGLE,
    ByLanguage,
    LanguageKey,
    Number,
    refuse_empty_range,
)
from curation.models import card, kenlm
from curation.stage import OTHER, Filter, Rule, Signals, for_language

#: The value of `cutoffs` that takes those of the model's card.
OF_MODEL: Literal["model"] = "model"

#: CCNet's names; `all` is what has no cut-offs.
Bucket = Literal["head", "middle", "tail", "all"]


def _form(value: Any) -> str:
    return MAPPING if isinstance(value, Mapping) else SINGLE


class Perplexity(Filter):
    """Drops documents that a language model finds unlikely, or too likely (arXiv 1911.00359).

    The model is KenLM's, with the tokenizer and normaliser of its card; models trained on Wikipedia
    give low numbers to text like it. Signals: `perplexity` (per piece, ends included; CCNet stores
    it rounded to one digit), `pieces` (the tokenizer's, without ends), and those that the rules
    look at: `judged`, the perplexity again, and `bucket`: `head`, `middle` or `tail` by `cutoffs`.
    All are null for a document without text and for one in a language that has no model, but for
    the bucket, which is `all` then, and where the model has no cut-offs, as CCNet has it: always
    kept. A demonstration model judges nothing but the sample crawl: for other documents `judged`
    and `bucket` are null (`card.may_judge`).

    A perplexity says as much about length and subject as about quality: CCNet keeps all buckets and
    names them; RedPajama v2 keeps head and middle. No number is right for every model: `max` and
    `min` are off.
    """

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("high_perplexity", signal="judged", above="max"),
        Rule("low_perplexity", signal="judged", below="min"),
        Rule("bucket", signal="bucket", not_in="keep"),
    )

    model: Annotated[
        Annotated[str, Tag(SINGLE)] | Annotated[dict[LanguageKey, str], Tag(MAPPING)],
        Discriminator(_form),
    ]
    """Name or path of a model for documents in its card's language (for all, where that has none);
    or a mapping from languages (BCP-47, or other) to models."""
    max: ByLanguage[Number] = None
    """Perplexity."""
    min: ByLanguage[Number] = None
    """Perplexity. What is said over and over has a low one."""
    cutoffs: Annotated[
        Annotated[Literal["model"], Tag(SINGLE)]
        | Annotated[dict[LanguageKey, kenlm.Cutoffs], Tag(MAPPING)],
        Discriminator(_form),
    ] = OF_MODEL
    """Perplexities below which head and middle lie, by language; or model: those of its card
    (CCNet: the 30th and 60th percentile of Common Crawl, 2.3)."""
    keep: Annotated[tuple[Bucket, ...] | None, Field(strict=False)] = None
    """Buckets kept, and `all` with them; None keeps every one."""

    @field_validator("model", mode="after")
    @classmethod
    def _some_model(cls, model: str | dict[str, str]) -> str | dict[str, str]:
        if not model:
            raise ValueError("a name or path, or a mapping from languages to them")
        return model

    @field_validator("keep", mode="after")
    @classmethod
    def _what_has_no_bucket_stays(cls, keep: tuple[Bucket, ...] | None) -> Any:
        if keep is not None and not keep:
            raise ValueError("an empty list drops every document; null keeps all buckets")
        return keep if keep is None or "all" in keep else (*keep, "all")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        refuse_empty_range(self, "min", "max")
        for limits in self.cutoffs.values() if isinstance(self.cutoffs, dict) else ():
            if limits.head > limits.middle:
                raise ValueError(f"cutoffs: head ({limits.head}) is above middle ({limits.middle})")
        for name in self.names:
            try:
                said, settings = kenlm.read(models.find(name))
            except models.ModelNotFound:
                continue  # said by whoever needs the model
            for key in self._keys(name):
                if said.language and said.language.partition("-")[0] != key.partition("-")[0]:
                    raise ValueError(f"model: {name} is a model of {said.language}, not of {key}")
            if self.keep and self.cutoffs == OF_MODEL and not settings.buckets:
                raise ValueError(f"keep: the card of {name} has no cut-offs; set cutoffs")
        return self

    @property
    def names(self) -> list[str]:
        """The models, each once."""
        return sorted({self.model} if isinstance(self.model, str) else set(self.model.values()))

    def _keys(self, name: str) -> list[str]:
        """The languages that the recipe gives to a model by name."""
        if isinstance(self.model, str):
            return []
        return [key for key, other in self.model.items() if other == name and key != OTHER]

    def _by_language(self) -> dict[str, str]:
        """Languages and their models. Raises ModelNotFound."""
        if not isinstance(self.model, str):
            return self.model
        return {kenlm.read(models.find(self.model))[0].language or OTHER: self.model}

    def depends(self) -> dict[str, str]:
        """Versions of KenLM, of SentencePiece and of Unicode's tables."""
        return {
            "kenlm": kenlm.version(),
            "sentencepiece": metadata.version("sentencepiece"),
            "unicode": unicodedata.unidata_version,
        }

    def files(self) -> dict[str, Path]:
        """The models."""
        return {name: models.find(name) for name in self.names}

    def needs_language(self) -> list[str]:
        """The model, unless it is one for all languages; cut-offs by language."""
        try:
            every = {*self._by_language()} == {OTHER}
        except models.ModelNotFound:
            every = True  # said by whoever needs the model
        own = [] if every else ["model"]
        if isinstance(self.cutoffs, dict) and {*self.cutoffs} != {OTHER}:
            own.append("cutoffs")
        return own + super().needs_language()

    def memory(self) -> int:
        """Bytes of the models, each loaded once per process."""
        return sum(kenlm.memory(models.find(name)) for name in self.names)

    def score(self, docs: Documents) -> Signals:
        """`perplexity`, `judged` (float64), `pieces` (int64) and `bucket` of each document."""
        own = self._by_language()
        languages, texts = docs["language"].to_pylist(), docs.text.to_pylist()
        chosen = [for_language(own, language) for language in languages]
        scores: list[kenlm.Score] = [kenlm.Score()] * len(docs)
        cutoffs: list[kenlm.Cutoffs | None] = [None] * len(docs)
        may = np.ones(len(docs), bool)
        for name in self.names:
            model = kenlm.load(name)
            at = [i for i, other in enumerate(chosen) if other == name]
            may[at] = card.may_judge(model.card, docs["url"].take(pa.array(at, pa.int64())))
            for i, score in zip(at, model.score(texts[i] or "" for i in at), strict=True):
                scores[i] = score
                cutoffs[i] = self._cutoffs(model, languages[i])
        perplexity = pa.array([score.perplexity for score in scores], pa.float64())
        buckets = [_bucket(score, limits) for score, limits in zip(scores, cutoffs, strict=True)]
        return {
            "perplexity": perplexity,
            "pieces": pa.array([score.pieces for score in scores], pa.int64()),
            "judged": pc.if_else(pa.array(may), perplexity, None),
            "bucket": pa.array(buckets, pa.string(), mask=~may),
        }

    def _cutoffs(self, model: kenlm.LanguageModel, language: str | None) -> kenlm.Cutoffs | None:
        if isinstance(self.cutoffs, dict):
            found: kenlm.Cutoffs | None = for_language(self.cutoffs, language)
            return found
        return model.settings.buckets


def _bucket(score: kenlm.Score, cutoffs: kenlm.Cutoffs | None) -> Bucket:
    if score.perplexity is None or cutoffs is None:
        return "all"
    return cutoffs.bucket(score.perplexity)
