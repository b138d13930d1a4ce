"""N-grams: the kernels against plain Python, what counts as one word, hashes that are shared."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.text.ngrams import (
    GramWords,
    HashTable,
    find,
    gram_words,
    kernels,
    known,
    ngram_hashes,
    reference,
)
from curation.text.view import TextView

patient = settings(deadline=None, max_examples=100)

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
pieces = st.sampled_from(
    [
        *"   \n\taA1½.-'|É\u0301ßİ٣\u00ad\u200b\x00\u2028",
        *("e\u0301", "漢字", "ไท่ย", "カタ", "❤\ufe0f", " a b", " the mill", "--", "\u0301"),
    ]
)
texts = st.lists(pieces, max_size=20).map("".join) | anything


def view(*texts: str | None) -> TextView:
    return TextView(pa.array(texts, pa.large_string()))


def spelt(text: str) -> list[str]:
    return [word for word, *_ in reference.words(text)]


def said(words: GramWords, batch: TextView) -> list[list[tuple[int, int, int]]]:
    """Hash, start and stop of each word of each document."""
    columns = zip(words.hashes.tolist(), words.starts.tolist(), words.stops.tolist(), strict=True)
    rows, offsets = list(columns), words.offsets.tolist()
    return [
        [(h, a - begin, b - begin) for h, a, b in rows[offsets[d] : offsets[d + 1]]]
        for d, begin in enumerate(batch.begins.tolist())
    ]


@patient
@given(st.lists(texts, max_size=5), st.integers(1, 4))
def test_the_kernels_find_the_words_and_hashes_of_the_reference(batch: list[str], n: int) -> None:
    words = gram_words(view(*batch))
    plain = [list(reference.words(text)) for text in batch]
    hashes = [[(reference.ngram_hash([w]), a, b) for w, a, b in found] for found in plain]
    _, singles = ngram_hashes(words, 1)
    assert said(replace(words, hashes=singles), view(*batch)) == hashes
    offsets, found = ngram_hashes(words, n)
    wanted = [
        [reference.ngram_hash([w for w, *_ in doc[i : i + n]]) for i in range(len(doc) - n + 1)]
        for doc in plain
    ]
    assert [found[a:b].tolist() for a, b in pairwise(offsets)] == wanted


@patient
@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4), st.integers(1, 3))
def test_every_known_ngram_is_found_and_nothing_else(
    sets: list[str], batch: list[str], n: int
) -> None:
    """By brute force over the words of all n-grams."""
    table, owners, numbers = known(pa.array(sets, pa.large_string()), n)
    grams: dict[int, tuple[str, ...]] = {}
    at = iter(zip(owners.tolist(), numbers.tolist(), strict=True))
    for d, text in enumerate(sets):
        words = spelt(text)
        for i in range(len(words) - n + 1):
            owner, number = next(at)
            assert owner == d
            assert grams.setdefault(number, tuple(words[i : i + n])) == tuple(words[i : i + n])
    assert next(at, None) is None
    assert sorted(grams) == list(range(len(table)))
    order = [grams[k] for k in range(len(table))]
    docs = view(*batch)
    hits = find(docs, gram_words(docs), table)
    columns = (hits.documents, hits.numbers, hits.starts, hits.stops)
    wanted = [(d, *hit) for d, text in enumerate(batch) for hit in reference.find(text, order, n)]
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == wanted


@patient
@given(
    st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([1, 9, 17, 25]), unique=True, max_size=9),
    st.lists(st.integers(0, 2**64 - 1), max_size=3),
)
def test_hashes_are_looked_up_as_in_a_list(known: list[int], others: list[int]) -> None:
    """Also where their low bits are the same, so that they want one slot."""
    sought = [*others, *known, 0, 33]
    table = HashTable(np.array([value for value in known if value], np.uint64))
    wanted = reference.find_hashes(sought, [value for value in known if value])
    assert table.places(np.array(sought, np.uint64)).tolist() == wanted


def test_an_ngram_that_only_shares_its_hash_is_none() -> None:
    """A known one under the hash of another: what is compared in the end are the words."""
    table, *_ = known(pa.array(["the mill turns"], pa.large_string()), 3)
    other = view("the weir turns")
    [forged] = ngram_hashes(gram_words(other), 3)[1].tolist()
    slots, numbers = np.zeros_like(table.slots), np.zeros_like(table.numbers)
    kernels.fill_slots(np.array([forged], np.uint64), slots, numbers)
    lying = replace(table, slots=slots, numbers=numbers)
    assert len(find(other, gram_words(other), lying).numbers) == 0
    assert len(find(other, gram_words(other), table).numbers) == 0
    same = view("THE mill, turns")
    assert len(find(same, gram_words(same), table).numbers) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Well-known, don't -- U.S.", ["wellknown", "dont", "us"]),
        ("a\u00a0b\nc", ["a", "b", "c"]),
        ("漢字 と word", ["漢", "字", "と", "word"]),
        ("abc漢def", ["abc", "漢", "def"]),
        ("soft\u00adware \u0301x 3.14", ["software", "x", "314"]),
        ("Æ É e\u0301 ... ?!", ["æ", "é", "e\u0301"]),
    ],
)
def test_words_are_between_white_space_and_without_punctuation(text: str, words: list[str]) -> None:
    assert spelt(text) == words


def test_nothing_is_found_in_nothing() -> None:
    table, *_ = known(pa.array([], pa.large_string()), 13)
    docs = view("", None, "a few words")
    assert len(find(docs, gram_words(docs), table).numbers) == 0
