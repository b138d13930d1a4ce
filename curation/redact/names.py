"""Names and places replaced, as Presidio finds them.

What may live here: the editor `names`, and the one door to Presidio, which is an extra
(`pip install presidio-analyzer`, and a model of spaCy).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import metadata
from typing import Annotated, Any, ClassVar, Self

import pyarrow as pa
from pydantic import Field, model_validator

from curation import models
from curation.document import Documents
from curation.filters.parameters import Share
from curation.redact.spans import Span, merge, replace
from curation.stage import Edited, Editor

#: Bytes for spaCy and its model: a process with en_core_web_sm grew by 170 MB; others are larger.
MEMORY = 400 << 20
PLACEHOLDER = re.compile(r"\|\|\|[A-Z_]+\|\|\|")


class Names(Editor):
    """Replace names of persons and places by placeholders such as `|||PERSON|||`.

    What Presidio's analyzer finds, by its rules and a model of spaCy, in English documents and in
    those whose language is not known; the others are not looked at. Street addresses are found as
    far as the model takes them for places. Expect errors both ways, and some documents a second.

    A made-up name cannot be told from another one, so there are no fakes; and the model reads an
    edited text afresh, so that a second run may find more. Placeholders themselves stay.
    """

    version: ClassVar[int] = 1
    types: ClassVar[dict[str, str]] = {"names": "int64"}

    entities: Annotated[tuple[str, ...], Field(strict=False)] = ("PERSON", "LOCATION")
    """Presidio's entities that are replaced."""
    model: str = "en_core_web_sm"
    """Installed package of spaCy's model for English."""
    min_score: Share = 0.5
    """Presidio's score of an entity; what spaCy finds has 0.85."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.entities:
            raise ValueError("entities: an empty list finds nothing; leave the stage out")
        return self

    def depends(self) -> dict[str, str]:
        """The versions of Presidio, spaCy and the model. Raises ModelNotFound."""
        try:
            found = {name: metadata.version(name) for name in ("presidio-analyzer", "spacy")}
        except metadata.PackageNotFoundError:
            raise models.ModelNotFound("needs Presidio: pip install presidio-analyzer") from None
        try:
            return found | {self.model: metadata.version(self.model)}
        except metadata.PackageNotFoundError:  # Presidio would fetch it by itself
            hint = f"python -m spacy download {self.model}"
            raise models.ModelNotFound(f"spaCy has no model {self.model}: {hint}") from None

    def memory(self) -> int:
        """Bytes of spaCy with a small model at work."""
        return MEMORY

    def edit(self, docs: Documents) -> Edited:
        """The texts; int64: `names` replaced, null for documents in other languages."""
        languages: Sequence[str | None] = (
            docs["language"].to_pylist() if "language" in docs else [None] * len(docs)
        )
        texts: list[str] = docs.text.to_pylist()
        counts: list[int | None] = [None] * len(docs)
        for index, language in enumerate(languages):
            if language is None or language.partition("-")[0] == "en":
                spans = self.find(texts[index])
                texts[index] = replace(texts[index], spans, lambda kind, _: f"|||{kind}|||")
                counts[index] = len(spans)
        return Edited(pa.array(texts, pa.large_string()), {"names": pa.array(counts, pa.int64())})

    def find(self, text: str) -> list[Span]:
        """What would be replaced in an English text, disjoint and in order; kinds are entities."""
        results = analyzer(self.model).analyze(
            text=text,
            entities=list(self.entities),
            language="en",
            score_threshold=self.min_score,
        )
        taken = [match.span() for match in PLACEHOLDER.finditer(text)]
        found = merge(Span(result.start, result.end, result.entity_type) for result in results)
        return [s for s in found if not any(s.start < b and a < s.stop for a, b in taken)]


@lru_cache(maxsize=1)
def analyzer(model: str) -> Any:
    """Presidio's analyzer with a model of spaCy; loaded once a process."""
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NlpEngineProvider

    configuration = {
        "nlp_engine_name": "spacy",
        "models": [{"lang_code": "en", "model_name": model}],
    }
    engine = NlpEngineProvider(nlp_configuration=configuration).create_engine()
    return AnalyzerEngine(nlp_engine=engine, supported_languages=["en"])
