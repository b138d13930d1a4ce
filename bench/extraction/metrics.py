"""The published metrics of the two extraction benchmarks.

What may live here: own implementations of them, over texts by the names of samples.

- article-extraction-benchmark (https://github.com/scrapinghub/article-extraction-benchmark):
  precision and recall of 4-gram shingles of words, means over pages; F1 of the two means.
- trafilatura's evaluation (https://trafilatura.readthedocs.io/en/latest/evaluation.html): segments
  that must and must not stand in the text, white space normalised; all segments counted alike.

WebMainBench (https://github.com/opendatalab/WebMainBench) has whole texts, too: its sample is
scored as the articles are, with single characters for words where the script has no spaces.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from bench.extraction.corpus import Sample, tokens

_WORD = re.compile(r"\w+")


class Score(NamedTuple):
    precision: float
    recall: float
    pages: int

    @property
    def f1(self) -> float:
        return 2 * self.precision * self.recall / max(1e-9, self.precision + self.recall)


def shingles(words: Sequence[str], n: int = 4) -> Counter[tuple[str, ...]]:
    """The runs of `n` words, or all of a shorter text."""
    if 0 < len(words) < n:
        return Counter([tuple(words)])
    return Counter(zip(*(words[i:] for i in range(n)), strict=False))


def article(texts: Mapping[str, str], samples: Iterable[Sample]) -> Score:
    """Scores of the pages of the set `aeb`."""
    return _overlap(texts, samples, "aeb:", _WORD.findall)


def main_content(texts: Mapping[str, str], samples: Iterable[Sample]) -> Score:
    """Scores of the pages of the set `wmb`."""
    return _overlap(texts, samples, "wmb:", tokens)


def _overlap(
    texts: Mapping[str, str],
    samples: Iterable[Sample],
    prefix: str,
    words: Callable[[str], list[str]],
) -> Score:
    precision, recall = [], []
    pages = [sample for sample in samples if sample.name.startswith(prefix)]
    for sample in pages:
        wanted, found = shingles(words(sample.truth)), shingles(words(texts[sample.name]))
        both = (wanted & found).total()
        if found:
            precision.append(both / found.total())
        if wanted:
            recall.append(both / wanted.total())
    return Score(_mean(precision), _mean(recall), len(pages))


def segments(texts: Mapping[str, str], samples: Iterable[Sample]) -> Score:
    """Scores of the pages of the set `traf`."""
    right = wrong = missed = 0
    pages = [sample for sample in samples if sample.name.startswith("traf:")]
    for sample in pages:
        text = " ".join(texts[sample.name].split())
        for name in ("with", "without"):
            hits = sum(" ".join(segment.split()) in text for segment in sample.truth[name])
            if name == "with":
                right += hits
                missed += len(sample.truth[name]) - hits
            else:
                wrong += hits
    return Score(right / max(1, right + wrong), right / max(1, right + missed), len(pages))


def _mean(values: list[float]) -> float:
    return sum(values) / max(1, len(values))
