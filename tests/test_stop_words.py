"""Stop words by language: each document is held against the list of its own language."""

from __future__ import annotations

import pyarrow as pa
import pytest
from kit import recipe
from pydantic import ValidationError

from curation.document import Documents
from curation.engine.plan import probe, stage_key
from curation.engine.recipe import load
from curation.filters.gopher_quality import STOP_WORDS, GopherQuality
from curation.filters.stop_words import of_language

ENGLISH = "The mill stands by the river and it has turned for years"
GERMAN = "Die Mühle steht am Fluss, und sie hat sich seit Jahren gedreht"


def counts(texts: list[str], languages: list[str | None], **parameters: object) -> list[int | None]:
    stage = GopherQuality(**{"stop_words": "stopwordsiso", **parameters})  # type: ignore[arg-type]
    docs = Documents(
        {
            "text": pa.array(texts, pa.large_string()),
            "language": pa.array(languages, pa.string()),
        }
    )
    return [
        None if v is None else int(v) for v in pa.array(stage.score(docs)["stop_words"]).to_pylist()
    ]


def test_a_document_is_held_against_the_list_of_its_language() -> None:
    together = counts([ENGLISH, GERMAN, ENGLISH, GERMAN], ["en", "de", "de", "en"])
    alone = [
        counts([text], [language])[0]
        for text, language in zip([ENGLISH, GERMAN] * 2, ["en", "de", "de", "en"], strict=True)
    ]
    assert together == alone
    assert all(n is not None and n >= 4 for n in together[:2])
    assert all(n is not None and n < 4 for n in together[2:])


def test_the_list_of_a_macrolanguage_serves_its_languages() -> None:
    assert of_language("nb") == of_language("nn") == of_language("no") != ()
    assert of_language("zh-Hant") == of_language("zh") != ()


def test_without_a_list_or_a_language_nothing_is_scored() -> None:
    assert counts([ENGLISH] * 3 + [""], ["xx", None, "th", "en"]) == [None, None, None, 0]


@pytest.mark.parametrize("words", ["unicode", "datatrove", "dolma"])
def test_by_every_definition_of_words(words: str) -> None:
    [found] = counts(["und und oder Fluss"], ["de"], words=words)
    assert found == 2
    [found] = counts(["und und oder Fluss"], ["de"], words=words, distinct_stop_words=False)
    assert found == 3


def test_entries_are_single_words() -> None:
    from curation.text import reference

    for language in ("en", "fr", "zh"):
        assert of_language(language)
        for entry in of_language(language):
            assert [word.text for word in reference.words(entry)] == [entry]


def test_the_key_depends_on_the_lists_only_where_they_are_used() -> None:
    assert "stopwordsiso" in GopherQuality(stop_words="stopwordsiso").depends()
    assert "stopwordsiso" not in GopherQuality().depends()


def test_a_recipe_may_name_the_collection() -> None:
    found = load(recipe({"gopher_quality": {"stop_words": "stopwordsiso"}}), ["x.jsonl"])
    assert found.stages[0].parameters()["stop_words"] == "stopwordsiso"
    assert probe(found)["gopher_quality.stop_words"] == "int64"
    own = load(recipe({"gopher_quality": {"stop_words": list(STOP_WORDS)}}), ["x.jsonl"])
    default = load(recipe("gopher_quality"), ["x.jsonl"])
    assert stage_key(own.stages[0]) == stage_key(default.stages[0]) != stage_key(found.stages[0])
    with pytest.raises(ValidationError, match="Input should be 'stopwordsiso'"):
        GopherQuality.model_validate_json('{"stop_words": "stopwords"}')
