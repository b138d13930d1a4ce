"""Heuristics against other people's numbers: decisions, reasons and values that they published.

The datatrove and Dolma values were made by datatrove 0.10.1 and dolma 1.2.1 on real documents; they
are rounded to six digits. Cases are those of the projects' own tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kit import DATATROVE_QUALITY

from curation.document import Documents
from curation.engine.chain import as_column
from curation.filters.fineweb import FineWeb
from curation.filters.gopher_quality import GopherQuality
from curation.filters.gopher_repetition import GopherRepetition
from curation.stage import Filter

pytestmark = pytest.mark.real

#: datatrove's names of what we call ...
REASONS = {
    "dup_para_frac": "dup_paragraphs",
    "dup_para_char_frac": "dup_paragraph_chars",
    "dup_line_frac": "dup_lines",
    "dup_line_char_frac": "dup_line_chars",
    **{f"duplicated_{n}_n_grams": f"dup_{n}_grams" for n in range(5, 11)},
    **DATATROVE_QUALITY,
    "line_punct_ratio": "few_punctuated_lines",
    "short_line_ratio": "many_short_lines",
    "char_dup_ratio": "dup_line_chars",
    "list_ratio": "many_newlines",
    "keep": None,
}


def documents(texts: list[str]) -> Documents:
    return Documents({"text": pa.array(texts, pa.large_string())})


def decisions(stage: Filter, texts: list[str]) -> list[str | None]:
    """The first rule that drops each text."""
    signals = {name: as_column(values) for name, values in stage.score(documents(texts)).items()}
    found: list[str | None] = [None] * len(texts)
    for rule in stage.rules:
        violated = rule.violated(signals[rule.signal], getattr(stage, rule.parameter or ""))
        for i in np.flatnonzero(violated):
            found[i] = found[i] or rule.name
    return found


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("gopher_repetition", GopherRepetition(words="datatrove")),
        ("gopher_quality", GopherQuality(words="datatrove")),
        ("fineweb_quality", FineWeb(words="datatrove", max_dup_line_chars=0.01)),
    ],
)
def test_every_decision_is_datatroves_with_the_same_reason(
    golden: list[dict[str, Any]], name: str, stage: Filter
) -> None:
    reasons = [row["datatrove"][name] for row in golden]
    expected = [REASONS.get(reason, reason) for reason in reasons]
    assert decisions(stage, [row["text"] for row in golden]) == expected


DOLMA_QUALITY = {
    "word_count": "words",
    "median_word_length": "mean_word_length",
    "symbol_to_word_ratio": "hash_ratio",
    "fraction_of_words_with_alpha_character": "alphabetic_words",
    "required_word_count": "stop_words",
    "fraction_of_lines_starting_with_bullet_point": "bullet_lines",
    "fraction_of_lines_ending_with_ellipsis": "ellipsis_lines",
}
DOLMA_REPETITION = {
    **{f"fraction_of_characters_in_most_common_{n}grams": f"top_{n}_gram" for n in (2, 3, 4)},
    **{f"fraction_of_characters_in_duplicate_{n}grams": f"dup_{n}_gram" for n in range(5, 11)},
    "fraction_of_duplicate_lines": "dup_line_fraction",
    "fraction_of_characters_in_duplicate_lines": "dup_line_chars",
}


def hold_against_dolma(texts: list[str], expected: list[dict[str, float]], within: float) -> None:
    quality = GopherQuality(words="dolma", distinct_stop_words=False).score(documents(texts))
    repetition = GopherRepetition(words="dolma").score(documents(texts))
    compared = 0
    for names, signals in ((DOLMA_QUALITY, quality), (DOLMA_REPETITION, repetition)):
        for theirs, ours in names.items():
            for values, found in zip(expected, np.asarray(signals[ours], float), strict=True):
                if theirs in values:
                    assert found == pytest.approx(values[theirs], abs=within, rel=0), theirs
                    compared += 1
    assert compared > 9 * len(texts)


def test_values_are_dolmas(golden: list[dict[str, Any]]) -> None:
    texts = [row["text"] for row in golden]
    hold_against_dolma(texts, [row["dolma_gopher"] for row in golden], within=5.01e-7)


def test_values_are_those_of_dolmas_own_cases(shared_data: Path) -> None:
    path = shared_data / "filters" / "dolma-gopher-cases" / "cases.jsonl"
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    hold_against_dolma([c["text"] for c in cases], [c["expected"] for c in cases], within=1e-9)


#: The stage that a call in datatrove's tests stands for; C4's cases have a test of their own.
DATATROVE = {
    "GopherRepetitionFilter()": GopherRepetition(words="datatrove"),
    "GopherQualityFilter(min_doc_words=10, max_doc_words=1000)": GopherQuality(
        words="datatrove", min_words=10, max_words=1000
    ),
    "FineWebQualityFilter()": FineWeb(words="datatrove", max_dup_line_chars=0.01),
    "FineWebQualityFilter(line_punct_thr=0.5)": FineWeb(
        words="datatrove", max_dup_line_chars=0.01, min_line_punctuation=0.5
    ),
    "FineWebQualityFilter(short_line_thr=0.5, short_line_length=30, line_punct_thr=0.0)": FineWeb(
        words="datatrove", max_dup_line_chars=0.01, min_line_punctuation=0.0, max_short_lines=0.5
    ),
}


def test_datatroves_own_cases(shared_data: Path) -> None:
    path = shared_data / "filters" / "datatrove-cases" / "cases.jsonl"
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    cases = [case for case in cases if not case["filter"].startswith("C4")]
    assert len(cases) == 18
    for case in cases:
        if case["expected"] == "empty":
            continue  # an empty document is the engine's to drop
        expected = REASONS.get(case["expected"], case["expected"])
        assert decisions(DATATROVE[case["filter"]], [case["text"]]) == [expected], case["text"]


#: Every threshold of the three stages, switched off.
OFF: dict[str, Any] = {
    rule.parameter: None
    for stage in (GopherQuality, GopherRepetition, FineWeb)
    for rule in stage.rules
    if rule.parameter
}


def only(kind: type[Filter], **parameters: Any) -> Filter:
    """A stage with all rules off but these."""
    off = {name: None for name in OFF if name in kind.model_fields}
    return kind(**{**off, **parameters})


#: NeMo Curator's filters that one of our rules can stand for. The others have no rule of the same
#: definition here: numbers, addresses, white space, code, n-grams by Curator's own count, and words
#: by jieba and MeCab.
CURATOR = {
    "MeanWordLengthFilter()": only(
        GopherQuality, min_mean_word_length=3.0, max_mean_word_length=10.0
    ),
    "RepeatedLinesFilter()": only(GopherRepetition, max_dup_line_fraction=0.3),
    "RepeatedParagraphsFilter()": only(GopherRepetition, max_dup_paragraph_fraction=0.3),
    "RepeatedLinesByCharFilter()": only(GopherRepetition, max_dup_line_chars=0.2),
    "EllipsisFilter(max_num_lines_ending_with_ellipsis_ratio=0.8)": only(
        GopherQuality, max_ellipsis_lines=0.8
    ),
    "CommonEnglishWordsFilter()": only(GopherQuality, min_stop_words=2, distinct_stop_words=False),
    "PunctuationFilter(max_num_sentences_without_endmark_ratio=0.8)": only(
        FineWeb, min_line_punctuation=0.2
    ),
}


def test_curators_own_cases(shared_data: Path) -> None:
    path = shared_data / "filters" / "curator-cases" / "cases.jsonl"
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    held = 0
    for case in cases:
        if case["filter"] not in CURATOR:
            continue
        stage = CURATOR[case["filter"]]
        found = decisions(stage, case["input"])
        kept = [text for text, reason in zip(case["input"], found, strict=True) if reason is None]
        assert kept == case["kept"], case["filter"]
        held += 1
    assert held == len(CURATOR)
