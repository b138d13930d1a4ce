"""The filter `quality`: how much a document looks like what a classifier was trained to like.

What may live here: `Quality`. The classifiers themselves are `curation.models.classifier`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import ClassVar

import numpy as np

from curation import models
from curation.document import Documents
from curation.filters.parameters import ByLanguage, Share
from curation.models import card, classifier
from curation.stage import Filter, Rule, Signals


class Quality(Filter):
    """Drops documents that a fastText classifier holds to be of low quality (DCLM,
    arXiv 2406.11794, 4.4).

    The whole document is classified. Signals: `score` (probability of the positive label, 0 to 1),
    and `judged`, which is held against the threshold: the same, but null where a demonstration
    model may not judge (`card.may_judge`). Both are null for a document without text, and for one
    in another language than the model's card names; one whose language is not known is scored.

    Without `min_score` documents are scored and none is dropped. A number means something for one
    model only: its card has the score that keeps a wanted share of a crawl (`curation models
    train-classifier`). The exact share of the run at hand is kept by the stage `percentile` over
    `quality.judged`.
    """

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (Rule("low_score", signal="judged", below="min_score"),)
    types: ClassVar[Mapping[str, str]] = {"score": "double", "judged": "double"}

    model: str
    """A classifier's name or directory; or a fastText file (.bin, .ftz), which needs `positive`."""
    positive: str | None = None
    """Label whose probability is meant, as `__label__hq` of DCLM's file; None is the card's."""
    min_score: ByLanguage[Share] = None
    """Probability (DCLM's published top tenth: 0.018112 of its own model); None drops nothing."""

    def depends(self) -> dict[str, str]:
        """fastText's version."""
        return {"fasttext": metadata.version("fasttext-community")}

    def files(self) -> dict[str, Path]:
        """The model."""
        return {self.model: models.find(self.model)}

    def memory(self) -> int:
        """Bytes of the model, loaded once per process."""
        return models.size(models.find(self.model))

    def score(self, docs: Documents) -> Signals:
        """What the classifier says of each document, and where it may judge."""
        model = classifier.load(self.model, self.positive)
        texts = docs.text.to_pylist()
        if model.card.language is not None:
            own = model.card.language.partition("-")[0]
            for i, language in enumerate(docs["language"].to_pylist()):
                if language is not None and language.partition("-")[0] != own:
                    texts[i] = None
        found = model.probabilities(texts)
        judged = card.may_judge(model.card, docs["url"])
        return {"score": found, "judged": np.where(judged, found, np.nan)}
