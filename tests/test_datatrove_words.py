"""datatrove's words: the kernel against its plain reference, cases by hand, and real documents.

The golden values come from datatrove 0.10.1 and spaCy 3.8.18 themselves.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.text.characters import MARKED
from curation.text.datatrove import (
    ENDS_SENTENCE,
    PUNCT_ONLY,
    SYMBOLS_ONLY,
    reference,
    special_cases,
)
from curation.text.reference import bytes_hash
from curation.text.view import TextView

patient = settings(deadline=None, max_examples=300)

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
cases = st.sampled_from(sorted(special_cases()))
marks = st.sampled_from(
    [
        *"()[]{}<>.,:;!?'\"`#$%&*+-/=@\\^_|~§—–…’“”«»。、¿·",
        "..",
        "...",
        "--",
        "---",
        "——",
        "'s",
        "’S",
    ]
)
stuff = st.sampled_from(
    [
        *(
            "a",
            "Z",
            "é",
            "9",
            "ß",
            "word",
            "Word",
            "USA",
            "5km",
            "12%",
            "3km²",
            "°C.",
            "US$",
            "C$5",
        ),
        *(
            "10",
            "2.5",
            "…",
            "☺",
            "example.com",
            "http://a.bc/d?e",
            "x@y.org",
            "a.b.",
            "漢字",
            "ไทย",
        ),
        *("العربية", "🙂", "e\u0301", " ", "  ", "\n", "\u00a0", "\t", "\u200b", "\U00020000"),
    ]
)
mixed = st.lists(stuff | marks | cases, max_size=12).map("".join)


def words_of(text: str) -> list[str]:
    found = TextView(pa.array([text], pa.large_string())).words_of("datatrove")
    data = text.encode()
    return [data[a:b].decode() for a, b in zip(found.starts, found.stops, strict=True)]


def test_the_scheme_of_an_address_may_hold_what_python_takes_for_a_word() -> None:
    """spaCy's pattern says `\\w`, which is more than letters and digits."""
    for text in ("0²://0.aa/A", "½½://x.org/a", "a_b://x.org/a", "文٣://x.org/a"):
        assert words_of(text) == [text] == list(reference.words(text))


@patient
@given(st.lists(anything | mixed, max_size=6))
def test_words_are_those_of_the_reference(batch: list[str]) -> None:
    view = TextView(pa.array(batch, pa.large_string()))
    found = view.words_of("datatrove")
    expected = [list(reference.words(text)) for text in batch]
    assert np.diff(found.offsets).tolist() == [len(words) for words in expected]
    flat = [word for words in expected for word in words]
    data = bytes(view.data)
    spans = zip(found.starts, found.stops, strict=True)
    assert [data[a:b].decode() for a, b in spans] == flat
    assert found.lengths.tolist() == [len(word) for word in flat]
    assert found.hashes.tolist() == [bytes_hash(word.encode()) for word in flat]
    assert found.flags.tolist() == [reference.flags(word) for word in flat]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop!", ["Do", "n't", "stop", "!"]),
        ("It costs $5.00 (or 5km).", ["It", "costs", "$", "5.00", "(", "or", "5", "km", ")", "."]),
        (
            "e.g. Mr. Smith's well-known U.S. trip",
            ["e.g.", "Mr.", "Smith", "'s", "well", "-", "known", "U.S.", "trip"],
        ),
        ("see http://www.example.com/a,b.", ["see", "http://www.example.com/a,b", "."]),
        ("Wait...what?! end.Start", ["Wait", "...", "what", "?", "!", "end", ".", "Start"]),
        ("one\u00a0two\n\n three", ["one", "two", "three"]),
        ("nice :-) text:)", ["nice", ":-)", "text", ":)"]),
        ("", []),
    ],
)
def test_punctuation_marks_are_words(text: str, expected: list[str]) -> None:
    assert words_of(text) == expected


def test_flags_say_what_a_word_is_made_of() -> None:
    found = TextView(pa.array(["Go on ! - 7 ¬"], pa.large_string())).words_of("datatrove")
    assert found.flags.tolist() == [
        1,
        1,
        SYMBOLS_ONLY | PUNCT_ONLY | ENDS_SENTENCE,
        SYMBOLS_ONLY | PUNCT_ONLY,
        0,
        0,
    ]


