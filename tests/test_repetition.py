"""Repetition: kernels against plain Python by every definition, and the definitions by example."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.document import Documents
from curation.filters.gopher_repetition import GopherRepetition
from curation.text import repetition
from curation.text.repetition import reference
from curation.text.view import Definition, TextView

DEFINITIONS = get_args(Definition)
patient = settings(deadline=None, max_examples=200)

pieces = st.sampled_from(
    [
        *("a", "b", "c", "A", "the mill", "of oak", "x.", "漢", "e\u0301", "🙂", "don't"),
        *(" ", " ", " ", "\n", "\n", "\n\n", "\n\n\n", "\r\n", "\t", " \n ", "\u00a0"),
    ]
)
repetitive = st.lists(pieces, max_size=60).map("".join)
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
batches = st.lists(repetitive | anything, max_size=5)


def view(*texts: str) -> TextView:
    return TextView(pa.array(texts, pa.large_string()))


def scores(text: str, words: Definition = "unicode") -> dict[str, float | None]:
    docs = Documents({"text": pa.array([text], pa.large_string())})
    signals = GopherRepetition(words=words).score(docs)
    return {name: None if math.isnan(v[0]) else float(v[0]) for name, v in signals.items()}


@patient
@given(batches, st.sampled_from(DEFINITIONS))
def test_shares_of_ngrams_are_those_of_the_reference(
    batch: list[str], definition: Definition
) -> None:
    found = repetition.ngram_shares(view(*batch), definition)
    for d, text in enumerate(batch):
        for n in range(2, 11):
            expected = reference.ngram_share(text, definition, n)
            assert found[n][d] == pytest.approx(
                math.nan if expected is None else expected, nan_ok=True
            )


@patient
@given(batches, st.sampled_from(DEFINITIONS))
def test_shares_of_lines_are_those_of_the_reference(
    batch: list[str], definition: Definition
) -> None:
    found = repetition.line_shares(view(*batch), definition)
    every = definition == "dolma"
    for d, text in enumerate(batch):
        lines = reference.lines(text, definition)
        repeated = list(reference.duplicates(lines, every))
        whole = {
            "unicode": sum(map(len, lines)),
            "datatrove": len(text),
            "dolma": len("".join(text.split())),
        }[definition]
        expected = {
            "dup_line_fraction": (len(repeated), len(lines)),
            "dup_line_chars": (sum(len(lines[i]) for i in repeated), whole),
        }
        if definition != "dolma":
            paragraphs = reference.paragraphs(text, definition)
            again = list(reference.duplicates(paragraphs, False))
            chars = sum(len("".join(paragraphs[i])) for i in again)
            expected["dup_paragraph_fraction"] = (len(again), len(paragraphs))
            expected["dup_paragraph_chars"] = (chars, whole)
        for name, (part, total) in expected.items():
            wanted = part / total if total else math.nan
            assert found[name][d] == pytest.approx(wanted, nan_ok=True), name


def test_blank_lines_are_no_duplicates() -> None:
    """As datatrove's issue 273 has it: prose with double newlines."""
    text = "\n \n\n".join(f"Sentence number {i} is not like the others." for i in range(10))
    found = scores(text)
    assert found["dup_line_fraction"] == found["dup_paragraph_fraction"] == 0
    assert found["dup_line_chars"] == found["dup_paragraph_chars"] == 0


def test_every_character_counts_once() -> None:
    assert scores("a a a a a")["top_2_gram"] == 1
    five = "one two three four five "
    assert scores(five * 2)["dup_5_gram"] == 1 / 2
    assert scores(five * 3)["dup_5_gram"] == 2 / 3  # though eleven n-grams overlap in it
    assert scores("alone in here")["top_2_gram"] == 0


def test_datatrove_counts_the_most_common_pair_of_a_short_text() -> None:
    assert scores("I am here", "datatrove")["top_2_gram"] == 4 / 9
    assert scores("I am I am", "datatrove")["top_2_gram"] == 8 / 9


def test_too_few_words_and_no_words_are_not_scored() -> None:
    few = scores("two words")
    assert few["top_2_gram"] == 0 and few["top_3_gram"] is None and few["dup_10_gram"] is None
    assert set(scores("").values()) == {None}
    assert set(scores(" \n\n ").values()) == {None}


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_one_word_again_and_again_takes_time_in_proportion(definition: Definition) -> None:
    found = repetition.ngram_shares(view("a " * 300_000), definition)
    assert all(found[n][0] > 0.4 for n in range(2, 11))


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_newlines_again_and_again_take_time_in_proportion(definition: Definition) -> None:
    found = repetition.line_shares(view("x" + "\n" * 1_000_000 + "y"), definition)
    assert (found["dup_line_fraction"] > 0.9) == (definition == "dolma")


def test_a_document_has_the_same_shares_in_any_batch() -> None:
    texts = ["a b c d e f " * 3, "", "x y\nx y\n", "one two " * 40]
    for definition in DEFINITIONS:
        together = repetition.ngram_shares(view(*texts), definition)
        for d, text in enumerate(texts):
            alone = repetition.ngram_shares(view(text), definition)
            for n in together:
                np.testing.assert_equal(together[n][d], alone[n][0])
