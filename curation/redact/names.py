"""Names and places, as Presidio's models find them.

What may live here: the one door to Presidio, an extra (`pip install presidio-analyzer`, and a model
of spaCy).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from curation.redact.spans import Span


class PresidioNotFound(RuntimeError):
    """Presidio or its model is not installed; the message is one line and says what to do."""


def names(text: str, entities: Sequence[str], model: str, min_score: float) -> list[Span]:
    """What Presidio's analyzer finds of these entities in an English text: kinds are theirs.

    Of each, only what it scores at least `min_score`. Raises PresidioNotFound.
    """
    results = analyzer(model).analyze(
        text=text, entities=list(entities), language="en", score_threshold=min_score
    )
    return [Span(result.start, result.end, result.entity_type) for result in results]


@lru_cache(maxsize=1)
def analyzer(model: str) -> Any:
    """Presidio's analyzer with a model of spaCy; loaded once a process."""
    try:
        from presidio_analyzer import AnalyzerEngine
        from presidio_analyzer.nlp_engine import NlpEngineProvider
        from spacy.util import is_package
    except ImportError:
        raise PresidioNotFound("names need Presidio: pip install presidio-analyzer") from None
    if not is_package(model):  # Presidio would fetch it by itself
        raise PresidioNotFound(f"spaCy has no model {model}: python -m spacy download {model}")
    engine = NlpEngineProvider(
        {"nlp_engine_name": "spacy", "models": [{"lang_code": "en", "model_name": model}]}
    ).create_engine()
    return AnalyzerEngine(nlp_engine=engine, supported_languages=["en"])
