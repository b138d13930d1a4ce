"""The filter quality: what it scores, and what it may drop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_classifier import BAD, GOOD, SMALL

from curation import models, run
from curation.document import Documents
from curation.engine.recipe import RecipeError
from curation.filters.quality import Quality
from curation.models import card
from curation.models.classifier import KIND, NEGATIVE, POSITIVE, ClassifierError, fit

MILL, SHOES = "the wheel of the old mill turns", "buy cheap shoes now"


def make(target: Path, **said: Any) -> str:
    with card.new(target, kind=KIND, **said) as (place, settings):
        settings.update(fit(GOOD, BAD, place, SMALL))
    return str(target)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make(tmp_path_factory.mktemp("models") / "mine", language="en")


def documents(*texts: str, language: Any = "en", url: str | None = None) -> Documents:
    count = len(texts)
    return Documents(
        {
            "text": pa.array(texts, pa.large_string()),
            "language": pa.array([language] * count, pa.string()),
            "url": pa.array([url] * count, pa.string()),
        }
    )


def score(stage: Quality, docs: Documents, signal: str = "judged") -> list[float | None]:
    values = stage.score(docs)[signal].tolist()
    return [None if value != value else value for value in values]


def test_documents_like_the_positive_texts_score_high(model: str) -> None:
    good, bad, empty = score(Quality(model=model), documents(MILL, SHOES, " "))
    assert good is not None and bad is not None
    assert good > 0.9 > 0.1 > bad
    assert empty is None


def test_a_document_in_another_language_is_not_scored(model: str) -> None:
    stage = Quality(model=model)
    assert score(stage, documents(MILL, language="de")) == [None]
    assert score(stage, documents(MILL, language="en-GB")) == score(stage, documents(MILL))
    assert score(stage, documents(MILL, language=None)) == score(stage, documents(MILL))


def test_a_bare_fasttext_file_needs_its_label(model: str) -> None:
    stage = Quality(model=f"{model}/model.bin", positive=POSITIVE)
    assert score(stage, documents(MILL)) == score(Quality(model=model), documents(MILL))
    with pytest.raises(ClassifierError, match="no label 'None'"):
        score(Quality(model=f"{model}/model.bin"), documents(MILL))


def test_another_label_of_a_model_with_a_card_may_be_meant(model: str) -> None:
    [good] = score(Quality(model=model), documents(MILL))
    [bad] = score(Quality(model=model, positive=NEGATIVE), documents(MILL))
    assert good is not None and bad == pytest.approx(1 - good, abs=1e-4)
    with pytest.raises(ClassifierError, match="no label"):
        score(Quality(model=model, positive="__label__hq"), documents(MILL))


def test_a_demonstration_annotates_real_pages_and_judges_the_sample_crawl(tmp_path: Path) -> None:
    stage = Quality(model=make(tmp_path / "m", demonstration=True))
    real = documents(MILL, url="https://mill.org/wheel")
    sample = documents(MILL, url="https://handbook.test/wheel")
    assert score(stage, real) == [None]
    assert score(stage, real, "score") == score(stage, sample) == score(stage, sample, "score")


def test_a_run_drops_below_the_threshold_and_records_the_model(tmp_path: Path, model: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"text": "{MILL}"}}\n{{"text": "{SHOES}"}}\n')

    def recipe(**parameters: Any) -> dict[str, Any]:
        return {
            "kind": "documents",
            "name": "r",
            "input": {"kind": "jsonl"},
            "stages": [{"quality": {"model": model, **parameters}}],
        }

    made = run(
        recipe(min_score=0.5), inputs=[tmp_path / "a.jsonl"], output=tmp_path / "r", workers=1
    )
    [stage] = made.stats["stages"]
    assert stage["dropped"]["low_score"]["documents"] == 1
    assert models.digest(model) in (made.path / "run.json").read_text()
    made = run(recipe(), inputs=[tmp_path / "a.jsonl"], output=tmp_path / "s", workers=1)
    assert made.stats["output"]["documents"] == 2
    with pytest.raises(RecipeError, match="curation models train-classifier"):
        run(recipe(model="quality/none"), inputs=[tmp_path / "a.jsonl"], output=tmp_path / "t")


def test_the_longer_training_is_another_model(tmp_path: Path, model: str) -> None:
    with card.new(tmp_path / "m", kind=KIND) as (place, settings):
        settings.update(fit(GOOD, BAD, place, replace(SMALL, epochs=2)))
    other = score(Quality(model=str(tmp_path / "m")), documents(MILL))
    assert other != score(Quality(model=model), documents(MILL))
