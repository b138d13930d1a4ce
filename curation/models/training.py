"""Training a classifier, and the report on texts that were held out.

What may live here: what `curation models train-classifier` does: which texts are held out, and what
is said of the model on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np

from curation.models import card, classifier, scores
from curation.models.classifier import KIND, ClassifierError, Options, as_line

_WORDS = re.compile(r"\w+")

#: Scores that differ by less tell no classes apart; bytes from which on a model is called large.
NARROW, LARGE = 0.1, 100 * 10**6


@dataclass(frozen=True)
class Split:
    """Texts of two classes, some held out; each text once.

    `duplicates`: texts left out as their like was there already; `in_both`: texts left out of both
    classes, as their like is in both; `empty`: without words.
    """

    train: tuple[list[str], list[str]]  # negative, positive
    held_out: tuple[list[str], list[str]]
    duplicates: int
    in_both: int
    empty: int


def split(positive: Iterable[str], negative: Iterable[str], held_out: float, seed: int) -> Split:
    """Which texts are held out: those whose hash is in the last `held_out` of the range.

    Texts with the same words in the same order are the same one, whatever their case, punctuation
    and spaces: so no twin of a text to learn from is held out. Of the same ones the least text is
    taken, whatever the order they come in.
    """
    found: tuple[dict[int, str], dict[int, str]] = ({}, {})
    duplicates = empty = 0
    for texts, side in ((negative, found[0]), (positive, found[1])):
        for text in texts:
            key = _key(text, seed)
            if key is None:
                empty += 1
            elif key in side:
                duplicates += 1
                side[key] = min(side[key], text)
            else:
                side[key] = text
    both = found[0].keys() & found[1].keys()
    limit = round((1 - held_out) * 2**64)
    train: tuple[list[str], list[str]] = ([], [])
    rest: tuple[list[str], list[str]] = ([], [])
    for label, side in enumerate(found):
        for key in sorted(side.keys() - both):
            (train if key < limit else rest)[label].append(side[key])
    return Split(train, rest, duplicates, len(both), empty)


def _key(text: str, seed: int) -> int | None:
    words = " ".join(_WORDS.findall(as_line(text).casefold()))
    if not words:
        return None
    hashed = blake2b(words.encode(), digest_size=8, salt=seed.to_bytes(8, "big"))
    return int.from_bytes(hashed.digest(), "big")


def train(
    positive: Iterable[str],
    negative: Iterable[str],
    target: Path,
    *,
    held_out: float = 0.1,
    keep_share: float = 0.1,
    on: Iterable[str] | None = None,
    options: Options | None = None,
    preparation: str = "line",
    granularity: Literal["document", "sentence"] = "document",
    language: str | None = None,
    license: str = "",
    source: str = "",
    demonstration: bool = False,
) -> dict[str, Any]:
    """Trains a classifier into the directory `target`; returns the report, which its card has, too.

    The threshold that keeps `keep_share` is meant of the texts `on`: of the raw crawl that is to be
    filtered. Without them it is meant of the negatives that were held out, as DCLM's are a sample
    of the crawl. Raises ClassifierError.
    """
    chosen = options or Options()
    parts = split(positive, negative, held_out, chosen.seed)
    for name, (negatives, positives) in (("train on", parts.train), ("hold out", parts.held_out)):
        if not negatives or not positives:
            which = "positive" if not positives else "negative"
            raise ClassifierError(f"no {which} text is there to {name}: more texts are wanted")
    said = {"language": language, "license": license, "source": source}
    with card.new(target, kind=KIND, demonstration=demonstration, **said) as (place, settings):
        settings.update(
            classifier.fit(
                *(parts.train[1], parts.train[0], place, chosen, preparation, granularity)
            )
        )
        made = card.Card(kind=KIND, files={}, settings=settings)
        model = classifier.Classifier(place / settings["model"], made)
        report = _report(model, parts, keep_share, on)
        report["bytes"] = (place / settings["model"]).stat().st_size
        settings["thresholds"] = {f"keep_{keep_share:g}": report["threshold"]["score"]}
        settings["report"] = report
    return report


def _report(
    model: classifier.Classifier, parts: Split, keep_share: float, on: Iterable[str] | None
) -> dict[str, Any]:
    negatives, positives = (model.probabilities(texts) for texts in parts.held_out)
    found = np.concatenate([negatives, positives])
    labels = np.repeat([False, True], [len(negatives), len(positives)])
    crawl = negatives if on is None else _scored(model.probabilities(on))
    threshold = scores.keeping(crawl, keep_share)
    area, low, high = scores.roc_auc(found, labels)
    return {
        "texts": {
            "train": {"positive": len(parts.train[1]), "negative": len(parts.train[0])},
            "held_out": {"positive": len(positives), "negative": len(negatives)},
            "duplicates": parts.duplicates,
            "in_both_classes": parts.in_both,
            "without_words": parts.empty,
        },
        "scores": {"lowest": float(found.min()), "highest": float(found.max())},
        "roc_auc": {"value": area, "low": low, "high": high},
        "average_precision": scores.average_precision(found, labels),
        "calibration": scores.calibration(found, labels),
        "threshold": {
            "keep_share": keep_share,
            "of": "held-out negatives" if on is None else "given texts",
            "texts": len(crawl),
            "score": threshold,
            **scores.at(threshold, found, labels),
        },
    }


def _scored(found: np.ndarray) -> np.ndarray:
    found = found[~np.isnan(found)]
    if not len(found):
        raise ClassifierError("no text to find the threshold on")
    return found


def _warnings(report: Mapping[str, Any]) -> list[str]:
    """What a person should know of a classifier that has learned little, or is large."""
    lowest, highest = report["scores"]["lowest"], report["scores"]["highest"]
    found = []
    if highest - lowest < NARROW:
        found.append(f"all scores lie within {highest - lowest:.2g}: more --epochs, a higher --lr")
    if report["bytes"] > LARGE:
        size = report["bytes"] / 1e6
        found.append(f"the model has {size:,.0f} MB: --bucket and --dim decide how many")
    return [""] * bool(found) + found


def render(report: Mapping[str, Any]) -> str:
    """The report for a person."""
    texts, area, calibration = report["texts"], report["roc_auc"], report["calibration"]
    threshold = report["threshold"]
    lines = [
        f"{'':<16}{'positive':>10}{'negative':>10}",
        *(
            f"{name:<16}{counts['positive']:>10,}{counts['negative']:>10,}"
            for name, counts in (("trained on", texts["train"]), ("held out", texts["held_out"]))
        ),
        f"left out: {texts['duplicates']:,} duplicates, {texts['in_both_classes']:,} in both "
        f"classes, {texts['without_words']:,} without words",
        "",
        f"ROC-AUC             {area['value']:.4f}  (95 %: {area['low']:.4f} to {area['high']:.4f})",
        f"average precision   {report['average_precision']:.4f}",
        f"calibration error   {calibration['expected_error']:.4f}",
        f"Brier score         {calibration['brier']:.4f}",
        "",
        f"{'score':<12}{'documents':>10}{'mean':>8}{'positive':>10}",
    ]
    for row in calibration["bins"]:
        mean, share = (
            "-" if row[name] is None else f"{row[name]:.3f}" for name in ("mean_score", "positives")
        )
        span = f"{row['from']:.1f} to {row['to']:.1f}"
        lines.append(f"{span:<12}{row['documents']:>10,}{mean:>8}{share:>10}")
    lines += _warnings(report)
    precision = "-" if threshold["precision"] is None else f"{threshold['precision']:.3f}"
    return "\n".join(
        [
            *lines,
            "",
            f"min_score: {threshold['score']:.6g} keeps {threshold['keep_share']:.1%} of the "
            f"{threshold['texts']:,} {threshold['of']};",
            f"of what is held out it keeps {threshold['kept']:.1%}: precision {precision}, "
            f"recall {threshold['recall']:.3f}",
        ]
    )
