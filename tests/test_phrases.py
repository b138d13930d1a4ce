"""Phrases in texts: the kernel against regular expressions, and the rules by example."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.text.phrases import Phrases, count, prepare
from curation.text.phrases.reference import count_phrases
from curation.text.view import TextView

patient = settings(deadline=None, max_examples=300)

pieces = st.sampled_from(
    [
        *(" ", " ", "  ", "\n", "-", "_", "'", ".", "\u0301", "\u200d", "🖕", "½", "2"),
        *("a", "A", "ab", "AB", "a b", "b", "ass", "bad ass", "Σ", "ς", "ſ", "İ", "ß", "K"),
        *("बुरा", "ा", "坏", "坏人", "グロ", "人"),
    ]
)
mixed = st.lists(pieces, max_size=25).map("".join)
texts = st.lists(mixed | st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=4)
lists = st.sets(st.lists(pieces, min_size=1, max_size=3).map("".join), max_size=12)


def view(*batch: str | None) -> TextView:
    return TextView(pa.array(batch, pa.large_string()))


def found(text: str, *phrases: str, bounded: bool = True) -> tuple[int, int]:
    hits, distinct = count(view(text), prepare(phrases, bounded), np.arange(1))
    return int(hits[0]), int(distinct[0])


@patient
@given(texts, lists, st.booleans())
def test_counts_are_those_of_regular_expressions(
    batch: list[str], phrases: set[str], bounded: bool
) -> None:
    columns = count(view(*batch), prepare(phrases, bounded), np.arange(len(batch)))
    expected = [count_phrases(text, phrases, bounded) for text in batch]
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


@patient
@given(st.lists(mixed, min_size=1, max_size=4), lists, st.booleans(), st.data())
def test_documents_are_counted_by_themselves(
    batch: list[str], phrases: set[str], bounded: bool, data: st.DataObject
) -> None:
    prepared = prepare(phrases, bounded)
    chosen = np.array(data.draw(st.sets(st.integers(0, len(batch) - 1)).map(sorted)), np.int64)
    start = data.draw(st.integers(0, 2))
    sliced = TextView(pa.array(["ass a"] * start + batch, pa.large_string()).slice(start))
    hits, distinct = count(sliced, prepared, chosen)
    alone = [count(view(batch[d]), prepared, np.arange(1)) for d in chosen]
    assert [(h, n) for h, n in zip(hits, distinct, strict=True)] == [(h[0], n[0]) for h, n in alone]


def test_a_phrase_is_found_between_characters_that_are_not_of_words() -> None:
    assert found("Darn it, DARN! darning, undarn, darn_it, darn2", "darn") == (2, 1)
    assert found("holy cow, holy  cow, holy cows", "holy cow", "cow") == (2, 2)
    assert found("the 🖕 and x🖕", "🖕") == (1, 1)
    assert found("很坏的人, 坏人", "坏", "人", bounded=False) == (4, 2)
    assert found("Οδός ΟΔΌΣ", "οδόσ") == (2, 1)
    assert found("", "darn") == found("darn") == (0, 0)


def test_a_huge_text_takes_time_in_proportion() -> None:
    """A quadratic rule would reach the suite's time limit."""
    assert found("a " * 500_000, "a b", "a a c") == (0, 0)
    assert found("x" * 1_000_000, "xx", bounded=False) == (500_000, 1)


def test_every_kernel_is_compiled_for_one_signature() -> None:
    """Whatever the batch and the list look like: the cache relies on it."""
    from curation.text.phrases import kernels

    prepared: list[Phrases] = [prepare(p, b) for p in ((), ("a", "b c")) for b in (True, False)]
    for batch in (view("a b.\n", None, "c"), view(), view(None)):
        for phrases in prepared:
            count(batch, phrases, np.arange(len(batch)))
    assert len(kernels.count_phrases.signatures) == 1
