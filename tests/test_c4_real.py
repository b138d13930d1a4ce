"""The editor c4 against other people's results: texts, decisions, counts of lines.

TensorFlow Datasets (the cases of C4's authors), datatrove 0.10.1 on 357 real documents, and Data
Prep Kit's port of datatrove on twelve pages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.document import Documents
from curation.engine.chain import as_column
from curation.filters.c4 import C4
from curation.filters.mc4 import MC4
from curation.stage import Rule
from curation.text.view import TextView

pytestmark = pytest.mark.real

DATATROVE_MARKS = ".?!\"'"

#: The numbers of TensorFlow Datasets: three sentences, five words a line.
TFDS = {"min_sentences": 3, "min_words_per_line": 5}
TFDS_REASONS = {
    "filtered-page-toofewsentences": "too_few_sentences",
    "filtered-page-squigglybracket": "curly_bracket",
    "filtered-page-loremipsum": "lorem_ipsum",
    "filtered-page-badword": "bad_words",
}
TFDS_LINES = {
    "lines-too-short": "too_few_words",
    "lines-no-endmark": "no_terminal_mark",
    "lines-javascript": "javascript_lines",
    "lines-policy": "policy_lines",
}

#: datatrove's names of lines that were removed, as Data Prep Kit has them too.
DATATROVE_LINES = {
    "line-filter-too_long_word": "too_long_word",
    "line-filter-no_terminal_punc": "no_terminal_mark",
    "line-filter-too_few_words": "too_few_words",
    "line-filter-javascript": "javascript_lines",
    "line-filter-policy": "policy_lines",
}


def documents(texts: list[str]) -> Documents:
    return Documents({"text": pa.array(texts, pa.large_string())})


def violations(stage: C4 | MC4, signals: dict[str, pa.Array], size: int) -> list[str | None]:
    """The first rule that drops each document."""
    found: list[str | None] = [None] * size
    rules: tuple[Rule, ...] = stage.rules
    for rule in rules:
        assert rule.parameter is not None
        violated = rule.violated(signals[rule.signal], getattr(stage, rule.parameter))
        found = [had or (rule.name if v else None) for had, v in zip(found, violated, strict=True)]
    return found


def edited(stage: C4, texts: list[str]) -> tuple[list[str], list[str | None], dict[str, pa.Array]]:
    """New texts, the rule that drops each, and signals."""
    result = stage.edit(documents(texts))
    signals = {name: as_column(values) for name, values in result.signals.items()}
    return result.text.to_pylist(), violations(stage, signals, len(texts)), signals


def tfds_cases(shared_data: Path) -> list[dict[str, Any]]:
    path = shared_data / "filters" / "c4-tfds-cases" / "clean_page.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_texts_and_decisions_are_those_of_the_cases_of_c4s_authors(
    shared_data: Path, tmp_path: Path
) -> None:
    cases = tfds_cases(shared_data)
    assert len(cases) == 9
    for case in cases:
        bad_words = None
        if "badwords" in case:
            bad_words = str(tmp_path / "words")
            Path(bad_words).write_text("\n".join(case["badwords"]), encoding="utf-8")
        stage = C4(**TFDS, bad_words=bad_words)
        [text], [reason], signals = edited(stage, [case["text"]])
        counters = case["counters"]
        dropped = [TFDS_REASONS[name] for name in counters if name in TFDS_REASONS]
        assert [reason] == (dropped or [None]), case["test"]
        if case["expected_text"] is not None:
            assert text == case["expected_text"], case["test"]
            for theirs, ours in TFDS_LINES.items():
                assert signals[ours][0].as_py() == counters.get(theirs, 0), case["test"]


@pytest.mark.parametrize("words", ["datatrove", "unicode"])
@pytest.mark.parametrize("terminal", [True, False])
def test_texts_and_decisions_are_those_of_datatrove(
    golden: list[dict[str, Any]], words: Any, terminal: bool
) -> None:
    stage = C4(words=words, end_marks=DATATROVE_MARKS, terminal_punctuation=terminal)
    texts, reasons, _ = edited(stage, [row["text"] for row in golden])
    column = "c4_quality" if terminal else "c4_quality_keep_nopunct"
    expected = [row["datatrove"][column] for row in golden]
    assert [reason or "keep" for reason in reasons] == expected
    if terminal:
        kept = {
            i: row["datatrove"]["c4_quality_text"]
            for i, row in enumerate(golden)
            if reasons[i] is None
        }
        assert {i: texts[i] for i in kept} == kept


def test_pages_with_three_long_lines_are_those_of_datatrove(golden: list[dict[str, Any]]) -> None:
    stage = MC4()
    signals = stage.score(documents([row["text"] for row in golden]))
    columns = {name: as_column(values) for name, values in signals.items()}
    found = violations(stage, columns, len(golden))
    expected = [row["datatrove"]["c4_paragraph"] for row in golden]
    assert ["< 3 paragraphs" if reason else "keep" for reason in found] == expected


def test_sentences_of_the_two_definitions_are_about_as_many(golden: list[dict[str, Any]]) -> None:
    view = TextView(pa.array([row["text"] for row in golden], pa.large_string()))
    ours, theirs = view.sentence_counts(), view.sentence_counts("datatrove")
    assert abs(ours.sum() / theirs.sum() - 1) < 0.05
    assert (np.abs(ours - theirs) <= 0.1 * theirs).mean() > 0.9


@pytest.mark.parametrize("words", ["datatrove", "unicode"])
def test_pages_and_lines_are_those_of_data_prep_kit(shared_data: Path, words: Any) -> None:
    """It looks for long paragraphs too, on the page as it came, after all other rules."""
    path = shared_data / "filters" / "dpk-c4_annotator" / "expected" / "test1.parquet"
    rows = pq.read_table(path).to_pylist()
    pages = [row["text"] for row in rows]
    texts, reasons, signals = edited(C4(words=words, end_marks=DATATROVE_MARKS), pages)
    third = MC4().score(documents(pages))["third_longest_line"]
    for d, row in enumerate(rows):
        reason = reasons[d]
        if reason is None and third[d] < 200:
            few = pages[d].count("\n") < 2
            reason = "too_few_paragraphs" if few else "too_short_paragraphs"
        assert (f"drop_{reason}" if reason else "") == row["drop_reason"]
        if not reason:
            assert texts[d] == row["clean_contents"]
        if reason not in ("lorem_ipsum", "curly_bracket"):  # where it stops at the first
            counted = json.loads(row["doc_stats"])
            for theirs, ours in DATATROVE_LINES.items():
                assert signals[ours][d].as_py() == counted.get(theirs, 0)
