"""Perplexity on data whose answer is known: ranks, other languages, speeches beside web pages.

    python bench/scores_perplexity.py DATA [--model kenlm/sample ...]

DATA is the folder of labelled data. For each model:

- `published`: Spearman's rank correlation with the perplexities that CCNet's English model gave
  20 documents of Common Crawl's head (filters/ccnet-metadata-docs).
- `speeches`, `web`: medians over addresses of American presidents (text/us-speeches) and over
  real pages (filters/golden-filter-values); `AUC`: how often a speech has the lower one.

Then Genesis (text/genesis): a small model of the first half of the English text, asked about its
second half and about other languages.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curation.models import kenlm
from curation.models.kenlm import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", nargs="*", default=["kenlm/sample"])
    options = parser.parse_args()
    documents = jsonl(options.data / "filters/ccnet-metadata-docs/cc_en_head-0091.jsonl.gz")
    folder = options.data / "text/us-speeches"
    speeches = [row["text"] for path in sorted(folder.glob("*.gz")) for row in jsonl(path)]
    golden = jsonl(options.data / "filters/golden-filter-values/golden.jsonl.gz")
    print(f"{'model':<16}{'published':>10}{'speeches':>10}{'web':>10}{'AUC':>8}")
    for model in options.model:
        texts = [row["text"] for row in documents]
        theirs = [row["metadata"]["perplexity"] for row in documents]
        rank = spearman(theirs, perplexities(model, texts))
        good = perplexities(model, speeches)
        web = perplexities(model, [row["text"] for row in golden])
        medians = f"{statistics.median(good):>10,.1f}{statistics.median(web):>10,.1f}"
        print(f"{Path(model).name:<16}{rank:>10.2f}{medians}{auc(good, web):>8.3f}")
    print(f"({len(documents)} documents, {len(speeches)} speeches, {len(golden)} pages)\n")
    print(f"{'Genesis':<28}{'perplexity':>10}")
    for name, perplexity in genesis(options.data / "text/genesis").items():
        print(f"{name:<28}{perplexity:>10,.1f}")


def jsonl(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def perplexities(model: str | Path, texts: Sequence[str]) -> list[float]:
    """Of those texts that have one."""
    found = [score.perplexity for score in kenlm.load(model).score(texts)]
    return [number for number in found if number is not None]


def genesis(folder: Path) -> dict[str, float]:
    """Perplexity by a model of the first half of the English text, the lowest first."""
    texts = {path.name.removesuffix(".txt.gz"): _lines(path) for path in folder.glob("*.gz")}
    english = texts.pop("english-web")
    half = len(english) // 2
    options = train.Options(order=5, vocabulary=2_000, estimator="own", fallback=True)
    with tempfile.TemporaryDirectory() as place:
        model = Path(place) / "genesis"
        train.train(english[:half], model, options, say=lambda message: None)
        asked = {"English, its second half": english[half:], **texts}
        found = {name: perplexities(model, ["\n".join(own)])[0] for name, own in asked.items()}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [line for line in map(str.strip, lines) if line]


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation; equal values share their mean rank."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def auc(low: Sequence[float], high: Sequence[float]) -> float:
    """How often a number of the first is below one of the second; ties count half."""
    x, y = np.array(low)[:, None], np.array(high)[None, :]
    return float(np.mean((x < y) + 0.5 * (x == y)))


def _ranks(values: Sequence[float]) -> np.ndarray:
    array = np.array(values)
    return np.array([np.mean(np.flatnonzero(np.sort(array) == value)) for value in array])


if __name__ == "__main__":
    main()
