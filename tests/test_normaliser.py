"""CCNet's normaliser: its own cases, its oddities, and a plain reading of its rules."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curation.models.kenlm.normalise import NORMALISERS, PUNCTUATION, ccnet

ODD = "éÉñİΣßﬁ１９٣१½²ªÅ한〮ệ\u0323\u0302\u0301\u0378\U0001d165\U0001d16d" + "".join(PUNCTUATION)
TEXTS = st.text() | st.text(st.sampled_from(ODD + "ab9 .\t\n\x00\x1f\x7f\x85\x9f\xa0\u200b\u2028"))


def plain(text: str) -> str:
    """The rules, one character at a time."""
    out = ""
    for character in unicodedata.normalize("NFD", text.strip().lower()):
        if unicodedata.category(character) == "Mn":
            continue
        if unicodedata.category(character) == "Nd":
            character = "0"
        for mapped in PUNCTUATION.get(character, character):
            code = ord(mapped)
            if not (code < 32 or 127 <= code < 160):
                out += mapped
    return out


@given(TEXTS)
@example("e\u0301\u0323\u0302x")
@example("ΟΔΟΣ ΣΑΣ")
@example("\U0001d16d\U0001d165")  # no marks (Mc), but decomposition changes their order
def test_the_same_as_one_character_at_a_time(text: str) -> None:
    assert ccnet(text) == plain(text)


@pytest.mark.real
def test_the_cases_of_ccnet(shared_data: Path) -> None:
    path = shared_data / "filters" / "ccnet-cases" / "cases.json"
    cases = {case["fn"]: case for case in json.loads(path.read_text())["normalizer"]}
    table = cases["replace_unicode_punct"]
    assert "".join(PUNCTUATION.get(c, c) for c in table["in"]) == table["out"]
    assert set(table["in"]) | {"►"} == set(PUNCTUATION)
    numbers = cases["normalize(numbers=True)"]
    assert ccnet(numbers["in"]) == numbers["out"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Crème BRÛLÉE", "creme brulee"),
        ("In 1984, 20%", "in 0000, 00%"),
        ("“Yes” – ‘no’…", '"yes" - ‘no\'...'),  # the left single quotation mark is not in the table
        ("one—two", "one - two"),
        ("one — two", "one  -  two"),  # spaces stay
        ("end．next", "end. next"),
        ("１０", "00"),
        ("a\tb\x00c", "abc"),
        ("  a b  ", "a b"),
        ("\x00 a", " a"),  # white space is stripped first
        ("Straße", "straße"),
        ("İ", "i"),
        ("한", "\u1112\u1161\u11ab"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_what_becomes_of_text(text: str, expected: str) -> None:
    assert ccnet(text) == expected


def test_a_whole_document_is_one_line_whose_lines_are_joined() -> None:
    assert NORMALISERS["ccnet"]("The end.\nNext line\n") == ["the end.next line"]
    assert NORMALISERS["ccnet"]("") == [""]


def test_lines_by_themselves_keep_the_empty_ones() -> None:
    assert NORMALISERS["ccnet-lines"](" The end.\n\nNext line ") == ["the end.", "", "next line"]
