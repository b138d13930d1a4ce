"""How well `blocks` extracts, beside its peers in the same run (those of `bench.extraction.speed`).

    python -m bench.extraction.scores DATA [--bounds N]

DATA: the folder `html_extraction`. All figures of `blocks` are cross-validated by site: every page
is judged by a model that has seen no page of its registered domain (weights of words and trees
alike). The settings of training were chosen with such figures of these pages in sight, and so is
the threshold. Texts are as rendered. With it, intervals over pages (`--bounds`, resampled N times).

What may live here: the tables, and what kinds of pages there are.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from bench.extraction import corpus, metrics
from bench.extraction.corpus import Sample
from bench.extraction.speed import candidates
from bench.extraction.train import Trainer, out_of_fold
from curation.extract.blocks.choose import choose
from curation.extract.blocks.render import render

THRESHOLDS = (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8)
Texts = dict[str, str]

#: Kinds of pages by what stands in their HTML; a page is of the first whose pattern is found.
KINDS = {
    "forum": r"phpbb|vbulletin|discourse|<body[^>]*\bforum|schema.org/DiscussionForum",
    "product": r"og:type[\"'][^>]*product|schema.org/Product\b",
    "recipe": r"schema.org/?\"?[^>]{0,60}Recipe\b|\"@type\": ?\"Recipe\"",
    "article": r"og:type[\"'][^>]*article|\"@type\": ?\"(News|Blog)?(Article|Posting)\"",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--bounds", type=int, default=1000)
    args = parser.parse_args()
    samples = corpus.load(args.data)
    chances = out_of_fold(Trainer(samples))
    judged = [s for s in samples if s.name.startswith(("aeb:", "traf:", "wmb:"))]
    mine: dict[float, Texts] = {
        threshold: {
            sample.name: render(sample.page, choose(sample.page, chance, threshold))
            for sample, chance in zip(samples, chances, strict=True)
        }
        for threshold in THRESHOLDS
    }
    texts: dict[str, Texts] = {
        name: mine[0.5] if name == "blocks" else _texts(engine, judged)
        for name, engine in candidates().items()
    }

    print("threshold, and what it gives (precision, recall, F1: articles, segments, WebMainBench)")
    for threshold, found in mine.items():
        _print(str(threshold), found, judged)
    print("\nengines, blocks at 0.5")
    for name, found in texts.items():
        _print(name, found, judged)
    print("\nF1 of blocks less that of trafilatura: the middle 95 % over resampled pages")
    _bounds(texts["blocks"], texts["trafilatura, standard"], judged, args.bounds)
    for title, of in (("language", _language), ("kind", _kind), ("site list", _list)):
        print(f"\nsegments by {title}: pages, F1 of {'; '.join(texts)}")
        _by(of, texts, judged)


def _texts(engine: Callable[[str], str], samples: Iterable[Sample]) -> Texts:
    return {sample.name: engine(sample.html) for sample in samples}


def _print(name: str, texts: Mapping[str, str], samples: list[Sample]) -> None:
    cells = []
    for of in (metrics.article, metrics.segments, metrics.main_content):
        score = of(texts, samples)
        cells += [score.precision, score.recall, score.f1]
    print(f"{name:<24}" + "".join(f"{cell:9.4f}" for cell in cells))


def _bounds(one: Texts, other: Texts, samples: list[Sample], times: int) -> None:
    random = np.random.default_rng(0)
    for name, prefix, score in (
        ("articles", "aeb:", metrics.article),
        ("segments", "traf:", metrics.segments),
    ):
        pages = [sample for sample in samples if sample.name.startswith(prefix)]
        gains = []
        for _ in range(times if name == "segments" else times // 10):
            drawn = [pages[i] for i in random.integers(len(pages), size=len(pages))]
            gains.append(score(one, drawn).f1 - score(other, drawn).f1)
        low, high = np.quantile(gains, [0.025, 0.975])
        print(f"{name:<24}{low:+9.4f}{high:+9.4f}  ({len(gains)} times)")


def _by(of: Callable[[Sample], str], texts: Mapping[str, Texts], samples: list[Sample]) -> None:
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.name.startswith("traf:"):
            groups.setdefault(of(sample), []).append(sample)
    for group, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        f1 = "".join(f"{metrics.segments(t, members).f1:9.4f}" for t in texts.values())
        print(f"{group:<24}{len(members):6d}{f1}")


def _language(sample: Sample) -> str:
    match = re.search(r"<html[^>]*\blang=[\"']?([a-zA-Z]{2})", sample.html)
    return match[1].lower() if match else "not said"


def _kind(sample: Sample) -> str:
    found = (kind for kind, pattern in KINDS.items() if re.search(pattern, sample.html, re.I))
    return next(found, "other")


def _list(sample: Sample) -> str:
    return "hard" if sample.name.startswith("traf:hard::") else "plain"


if __name__ == "__main__":
    main()
