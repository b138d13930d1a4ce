"""Lines taken out: kernels against plain Python, and the rules by example."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
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


@patient
@given(batches, st.data())
def test_a_slice_gives_what_it_gives_alone(batch: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(batch)))
    sliced = TextView(pa.array([*batch, None], pa.large_string()).slice(start))
    alone = [*batch[start:], ""]
    for found, plain in (
        (lines.c4_lines(sliced, ".", 1, 20, True, True, True, "lines"), reference.c4_lines),
        (lines.refinedweb_lines(sliced, 0.5, 2, True, True, True), reference.refinedweb_lines),
    ):
        rules = (".", 1, 20, True, True, True, "lines")
        rules = rules if plain is reference.c4_lines else (0.5, 2, True, True, True)
        assert found[0].to_pylist() == [plain(text, *rules)[0] for text in alone]


@patient
@given(st.binary(max_size=40), st.binary(min_size=16, max_size=16))
def test_no_byte_behind_a_text_is_read(text: bytes, behind: bytes) -> None:
    """Not even if the text is not UTF-8, as no Arrow string is."""
    results = []
    for rest in (behind, bytes(16)):
        buffers = [
            None,
            pa.py_buffer(np.array([0, len(text)], np.int64)),
            pa.py_buffer(text + rest),
        ]
        seen = TextView(pa.Array.from_buffers(pa.large_string(), 1, buffers))
        edits = (
            lines.c4_lines(seen, None, 0, None, True, True, True, "page"),
            lines.refinedweb_lines(seen, None, 0, False, True, True),
        )
        results.append(
            [(out.buffers()[2].to_pybytes(), *(int(n[0]) for n in c.values())) for out, c in edits]
        )
    assert results[0] == results[1]


def test_every_kernel_is_compiled_for_one_signature() -> None:
    """Whatever the batch looks like and the parameters are: the cache relies on it."""
    from curation.text.lines import kernels

    for batch in (view("a b.\n", None, "c"), view(), view(None)):
        for most, marks in ((None, None), (5, ".")):
            lines.c4_lines(batch, marks, 0, most, True, True, True, "lines")
        for share in (None, 0.5):
            lines.refinedweb_lines(batch, share, 0, True, True, True)
        lines.third_longest_lines(batch)
    functions = [f for f in vars(kernels).values() if hasattr(f, "signatures")]
    outer = {f.py_func: len(f.signatures) for f in functions if f.targetoptions.get("nogil")}
    assert outer == dict.fromkeys(outer, 1) and len(outer) == 3


@pytest.mark.parametrize(
    "text", ["[1" * 200_000, ". " * 200_000, "use cookie " * 50_000, "\r" * 300_000]
)
def test_a_huge_line_takes_time_in_proportion(text: str) -> None:
    """A quadratic rule would reach the suite's time limit."""
    left, counts = lines.c4_lines(view(text), None, 1, None, True, True, True, "page")
    assert left[0].as_py() == text.strip()
    assert (
        lines.refinedweb_lines(view(text), 0.5, 1, True, True, True)[0][0].as_py() == text.strip()
    )
    assert counts["policy_lines"][0] == 0
    assert view(text).sentence_counts()[0] <= 1
