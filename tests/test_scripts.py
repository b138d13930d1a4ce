"""In which scripts the letters of a text are."""

from __future__ import annotations

import numpy as np
import pytest
import regex  # type: ignore[import-untyped]

from curation.text import scripts
from curation.text.characters import CLASS_BITS, LETTER, table


def test_the_table_is_unicodes() -> None:
    """All 130,000 letters, against the property Script of another library. A few letters that
    Unicode counts to all scripts (Common) stand between those of one."""
    kinds = table() & ((1 << CLASS_BITS) - 1)
    mine = scripts._table()
    assert not mine[kinds < LETTER].any()
    for number, name in enumerate(scripts._scripts(), 1):
        letters = "".join(map(chr, np.flatnonzero(mine == number)))
        other = regex.sub(rf"[\p{{Script={name}}}\p{{Script=Common}}]+", "", letters)
        assert letters and not other, f"{name}: {other!r}"
    without = "".join(map(chr, np.flatnonzero((kinds >= LETTER) & (mine == 0))))
    assert not regex.sub(r"\p{Script=Common}+", "", without)


def test_letters_are_counted_by_script_and_nothing_else_is() -> None:
    text = "Mill 300, мельница! 水車 ミル हिन्दी ﬁ \U00020000 \u0301 \u200d"
    assert scripts.counts(text) == {"Latn": 5, "Cyrl": 8, "Hani": 3, "Kana": 2, "Deva": 3}


@pytest.mark.parametrize(
    ("text", "wanted", "share"),
    [
        ("abcd", ["Latn"], 1.0),
        ("abcд", ["Latn"], 0.75),
        ("abcд", ["Latn", "Cyrl"], 1.0),
        ("水車は回る", ["Hani", "Hira", "Kana"], 1.0),
        ("abc", ["Thai"], 0.0),
        ("300 - 5!", ["Latn"], None),
        ("", ["Latn"], None),
    ],
)
def test_share(text: str, wanted: list[str], share: float | None) -> None:
    assert scripts.share(text, wanted) == share
