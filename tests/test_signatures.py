"""MinHash signatures: kernels against plain Python, estimates against the truth and datasketch."""

from __future__ import annotations

import numba
import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup import kernels, reference, signatures
from curation.dedup.curve import PRESETS
from curation.dedup.signatures import band_hashes, jaccard, shingles, similarity
from curation.text.cache import pointer
from curation.text.ngrams.kernels import hash_ngrams
from curation.text.view import TextView

patient = settings(deadline=None, max_examples=50)  # the first call of a kernel may compile it

pieces = st.sampled_from(
    ["the", "The", "mill", "stone", "don't", "3.14", " ", "\n", ". ", "漢字", "ไทย", "é", "-", "😀"]
)
texts = st.lists(st.lists(pieces, max_size=40).map(" ".join), max_size=6)

PROSE = (
    "A mill grinds grain between two stones, one fixed and one that turns. Grist is the grain that "
    "a farmer brings, and the miller keeps a part of it as a toll."
)


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


def test_other_kernels_compare_rows_within_larger_arrays() -> None:
    @numba.njit
    def compare(rows: np.ndarray, sets: np.ndarray) -> tuple[int, int]:
        values, hashes = pointer(rows), pointer(sets)
        equal = kernels.matches(values, 3, values, 8, 5)
        return equal, kernels.intersection(hashes, 1, 4, hashes, 4, 8)

    rows = np.array([9, 9, 9, 1, 2, 3, 4, 5, 1, 0, 3, 0, 5, 9], np.uint16)
    sets = np.array([9, 1, 4, 2**63, 4, 5, 6, 2**63, 2**63], np.uint64)
    assert compare(rows, sets) == (3, 2)


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


def test_generator_and_finaliser_are_those_that_others_publish() -> None:
    """The first outputs of splitmix64 from seed 0; MurmurHash3's fmix64 of 1."""
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [reference.splitmix64(index) for index in range(3)] == first
    assert reference.finalise(1) == 0xB456BCFC34C2CB2C


def test_a_signature_is_the_same_for_ever() -> None:
    """If this fails, stored signatures are worthless: bump SIGNATURE_VERSION. The hashes are those
    that the plain reference gives; the values follow from them by hand."""
    text = "One two three, four five."
    assert signatures.SIGNATURE_VERSION == 1
    assert shingles(view(text), 5)[1].tolist() == [0x1249D5B8EF3B49E5]
    x = 0x1249D5B8
    by_hand = [(0x7B1DCDAF * x + 0xE220A839) & 0xFFFF, (0xA1B965F5 * x + 0x6E789E6A) & 0xFFFF]
    assert signature(text, 5, 2) == by_hand == [6401, 49026]
    hashes = band_hashes(np.array([[1, 2, 3, 4]], np.uint16), 2, 2, np.array([7], np.uint64))
    assert hashes.tolist() == [[0x8ED24AD8EF3649F2, 0x79262B5FB656F036]]


def test_a_shorter_signature_is_the_beginning_of_a_longer_one() -> None:
    assert signature(PROSE, permutations=112) == signature(PROSE, permutations=260)[:112]


def test_case_punctuation_and_white_space_do_not_count() -> None:
    assert signature(PROSE) == signature(PROSE.upper().replace(",", " --\n").replace(".", "!?"))


def test_the_order_of_words_counts() -> None:
    assert signature("a b c d e") != signature("b a c d e")
    offsets, hashes = shingles(view("a b c d e", "a b c e d", "e d c b a"), 5)
    assert offsets.tolist() == [0, 1, 2, 3] and len(set(hashes.tolist())) == 3


def test_repeated_shingles_do_not_count() -> None:
    assert signature("to be or not", 1) == signature("not to be or not to be to or", 1)


@pytest.mark.parametrize(
    "text", ["人人生而自由在尊严和权利上一律平等", "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน"]
)
def test_texts_without_spaces_have_shingles_of_letters(text: str) -> None:
    _, counts = signatures.signatures(view(text), 5, 16)
    assert counts[0] == len(reference.shingles(text, 5)) > 10
    near = similarity(*signatures.signatures(view(text * 8, text * 8 + text[:6]), 5, 260)[0])
    assert near > 0.6


@pytest.mark.parametrize("cut", [0, 1, 2, 5])
def test_how_a_batch_is_cut_does_not_matter(cut: int) -> None:
    array = pa.array([PROSE, None, "short", PROSE[:90], "ไทย" * 9], pa.large_string())
    whole, counts = signatures.signatures(TextView(array), 5, 32)
    parts = [TextView(array.slice(0, cut)), TextView(array.slice(cut))]
    found = [signatures.signatures(part, 5, 32) for part in parts]
    assert np.concatenate([rows for rows, _ in found]).tolist() == whole.tolist()
    assert np.concatenate([numbers for _, numbers in found]).tolist() == counts.tolist()
    sets = [shingles(part, 5)[1].tolist() for part in parts]
    assert sets[0] + sets[1] == shingles(TextView(array), 5)[1].tolist()


