"""datatrove's words: the kernel against its plain reference, cases by hand, and real documents.

The golden values come from datatrove 0.10.1 and spaCy 3.8.18 themselves.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@pytest.mark.real
def test_real_documents_have_as_many_words_as_datatrove_counts(shared_data: Path) -> None:
    path = shared_data / "filters" / "golden-filter-values" / "golden.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        golden = [json.loads(line) for line in lines]
    view = TextView(pa.array([row["text"] for row in golden], pa.large_string()))
    found = view.words_of("datatrove")
    counts = np.diff(found.offsets)
    assert counts.tolist() == [row["datatrove"]["stats"]["n_words"] for row in golden]
    sums = np.add.reduceat(found.lengths, found.offsets[:-1])
    wanted = [row["datatrove"]["stats"]["avg_word_length"] for row in golden]
    assert np.abs(sums / counts - wanted).max() < 1e-6  # they are rounded to six digits
