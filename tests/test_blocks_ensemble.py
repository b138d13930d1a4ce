"""Ensembles of trees as flat arrays: evaluation, checks, files."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.extract.blocks.ensemble import Ensemble, probabilities, rounded_down


def grown(seed: int, trees: int, splits: int, width: int) -> Ensemble:
    """Trees with leaves split at random, as LightGBM grows them: the new node takes the place of
    the leaf, which becomes its left; the right one is new."""
    chance = random.Random(seed)
    feature, threshold, left, right, value = [], [], [], [], []
    nodes, leaves = [0], [0]
    for _ in range(trees):
        own: list[list[int]] = []  # left and right of this tree's nodes
        for node in range(splits):
            leaf = chance.randrange(node + 1)
            for ways in own:
                ways[:] = [node if way == -1 - leaf else way for way in ways]
            own.append([-1 - leaf, -1 - (node + 1)])
            feature.append(chance.randrange(width))
            threshold.append(chance.choice([-1, 0, 0.5, 2]))
        left += [ways[0] for ways in own]
        right += [ways[1] for ways in own]
        value += [chance.gauss(0, 1) for _ in range(splits + 1)]
        nodes.append(len(left))
        leaves.append(len(value))
    return Ensemble(
        np.array(feature, np.int32),
        np.array(threshold, np.float32),
        np.array(left, np.int32),
        np.array(right, np.int32),
        np.array(value, np.float32),
        np.array(nodes, np.int32),
        np.array(leaves, np.int32),
    )


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(0, 5), st.integers(0, 31), st.integers(0, 140))
def test_compiled_sums_are_the_plain_ones(seed: int, trees: int, splits: int, rows: int) -> None:
    ensemble = grown(seed, trees, splits, width=4)
    values = np.array([-2, -1, 0, 0.5, 1, 2, 3, np.nan, np.inf, -np.inf], np.float32)
    features = np.random.default_rng(seed).choice(values, (rows, 5)).astype(np.float32)
    assert ensemble.sums(features).tolist() == ensemble.reference_sums(features)


def test_a_file_gives_the_ensemble_back_and_has_the_same_bytes_every_time() -> None:
    ensemble = grown(1, trees=3, splits=6, width=4)
    files = [io.BytesIO(), io.BytesIO()]
    for file in files:
        np.savez(file, **ensemble.arrays("first_"))
    assert files[0].getvalue() == files[1].getvalue()
    files[0].seek(0)
    again = Ensemble.of_arrays(np.load(files[0]), "first_")
    for name, array in ensemble.arrays().items():
        np.testing.assert_array_equal(getattr(again, name), array)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("left", np.full(6, 6, np.int32)),
        ("left", np.full(6, -8, np.int32)),
        ("left", np.zeros(6, np.int32)),
        ("right", np.full(6, -1, np.int32)),
        ("left", np.zeros(5, np.int32)),
        ("nodes", np.array([0, 5], np.int32)),
        ("leaves", np.array([0, 3, 7], np.int32)),
        ("feature", np.full(6, -1, np.int32)),
        ("value", np.zeros(7)),
    ],
)
def test_arrays_that_are_no_ensemble_are_refused(field: str, wrong: np.ndarray) -> None:
    arrays = grown(1, trees=1, splits=6, width=4).arrays()
    with pytest.raises(ValueError, match=r"tree|sequence"):
        Ensemble.of_arrays({**arrays, field: wrong})


def test_a_tree_of_too_many_leaves_is_refused() -> None:
    with pytest.raises(ValueError, match="33 leaves"):
        grown(1, trees=1, splits=32, width=4)


def test_rows_that_are_too_short_are_refused() -> None:
    ensemble = grown(1, trees=2, splits=9, width=4)
    with pytest.raises(ValueError, match="are needed"):
        ensemble.sums(np.zeros((2, ensemble.width - 1), np.float32))


@given(st.floats(-1e30, 1e30), st.integers(-3, 3))
def test_rounded_thresholds_divide_as_the_exact_ones(threshold: float, steps: int) -> None:
    rounded = rounded_down(np.array([threshold]))[0]
    value = np.float32(threshold)
    for _ in range(abs(steps)):
        value = np.nextafter(value, np.float32(np.copysign(np.inf, steps)))
    assert (value <= rounded) == (float(value) <= threshold)


def test_probabilities_are_monotonic_and_finite() -> None:
    found = probabilities(np.array([-1e9, -1.0, 0.0, 1.0, 1e9]))
    assert found.tolist() == sorted(found) and found[2] == 0.5
    assert found[0] >= 0 and found[-1] == 1