def test_bands_meet_only_by_number_scope_and_values() -> None:
    same = np.tile(np.array([5, 6, 5, 6], np.uint16), (3, 1))
    hashes = band_hashes(same, 2, 2, np.array([1, 1, 2], np.uint64))
    assert hashes[0].tolist() == hashes[1].tolist()
    assert len(set(hashes.reshape(-1).tolist())) == 4  # two bands, two scopes
    with pytest.raises(ValueError, match="3 bands of 2 rows need more than 4 permutations"):
        band_hashes(same, 3, 2, np.zeros(3, np.uint64))


def test_stored_signatures_need_no_second_compilation() -> None:
    stored = np.frombuffer(bytes(32), np.uint16).reshape(2, 8)  # read-only, as Arrow gives them
    fresh = np.zeros((2, 16), np.uint16)[:, ::2]
    salts = np.zeros(2, np.uint64)
    assert band_hashes(stored, 2, 4, salts).tolist() == band_hashes(fresh, 2, 4, salts).tolist()
    assert similarity(stored[0], fresh[1]) == 1.0
    for seen in (view(PROSE), view(PROSE, None), view()):
        seen.word_hashes(), signatures.signatures(seen, 5, 8), seen.words, shingles(seen, 5)
        jaccard(shingles(seen, 5)[1], np.empty(0, np.uint64))
    called = [*vars(kernels).values(), hash_ngrams]
    outer = [f for f in called if getattr(f, "targetoptions", {}).get("nogil")]
    assert len(outer) >= 6 and all(len(compiled.signatures) == 1 for compiled in outer)


def planted(size: int, similarity: float, pairs: int) -> tuple[list[str], list[str], float]:
    """Pairs of texts of `size` different words, and the Jaccard similarity of their sets of words.

    The words are consecutive numbers: what a hash that is no good would show up at.
    """
    common = round(2 * size * similarity / (1 + similarity))
    texts: tuple[list[str], list[str]] = ([], [])
    for pair in range(pairs):
        first = pair * 2 * size
        own = [first + common, first + size]
        for side in range(2):
            numbers = [*range(first, first + common), *range(own[side], own[side] + size - common)]
            texts[side].append(" ".join(map(str, numbers)))
    return *texts, common / (2 * size - common)


def estimates(left: list[str], right: list[str], permutations: int) -> np.ndarray:
    rows = [signatures.signatures(view(*texts), 1, permutations)[0] for texts in (left, right)]
    return np.array([similarity(a, b) for a, b in zip(*rows, strict=True)])


SIMILARITIES = (0.2, 0.5, 0.8, 0.95)


@pytest.mark.parametrize("wanted", SIMILARITIES)
@pytest.mark.parametrize(("size", "pairs"), [(50, 1500), (1000, 150), (100_000, 4)])
def test_estimates_are_unbiased_and_spread_as_independent_values_do(
    size: int, pairs: int, wanted: float
) -> None:
    left, right, truth = planted(size, wanted, pairs)
    found = estimates(left, right, 112)
    error = (truth * (1 - truth) / 112) ** 0.5
    deviations = (found - truth) / error
    assert abs(deviations.mean()) <= 3 / pairs**0.5
    assert (abs(deviations) <= 3).mean() >= 0.99
    # The variance of so many normal deviates, within four of its own standard errors.
    assert abs((deviations**2).mean() - 1) <= 4 * (2 / pairs) ** 0.5


@pytest.mark.parametrize("wanted", [0.5, 0.8])
def test_estimates_are_as_good_as_those_of_datasketch(wanted: float) -> None:
    pairs = 150
    left, right, truth = planted(300, wanted, pairs)

    def theirs(text: str) -> MinHash:
        sketch = MinHash(112)
        sketch.update_batch([word.encode() for word in text.split()])
        return sketch

    other = np.array([theirs(a).jaccard(theirs(b)) for a, b in zip(left, right, strict=True)])
    found = estimates(left, right, 112)
    # Two mean squares of as many deviates, within three standard errors of their quotient.
    assert ((found - truth) ** 2).mean() <= ((other - truth) ** 2).mean() * (1 + 6 / pairs**0.5)
    assert abs(found.mean() - other.mean()) <= 3 * (2 * truth * (1 - truth) / 112 / pairs) ** 0.5


@pytest.mark.parametrize("wanted", [0.6, 0.7, 0.8])
def test_pairs_share_a_band_as_often_as_the_curve_says(wanted: float) -> None:
    pairs = 1000
    left, right, truth = planted(100, wanted, pairs)
    salts = np.zeros(pairs, np.uint64)
    sides = [
        band_hashes(signatures.signatures(view(*texts), 1, 112)[0], 14, 8, salts)
        for texts in (left, right)
    ]
    met = (sides[0] == sides[1]).any(axis=1).mean()
    expected = PRESETS["14x8"].found(truth)
    assert abs(met - expected) <= 3 * (expected * (1 - expected) / pairs) ** 0.5
