"""The editor `normalise`: what it repairs and leaves, and that its first look misses nothing."""

from __future__ import annotations

import unicodedata

import ftfy
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from curation.document import Documents
from curation.engine.recipe import RecipeError, load
from curation.filters.normalise import PIECE, RUN, Normalise, repair, work_pattern
from tests.kit import recipe

ALL = Normalise(quotes=True, white_space=True)


def documents(*texts: str) -> Documents:
    return Documents({"text": pa.array(texts, pa.large_string())})


def normalised(text: str, stage: Normalise = Normalise()) -> str:  # noqa: B008 (frozen)
    edited = stage.edit(documents(text))
    assert not edited.failures
    found: str = edited.text[0].as_py()
    return found


def mojibake(text: str) -> str:
    """UTF-8 that was read as windows-1252."""
    return text.encode().decode("cp1252", "replace")


# Texts of the characters that repairs are about, and pieces that they begin with.
odd = st.text(
    st.sampled_from(
        "aZ 0&#;<\n\r\t\x0b\x00\x1b[\x7f\x80\x83\x85\x9d\xa0ÃÂâ€™Å\xad©«»°éàœŒ“”‘–×²βЂвГўВ"
        " √≈‚Ä—\ufffd\u0301\u0308\u1161\u11a8ガか\u3099क़\u200d\u2028\ufeff\ufdd0\U0001f600"
        "\U0001ffff"
    )
)
entities = ["&amp;", "&lt;", "&#13;", "&#x2028;", "&#10;", "&", "amp;", "<b>", "\x1b[0m"]
marks = [" ", "  ", "\n", "e\u0301", "l\u2019eau", "\x85", "\x00", "ＡＢ", "ﬁ"]
broken = ["cafÃ©", "â€œ", "schÃ¶n", "Ã", "©"]
words = st.lists(st.sampled_from([*entities, *marks, *broken])).map("".join)
texts = odd | words | st.text()


@pytest.mark.parametrize(
    "said", ["café crème", "“Ça va?”", "naïve – déjà vu…", "Ελληνικά", "日本語"]
)
def test_mojibake_is_undone(said: str) -> None:
    broken = said.encode().decode("latin-1")
    assert normalised(f"He said: {broken}") == f"He said: {said}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\r\nb\rc\u2028d\u2029e\x0cf\x0bg", "a\nb\nc\nd\ne\nf\ng"),
        ("a\x00b\x07\tc\x7f", "ab\tc"),
        ("\ufeffbegin \ufdd0\U0001ffff\ufff9end", "begin end"),
        ("lost \ufffd stays, and so do \u200d and \u200f", None),
        ("cafe\u0301", "caf\xe9"),
        ("10³ ﬁ ＡＢＣ “quoted”", None),
        ("R&amp;D &lt;3", "R&D <3"),
        ("x < y &amp; z", None),  # after a "<" it may be markup
        ("&#13;", "\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("It\x92s 5 \x80\x85", "It’s 5 €…"),
        ("Über naïve Fälle — “здравствуйте”, ελληνικά, 日本語。", None),
    ],
)
def test_the_steps(text: str, expected: str | None) -> None:
    assert normalised(text) == (text if expected is None else expected)


def test_steps_can_be_chosen() -> None:
    assert normalised("cafÃ© &amp; \x07e\u0301", Normalise(repair=False)) == "cafÃ© &amp; \xe9"
    assert normalised("e\u0301\x07", Normalise(form=None)) == "e\u0301"
    assert normalised("e\u0301\x07", Normalise(control=False)) == "\xe9\x07"
    assert normalised("10³ ﬁ", Normalise(form="NFKC")) == "103 fi"
    assert normalised("“It’s”", Normalise(quotes=True)) == '"It\'s"'
    untidy = "\n  a\t \xa0b  \n\n \n\nc \n"
    assert normalised(untidy, Normalise(white_space=True)) == "a b\n\nc"
    assert normalised(untidy) == untidy


def test_signals_tell_what_was_done() -> None:
    edited = Normalise().edit(documents("good", "cafÃ©", "a\x00b\x01", "e\u0301"))
    assert list(edited.signals["repaired"]) == [False, True, False, False]
    assert list(edited.signals["controls"]) == [0, 0, 2, 0]


def test_a_batch_without_work_is_handed_on_as_it_is() -> None:
    docs = documents("plain", "Fälle – “gut”")
    assert Normalise().edit(docs).text is docs.text


@given(texts)
def test_where_nothing_is_found_nothing_would_change(text: str) -> None:
    for stage in (Normalise(), Normalise(control=False), Normalise(repair=False), ALL):
        found = pc.match_substring_regex(pa.array([text]), work_pattern(stage))[0].as_py()
        if not found and unicodedata.is_normalized("NFC", text):
            assert stage._once(text) == (text, False, 0)


@settings(max_examples=200)
@given(texts | texts.map(mojibake))
@example("&am\x00p;amp;")
@example("A\u0303\xa9")
def test_a_second_run_changes_nothing(text: str) -> None:
    for stage in (Normalise(), Normalise(form="NFKC"), ALL):
        once = normalised(text, stage)
        assert normalised(once, stage) == once


@given(texts)
def test_repair_is_what_ftfy_does(text: str) -> None:
    assume(not RUN.search(text))
    expected = ftfy.fix_text(
        text,
        fix_latin_ligatures=False,
        fix_character_width=False,
        uncurl_quotes=False,
        fix_line_breaks=False,
        remove_control_chars=False,
        normalization=None,
    )
    assert repair(text) == expected


@pytest.mark.timeout(60)  # it would be days
@pytest.mark.parametrize("unit", ["Â", "Ã\x83", "Ä„‚", "\x83", "&amp;", "a\u0301", "Ã©t ", "x"])
def test_a_megabyte_in_one_line_is_done_in_one_go(unit: str) -> None:
    text = "Ã" + unit * (1_000_000 // len(unit)) + "\x83"
    assert len(Normalise().edit(documents(text)).text) == 1


def test_a_text_that_does_not_settle_fails() -> None:
    endless = "&" + "amp;" * (20 * PIECE)
    edited = Normalise().edit(documents("good", endless))
    assert edited.failures == {1: "unstable"}
    assert edited.text.to_pylist() == ["good", None]


def test_a_stage_with_every_step_off_is_refused() -> None:
    off = {"repair": False, "form": None, "control": False}
    with pytest.raises(RecipeError, match="every step is switched off"):
        load(recipe({"normalise": off}))
