"""MinHash signatures: kernels against plain Python, estimates against the truth and datasketch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup import reference, signatures
from curation.dedup.signatures import band_hashes, jaccard, shingles, similarity
from curation.text.view import TextView

patient = settings(deadline=None, max_examples=50)  # the first call of a kernel may compile it

pieces = st.sampled_from(
    ["the", "The", "mill", "stone", "don't", "3.14", " ", "\n", ". ", "漢字", "ไทย", "é", "-", "😀"]
)
texts = st.lists(st.lists(pieces, max_size=40).map(" ".join), max_size=6)


def view(*texts: str | None) -> TextView:
    return TextView(pa.array(texts, pa.large_string()))


def signature(text: str, ngram: int = 5, permutations: int = 112) -> list[int]:
    found, _ = signatures.signatures(view(text), ngram, permutations)
    return found[0].tolist()


@patient
@given(texts, st.integers(1, 13), st.integers(1, 40))
def test_signatures_are_those_of_the_reference(
    batch: list[str], ngram: int, permutations: int
) -> None:
    found, counts = signatures.signatures(view(*batch), ngram, permutations)
    offsets, hashes = shingles(view(*batch), ngram)
    assert found.shape == (len(batch), permutations) and found.dtype == np.uint16
    for d, text in enumerate(batch):
        expected = reference.shingles(text, ngram)
        assert counts[d] == len(expected)
        assert found[d].tolist() == reference.signature(expected, permutations)
        assert hashes[offsets[d] : offsets[d + 1]].tolist() == sorted(set(expected))


@patient
@given(
    st.lists(st.lists(st.integers(0, 65535), min_size=12, max_size=12), max_size=5),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 2**64 - 1),
)
def test_band_hashes_are_those_of_the_reference(
    rows: list[list[int]], bands: int, size: int, salt: int
) -> None:
    values = np.array(rows, np.uint16).reshape(-1, 12)
    found = band_hashes(values, bands, size, np.full(len(rows), salt, np.uint64))
    assert found.tolist() == [reference.band_hashes(row, bands, size, salt) for row in rows]


@patient
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=200))
def test_similarity_is_the_share_of_equal_values(pairs: list[tuple[int, int]]) -> None:
    left, right = np.array(pairs, np.uint16).T
    assert similarity(left, right) == sum(a == b for a, b in pairs) / len(pairs)


@patient
@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_jaccard_is_that_of_the_sets(left: set[int], right: set[int]) -> None:
    arrays = [np.array(sorted(values), np.uint64) for values in (left, right)]
    assert jaccard(*arrays) == len(left & right) / max(1, len(left | right))


def test_documents_with_too_few_words_have_no_signature() -> None:
    found, counts = signatures.signatures(view("", None, "one two three four", "a b c d e"), 5, 16)
    assert counts.tolist() == [0, 0, 0, 1]
    assert not found[:3].any() and found[3].any()
    assert shingles(view("", None, "a b"), 5)[0].tolist() == [0, 0, 0, 0]


def test_no_documents_at_all() -> None:
    found, counts = signatures.signatures(view(), 5, 16)
    assert found.shape == (0, 16) and counts.shape == (0,)
    assert band_hashes(found, 2, 8, np.empty(0, np.uint64)).shape == (0, 2)
