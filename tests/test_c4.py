"""The editor c4: its rules by example, its lists of bad words, and the books of a run with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import recipe, write_jsonl
from pydantic import ValidationError

from curation import run
from curation.document import Documents
from curation.engine.plan import stage_key
from curation.engine.recipe import StageSpec
from curation.filters.c4 import C4
from curation.filters.mc4 import MC4
from curation.text.view import TextView

PROSE = "The mill stands by the river. It has an old wheel. Who built it? Nobody knows! It turns."


def edit(text: str, language: str | None = None, **parameters: Any) -> tuple[str, dict[str, Any]]:
    columns = {"text": pa.array([text], pa.large_string()), "language": pa.array([language])}
    edited = C4(**parameters).edit(Documents(columns))
    signals = {name: pa.array(values)[0].as_py() for name, values in edited.signals.items()}
    return edited.text[0].as_py(), signals


def reasons(text: str, **parameters: Any) -> dict[str, int]:
    """What was counted of the lines of a text."""
    _, signals = edit(text, **parameters)
    for name in ("lines", "sentences", "bad_words"):
        del signals[name]
    return {name: count for name, count in signals.items() if count}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("No mark at the end", "no_terminal_mark"),
        ("It goes on and on...", "no_terminal_mark"),
        ("Two words.", "too_few_words"),
        (f"A long {'w' * 1001} word.", "too_long_word"),
        ("Please turn on JavaScript now.", "javascript_lines"),
        ("This site uses cookies everywhere.", "policy_lines"),
    ],
)
def test_a_line_is_removed_for_the_first_rule_that_it_breaks(line: str, reason: str) -> None:
    text, signals = edit(f"{PROSE}\n{line}\n{PROSE}")
    assert text == f"{PROSE}\n{PROSE}"
    assert reasons(f"{PROSE}\n{line}") == {reason: 1}
    assert signals["lines"] == 3


def test_citations_are_cut_out_and_words_were_counted_before() -> None:
    text, _ = edit("The mill[1] is old.[citation needed]\nSo[2] it [ 3] is.[edit]\nIt [edit] is.")
    assert text == "The mill is old.\nSo it [ 3] is.\nIt  is."
    assert edit("The mill is old.[12]", citations=False)[0] == ""


def test_any_line_break_of_unicode_divides_lines_and_becomes_a_newline() -> None:
    first, second = "This is one line.", "This is another one."
    for between in ("\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", " \n\n \t"):
        assert edit(f" {first}{between}{second}{between}")[0] == f"{first}\n{second}"


def test_page_rules_look_at_lines_that_got_so_far_or_at_the_page() -> None:
    page = f"{PROSE}\nif (x) {{ lorem ipsum\n"
    assert reasons(page) == {"no_terminal_mark": 1}
    assert reasons(page, page_rules="page") == {
        "no_terminal_mark": 1,
        "lorem_ipsum": 1,
        "curly_brackets": 1,
    }
    assert reasons(f"{PROSE}\nLorem Ipsum and {{ more.") == {"lorem_ipsum": 1, "curly_brackets": 1}


def test_rules_that_are_switched_off_leave_lines_as_they_are() -> None:
    text = "A heading\nx.\nWe use cookies, and javascript."
    off = {"terminal_punctuation": False, "min_words_per_line": 0, "javascript": False}
    assert edit(text, **off, policy=False)[0] == text
    assert edit("It is 'so'\nIt is so.", end_marks="'")[0] == "It is 'so'"


def test_sentences_are_those_of_the_text_that_is_left() -> None:
    assert edit(f"{PROSE}\nOne. Two. Three")[1]["sentences"] == 5
    assert edit("This is by Dr. Smith.")[1]["sentences"] == 1
    assert edit("This is by J. Smith.", words="datatrove")[1]["sentences"] == 1
    assert edit("And so on... and on. Yes.")[1]["sentences"] == 2


@pytest.fixture
def bad_words(tmp_path: Path) -> str:
    (tmp_path / "en").write_text("darn\nholy cow\n\n", encoding="utf-8")
    (tmp_path / "zh").write_text("坏\n性\n", encoding="utf-8")
    return str(tmp_path / "{language}")


@pytest.mark.parametrize(
    ("text", "language", "count"),
    [
        ("Darn it, Holy Cow! This is darning.", "en", 2),
        ("We say darn_it and darn2 here.", "en-GB", 0),
        ("很坏的人, 坏人. 性别 is fine.", "zh-Hans", 2),
        ("Darn that is bad.", "de", None),
        ("Darn that is bad.", None, None),
        ("darn heading\nNothing is bad here.", "en", 0),
    ],
)
def test_bad_words_are_counted_by_the_list_of_the_language(
    bad_words: str, text: str, language: str | None, count: int | None
) -> None:
    assert edit(text, language, bad_words=bad_words)[1]["bad_words"] == count


def test_a_single_list_serves_every_language(bad_words: str) -> None:
    one = bad_words.replace("{language}", "en")
    assert edit("Darn that is bad.", "de", bad_words=one)[1]["bad_words"] == 1
    assert edit("Darn that is bad.")[1]["bad_words"] is None


def test_the_key_depends_on_the_lists(bad_words: str) -> None:
    assert {"en", "zh"} <= set(C4(bad_words=bad_words).files())
    spec = StageSpec("c4", "c4", C4(bad_words=bad_words))
    before = stage_key(spec)
    Path(bad_words.replace("{language}", "zh")).write_text("x", encoding="utf-8")
    assert stage_key(spec)[0] != before[0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bad_words": "no/such/{language}"}, "no such file"),
        ({"end_marks": ""}, "terminal_punctuation: false"),
        ({"words": "dolma"}, "words"),
        ({"page_rules": "all"}, "page_rules"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        C4(**parameters)


def test_a_page_needs_three_long_lines_for_mc4() -> None:
    def length(*lines: str) -> int:
        docs = Documents({"text": pa.array(["\n".join(lines)], pa.large_string())})
        return int(MC4().score(docs)["third_longest_line"][0])

    assert length("é" * 200, "x", "漢" * 300, "b" * 250) == 200
    assert length("a" * 500, "b" * 500) == 0
    assert length("") == 0


def test_books_balance_over_kept_emptied_and_dropped_pages(tmp_path: Path) -> None:
    """What is dropped leaves with the words and bytes that it came with."""
    kept = f"{PROSE}\nA heading without a mark\n{PROSE}"
    code = f"{PROSE}\nA heading\nHere is {{ some code."
    short = "One sentence is too few.\nA heading"
    empty = "A heading\r\nAnother heading\r\n"
    huge = "x" * 3_000_000
    texts = [kept, code, short, empty, huge]
    result = run(
        recipe({"c4": {}}, store="all"),
        inputs=[write_jsonl(tmp_path / "x.jsonl", texts)],
        output=tmp_path / "r",
    )
    [stage] = json.loads((tmp_path / "r/stats.json").read_text())["stages"]
    assert result.stats["output"]["documents"] == 1
    dropped = {reason: (n["documents"], n["bytes"]) for reason, n in stage["dropped"].items()}
    assert dropped == {
        "curly_bracket": (1, len(code)),
        "too_few_sentences": (1, len(short)),
        "empty": (2, len(empty) + len(huge)),
    }
    assert stage["removed"] == {"words": 5, "bytes": len("A heading without a mark\n")}
    assert stage["inserted"] == {"words": 0, "bytes": 0}
    gone = sum(n["words"] for n in stage["dropped"].values())
    assert stage["in"]["words"] == stage["kept"]["words"] + stage["removed"]["words"] + gone
    assert stage["kept"]["words"] == 36
    table = pq.read_table(tmp_path / "r/documents")
    assert table["text"].to_pylist() == [f"{PROSE}\n{PROSE}"]
    [segment] = (tmp_path / "r/segments").glob("0*/text")
    stored = pq.read_table(segment)["text"].to_pylist()
    assert {code, short, empty} < set(stored)


cited = st.sampled_from(
    ["A line. Two!", "mill[3]", "[edit]", " ", "  ", "\n", "\r\n", '"', "Dr. X", "?"]
)


@settings(deadline=None)
@given(st.lists(st.lists(cited, max_size=12).map("".join), max_size=6))
def test_datatroves_sentences_are_those_of_the_text_that_is_left(batch: list[str]) -> None:
    """Though they are counted in the old one where it makes no difference."""
    stage = C4(words="datatrove", terminal_punctuation=False, min_words_per_line=0)
    edited = stage.edit(Documents({"text": pa.array(batch, pa.large_string())}))
    expected = TextView(edited.text).sentence_counts("datatrove")
    assert np.asarray(edited.signals["sentences"]).tolist() == expected.tolist()
