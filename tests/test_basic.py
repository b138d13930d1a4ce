"""The basic rules: thresholds by example, runs of lines against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import page
from pydantic import ValidationError

from curation.document import Documents
from curation.filters.basic import Basic
from curation.stage import Signals
from curation.text import repetition
from curation.text.repetition import reference
from curation.text.view import TextView

OFF: dict[str, Any] = {rule.parameter: None for rule in Basic.rules}


def score(texts: list[str | None]) -> Signals:
    return Basic().score(Documents({"text": pa.array(texts, pa.large_string())}))


def reasons(text: str, **parameters: Any) -> list[str]:
    stage, signals = Basic(**parameters), score([text])
    languages = pa.array([None], pa.string())
    return [
        rule.name
        for rule in stage.rules
        if rule.violated(
            pa.array(signals[rule.signal], from_pandas=True), rule.threshold(stage, languages)
        )[0]
    ]


@pytest.mark.parametrize(
    ("parameters", "kept", "dropped", "reason"),
    [
        ({"min_chars": 3}, "é\u0301x", "éx", "too_short"),
        ({"max_symbols": 0.5}, "ab|!", "ab|!?", "many_symbols"),
        ({"max_symbols": 0.0}, "a1 é\u0301\u200d漢\n", "a-1", "many_symbols"),
        ({"max_symbol_word_ratio": 1.0}, "a b # \u2026", "a b # ...#", "many_symbols_per_word"),
        ({"max_symbol_word_ratio": 1.0}, "a #", "a # \u2026", "many_symbols_per_word"),
        ({"max_repeated_lines": 3}, "x\nx\nx\ny\nx", "y\nx\n x\n\nx \nx", "repeated_lines"),
        ({"min_words": 3}, "one two three", "one two", "too_few_words"),
        ({"max_words": 3}, "one two three", "one two three four", "too_many_words"),
    ],
)
def test_a_threshold_that_equals_the_signal_keeps(
    parameters: dict[str, Any], kept: str, dropped: str, reason: str
) -> None:
    assert reasons(kept, **{**OFF, **parameters}) == []
    assert reasons(dropped, **{**OFF, **parameters}) == [reason]


def test_prose_is_kept_and_a_menu_is_not() -> None:
    assert reasons(page(1)) == []
    assert reasons("Home | Login\n" * 4) == ["too_short", "repeated_lines", "too_few_words"]


def test_every_signal_is_there_for_every_document() -> None:
    signals = score(["", None, page(1), "#"])
    assert set(signals) == {rule.signal for rule in Basic.rules}
    assert signals["chars"].tolist()[:2] == signals["repeated_lines"].tolist()[:2] == [0, 0]
    for name in ("symbols", "symbol_word_ratio"):
        assert np.isnan(signals[name][:2]).all()
        assert signals[name].dtype == np.float64
    assert signals["symbols"][3] == 1


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(ValidationError, match="nothing would be kept"):
        Basic(min_words=20_000)
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        Basic(max_symbols=30)


lines = st.lists(st.sampled_from(["a", "b", " a ", "", "漢", "a b"]), max_size=30).map("\n".join)


@settings(deadline=None)
@given(st.lists(lines, max_size=5))
def test_runs_of_lines_are_those_of_the_reference(batch: list[str]) -> None:
    pieces, _ = repetition.lines_and_paragraphs(TextView(pa.array(batch, pa.large_string())))
    found = repetition.longest_runs(pieces)
    assert found.tolist() == [
        reference.longest_run(reference.lines(text, "unicode")) for text in batch
    ]
