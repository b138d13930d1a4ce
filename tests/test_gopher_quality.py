"""Gopher's quality rules: thresholds, published cases, and independence of batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import DATATROVE_QUALITY
from pydantic import ValidationError

from curation.document import Documents
from curation.filters.gopher_quality import STOP_WORDS, GopherQuality
from curation.stage import Signals

OFF: dict[str, Any] = {
    rule.parameter: None for rule in GopherQuality.rules if rule.parameter is not None
}


def score(texts: list[str | None], stage: GopherQuality | None = None) -> Signals:
    return (stage or GopherQuality()).score(Documents({"text": pa.array(texts, pa.large_string())}))


def reasons(text: str, stage: GopherQuality) -> list[str]:
    """The rules that would drop the text, in order."""
    signals = score([text], stage)
    return [
        rule.name
        for rule in stage.rules
        if rule.violated(
            pa.array(signals[rule.signal], from_pandas=True), getattr(stage, rule.parameter or "")
        )[0]
    ]


def decision(text: str, stage: GopherQuality) -> str:
    return (reasons(text, stage) or ["keep"])[0]


PROSE = "The cat sat with the dog and slept. "


@pytest.mark.parametrize(
    ("parameters", "kept", "dropped", "reason"),
    [
        ({"min_words": 3}, "one two three", "one two", "too_few_words"),
        ({"max_words": 3}, "one two three", "one two three four", "too_many_words"),
        ({"min_mean_word_length": 3}, "ab abcd", "ab abc", "short_words"),
        ({"max_mean_word_length": 3}, "ab abcd", "ab abcde", "long_words"),
        ({"max_hash_ratio": 0.5}, "one two #", "one two ##", "many_hashes"),
        ({"max_ellipsis_ratio": 0.5}, "one two...", "one... two\u2026", "many_ellipses"),
        ({"max_ellipsis_ratio": 0.5}, "one two.....", "one two......", "many_ellipses"),
        ({"max_bullet_lines": 0.5}, "- a\n\n b", " - a\n\n\u2022 b", "many_bullets"),
        ({"max_ellipsis_lines": 0.5}, "a... \nb", "a...\r\nb\u2026", "many_ellipsis_lines"),
        ({"min_alphabetic_words": 0.5}, "a |", "a | 12", "few_alphabetic"),
        ({"min_stop_words": 2}, "The cat and THE dog", "the the THE", "few_stop_words"),
    ],
)
def test_a_threshold_that_equals_the_signal_keeps(
    parameters: dict[str, float], kept: str, dropped: str, reason: str
) -> None:
    stage = GopherQuality(**{**OFF, **parameters})
    assert reasons(kept, stage) == []
    assert reasons(dropped, stage) == [reason]


def test_prose_is_kept() -> None:
    assert decision(PROSE * 10, GopherQuality()) == "keep"


def test_rules_come_in_the_order_of_the_paper() -> None:
    assert [rule.name for rule in GopherQuality.rules] == [
        "too_few_words",
        "too_many_words",
        "short_words",
        "long_words",
        "many_hashes",
        "many_ellipses",
        "many_bullets",
        "many_ellipsis_lines",
        "few_alphabetic",
        "few_stop_words",
    ]


def test_shares_of_nothing_are_null_and_violate_nothing() -> None:
    signals = score(["", " \n", "| #\n...", None])
    assert signals["words"].tolist() == signals["stop_words"].tolist() == [0] * 4
    for name in ("mean_word_length", "hash_ratio", "ellipsis_ratio"):
        assert np.isnan(signals[name]).all()
    for name in ("bullet_lines", "ellipsis_lines", "alphabetic_words"):
        assert np.isnan(signals[name]).tolist() == [True, True, False, True]
    assert reasons("", GopherQuality(min_words=None, min_stop_words=None)) == []


def test_types_of_signals() -> None:
    signals = score([PROSE])
    assert set(signals) == {rule.signal for rule in GopherQuality.rules}
    integers = {name for name, values in signals.items() if values.dtype == np.int64}
    assert integers == {"words", "stop_words"}
    assert all(
        values.dtype == np.float64 for name, values in signals.items() if name not in integers
    )


def test_no_stop_words_switch_the_rule_off() -> None:
    stage = GopherQuality(**{**OFF, "min_stop_words": 2}, stop_words=[])
    assert reasons("chat chien", stage) == []
    stage = GopherQuality(**{**OFF, "min_stop_words": 2}, stop_words=["le", "ÊTRE", "où"])
    assert reasons("Être ou ne pas être, le chat", stage) == []
    assert reasons("être être", stage) == ["few_stop_words"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"min_words": -1}, "greater than or equal to 0"),
        ({"min_words": 2**63}, "less than 9223372036854775808"),
        ({"min_words": {"en": 2**63}}, "less than 9223372036854775808"),
        ({"max_hash_ratio": -0.1}, "greater than or equal to 0"),
        ({"max_hash_ratio": float("nan")}, "finite"),
        ({"min_alphabetic_words": 80}, "less than or equal to 1"),
        ({"min_words": "50"}, "valid integer"),
        ({"min_words": True}, "valid integer"),
        ({"min_words": 10, "max_words": 9}, "min_words .10. is above max_words .9."),
        ({"min_mean_word_length": 11}, "is above max_mean_word_length"),
        ({"min_stop_words": 9}, "more than the 8 different"),
        ({"stop_words": ["the", "THE", "of"], "min_stop_words": 3}, "more than the 2 different"),
        ({"stop_words": ["of the"]}, "'of the' is not a single word"),
        ({"stop_words": [""]}, "'' is not a single word"),
        ({"min_word": 10}, "not permitted"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GopherQuality(**parameters)


def test_whole_numbers_are_numbers() -> None:
    assert GopherQuality(min_mean_word_length=4, max_bullet_lines=1).max_bullet_lines == 1.0


def test_the_key_depends_on_the_character_table() -> None:
    assert GopherQuality().depends()["characters"].startswith("unicode ")


pieces = st.sampled_from(
    ["the ", "of", " And ", "word ", "#", "...", "\u2026", "\n", "\n- ", "| ", "42 ", "漢", "é"]
)
texts = st.lists(st.lists(pieces, max_size=30).map("".join) | st.none(), min_size=1, max_size=8)


@settings(deadline=None)
@given(texts, st.integers(0, 8), st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_batch(batch: list[str | None], cut: int, random: Any) -> None:
    """A batch scores as its documents do alone, in any order, and as a slice of a larger batch."""
    alone = [score([text]) for text in batch]
    order = random.sample(range(len(batch)), len(batch))
    together, shuffled = score(batch), score([batch[i] for i in order])
    sliced = GopherQuality().score(
        Documents({"text": pa.array(batch, pa.large_string()).slice(min(cut, len(batch)))})
    )
    for name, values in together.items():
        np.testing.assert_array_equal(values, np.concatenate([one[name] for one in alone]))
        np.testing.assert_array_equal(values[order], shuffled[name])
        np.testing.assert_array_equal(values[cut:], sliced[name])


# Published cases. Other implementations name their reasons differently.
DATATROVE = {"keep": "keep", **DATATROVE_QUALITY}


@pytest.mark.real
def test_datatroves_own_cases(shared_data: Path) -> None:
    """All seven of datatrove's test cases: the same decision for the same reason."""
    path = shared_data / "filters/datatrove-cases/cases.jsonl"
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    cases = [case for case in cases if case["filter"].startswith("GopherQualityFilter(")]
    assert len(cases) == 7
    stage = GopherQuality(min_words=10, max_words=1000)
    for case in cases:
        assert decision(case["text"], stage) == DATATROVE[case["expected"]], case["text"]


