"""Exact deduplication against a plain reference, for any partition of the work."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa
import pytest
from exchange import decide
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup.exact import ExactDedup, canonical_url, normalised_text
from curation.document import Documents

Doc = tuple[str, str | None, str]  # id, url, text


def batch(docs: Sequence[Doc]) -> Documents:
    return Documents(
        {
            "row": pa.array(range(len(docs)), pa.int64()),
            "id": pa.array([d[0] for d in docs], pa.string()),
            "url": pa.array([d[1] for d in docs], pa.string()),
            "text": pa.array([d[2] for d in docs], pa.large_string()),
            "duplicate_count": pa.array([1] * len(docs), pa.int64()),
        }
    )


def removals(
    step: ExactDedup, units: Sequence[Sequence[Doc]], parts: int, group: int = 1
) -> tuple[dict[tuple[int, int], tuple[str, str]], dict[tuple[int, int], int]]:
    gone, counts = {}, {}
    for unit, found in enumerate(decide(step, [batch(unit) for unit in units], parts, group)):
        assert list(found.rows) == sorted(set(found.rows))
        for row, reason, survivor in zip(found.rows, found.reasons, found.survivors, strict=True):
            gone[unit, int(row)] = (reason, survivor)
        for row, count in zip(found.counted_rows, found.counts, strict=True):
            counts[unit, int(row)] = int(count)
    return gone, counts


def reference(
    by: Sequence[str], units: Sequence[Sequence[Doc]]
) -> tuple[dict[tuple[int, int], tuple[str, str]], dict[tuple[int, int], int]]:
    """Plain and obviously right: pass by pass, in order of id, then of place."""
    order = sorted((d[0], u, r) for u, unit in enumerate(units) for r, d in enumerate(unit))
    weight = {(u, r): 1 for _, u, r in order}
    leader: dict[tuple[int, int], tuple[str, tuple[int, int]]] = {}
    for key in by:
        seen: dict[str, tuple[int, int]] = {}
        for _, u, r in order:
            if (u, r) in leader:
                continue
            _, url, text = units[u][r]
            value = canonical_url(url) if key == "url" else normalised_text(text)
            if not value:
                continue
            if value in seen:
                leader[u, r] = (key, seen[value])
                weight[seen[value]] += weight[u, r]
            else:
                seen[value] = (u, r)

    def end(place: tuple[int, int]) -> tuple[int, int]:
        while place in leader:
            place = leader[place][1]
        return place

    gone = {}
    for place, (key, by_place) in leader.items():
        u, r = end(by_place)
        gone[place] = (key, units[u][r][0])
    counts = {place: n for place, n in weight.items() if n > 1 and place not in leader}
    return gone, counts


def name(seed: object) -> str:
    return hashlib.blake2b(repr(seed).encode(), digest_size=16).hexdigest()


documents = st.tuples(
    st.integers(0, 30).map(name),
    st.none() | st.integers(0, 6).map(lambda i: f"https://example.org/{i}"),
    st.sampled_from(["", " ", "a b", "A  b", "c", "d\ne", "d e", "f", "g"]),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(documents, max_size=8), min_size=1, max_size=5),
    st.sampled_from([("url", "text"), ("text", "url"), ("url",), ("text",)]),
    st.sampled_from([1, 2, 3, 16]),
    st.integers(1, 3),
)
def test_the_exchange_equals_the_plain_reference(
    units: list[list[Doc]], by: tuple[str, ...], parts: int, group: int
) -> None:
    step = ExactDedup(by=by)  # type: ignore[arg-type]
    assert removals(step, units, parts, group) == reference(by, units)


def test_empty_texts_and_missing_urls_equal_nothing() -> None:
    units = [[(name(i), None, " \n") for i in range(3)]]
    assert removals(ExactDedup(), units, 1) == ({}, {})


def test_a_chain_of_url_and_text_ends_at_the_kept_document() -> None:
    """c repeats b's address, b repeats a's text: c is a duplicate of a, and a stands for three."""
    a, b, c = "0" * 31 + "1", "0" * 31 + "2", "0" * 31 + "3"
    units = [[(c, "http://x.example/p", "other"), (b, "https://x.example/p/", "same"),
              (a, "https://y.example/", "Same ")]]  # fmt: skip
    gone, counts = removals(ExactDedup(), units, 4)
    assert gone == {(0, 0): ("url", a), (0, 1): ("text", a)}
    assert counts == {(0, 2): 3}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://example.org", "https://www.example.org/"),
        ("https://Example.ORG:443/a/", "http://example.org:80/a"),
        ("https://example.org/a#top", "https://example.org/a"),
        ("https://example.org/a?b=1&a=2", "https://example.org/a?a=2&b=1"),
        ("https://example.org/a?utm_source=x&gclid=1&q=z", "https://example.org/a?q=z"),
        (" https://example.org/a ", "https://example.org/a"),
    ],
)
def test_addresses_of_one_page_are_one(one: str, other: str) -> None:
    assert canonical_url(one) == canonical_url(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://example.org/a", "https://example.org/b"),
        ("https://example.org/a", "https://example.org/A"),
        ("https://example.org/?p=1", "https://example.org/?p=2"),
        ("https://example.org:8080/", "https://example.org/"),
        ("https://a.example.org/", "https://b.example.org/"),
        ("https://example.org/?a=", "https://example.org/"),
        ("https://example.org/?name=%D6%D0", "https://example.org/?name=%B9%FA"),
        ("https://example.org/?a=1&a=2", "https://example.org/?a=2&a=1"),
    ],
)
def test_addresses_of_different_pages_stay_different(one: str, other: str) -> None:
    assert canonical_url(one) != canonical_url(other)


@pytest.mark.parametrize("url", ["", None, "http://", "::::", "mailto:x@example.org", "http://[x"])
def test_what_is_no_address_of_a_page_equals_nothing(url: str | None) -> None:
    assert canonical_url(url) is None


@given(st.text())
def test_any_address_has_a_canonical_form(url: str) -> None:
    assert canonical_url(url) is None or isinstance(canonical_url(url), str)


def test_normalised_text_folds_case_space_and_composition() -> None:
    assert normalised_text("  Ä b\n\tC ") == normalised_text("A\u0308 B c") == "ä b c"
    assert normalised_text("a b") != normalised_text("ab")