@pytest.mark.parametrize("text", ["(" * 100_000, "a@" * 50_000, "." * 100_000, "a-" * 50_000 + "b"])
def test_a_long_run_takes_time_in_proportion(text: str) -> None:
    words = words_of(text)  # a quadratic rule would reach the suite's time limit
    assert "".join(words) == text


line_marks = st.sampled_from(
    [
        *"\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029",
        "\r\n",
        "\n\n",
        ".",
        "...",
        ". .",
        "\u2026",
        "-",
        "\u2022",
    ]
)
ends = st.lists(line_marks | stuff, max_size=20).map("".join)


@patient
@given(st.lists(ends | anything, max_size=6))
def test_lines_are_those_of_the_reference(batch: list[str]) -> None:
    found = TextView(pa.array(batch, pa.large_string())).line_totals_of("datatrove")
    rows = zip(found.lines.tolist(), found.bullets.tolist(), found.ellipses.tolist(), strict=True)
    assert list(rows) == [reference.line_forms(text) for text in batch]


@patient
@given(st.lists(ends | mixed, max_size=6))
def test_sentences_are_those_of_the_reference(batch: list[str]) -> None:
    found = TextView(pa.array(batch, pa.large_string())).sentence_counts("datatrove")
    assert found.tolist() == [reference.sentences(text) for text in batch]


@patient
@given(st.lists(ends | anything, max_size=6), st.integers(0, 5), st.booleans())
def test_ends_of_lines_are_those_of_the_reference(
    batch: list[str], short: int, trimmed: bool
) -> None:
    found = TextView(pa.array(batch, pa.large_string())).line_ends(short, trimmed)
    columns = (found.lines, found.terminal, found.short, found.newlines)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert rows == [reference.line_ends(text, short, trimmed) for text in batch]


@patient
@given(st.lists(ends | anything, max_size=6))
def test_words_between_white_space_are_those_of_python(batch: list[str]) -> None:
    view = TextView(pa.array(batch, pa.large_string()))
    found, sums = view.words_of("dolma"), view.word_sums("dolma", without=MARKED)
    tokens = [text.split() for text in batch]
    flat = [token for some in tokens for token in some]
    data = bytes(view.data)
    spans = zip(found.starts, found.stops, strict=True)
    assert [data[a:b].decode() for a, b in spans] == flat
    assert found.hashes.tolist() == [bytes_hash(token.encode()) for token in flat]
    assert found.lengths.tolist() == [len(token) for token in flat]
    plain = [[t for t in some if "#" not in t and "\u2026" not in t] for some in tokens]
    assert sums.words.tolist() == [len(some) for some in plain]
    assert sums.code_points.tolist() == [len("".join(some)) for some in plain]
    assert sums.alphabetic.tolist() == [
        sum(any(map(str.isalpha, token)) for token in some) for some in tokens
    ]
    medians = view.median_word_lengths("dolma")
    for some, median in zip(tokens, medians, strict=True):
        wanted = statistics.median(map(len, some)) if some else np.nan
        np.testing.assert_equal(median, wanted)
    rows = view.line_totals_of("dolma")
    lines = [text.split("\n") for text in batch]
    assert rows.lines.tolist() == [len(some) for some in lines]
    assert rows.bullets.tolist() == [sum(s.startswith(("*", "-")) for s in some) for some in lines]
    assert rows.ellipses.tolist() == [sum(s.endswith("\u2026") for s in some) for some in lines]


@pytest.mark.real
def test_real_documents_have_as_many_words_as_datatrove_counts(
    golden: list[dict[str, Any]],
) -> None:
    view = TextView(pa.array([row["text"] for row in golden], pa.large_string()))
    found = view.words_of("datatrove")
    counts = np.diff(found.offsets)
    assert counts.tolist() == [row["datatrove"]["stats"]["n_words"] for row in golden]
    sums = np.add.reduceat(found.lengths, found.offsets[:-1])
    wanted = [row["datatrove"]["stats"]["avg_word_length"] for row in golden]
    assert np.abs(sums / counts - wanted).max() < 1e-6  # they are rounded to six digits