@pytest.mark.real
def test_dolmas_own_cases(shared_data: Path) -> None:
    """Dolma's cases, where its statistics mean the same as ours."""
    path = shared_data / "filters/dolma-gopher-cases/cases.jsonl"
    for case in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        signals, expected = score([case["text"]]), case["expected"]
        for ours, theirs in {
            "alphabetic_words": "fraction_of_words_with_alpha_character",
            "bullet_lines": "fraction_of_lines_starting_with_bullet_point",
            "ellipsis_lines": "fraction_of_lines_ending_with_ellipsis",
        }.items():
            assert signals[ours][0] == pytest.approx(expected[theirs], abs=1e-9)
        # Dolma's words are tokens; these cases have no symbols apart.
        assert signals["words"][0] == expected["word_count"]
        symbols = signals["hash_ratio"][0] + signals["ellipsis_ratio"][0]
        assert symbols == expected["symbol_to_word_ratio"]


@pytest.mark.real
def test_shares_of_alphabetic_words_are_dolmas(golden: list[dict[str, Any]]) -> None:
    """Exact on 357 real documents (the file gives six digits)."""
    values = score([document["text"] for document in golden])["alphabetic_words"]
    for document, value in zip(golden, values, strict=True):
        expected = document["dolma_gopher"]["fraction_of_words_with_alpha_character"]
        assert value == pytest.approx(expected, abs=1e-6)


@pytest.mark.real
def test_decisions_are_datatroves_but_for_the_alphabetic_words(
    golden: list[dict[str, Any]],
) -> None:
    """Keep or drop, with the rule off whose words include punctuation marks there.

    Two of the 207 documents that pass that rule differ: in one, a line of three ends with an
    ellipsis (datatrove counts the two blank lines as well); in one, datatrove finds 48 words.
    """
    stage = GopherQuality(min_alphabetic_words=None)
    judged = {
        document["id"]: (document["datatrove"]["gopher_quality"], decision(document["text"], stage))
        for document in golden
        if document["datatrove"]["gopher_quality"] != "gopher_below_alpha_threshold"
    }
    different = {
        name: pair for name, pair in judged.items() if (pair[0] == "keep") != (pair[1] == "keep")
    }
    assert len(judged) == 207
    assert different == {
        "aeb-body/042bb7b5feda": ("keep", "many_ellipsis_lines"),
        "aut-archiveit/example.warc.gz#28": ("gopher_short_doc", "keep"),
    }


def test_the_stop_words_are_those_of_the_paper() -> None:
    assert GopherQuality().stop_words == STOP_WORDS
    assert score([" ".join(STOP_WORDS)])["stop_words"].tolist() == [8]
