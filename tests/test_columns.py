"""Two texts on a terminal: never too wide, never in command, and aligned."""

from __future__ import annotations

import re

import pytest
import wcwidth
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curation.inspect.columns import BOLD, LEAST, LRM, MARKS, SEPARATOR, beside
from curation.inspect.terminal import Terminal, one_line

TITLES = ("removed", "survivor")
WORDS = [
    "the",
    "mill",
    "水車",
    "小屋",
    "كان",
    "يا",
    "naïve",
    "👩‍👩‍👧",
    "🇩🇪",
    "e\u0301",
    "—",
    "\n",
    "\x1b[31m",
]
words = st.lists(st.sampled_from(WORDS) | st.text(max_size=12), max_size=60).map(" ".join)
terminals = st.builds(Terminal, st.sampled_from([1, 40, 80, 83, 120, 200]), st.booleans())


def plain(line: str) -> str:
    """A line without what makes it bold."""
    return line.replace(BOLD[0], "").replace(BOLD[1], "")


@settings(max_examples=200, deadline=None)
@given(words, words, words, terminals)
@example("x" * 500, "水" * 500, "", Terminal(120, True))
@example("\x1b]0;title\x07 \x9b31m \u202e", "", "", Terminal(120, True))
def test_no_line_is_too_wide_or_commands(a: str, b: str, c: str, terminal: Terminal) -> None:
    for line in beside((f"{a} {b}", f"{b} {c}"), TITLES, terminal):
        shown = plain(line)
        assert wcwidth.width(shown) <= max(terminal.width, LEAST)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
        assert terminal.bold or shown == line


@settings(max_examples=100, deadline=None)
@given(words, words, words)
def test_the_separator_stands_in_one_column(a: str, b: str, c: str) -> None:
    lines = beside((f"{a} {b}", f"{b} {c}"), TITLES, Terminal(120, False))
    at = {wcwidth.width(line.partition(SEPARATOR.rstrip())[0].replace(LRM, "")) for line in lines}
    assert at == {58}


def both(line: str) -> list[str]:
    return [side.strip() for side in plain(line).split("│")]


@pytest.mark.parametrize("bold", [False, True])
def test_equal_words_share_a_line_after_an_insertion(bold: bool) -> None:
    text = [" ".join(f"w{i}_{j}" for j in range(9)) for i in range(12)]
    other = [*text[:5], " ".join(["inserted"] * 25), *text[5:]]
    texts = "\n".join(text), "\n".join(other)
    lines = beside(texts, TITLES, Terminal(160, bold))[1:]
    inserted = [line for line in lines if "inserted" in line]
    assert len(inserted) > 1 and all(not both(line)[0] for line in inserted)
    same = [both(line) for line in lines if "w" in line]
    assert len(same) == 12
    assert all(left.strip("⟦⟧") == right.strip("⟦⟧") for left, right in same)


def test_shared_passages_are_marked_and_others_are_not() -> None:
    texts = "Mine: the old mill by the river", "the old mill by the river, theirs"
    left, right = (MARKS[0] + "the old mill by the river" + MARKS[1] for _ in range(2))
    [_, *lines] = beside(texts, TITLES, Terminal(120, False))
    assert " ".join(both(line)[0] for line in lines).strip() == f"Mine: {left}"
    assert " ".join(both(line)[1] for line in lines).strip() == (
        right.replace(MARKS[1], "," + MARKS[1]) + " theirs"
    )
    [_, *lines] = beside(texts, TITLES, Terminal(120, True))
    assert BOLD[0] + "the old mill by the river," + BOLD[1] in "".join(lines)


def test_long_stretches_are_shortened_and_counted() -> None:
    common = " ".join(f"same{i}" for i in range(500))
    own = " ".join(f"own{i}" for i in range(300))
    lines = beside(
        (f"{common} {own} {common}.", f"{common} {common}"), TITLES, Terminal(120, False)
    )
    left = " ".join(both(line)[0] for line in lines)
    notes = [int(n.replace(",", "")) for n in re.findall(r"\.\.\. ([\d,]+) words \.\.\.", left)]
    assert sum(notes) + len(re.findall(r"(?:same|own)\d+", left)) == 1300
    assert re.findall(r"[⟦⟧]|\.\.\.", left)[:5] == ["⟦", "⟧", "...", "...", "⟦"]
    assert len(lines) < 45


def test_a_narrow_terminal_has_one_text_above_the_other() -> None:
    lines = beside(("one two", "three four"), TITLES, Terminal(80, False))
    assert lines == ["removed", "one two", "survivor", "three four"]
    texts = "the old mill by the river", "the new mill by the river"
    lines = beside(texts, TITLES, Terminal(80, True))
    assert [plain(line) for line in lines] == ["removed", texts[0], "survivor", texts[1]]


def test_an_empty_text_is_said() -> None:
    assert both(beside(("", "some words"), TITLES, Terminal(120, False))[1]) == [
        "(no text)",
        "some words",
    ]


def test_right_to_left_text_stays_in_its_column() -> None:
    """Without a left-to-right mark at both sides a terminal would take the columns for one run."""
    [_, line] = beside(("كان يا ما", "كان في قديم"), TITLES, Terminal(120, False))
    assert LRM + SEPARATOR + LRM in line


def test_what_commands_a_terminal_becomes_a_picture() -> None:
    assert one_line("a\x1b[2J\tb\r\n\x07") == "a␛[2J b ␇"
    assert "\x9b" not in one_line("\x9b31m") and "\u202e" not in one_line("\u202ex")
