"""The editor refinedweb_lines: its rules by example, and the books of a run with it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kit import recipe, write_jsonl

from curation import run
from curation.document import Documents
from curation.filters.refinedweb_lines import RefinedWebLines

LINE = "the mill turns slowly by the river"


def edit(text: str, **parameters: Any) -> tuple[str, dict[str, Any]]:
    docs = Documents({"text": pa.array([text], pa.large_string())})
    edited = RefinedWebLines(**parameters).edit(docs)
    signals = {name: values[0].item() for name, values in edited.signals.items()}  # type: ignore[union-attr]
    return edited.text[0].as_py(), signals


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("READ ALL OF it", "upper_case_lines"),
        ("20261128", "number_lines"),
        ("3 likes", "counter_lines"),
        ("(1,204.5K Views)", "counter_lines"),
        ("* 7m followers *", "counter_lines"),
        ("Menu", "short_lines"),
        ("Sign-in", "short_lines"),
        ("items in cart", "phrase_lines"),
        ("Read more...", "phrase_lines"),
    ],
)
def test_a_line_is_removed_for_the_first_rule_that_it_breaks(line: str, reason: str) -> None:
    text, signals = edit(f"{LINE}\n  {line}\r\n{LINE}")
    assert text == f"{LINE}\n{LINE}"
    counts = {name: n for name, n in signals.items() if name not in ("lines", "removed_words")}
    assert {name: n for name, n in counts.items() if n} == {reason: 1}


@pytest.mark.parametrize(
    "line",
    [
        "AB cd",  # at the threshold: two of five, and
        "12 34",
        "3 likes it",
        "many likes",
        "3likes here",
        "READ ALL OF it then",
        "here are the items in cart of a page with more than ten words",
    ],
)
def test_a_line_that_breaks_no_rule_stays_as_it_is(line: str) -> None:
    text = f"{LINE}\n\n  {line} \r\n{LINE}"
    assert edit(text)[0] == text


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("Sign-in to the mill", "to the mill"),
        ("The mill has 3 ITEMS IN CART now", "The mill has 3 now"),
        ("The mill turns. Read more\u2026", "The mill turns."),
        ("The mill turns. Read more", "The mill turns. Read more"),
        ("a  items in cartItems in cart b", "a  b"),
    ],
)
def test_phrases_are_cut_out_of_short_lines(line: str, left: str) -> None:
    assert edit(line)[0] == left
    assert edit(line, phrases=False)[0] == line


def test_removed_words_are_a_share_of_the_words_that_were_there() -> None:
    assert edit(f"{LINE} on\nMenu\n3 likes")[1]["removed_words"] == 3 / 11
    assert edit(LINE)[1]["removed_words"] == 0
    assert math.isnan(edit("-- --")[1]["removed_words"])


def test_books_balance_and_a_page_that_lost_much_is_dropped_whole(tmp_path: Path) -> None:
    kept = f"{LINE}\n" * 10 + "Menu"
    lost = f"{LINE}\nMenu"
    texts = [kept, lost, "Menu\n3 likes"]
    path = write_jsonl(tmp_path / "x.jsonl", texts)
    run(recipe({"refinedweb_lines": {}}), inputs=[path], output=tmp_path / "r")
    [stage] = json.loads((tmp_path / "r/stats.json").read_text())["stages"]
    assert stage["dropped"] == {
        "many_words_removed": {"documents": 1, "words": 8, "bytes": len(lost)},
        "empty": {"documents": 1, "words": 3, "bytes": len("Menu\n3 likes")},
    }
    assert stage["removed"] == {"words": 1, "bytes": len("\nMenu")}
    assert stage["kept"] == {"documents": 1, "words": 70, "bytes": len(kept) - len("\nMenu")}
