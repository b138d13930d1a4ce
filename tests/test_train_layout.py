"""The layout of rows against one made token by token."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.layout import before, layout_of, layout_of_pieces, spread, sums

LENGTH = 24

#: Lengths of documents that fit into a row, in some rows.
ROWS = st.lists(
    st.lists(st.integers(0, 12), max_size=6).filter(lambda own: sum(own) <= LENGTH), max_size=4
)


def slow(rows: list[list[int]]) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Documents, positions, and the lengths of all documents, padding included."""
    documents, positions, lengths = [], [], []
    for own in rows:
        whole = [*own, LENGTH - sum(own)] if sum(own) < LENGTH else own
        documents.append([number for number, tokens in enumerate(whole) for _ in range(tokens)])
        positions.append([place for tokens in whole for place in range(tokens)])
        lengths += whole
    return documents, positions, lengths


@settings(max_examples=200, deadline=None)
@given(ROWS)
def test_documents_and_positions_are_those_made_token_by_token(rows: list[list[int]]) -> None:
    layout = layout_of(rows, LENGTH, "causal")
    documents, positions, _ = slow(rows)
    assert layout.documents.tolist() == documents
    assert layout.positions.tolist() == positions
    assert layout.documents.shape == layout.positions.shape == (len(rows), LENGTH)
    assert layout.documents.dtype == layout.positions.dtype == torch.int32


@settings(max_examples=200, deadline=None)
@given(ROWS)
def test_starts_are_the_documents_over_all_rows_and_then_the_end(rows: list[list[int]]) -> None:
    layout, lengths = layout_of(rows, LENGTH, "both"), slow(rows)[2]
    assert layout.starts is not None
    assert layout.starts.tolist() == [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    assert layout.starts.dtype == torch.int32
    assert layout.longest == max(lengths, default=1)


@settings(max_examples=100, deadline=None)
@given(ROWS, st.integers(0, 1 << 30))
def test_a_prefix_is_the_first_tokens_of_its_document(rows: list[list[int]], seed: int) -> None:
    random = Random(seed)
    prefixes = [[random.randint(0, tokens) for tokens in own] for own in rows]
    flat = [np.array([x for own in of for x in own], np.int64) for of in (rows, prefixes)]
    counts = np.array([len(own) for own in rows], np.int64)
    layout = layout_of_pieces(counts, flat[0], LENGTH, "prefix", flat[1])
    documents, positions, _ = slow(rows)
    wanted = [
        [place < [*own, 0][document] for document, place in zip(*both, strict=True)]
        for own, *both in zip(prefixes, documents, positions, strict=True)
    ]
    assert layout.prefix is not None
    assert layout.prefix.tolist() == wanted


def test_padding_is_a_document_of_its_own() -> None:
    layout = layout_of([[3, 2], [8]], 8, "causal")
    assert layout.documents.tolist() == [[0, 0, 0, 1, 1, 2, 2, 2], [0] * 8]
    assert layout.positions.tolist() == [[0, 1, 2, 0, 1, 0, 1, 2], list(range(8))]


def test_documents_longer_than_their_row_are_refused() -> None:
    with pytest.raises(ValueError, match="documents of 9 tokens in a row of 8"):
        layout_of([[2], [5, 4]], 8, "causal")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(-5, 5), max_size=5), max_size=6))
def test_groups_one_after_the_other_are_summed_and_counted(groups: list[list[int]]) -> None:
    counts = np.array([len(group) for group in groups], np.int64)
    values = np.array([value for group in groups for value in group], np.int64)
    assert sums(counts, values).tolist() == [sum(group) for group in groups]
    wanted = [sum(group[:place]) for group in groups for place in range(len(group))]
    assert before(counts, values).tolist() == wanted
    begins = np.array([10 * number for number in range(len(groups))], np.int64)
    wanted = [10 * n + place for n, group in enumerate(groups) for place in range(len(group))]
    assert spread(begins, counts).tolist() == wanted
