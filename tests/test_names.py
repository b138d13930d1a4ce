"""The editor names: what it does with Presidio's findings, and without Presidio."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from kit import recipe, write_jsonl

from curation.document import Documents
from curation.engine.recipe import RecipeError
from curation.redact import names
from curation.redact.names import Names

TEXT = "Maria Voss of Berlin wrote to |||EMAIL_ADDRESS||| and Maria."


@dataclass
class Result:
    """The documented fields of `presidio_analyzer.RecognizerResult`."""

    entity_type: str
    start: int
    end: int
    score: float = 0.85


class Analyzer:
    """Finds given strings, as `presidio_analyzer.AnalyzerEngine.analyze` would."""

    known: ClassVar[dict[str, str]] = {
        "Maria Voss": "PERSON",
        "Voss": "PERSON",
        "Berlin": "LOCATION",
        "EMAIL": "PERSON",
    }

    def analyze(
        self, text: str, language: str, entities: list[str], score_threshold: float
    ) -> list[Result]:
        assert language == "en"
        places = {name: text.find(name) for name in self.known}
        found = [Result(self.known[n], at, at + len(n)) for n, at in places.items() if at >= 0]
        return [r for r in found if r.entity_type in entities and r.score >= score_threshold]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "analyzer", lambda model: Analyzer())


def edit(texts: list[str], languages: list[str | None], **parameters: Any) -> tuple[Any, Any]:
    docs = Documents(
        {"text": pa.array(texts, pa.large_string()), "language": pa.array(languages, pa.string())}
    )
    edited = Names(**parameters).edit(docs)
    counts = edited.signals["names"]
    assert isinstance(counts, pa.Array)
    return edited.text.to_pylist(), counts.to_pylist()


@pytest.mark.usefixtures("stub")
def test_names_become_placeholders_and_placeholders_stay() -> None:
    wanted = "|||PERSON||| of |||LOCATION||| wrote to |||EMAIL_ADDRESS||| and Maria."
    assert edit([TEXT, "mill"], ["en", None]) == ([wanted, "mill"], [2, 0])
    only = "|||PERSON||| of Berlin wrote to |||EMAIL_ADDRESS||| and Maria."
    assert edit([TEXT], ["en-GB"], entities=("PERSON",)) == ([only], [1])
    assert edit([TEXT], ["en"], min_score=0.9) == ([TEXT], [0])


@pytest.mark.usefixtures("stub")
def test_documents_in_other_languages_are_not_looked_at() -> None:
    assert edit([TEXT], ["de"]) == ([TEXT], [None])


def test_without_presidio_or_its_model_one_line_says_what_to_install(tmp_path: Path) -> None:
    from curation import run

    path = write_jsonl(tmp_path / "a.jsonl", ["x"])
    wanted = "pip install presidio-analyzer|python -m spacy download no_such_model"
    with pytest.raises(RecipeError, match=wanted) as said:
        stage = {"names": {"model": "no_such_model"}}
        run(recipe(stage), inputs=[path], output=tmp_path / "r")
    assert "\n" not in str(said.value)


def test_entities_are_named() -> None:
    with pytest.raises(ValueError, match="leave the stage out"):
        Names(entities=())


def test_presidio_finds_names() -> None:
    if not all(map(importlib.util.find_spec, ("presidio_analyzer", "en_core_web_sm"))):
        pytest.skip("needs presidio-analyzer and spaCy's en_core_web_sm")
    texts, counts = edit(["Barack Obama wrote from Berlin.", "The mill turns."], ["en", "en"])
    assert texts == ["|||PERSON||| wrote from |||LOCATION|||.", "The mill turns."]
    assert counts == [2, 0]
