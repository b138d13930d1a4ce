"""The filter toxicity: its words, its sentences, and what it does with the sample crawl's pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from curation.document import Documents
from curation.engine.chain import as_column
from curation.filters import bad_words
from curation.filters.toxicity import Toxicity
from curation.sample.fates import GROUPS, KEPT
from curation.sample.pages import load_pages

PROSE = "The mill stands by the river, and it has an old wheel that nobody has ever mended."


def documents(*texts: str, language: str | None = "en") -> Documents:
    return Documents(
        {
            "text": pa.array(texts, pa.large_string()),
            "language": pa.array([language] * len(texts), pa.string()),
        }
    )


def signals(text: str, language: str | None = "en", **parameters: Any) -> dict[str, Any]:
    found = Toxicity(**parameters).score(documents(text, language=language))
    return {name: as_column(values)[0].as_py() for name, values in found.items()}


def dropped(docs: Documents, stage: Toxicity) -> list[str | None]:
    """The first rule that drops each document."""
    found: list[str | None] = [None] * len(docs)
    columns = {name: as_column(values) for name, values in stage.score(docs).items()}
    for rule in stage.rules:
        threshold = rule.threshold(stage, docs["language"])
        for d in np.flatnonzero(rule.violated(columns[rule.signal], threshold)):
            found[d] = found[d] or rule.name
    return found


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "en").write_text("# a comment\nDarn\nholy cow\n\n", encoding="utf-8")
    (folder / "zh").write_text("坏\n性\n", encoding="utf-8")
    (folder / "README.md").write_text("darn", encoding="utf-8")
    return folder


def test_hits_different_entries_and_their_share_of_the_words(lists: Path) -> None:
    found = signals("Darn it, darn it! Holy cow, it is 9.", words=str(lists))
    assert (found["words"], found["distinct"]) == (3, 2)
    assert found["word_share"] == pytest.approx(3 / 9)


def test_a_text_without_words_has_no_share(lists: Path) -> None:
    assert signals("--", words=str(lists))["word_share"] is None
    assert signals("--", words=str(lists))["words"] == 0


def test_documents_of_languages_without_a_list_are_not_scored(lists: Path) -> None:
    for language in ("de", None):
        found = signals("Darn that.", language, words=str(lists))
        assert {found[name] for name in ("words", "word_share", "distinct")} == {None}
    assert (
        signals("很坏的人, 性", "zh-Hans", words=str(lists))["words"] == 1
    )  # mC4 allows the other


def test_a_directory_has_the_lists_that_are_named_by_languages(lists: Path) -> None:
    assert set(bad_words.files(str(lists))) == {"en", "zh"}
    assert set(bad_words.files(str(lists / "en"))) == {"en"}
    assert set(Toxicity().files()) == {"en"}


def test_lists_are_found_by_name(lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_MODELS", str(lists.parent))
    assert signals("Darn that.", words="lists")["words"] == 1


def test_pages_go_by_their_share_of_bad_words_and_no_single_word_is_enough() -> None:
    page = f"{PROSE} " * 3
    stage = Toxicity()
    assert dropped(documents(page, f"You idiot. {page}", f"You stupid idiot. {page}"), stage) == [
        None,
        None,
        "high_word_share",
    ]


def test_thresholds_may_be_by_language(lists: Path) -> None:
    stage = Toxicity(words=str(lists), max_words={"en": 1, "zh": 0}, max_word_share=None)
    assert dropped(documents("darn", "darn darn"), stage) == [None, "many_bad_words"]
    assert dropped(documents("坏", language="zh"), stage) == ["many_bad_words"]


def test_the_pages_of_the_sample_crawl_meet_their_fates() -> None:
    pages = list(load_pages().values())
    found = dropped(documents(*("\n\n".join(page.blocks) for page in pages)), Toxicity())
    gone = {page.fate for page, rule in zip(pages, found, strict=True) if rule}
    kept = {page.fate for page, rule in zip(pages, found, strict=True) if not rule}
    assert gone == {"drop:toxicity"}
    assert kept >= {*KEPT} & {page.fate for page in pages} and not kept & gone
    assert not gone & {*KEPT, *GROUPS}


def test_the_list_of_the_package_is_in_order_and_has_each_entry_once() -> None:
    entries = bad_words.entries(bad_words.files(bad_words.BUILT_IN)["en"])
    assert entries == sorted(set(entries))


def test_impossible_parameters_are_refused(tmp_path: Path) -> None:
    (tmp_path / "en").write_bytes(b"caf\xe9\n")
    with pytest.raises(ValidationError, match=r"words: .*en is not UTF-8"):
        Toxicity(words=str(tmp_path))
    with pytest.raises(ValidationError, match="words: without a list"):
        Toxicity(words=None)
    with pytest.raises(ValidationError, match="words: no such file"):
        Toxicity(words="no/such/{language}")
    with pytest.raises(ValidationError, match="max_word_share"):
        Toxicity(max_word_share=1.5)
    with pytest.raises(ValidationError, match="max_sentence_share: without models"):
        Toxicity(max_sentence_share=0.5)
    with pytest.raises(ValidationError, match="max_sentence_score: without models"):
        Toxicity(max_sentence_score=0.5)
