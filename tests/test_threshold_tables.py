"""Tables of thresholds by language: what a recipe makes of them, and how wrong ones are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit import recipe

from curation.engine.recipe import Recipe, RecipeError, load
from curation.filters import thresholds
from curation.filters.gopher_quality import GopherQuality

TABLE = """
columns: [gopher_quality.min_words, gopher_quality.max_mean_word_length]
rows:
  de: [40, 15]
  zh: [null, default]
"""


def loaded(path: str, *stages: Any, settings: tuple[str, ...] = ()) -> Recipe:
    return load(recipe(*stages, thresholds=path), ["x.jsonl"], settings)


def quality(found: Recipe) -> GopherQuality:
    [stage] = [spec.stage for spec in found.stages if isinstance(spec.stage, GopherQuality)]
    return stage


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(TABLE)
    return str(path)


def test_a_table_fills_the_stages_and_leaves_no_trace_else(table: str) -> None:
    found = loaded(table, "language", "gopher_quality")
    assert quality(found).min_words == {"other": 50, "de": 40, "zh": None}
    assert quality(found).max_mean_word_length == {"other": 10, "de": 15}
    assert quality(found).max_words == GopherQuality().max_words
    resolved = found.resolved()
    assert "thresholds" not in resolved
    assert load(resolved).resolved() == resolved


def test_what_the_recipe_says_is_stronger(table: str) -> None:
    by = {"gopher_quality": {"min_words": 30, "max_mean_word_length": {"de": 14, "fr": None}}}
    found = loaded(table, "language", by)
    assert quality(found).min_words == 30
    assert quality(found).max_mean_word_length == {"other": 10, "de": 14, "fr": None}


def test_settings_may_name_the_table_and_change_what_it_gives(table: str) -> None:
    plain = recipe("language", "gopher_quality")
    settings = ["gopher_quality.min_words.de=41", f"thresholds={table}"]
    found = load(plain, ["x.jsonl"], settings)
    assert quality(found).min_words == {"other": 50, "de": 41, "zh": None}
    assert load(plain, ["x.jsonl"]).stages != found.stages


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("de: [40, 15]", "de: [40]", "mine.yaml: de: 1 values for 2 columns"),
        ("de: [40, 15]", "de: [40, x]", "mine.yaml: de: gopher_quality.max_mean_word_length: 'x'"),
        ("de: [40, 15]", "de: [-1, 15]", "mine.yaml: gopher_quality.min_words.de: .* equal to 0"),
        ("de: [40, 15]", "de: [1.5, 15]", "mine.yaml: gopher_quality.min_words.de: .*integer"),
        (
            "de: [40, 15]",
            "de: [40, 1]",
            "mine.yaml: gopher_quality: min_mean_word.* for de",
        ),
        ("de:", "german:", "mine.yaml: gopher_quality.min_words.german: 'german' is neither"),
        ("de:", "no:", 'mine.yaml: gopher_quality.min_words.false: .*Norwegian is "no"'),
        ("de:", "7:", "mine.yaml: 7 is no language"),
        (
            "min_words",
            "min_wrds",
            "min_wrds: no threshold; did you mean 'min_words'",
        ),
        ("gopher_quality.min_words", "min_words", "columns: 'min_words' is not STAGE.PARAMETER"),
        ("rows", "row", "mine.yaml: a mapping with the keys columns and rows is wanted"),
        ("rows:", "rows: [", "mine.yaml: while parsing"),
        ("gopher_quality", "gopher_qualty", "no stage is called 'gopher_qualty'; did you mean"),
    ],
)
def test_a_wrong_table_is_one_line_that_names_file_language_and_key(
    table: str, before: str, after: str, message: str
) -> None:
    Path(table).write_text(TABLE.replace(before, after, 1))
    with pytest.raises(RecipeError, match=message) as caught:
        loaded(table, "language", "gopher_quality")
    assert "\n" not in str(caught.value)


def test_a_missing_table_names_those_that_are_there() -> None:
    with pytest.raises(RecipeError, match=r"thresholds: fineweb3: .*tables here: fineweb2"):
        loaded("fineweb3", "language", "gopher_quality")
    with pytest.raises(RecipeError, match="thresholds: the name or path of a table is wanted"):
        loaded(3, "language")  # type: ignore[arg-type]


def test_a_table_without_a_stage_in_the_recipe_is_refused(table: str) -> None:
    with pytest.raises(RecipeError, match=r"mine.yaml is about gopher_quality; the rec"):
        loaded(table, "language")


def test_a_table_needs_documents_with_a_language(table: str) -> None:
    with pytest.raises(RecipeError, match="by language, and no document has one"):
        raw = recipe("extract", "gopher_quality", thresholds=table, input={"kind": "warc"})
        load(raw, ["x.warc"])


def test_fineweb2_has_the_published_numbers() -> None:
    """Of the projects' configurations for German and Chinese."""
    stages = thresholds.read("fineweb2").stages
    languages = {"ar", "de", "es", "fr", "hi", "ja", "ru", "sv", "th", "zh"}
    for parameters in stages.values():
        for rows in parameters.values():
            assert set(rows) == languages or languages - set(rows) == {"es", "ja"}
    assert stages["language"]["min_score"]["de"] == 0.821
    assert stages["gopher_repetition"]["max_dup_10_gram"]["zh"] == 0.127
    assert stages["gopher_repetition"]["max_top_4_gram"]["de"] == 0.137
    assert stages["fineweb"]["min_line_punctuation"]["zh"] == 0.106
    assert stages["gopher_quality"]["max_mean_word_length"]["de"] == 15
    assert stages["gopher_quality"]["min_alphabetic_words"]["zh"] == 0.735


