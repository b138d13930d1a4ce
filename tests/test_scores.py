"""Measures of classifiers, against their definitions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.models import scores

#: Scores with ties, and both labels among them.
samples = st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=2, max_size=30).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


def arrays(rows: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([score / 8 for score, _ in rows]), np.array([label for _, label in rows])


def wins(positive: float, negative: float) -> float:
    return 1.0 if positive > negative else 0.5 if positive == negative else 0.0


@given(samples)
def test_roc_auc_is_the_share_of_pairs_in_the_right_order(rows: list[tuple[int, bool]]) -> None:
    found, labels = arrays(rows)
    pairs = list(product(found[labels], found[~labels]))
    area, low, high = scores.roc_auc(found, labels)
    assert area == pytest.approx(np.mean([wins(*pair) for pair in pairs]))
    assert 0 <= low <= area <= high <= 1


@given(samples)
def test_the_interval_of_roc_auc_is_delongs(rows: list[tuple[int, bool]]) -> None:
    found, labels = arrays(rows)
    table = np.array([[wins(p, n) for n in found[~labels]] for p in found[labels]])
    variance = sum(
        np.var(side, ddof=1) / len(side)
        for side in (table.mean(axis=1), table.mean(axis=0))
        if len(side) > 1
    )
    area, low, high = scores.roc_auc(found, labels)
    assert low == pytest.approx(max(0, area - 1.959964 * variance**0.5), abs=1e-9)
    assert high == pytest.approx(min(1, area + 1.959964 * variance**0.5), abs=1e-9)


def test_the_interval_is_about_that_of_the_bootstrap() -> None:
    random = np.random.default_rng(5)
    labels = np.arange(400) < 150
    found = random.normal(size=400) + labels
    again = [random.integers(0, 400, 400) for _ in range(400)]
    areas = [scores.roc_auc(found[i], labels[i])[0] for i in again]
    _, low, high = scores.roc_auc(found, labels)
    assert low == pytest.approx(np.quantile(areas, 0.025), abs=0.015)
    assert high == pytest.approx(np.quantile(areas, 0.975), abs=0.015)


def test_a_gain_on_the_same_documents_is_surer_than_two_areas() -> None:
    random = np.random.default_rng(5)
    labels = np.arange(400) < 150
    worse = random.normal(size=400) + labels
    better = worse + 0.3 * labels
    gain, low, high = scores.roc_auc_gain(better, worse, labels)
    assert gain == scores.roc_auc(better, labels)[0] - scores.roc_auc(worse, labels)[0]
    assert 0 < low < gain < high
    _, first, last = scores.roc_auc(worse, labels)
    assert high - low < last - first
    assert scores.roc_auc_gain(worse, worse, labels) == (0, 0, 0)


def test_one_class_has_no_area() -> None:
    with pytest.raises(ValueError, match="both classes"):
        scores.roc_auc(np.array([0.1, 0.2]), np.array([True, True]))


def test_average_precision_by_hand() -> None:
    found = np.array([0.9, 0.8, 0.7, 0.6])
    labels = np.array([True, False, True, False])
    assert scores.average_precision(found, labels) == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert scores.average_precision(np.zeros(4), labels) == pytest.approx(2 / 4)


def test_calibration_by_hand() -> None:
    found = np.array([0.05, 0.05, 0.95, 1.0])
    labels = np.array([False, True, True, True])
    made = scores.calibration(found, labels)
    assert [row["documents"] for row in made["bins"]] == [2, *[0] * 8, 2]
    assert made["bins"][0]["positives"] == 0.5
    assert made["bins"][9]["mean_score"] == pytest.approx(0.975)
    assert made["bins"][5]["mean_score"] is None
    assert made["expected_error"] == pytest.approx(0.5 * 0.45 + 0.5 * 0.025)
    assert made["brier"] == pytest.approx((0.0025 + 0.9025 + 0.0025 + 0) / 4)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.floats(0.001, 1))
def test_a_threshold_keeps_the_share_that_is_wanted(values: list[int], share: float) -> None:
    found = np.array(values, float)
    threshold = scores.keeping(found, share)
    assert (found >= threshold).sum() >= share * len(found)
    assert (found > threshold).sum() <= share * len(found)


def test_precision_and_recall_by_hand() -> None:
    found, labels = np.array([0.9, 0.8, 0.2, 0.1]), np.array([True, False, True, False])
    assert scores.at(0.8, found, labels) == {"kept": 0.5, "precision": 0.5, "recall": 0.5}
    assert scores.at(0.95, found, labels) == {"kept": 0.0, "precision": None, "recall": 0.0}
