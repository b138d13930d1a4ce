"""How good scores are that are to tell two classes apart.

What may live here: measures of binary classification on held-out labels. No model, no files.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

#: Standard deviations on either side of a 95 % interval of a normal distribution.
_Z95 = 1.959964


def roc_auc(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """Area under the ROC curve, and its 95 % confidence interval, cut at 0 and 1.

    The probability that a positive scores higher than a negative, ties counting half. The interval
    is DeLong's (DeLong et al. 1988, in Sun & Xu's form by ranks, 2014); where nothing is confused
    it has no width. Raises ValueError where a class is empty.
    """
    area, of_positives, of_negatives = _placements(scores, labels)
    error = _Z95 * np.sqrt(_variance_of_mean(of_positives) + _variance_of_mean(of_negatives))
    return area, max(0.0, area - float(error)), min(1.0, area + float(error))


def roc_auc_gain(
    scores: np.ndarray, others: np.ndarray, labels: np.ndarray
) -> tuple[float, float, float]:
    """By how much the area of `scores` is larger than that of `others` on the same documents, and
    the 95 % confidence interval of it (DeLong's, for paired scores)."""
    area, positives, negatives = _placements(scores, labels)
    other, positives2, negatives2 = _placements(others, labels)
    variance = _variance_of_mean(positives - positives2) + _variance_of_mean(negatives - negatives2)
    gain, error = area - other, _Z95 * float(np.sqrt(variance))
    return gain, gain - error, gain + error


def _placements(scores: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The area; for each positive the share of negatives below it, for each negative the share of
    positives above."""
    labels = np.asarray(labels, bool)
    positives, negatives = scores[labels], scores[~labels]
    if not len(positives) or not len(negatives):
        raise ValueError("both classes are wanted")
    ranks = _midranks(np.concatenate([positives, negatives]))
    of_positives = (ranks[: len(positives)] - _midranks(positives)) / len(negatives)
    of_negatives = 1 - (ranks[len(positives) :] - _midranks(negatives)) / len(positives)
    return float(of_positives.mean()), of_positives, of_negatives


def _midranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _variance_of_mean(values: np.ndarray) -> float:
    return float(values.var(ddof=1) / len(values)) if len(values) > 1 else 0.0


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """The mean of the precision at each positive, those of equal score at once."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(np.asarray(labels, bool)[order])
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # of each equal score
    gained = np.diff(hits[last], prepend=0)
    return float((gained * hits[last] / (last + 1)).sum() / hits[-1])


def calibration(scores: np.ndarray, labels: np.ndarray, bins: int = 10) -> dict[str, Any]:
    """Whether a score of 0.8 is right for 8 of 10.

    `bins` of equal width: documents, mean score, share of positives. `expected_error`: the mean
    distance of the two, by documents (Guo et al., arXiv 1706.04599). `brier`: the mean square of
    score - label.
    """
    truth = np.asarray(labels, np.float64)
    place = np.minimum((scores * bins).astype(np.int64), bins - 1)
    rows, error = [], 0.0
    for i in range(bins):
        inside = place == i
        count = int(inside.sum())
        mean = float(scores[inside].mean()) if count else None
        positives = float(truth[inside].mean()) if count else None
        if mean is not None and positives is not None:
            error += count * abs(mean - positives) / len(scores)
        row = {"from": i / bins, "to": (i + 1) / bins, "documents": count}
        rows.append({**row, "mean_score": mean, "positives": positives})
    return {"bins": rows, "expected_error": error, "brier": float(((scores - truth) ** 2).mean())}


def keeping(scores: np.ndarray, share: float) -> float:
    """The threshold that keeps this share of documents, those of equal score and one more or less
    aside: the score of the last one kept."""
    kept = min(max(1, ceil(share * len(scores))), len(scores))
    return float(np.partition(scores, len(scores) - kept)[len(scores) - kept])


def at(threshold: float, scores: np.ndarray, labels: np.ndarray) -> dict[str, float | None]:
    """Share kept, precision and recall where scores from the threshold on are kept."""
    labels, kept = np.asarray(labels, bool), scores >= threshold
    right = int((kept & labels).sum())
    return {
        "kept": float(kept.mean()),
        "precision": right / int(kept.sum()) if kept.any() else None,
        "recall": right / int(labels.sum()),
    }
