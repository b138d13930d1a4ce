"""Lines taken out: kernels against plain Python, and the rules by example."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.text import lines
from curation.text.lines import reference
from curation.text.view import TextView

patient = settings(deadline=None, max_examples=300)

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
pieces = st.sampled_from(
    [
        *(
            " ",
            " ",
            "  ",
            "\n",
            "\n",
            "\r\n",
            "\r",
            "\t",
            "\x0b",
            "\x1c",
            "\x85",
            "\u2028",
            "\u3000",
        ),
        *("a", "Zed", "the mill", "of Oak", "漢", "É", "e\u0301", "🙂", "½", "٣", "word" * 9),
        *(". ", ".", "?", "!", '"', "'", "...", "。", "\u2026", "{", "}", "["),
        *("[1]", "[12", "[]", "[edit]", "[Edit]", "[citation needed]", "[[2]]", "[x]", "lor[3]em"),
        *("lorem ipsum", "LOREM IPSUM ", "JavaScript", "javascrip", "terms of use", "us"),
        *(
            "privacy policy",
            "Cookie Policy",
            "use cookies",
            "uses cookies",
            "use of cookies",
            "use ",
        ),
        *("3 likes", "\n1,200.5k  Views!\n", "12", "K", "7m comments", "\n(42)\n", "likes", "_"),
        *(
            "\nsign-in ",
            "Sign-In",
            "items in cart",
            " Items in Cart",
            "Read more...",
            "read more\u2026",
        ),
    ]
)
mixed = st.lists(pieces, max_size=25).map("".join)
batches = st.lists(mixed | anything, max_size=5)
c4_rules = st.fixed_dictionaries(
    {
        "end_marks": st.sampled_from([None, '.?!"', ".?!\"'", "", "。a"]),
        "min_words": st.integers(0, 4),
        "max_word_length": st.sampled_from([None, 0, 5, 36, 1000]),
        "javascript": st.booleans(),
        "policy": st.booleans(),
        "citations": st.booleans(),
        "page_rules": st.sampled_from(["lines", "page"]),
    }
)
refinedweb_rules = st.fixed_dictionaries(
    {
        "max_uppercase": st.sampled_from([None, 0.0, 0.3, 0.5]),
        "min_words": st.integers(0, 3),
        "numbers": st.booleans(),
        "counters": st.booleans(),
        "phrases": st.booleans(),
    }
)


def view(*texts: str | None) -> TextView:
    return TextView(pa.array(texts, pa.large_string()))


def hold(kernel: Any, plain: Any, batch: list[str], rules: dict[str, Any]) -> None:
    """The same texts and counts, and valid UTF-8."""
    texts, counts = kernel(view(*batch), **rules)
    texts.validate(full=True)
    for d, text in enumerate(batch):
        expected, counted = plain(text, **rules)
        assert texts[d].as_py() == expected
        assert Counter({name: int(column[d]) for name, column in counts.items()}) == counted


@patient
@given(batches, c4_rules)
def test_c4_lines_are_those_of_the_reference(batch: list[str], rules: dict[str, Any]) -> None:
    hold(lines.c4_lines, reference.c4_lines, batch, rules)


@patient
@given(batches, refinedweb_rules)
def test_refinedweb_lines_are_those_of_the_reference(
    batch: list[str], rules: dict[str, Any]
) -> None:
    hold(lines.refinedweb_lines, reference.refinedweb_lines, batch, rules)


@patient
@given(batches)
def test_third_longest_lines_are_those_of_the_reference(batch: list[str]) -> None:
    expected = [reference.third_longest_line(text) for text in batch]
    assert lines.third_longest_lines(view(*batch)).tolist() == expected
