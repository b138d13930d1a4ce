"""Candidate groups, components and the walk against their plain references."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup import clusters
from curation.dedup.clusters import reference


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 30).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=40))
))  # fmt: skip
def test_components_equal_the_plain_reference(case: tuple[int, list[tuple[int, int]]]) -> None:
    count, pairs = case
    for kind in (np.int32, np.int64):
        parents = np.empty(count, kind)
        clusters.forest(parents)
        half = len(pairs) // 2
        for some in (pairs[half:], pairs[:half]):  # in any order, any division
            clusters.join(parents, np.array(some, np.uint32).reshape(-1, 2))
        found = clusters.label(parents)
        wanted = reference.components(count, pairs)
        assert parents.tolist() == wanted
        assert found == len(set(wanted) - {-1})


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, (1 << 64) - 1) | st.integers(0, 3)))
def test_keys_are_sorted_and_equal_ones_stay_in_order(keys: list[int]) -> None:
    for kind in (np.uint32, np.uint64):
        given_keys = np.array(keys, np.uint64)
        found, places = clusters.in_order(given_keys, np.arange(len(keys), dtype=kind))
        assert list(zip(found.tolist(), places.tolist(), strict=True)) == sorted(
            (key, place) for place, key in enumerate(keys)
        )
        assert given_keys.tolist() == keys  # untouched


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=40))
def test_edges_connect_exactly_the_documents_of_a_hash(lines: list[tuple[int, int]]) -> None:
    hashes = np.array([h for h, _ in lines], np.uint64)
    documents = np.array([d for _, d in lines], np.uint32)
    found = clusters.edges(hashes, documents).tolist()
    pairs = [(a[1], b[1]) for a in lines for b in lines if a[0] == b[0]]
    assert reference.components(10, found) == reference.components(10, pairs)
    assert len(found) == len(lines) - len({h for h, _ in lines})
    last = {h: d for h, d in lines}
    assert {pair[1] for pair in found} <= set(last.values())


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]], list[bool], list[int]]:
    """Signatures of eight values in four bands, documents that are fixed, and component sizes."""
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    row = st.lists(st.integers(0, 2), min_size=8, max_size=8)
    rows = draw(st.lists(row, min_size=sum(sizes), max_size=sum(sizes)))
    bands = [[hash((b, *r[2 * b : 2 * b + 2])) % (1 << 64) for b in range(4)] for r in rows]
    fixed = draw(st.lists(st.booleans(), min_size=sum(sizes), max_size=sum(sizes)))
    return rows, bands, fixed, sizes


@settings(max_examples=300, deadline=None)
@given(corpora(), st.sampled_from([0.0, 0.25, 0.5, 0.8, 1.0]), st.booleans())
def test_the_walk_equals_the_plain_reference(
    case: tuple[list[list[int]], list[list[int]], list[bool], list[int]],
    threshold: float,
    exact: bool,
) -> None:
    rows, bands, fixed, sizes = case
    starts = np.concatenate([[0], np.cumsum(sizes)])
    sets = [sorted(set(row)) for row in rows]  # any sets will do as shingles
    shingles = (
        np.concatenate([[0], np.cumsum([len(s) for s in sets])]),
        np.array([h for s in sets for h in s], np.uint64),
    )
    found = clusters.walk(
        starts,
        np.array(rows, np.uint16),
        np.array(bands, np.uint64),
        np.array(fixed),
        threshold,
        shingles if exact else None,
    )

    def similarity(i: int, j: int) -> float:
        return sum(a == b for a, b in zip(rows[i], rows[j], strict=True)) / 8

    def jaccard(i: int, j: int) -> float:
        a, b = set(rows[i]), set(rows[j])
        return len(a & b) / len(a | b)

    verifier = jaccard if exact else similarity
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        wanted = reference.walk(
            [set(b) for b in bands[start:end]],
            fixed[start:end],
            lambda i, j, s=start: verifier(s + i, s + j) >= threshold,  # type: ignore[misc]
        )
        for i, survivor in enumerate(wanted, start):
            assert found.survivors[i] == (survivor + start if survivor >= 0 else -1)
            if survivor >= 0:
                assert found.similarities[i] == similarity(i, survivor + start)
                assert not exact or found.jaccards[i] == jaccard(i, survivor + start)
            else:
                assert np.isnan(found.similarities[i])