def warnings(*stages: Any, **more: Any) -> tuple[str, ...]:
    return load(recipe(*stages, **more), ["x.jsonl"]).warnings


def test_english_stop_words_for_other_languages_are_said() -> None:
    many = {"language": {"keep": ["en", "de", "fr"]}}
    [warning] = warnings(many, "gopher_quality")
    assert warning == (
        "gopher_quality: English stop words, but `language` keeps de, fr: "
        "set stop_words: stopwordsiso, or min_stop_words: null"
    )
    [warning] = warnings("language", "gopher_quality")
    assert "keeps every language" in warning


@pytest.mark.parametrize(
    ("keep", "parameters"),
    [
        (["en"], {}),
        (["de"], {"stop_words": "stopwordsiso"}),
        (["de"], {"stop_words": ["der", "die"], "min_stop_words": 1}),
        (["de"], {"min_stop_words": None}),
        (["en", "de"], {"min_stop_words": {"en": 2}}),
    ],
)
def test_where_no_other_language_meets_english_rules_nothing_is_said(
    keep: list[str], parameters: dict[str, Any]
) -> None:
    assert warnings({"language": {"keep": keep}}, {"gopher_quality": parameters}) == ()


@pytest.mark.parametrize(
    ("stage", "what", "off"),
    [
        ("c4", "English cookie and legal notices", {"policy": False}),
        ("refinedweb_lines", "English counters", {"counters": False, "phrases": False}),
    ],
)
def test_english_lines_for_other_languages_are_said(
    stage: str, what: str, off: dict[str, bool]
) -> None:
    german = {"language": {"keep": ["de"]}}
    [warning] = warnings(german, stage)
    assert warning.startswith(f"{stage}: {what}")
    assert warnings(german, {stage: off}) == ()


def test_bad_words_by_language_need_documents_with_a_language(tmp_path: Path) -> None:
    (tmp_path / "de").write_text("wort\n")
    by = {"c4": {"bad_words": f"{tmp_path}/{{language}}"}}
    with pytest.raises(RecipeError, match=r"c4.bad_words: by language, and no"):
        load(recipe("extract", by, input={"kind": "warc"}), ["x.warc"])


def test_without_a_language_stage_nothing_is_said() -> None:
    assert warnings("gopher_quality") == ()


def test_cut_offs_of_another_language_model_are_said() -> None:
    quiet = {"gopher_quality": {"stop_words": "stopwordsiso"}}
    [warning] = warnings("language", quiet, thresholds="fineweb2")
    assert warning.startswith(
        "language.min_score: the thresholds fineweb2 are for scores of GlotLID"
    )
    assert warnings({"language": {"min_score": 0.5}}, quiet, thresholds="fineweb2") == ()


def test_stop_words_by_language_need_documents_with_a_language() -> None:
    by = {"gopher_quality": {"stop_words": "stopwordsiso"}}
    with pytest.raises(RecipeError, match=r"gopher_quality.stop_words: by language, and no"):
        load(recipe("extract", by, input={"kind": "warc"}), ["x.warc"])


def test_warnings_are_lines_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from curation import submit
    from curation.api import plan

    raw = recipe({"language": {"keep": ["de"]}}, "gopher_quality")
    (tmp_path / "in.jsonl").write_text("")
    plan(raw, inputs=[tmp_path / "in.jsonl"], output=tmp_path / "run")
    said = capsys.readouterr()
    assert said.err.startswith("curation: gopher_quality: English stop words")
    assert said.out == ""
    submit.prepare(raw, output=str(tmp_path / "run"), inputs=["x.jsonl"])  # type: ignore[arg-type]
    assert capsys.readouterr().err == said.err
