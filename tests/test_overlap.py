"""Overlap of validation with train: against counting, in parts, and what a sample can tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.text.ngrams import reference
from curation.tokens.overlap import Overlap, collect, found, merged, report

patient = settings(deadline=None, max_examples=60)

texts = st.lists(st.sampled_from(["the", "Mill,", "mill", "weir", "漢字", "--"]), max_size=9)
batches = st.lists(st.lists(texts.map(" ".join), max_size=3), max_size=3)


def arrow(some: Sequence[Sequence[str]]) -> list[pa.LargeStringArray]:
    return [pa.array(batch, pa.large_string()) for batch in some]


def grams(text: str, n: int) -> list[tuple[str, ...]]:
    words = [word for word, *_ in reference.words(text)]
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


@patient
@given(batches, batches, st.integers(1, 3))
def test_what_is_counted_is_what_plain_sets_have(
    validation: list[list[str]], train: list[list[str]], n: int
) -> None:
    """Collected and found in parts, as tasks do it."""
    known = merged(collect(arrow([batch]), n) for batch in validation)
    assert known.tolist() == collect(arrow(validation), n).tolist()
    mask = np.zeros(len(known), bool)
    for batch in train:
        mask |= found(arrow([batch]), known, n)
    held = {gram for batch in train for text in batch for gram in grams(text, n)}
    own = [grams(text, n) for batch in validation for text in batch]
    assert report(arrow(validation), known[mask], n) == Overlap(
        documents=len(own),
        searchable=sum(bool(doc) for doc in own),
        overlapping=sum(any(gram in held for gram in doc) for doc in own),
        ngrams=sum(map(len, own)),
        known=sum(gram in held for doc in own for gram in doc),
    )


def test_a_sample_holds_the_same_ngrams_everywhere_and_estimates_the_share() -> None:
    words = [f"w{i}" for i in range(6_000)]
    validation, train = arrow([[" ".join(words)]]), arrow([[" ".join(words[:3_000])]])
    whole, some = collect(validation), collect(validation, share=0.25)
    assert set(some.tolist()) <= set(whole.tolist())
    assert 0.2 < len(some) / len(whole) < 0.3  # 0.25 +- 9 standard errors
    shared = some[found(train, some, share=0.25)]
    seen = report(validation, shared, share=0.25)
    assert abs(seen.known / seen.ngrams - 0.5) < 0.1  # 8 standard errors
    assert seen.overlapping == 1
