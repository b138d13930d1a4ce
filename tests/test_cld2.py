"""The second opinion on languages, and what the filter `language` makes of it."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pycld2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from curation import run
from curation.document import Documents
from curation.filters import cld2
from curation.filters.language import Language
from tests.kit import page, recipe, write_jsonl

ENGLISH = "The mill stands by the river, and its wheel has turned for three hundred years. "
CROATIAN = (
    "Stari mlin stoji na obali rijeke već tri stotine godina, a njegovo kolo još uvijek se okreće "
    "svake nedjelje kad dođu gosti. "
)
NORWEGIAN = "Den gamle møllen har stått ved elven i tre hundre år, og hjulet går fortsatt rundt. "
INDONESIAN = "Kincir tua itu sudah berdiri di tepi sungai selama tiga ratus tahun, dan berputar. "
CHINESE = "旧磨坊在河边已经三百年了,它的轮子每个星期天还在转动。"
HEBREW = "הטחנה הישנה עומדת על גדת הנהר כבר שלוש מאות שנה, והגלגל שלה עדיין מסתובב. "
SAMOAN = "O le fale tuai o loo tu i autafa o le vaitafe mo tausaga e tolu selau. "


def signals(*texts: str | None, **parameters: Any) -> dict[str, list[Any]]:
    stage = Language(second="cld2", **parameters)
    found = stage.score(Documents({"text": pa.array(texts, pa.large_string())}))
    return {name: values.to_pylist() for name, values in found.items()}


def test_no_character_is_refused() -> None:
    """CLD2 takes text for interchange only: control and noncharacters raise (pycld2#53)."""
    planes = [chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF)]
    for character in [*map(chr, (*range(0xA0), *range(0xFDD0, 0xFDF0))), *planes]:
        opinion = cld2.ask(f"{ENGLISH}{character}{ENGLISH}")
        assert opinion is not None and opinion.label == "en", ascii(character)


@given(st.text())
def test_any_text_has_an_opinion(text: str) -> None:
    opinion = cld2.ask(text)
    assert opinion is not None and all(0 <= share <= 1 for share in opinion.shares.values())


def test_what_is_refused_after_all_is_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise pycld2.error("input contains invalid UTF-8 around byte 1 (of 2)")

    monkeypatch.setattr(pycld2, "detect", refuse)
    found = signals(ENGLISH)
    assert found["label"] == ["en"]
    assert found["second_label"] == found["second_share"] == [None]


def test_text_is_not_taken_for_markup() -> None:
    opinion = cld2.ask(f"<{ENGLISH * 5}>")
    assert opinion is not None and opinion.label == "en"


@pytest.mark.parametrize(
    ("text", "label", "agreeing", "other"),
    [
        (ENGLISH, "en", ["en"], ["de", "sco"]),
        (CROATIAN, "hr", ["hr", "bs", "sr", "sh", "sr-Latn"], ["sl"]),
        (NORWEGIAN, "no", ["no", "nb", "nn"], ["da", "sv"]),
        (INDONESIAN, "id", ["id", "ms"], ["jv", "su"]),
        (CHINESE, "zh", ["zh", "zh-Hant", "yue", "wuu"], ["ja"]),
        (HEBREW, "he", ["he"], ["yi"]),
    ],
)
def test_languages_of_one_macrolanguage_agree(
    text: str, label: str, agreeing: list[str], other: list[str]
) -> None:
    opinion = cld2.ask(text)
    assert opinion is not None and opinion.label == label
    assert all((opinion.share(tag) or 0) > 0.9 for tag in agreeing)
    assert [opinion.share(tag) for tag in other] == [0.0] * len(other)


def test_of_a_language_that_it_does_not_know_it_says_nothing() -> None:
    opinion = cld2.ask(ENGLISH)
    assert opinion is not None
    assert [opinion.share(tag) for tag in ("ast", "sah", "und", "ku")] == [None] * 4


def test_codes_that_are_no_tags_are_not_passed_on() -> None:
    codes = {code for _, code in pycld2.LANGUAGES}
    assert {"iw", "jw", "un", "xxx", "xx-Goth"} <= codes | {"un"}
    tags = {cld2._tag(code) for code in codes}
    assert {"he", "jv", "und"} <= tags and not {"iw", "jw", "un", "xxx"} & tags
    assert not [tag for tag in tags if tag.startswith("xx")]


def test_pages_in_two_languages_have_shares() -> None:
    [share] = signals(f"{ENGLISH * 6}\n{CROATIAN * 4}")["second_share"]
    assert 0.4 < share < 0.8


def test_without_text_there_is_no_opinion() -> None:
    assert signals("", None, " \n")["second_share"] == [None] * 3


def test_the_rule_drops_what_the_second_does_not_find(tmp_path: Path) -> None:
    """Samoan, which lid.176 does not know, is French to it."""
    texts = [page(1), SAMOAN * 4, page(2), CHINESE]
    source = write_jsonl(tmp_path / "in.jsonl", texts)
    stage = {"language": {"min_score": None, "min_script_share": 0.5, "second": "cld2"}}
    path = run(recipe(stage), inputs=[source], output=tmp_path / "r", workers=1).path
    [language] = json.loads((path / "stats.json").read_text())["stages"]
    assert {reason: n["documents"] for reason, n in language["dropped"].items()} == {
        "second_opinion": 1,
        "wrong_script": 1,
    }


def test_a_threshold_without_a_second_opinion_is_refused() -> None:
    with pytest.raises(ValidationError, match="there is no second opinion; set second: cld2"):
        Language(min_second_share=0.8)
    assert Language(min_second_share=None).second is None


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(cld2.metadata, "version", missing)
    with pytest.raises(ValueError, match=r"pip install 'gristmill\[lid\]'"):
        cld2.version()
