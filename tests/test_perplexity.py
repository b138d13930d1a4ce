"""The filter `perplexity`: which model judges which document, and what becomes of the number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from curation import models
from curation.document import Documents
from curation.engine.recipe import RecipeError, load
from curation.filters.perplexity import Perplexity
from curation.models import card

#: Every word but "good" is unknown: of n words the perplexity is 10 ** (mean of 1 each, or 3).
ARPA = """\\data\\
ngram 1=4
ngram 2=1

\\1-grams:
-3\t<unk>\t0
0\t<s>\t0
-1\t</s>\t0
-1\tgood\t0

\\2-grams:
-1\t<s> good

\\end\\
"""
GOOD, BAD = "good good good", "bad bad bad"
PERPLEXITY = {GOOD: 10.0, BAD: 10**2.5}


def make(path: Path, language: str | None = "en", **said: Any) -> str:
    settings = said.pop("settings", {})
    with card.new(path, kind="kenlm", language=language, **said) as (place, own):
        own.update({"model": "lm.arpa", "normaliser": "ccnet", "tokenizer": {"kind": "words"}})
        own.update(settings)
        (place / "lm.arpa").write_text(ARPA)
    return str(path)


def documents(*rows: tuple[str, str | None, str | None]) -> Documents:
    texts, languages, urls = zip(*rows, strict=True)
    return Documents(
        {
            "text": pa.array(texts, pa.large_string()),
            "language": pa.array(languages, pa.string()),
            "url": pa.array(urls, pa.string()),
        }
    )


def signals(stage: Perplexity, *rows: tuple[str, str | None, str | None]) -> dict[str, list[Any]]:
    return {name: pa.array(s).to_pylist() for name, s in stage.score(documents(*rows)).items()}


@pytest.fixture
def english(tmp_path: Path) -> str:
    return make(tmp_path / "en")


def test_documents_in_the_models_language_are_scored(english: str) -> None:
    found = signals(
        Perplexity(model=english),
        *[(GOOD, "en", None), (BAD, "en-GB", None), (GOOD, "de", None), (GOOD, None, None)],
        ("", "en", None),
    )
    assert found["perplexity"] == [pytest.approx(10), pytest.approx(10**2.5), None, None, None]
    assert found["pieces"] == [3, 3, None, None, None]
    assert found["judged"] == found["perplexity"]


def test_a_model_without_a_language_scores_all(tmp_path: Path) -> None:
    stage = Perplexity(model=make(tmp_path / "any", language=None))
    assert None not in signals(stage, (GOOD, "de", None), (GOOD, None, None))["perplexity"]
    assert stage.needs_language() == []


def test_each_language_has_its_model(tmp_path: Path, english: str) -> None:
    other = {"head": 11, "middle": 12}
    german = make(tmp_path / "de", language="de", settings={"cutoffs": other})
    stage = Perplexity(model={"en": english, "de": german})
    found = signals(stage, (GOOD, "de", None), (GOOD, "en", None), (BAD, "de-AT", None))
    assert found["bucket"] == ["head", "all", "tail"]
    assert sorted(stage.files()) == sorted([english, german])
    assert stage.needs_language() == ["model"]


def test_thresholds_may_be_by_language(english: str) -> None:
    stage = Perplexity(model=english, max={"en": 50.0})
    values = pa.array([10.0, 50.0, 51.0, None])
    rule = stage.rules[0]
    threshold = rule.threshold(stage, pa.array(["en"] * 4))
    assert rule.violated(values, threshold).tolist() == [False, False, True, False]


def test_buckets_by_the_cut_offs_of_the_recipe_or_of_the_card(tmp_path: Path, english: str) -> None:
    rows = ((GOOD, "en", None), (BAD, "en", None), (GOOD, "fr", None), ("", "en", None))
    assert signals(Perplexity(model=english), *rows)["bucket"] == ["all"] * 4
    own: Any = {"en": {"head": 10.1, "middle": 400}}
    stage = Perplexity(model=english, cutoffs=own)
    assert signals(stage, *rows)["bucket"] == ["head", "middle", "all", "all"]
    percentiles = [float(n) for n in range(100)]
    carded = make(tmp_path / "p", settings={"percentiles": percentiles})
    assert signals(Perplexity(model=carded), *rows)["bucket"] == ["head", "tail", "all", "all"]


def test_what_has_no_bucket_is_never_dropped(english: str) -> None:
    own: Any = {"en": {"head": 10.1, "middle": 400}}
    stage = Perplexity(model=english, cutoffs=own, keep=("head",))
    rule = stage.rules[2]
    buckets = pa.array(["head", "middle", "tail", "all", None])
    dropped = rule.violated(buckets, rule.threshold(stage, pa.array(["en"] * 5)))
    assert dropped.tolist() == [False, True, True, False, False]


def test_a_demonstration_annotates_other_hosts_and_judges_nothing(tmp_path: Path) -> None:
    limits = {"cutoffs": {"head": 1, "middle": 2}}
    stage = Perplexity(model=make(tmp_path / "m", demonstration=True, settings=limits))
    found = signals(
        stage, (BAD, "en", "https://real-site.com/"), (BAD, "en", "https://handbook.test/"),
        (BAD, "en", None), (BAD, "de", "https://real-site.com/"),
    )  # fmt: skip
    bad = pytest.approx(PERPLEXITY[BAD])
    assert found["perplexity"] == [bad, bad, bad, None]
    assert found["judged"] == [None, bad, None, None]
    assert found["bucket"] == [None, "tail", None, "all"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"min": 10.0, "max": 5.0}, r"min \(10.0\) is above max"),
        ({"keep": []}, "an empty list drops every document"),
        ({"keep": ["head"]}, "has no cut-offs"),
        ({"keep": ["best"]}, "keep"),
        ({"cutoffs": {"en": {"head": 5, "middle": 4}}}, "is above middle"),
        ({"cutoffs": {"head": 5, "middle": 4}}, "neither a language"),
        ({"model": {}}, "a name or path"),
        ({"model": {"english": "x"}}, "neither a language"),
    ],
)
def test_impossible_parameters_are_refused(
    english: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Perplexity(**{"model": english, **parameters})


def test_a_model_of_another_language_is_refused(english: str) -> None:
    with pytest.raises(ValidationError, match="is a model of en, not of de"):
        Perplexity(model={"de": english})
    Perplexity(model={"en-GB": english, "other": english})


def recipe(*stages: Any) -> dict[str, Any]:
    return {"kind": "documents", "name": "p", "input": {"kind": "warc"}, "stages": [*stages]}


def test_a_model_of_one_language_stands_behind_the_stage_that_finds_it(english: str) -> None:
    stage = {"perplexity": {"model": english}}
    with pytest.raises(RecipeError, match=r"^perplexity.model: by language, and no document"):
        load(recipe("extract", stage))
    load(recipe("extract", "language", stage))


def test_a_model_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "lm.arpa").write_text(ARPA)
    with pytest.raises(RecipeError, match="names its tokenizer and normaliser") as raised:
        load(recipe("extract", "language", {"perplexity": {"model": str(tmp_path / "lm.arpa")}}))
    assert "\n" not in str(raised.value)
    missing = Perplexity(model="kenlm/absent")
    with pytest.raises(models.ModelNotFound):
        missing.files()


def test_memory_is_that_of_the_models(english: str) -> None:
    assert Perplexity(model=english).memory() == len(ARPA)
