"""Thresholds by language: which one is a document's, in decisions, samples and what-if."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kit import recipe, write_jsonl
from pydantic import ValidationError

from curation import run
from curation.engine import plan
from curation.engine.chain import near_threshold
from curation.engine.plan import Plan
from curation.engine.recipe import RecipeError, load
from curation.filters.gopher_quality import GopherQuality
from curation.filters.parameters import ByLanguage, Count
from curation.inspect.signals import batches, samples
from curation.inspect.whatif import simulate
from curation.stage import Filter, Rule, for_language

BY = {"de": 3, "zh-Hant": 2, "zh": None, "other": 5}


@pytest.mark.parametrize(
    ("language", "threshold"),
    [
        ("de", 3),
        ("de-CH", 3),
        ("zh-Hant", 2),
        ("zh-Hant-HK", 2),
        ("zh", None),
        ("zh-Hans", None),
        ("den", 5),
        ("fr", 5),
        (None, 5),
    ],
)
def test_a_language_falls_back_to_its_longest_named_beginning(
    language: str | None, threshold: int | None
) -> None:
    assert for_language(BY, language) == threshold
    assert for_language(7, language) == 7


def test_without_other_the_rule_is_off_for_languages_that_are_not_named() -> None:
    assert for_language({"de": 3}, "fr") is None
    assert for_language({"de": 3}, None) is None


class Least(Filter):
    version = 1
    rules = (Rule("too_few", signal="n", below="least"), Rule("too_many", signal="n", above="most"))
    least: ByLanguage[Count] = None
    most: ByLanguage[float] = None


LANGUAGES = pa.array(["de", "fr", None, "zh"])


def test_each_document_is_held_against_the_threshold_of_its_language() -> None:
    below, above = Least.rules
    stage = Least(least=BY, most={"fr": 3.5, "zh": 4})
    n = pa.array([3, 4, 5, 4])
    assert below.violated(n, below.threshold(stage, LANGUAGES)).tolist() == [0, 1, 0, 0]
    assert above.violated(n, above.threshold(stage, LANGUAGES)).tolist() == [0, 1, 0, 0]
    assert below.violated(pa.nulls(4, pa.int64()), below.threshold(stage, LANGUAGES)).sum() == 0


def test_integers_are_compared_exactly() -> None:
    below, _ = Least.rules
    least = 2**60 + 1
    threshold = below.threshold(Least(least={"de": least, "fr": None}), LANGUAGES)
    assert below.violated(pa.array([2**60] * 4), threshold).tolist() == [1, 0, 0, 0]
    assert below.violated(pa.array([least] * 4), threshold).sum() == 0


def test_near_is_near_the_threshold_of_the_language() -> None:
    below, _ = Least.rules
    threshold = below.threshold(Least(least={"de": 100, "fr": 10}), LANGUAGES)
    near = near_threshold(below, pa.array([95, 95, 95, 10]), threshold)
    assert near.tolist() == [True, False, False, False]


def test_all_languages_off_is_off() -> None:
    below, _ = Least.rules
    threshold = below.threshold(Least(least={"de": None}), LANGUAGES)
    assert not below.violated(pa.array([0] * 4), threshold).any()
    assert not near_threshold(below, pa.array([0] * 4), threshold).any()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"de": -1}, "greater than or equal to 0"),
        ({"de": "40"}, "valid integer"),
        ({"deu_Latn": 1}, "'deu_Latn' is neither a language"),
        ({"false": 1}, 'Norwegian is "no", in quotes'),
        ({"others": 1}, "'others' is neither a language"),
        ({"de": {"other": 1}}, "valid integer"),
        ([1], "valid integer"),
    ],
)
def test_impossible_thresholds_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GopherQuality.model_validate_json(json.dumps({"min_words": value}))


def test_an_empty_range_is_refused_in_the_language_that_has_it() -> None:
    GopherQuality(min_words={"de": 10, "other": 50}, max_words={"zh": 60, "other": 100})
    with pytest.raises(ValidationError, match=r"min_words .50. is above max_words .40. for zh"):
        GopherQuality(min_words={"de": 10, "other": 50}, max_words={"zh": 40, "other": 100})


def stages(raw: dict[str, Any], *settings: str) -> Any:
    return load(raw, ["x.jsonl"], settings).stages[0].stage


def test_a_setting_for_one_language_leaves_the_others_as_they_were() -> None:
    key = "gopher_quality.min_words"
    plain, given = recipe("gopher_quality"), recipe({"gopher_quality": {"min_words": 20}})
    assert stages(plain, f"{key}.de=40").min_words == {"other": 50, "de": 40}
    assert stages(given, f"{key}.de=40", f"{key}.zh-Hant=null").min_words == {
        "other": 20,
        "de": 40,
        "zh-Hant": None,
    }
    assert stages(given, f"{key}={{de: 1}}", f"{key}.fr=2").min_words == {"de": 1, "fr": 2}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "gopher_quality.min_words.de=many",
            r"stages\[0\].gopher_quality.min_words.de: input should be a valid integer",
        ),
        (
            "gopher_quality.min_words.german=1",
            r"stages\[0\].gopher_quality.min_words.german: 'german' is neither a language",
        ),
        (
            "gopher_quality.min_words=many",
            r"stages\[0\].gopher_quality.min_words: input should be a valid integer",
        ),
        ("gopher_quality.words.de=1", r"gopher_quality.words: "),
        ("gopher_quality.stop_words.de=1", r"gopher_quality.stop_words: "),
    ],
)
def test_errors_name_the_key_and_the_language(setting: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        stages(recipe("gopher_quality"), setting)


def test_thresholds_by_language_come_after_the_stage_that_finds_it() -> None:
    by = {"gopher_quality": {"min_words": {"de": 40, "other": 50}}}
    load(recipe(by), ["x.jsonl"])  # rows may bring their language along
    load(recipe("language", by), ["x.jsonl"])
    with pytest.raises(RecipeError, match=r"gopher_quality.min_words: .*before the stage language"):
        load(recipe(by, "language"), ["x.jsonl"])
    with pytest.raises(RecipeError, match=r"gopher_quality.min_words: .*no document has one"):
        load(recipe("extract", by, input={"kind": "warc"}), ["x.warc"])


ROWS = [("de", 3), ("de", 4), ("fr", 4), ("fr", 6), (None, 5), ("zh", 1)]


@pytest.fixture
def finished(tmp_path: Path) -> Plan:
    """A run over documents of so many words in these languages."""
    path = write_jsonl(tmp_path / "in.jsonl", ["word " * n for _, n in ROWS])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line, (language, _) in zip(lines, ROWS, strict=True):
        line["language"] = language
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    off = {rule.parameter: None for rule in GopherQuality.rules}
    judge = {"gopher_quality": {**off, "min_words": {"de": 4, "zh": None, "other": 5}}}
    run(recipe(judge), inputs=[path], output=tmp_path / "run")
    return plan.open_plan(tmp_path / "run")


def test_a_run_decides_by_language_and_its_samples_show_the_threshold(finished: Plan) -> None:
    [segment, *_] = finished.maps
    decisions = [d for table in batches(finished, segment) for d in table["decision"].to_pylist()]
    assert decisions == ["dropped", "kept", "dropped", "kept", "kept", "kept"]
    found = pa.concat_tables(samples(finished, segment)).to_pylist()
    dropped = {(s["value"], s["threshold"]) for s in found if s["kind"] == "dropped"}
    assert dropped == {("3", "4"), ("4", "5")}


def test_whatif_changes_the_threshold_of_one_language(finished: Plan) -> None:
    def kept(*settings: str) -> int:
        return int(simulate(finished, settings)["after"]["kept"]["documents"])

    assert kept("gopher_quality.min_words.de=4") == 4
    assert kept("gopher_quality.min_words.de=5") == 3
    assert kept("gopher_quality.min_words.other=4") == 5
    assert kept("gopher_quality.min_words.de=3", "gopher_quality.min_words.fr=4") == 6
    assert kept("gopher_quality.min_words=4") == 4
    assert kept("gopher_quality.max_words.fr=5") == 3
    with pytest.raises(RecipeError, match="'german' is neither a language"):
        kept("gopher_quality.min_words.german=4")


def test_thresholds_by_language_change_decisions_and_not_scores() -> None:
    def key(*settings: str) -> tuple[str, str]:
        return plan.stage_key(load(recipe("gopher_quality"), ["x.jsonl"], settings).stages[0])

    scores, decisions = key()
    assert key("gopher_quality.min_words.de=40")[0] == scores
    assert key("gopher_quality.min_words.de=40")[1] != decisions


def test_batches_with_no_document_of_a_language_are_decided_alike() -> None:
    below, _ = Least.rules
    stage = Least(least={"de": 3})
    empty = below.threshold(stage, pa.array([], pa.string()))
    assert below.violated(pa.array([], pa.int64()), empty).shape == (0,)
    unknown = below.threshold(stage, pa.nulls(2, pa.string()))
    np.testing.assert_array_equal(below.violated(pa.array([1, 2]), unknown), [False, False])
