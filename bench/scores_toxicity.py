"""How well toxic text is found: by lists and by a classifier, on labelled texts and on clean ones.

    python bench/scores_toxicity.py DATA [--clean TEXTS.jsonl ...]

DATA has toxicity/davidson (tweets; toxic: hate speech or offensive), toxicity/hatecheck,
toxicity/ldnoobw and text/. The classifier learns from one half of the tweets, divided by the hashes
of their words, and is held to the other; the lists, which learn nothing, are held to the same half.
It is trained twice: on tweets alone, and with the sentences of wikitext-2 as further negatives. Its
options were chosen within the half to learn from. A text is toxic to a list from one entry on, to
the classifier from a score of 0.40 on. Intervals are of 95 %: DeLong's of areas, the others by
bootstrap. Nothing in the clean texts is toxic, or hardly anything: what is found there is too much.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curation.document import Documents
from curation.filters import bad_words
from curation.filters.toxicity import DOLMA, Toxicity
from curation.models import card, classifier, scores, training
from curation.text import phrases
from curation.text.view import TextView

OPTIONS = classifier.Options(dim=16, epochs=10, lr=0.3, min_chars=3, max_chars=5, bucket=200_000)
SEED = 20


@dataclass(frozen=True)
class Labelled:
    """Texts, and which are toxic."""

    texts: list[str]
    toxic: np.ndarray


def read(path: Path) -> list[dict[str, Any]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def davidson(data: Path) -> Labelled:
    rows = read(data / "toxicity/davidson/davidson.jsonl.gz")
    toxic = np.array([row["class"] != "neither" for row in rows])
    return Labelled([row["text"] for row in rows], toxic)


def hatecheck(data: Path) -> tuple[Labelled, np.ndarray]:
    """The cases, and the functionality of each."""
    rows = read(data / "toxicity/hatecheck/hatecheck.jsonl.gz")
    toxic = np.array([row["label_gold"] == "hateful" for row in rows])
    cases = Labelled([row["test_case"] for row in rows], toxic)
    return cases, np.array([row["functionality"] for row in rows])


def clean(data: Path, more: Sequence[Path]) -> dict[str, list[str]]:
    """Documents by the name of their collection."""
    speeches = [data / f"text/us-speeches/{name}.jsonl.gz" for name in ("inaugural", "state_union")]
    with gzip.open(data / "text/genesis/english-web.txt.gz", "rt", encoding="utf-8") as file:
        genesis = file.read()
    return {
        "us-speeches": [row["text"] for path in speeches for row in read(path)],
        "wikitext-2": wikitext(data),
        "genesis": [genesis],
        **{path.stem: [row["text"] for row in read(path)] for path in more},
    }


def wikitext(data: Path) -> list[str]:
    """Its articles: each begins with a heading of the first level."""
    with gzip.open(data / "text/wikitext-2/valid.txt.gz", "rt", encoding="utf-8") as file:
        parts = re.split(r"(?m)^(?= = [^=])", file.read())
    return [part for part in parts if part.strip()]


def view(texts: Iterable[str]) -> TextView:
    return TextView(pa.array(texts, pa.large_string()))


def sentences(texts: Iterable[str]) -> list[str]:
    seen = view(texts)
    data, spans = seen.data.tobytes(), seen.sentences
    edges = zip(spans.starts.tolist(), spans.stops.tolist(), strict=True)
    return [data[start:stop].decode() for start, stop in edges]


def hits(name: str, texts: Iterable[str]) -> np.ndarray:
    """How often entries of an English list occur in each text."""
    seen, found = view(texts), bad_words.of_language(name, "en")
    assert found is not None
    return phrases.count(seen, found, np.arange(len(seen)))[0]


def halves(tweets: Labelled) -> training.Split:
    sides = [[t for t, y in zip(tweets.texts, tweets.toxic, strict=True) if y == w] for w in (1, 0)]
    return training.split(*sides, held_out=0.5, seed=SEED)


def train(negative: list[str], positive: list[str], place: Path) -> classifier.Classifier:
    with card.new(place, kind=classifier.KIND) as (folder, settings):
        settings |= classifier.fit(positive, negative, folder, OPTIONS, "words", "sentence")
    return classifier.load(place)


def measures(toxic: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Precision, recall, F1, accuracy."""
    right, taken, there = (toxic & found).sum(), found.sum(), toxic.sum()
    exact = (toxic == found).mean()
    return np.array([right / max(taken, 1), right / there, 2 * right / (taken + there), exact])


def with_intervals(toxic: np.ndarray, values: np.ndarray, threshold: float) -> list[str]:
    found = values >= threshold
    random = np.random.default_rng(SEED)
    draws = random.integers(len(toxic), size=(1000, len(toxic)))
    spread = np.array([measures(toxic[draw], found[draw]) for draw in draws])
    low, high = np.percentile(spread, [2.5, 97.5], axis=0)
    area = scores.roc_auc(values, toxic)
    columns = [*zip(measures(toxic, found), low, high, strict=True), area]
    return [f"{value:.3f} [{down:.3f}, {up:.3f}]" for value, down, up in columns]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    cells = [list(map(str, row)) for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        first, *others = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        print("  ".join([first.strip().ljust(widths[0]), *others]))
    print()


Judge = Callable[[Sequence[str]], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--clean", type=Path, nargs="*", default=[], help="JSONL with `text`")
    options = parser.parse_args()
    data: Path = options.data
    half = halves(davidson(data))
    with tempfile.TemporaryDirectory() as scratch:
        alone = train(*half.train, Path(scratch) / "alone")
        prose = sentences(wikitext(data))
        wide = train([*half.train[0], *prose], half.train[1], Path(scratch) / "prose")
        lists = {"LDNOOBW": str(data / "toxicity/ldnoobw"), "built-in": bad_words.BUILT_IN}
        judges: dict[str, tuple[Judge, float]] = {
            **{n: (lambda t, path=path: hits(path, t), 1) for n, path in lists.items()},
            "classifier, tweets": (alone.probabilities, DOLMA),
            "classifier, tweets and prose": (wide.probabilities, DOLMA),
        }
        report(
            data, half, judges, lists, clean(data, options.clean), {"tweets": alone, "both": wide}
        )


def report(
    data: Path,
    half: training.Split,
    judges: dict[str, tuple[Judge, float]],
    lists: dict[str, str],
    documents: dict[str, list[str]],
    models: dict[str, classifier.Classifier],
) -> None:
    held = [*half.held_out[0], *half.held_out[1]]
    other = Labelled(held, np.repeat([False, True], [len(side) for side in half.held_out]))
    cases, functions = hatecheck(data)
    found: dict[str, np.ndarray] = {}
    for name, texts in (("Davidson, the other half", other), ("HateCheck", cases)):
        print(f"{name}: {len(texts.texts)} texts, {texts.toxic.mean():.3f} of them toxic")
        rows = [["all is toxic", *(f"{n:.3f}" for n in measures(texts.toxic, texts.toxic | True))]]
        rows[0].append("0.500")
        for judge, (work, threshold) in judges.items():
            found[judge] = work(texts.texts) >= threshold
            rows.append([judge, *with_intervals(texts.toxic, work(texts.texts), threshold)])
        table(["", "precision", "recall", "F1", "accuracy", "ROC-AUC"], rows)

    print("HateCheck by functionality: accuracy")
    rows = []
    for function in sorted(set(functions)):
        at = functions == function
        right = [f"{(found[judge] == cases.toxic)[at].mean():.2f}" for judge in judges]
        rows.append([function, str(at.sum()), *right])
    table(["", "cases", *judges], rows)

    print("clean texts: entries of lists")
    rows = []
    for name, texts in documents.items():
        words = int(view(texts).word_counts().sum())
        for known, path in lists.items():
            number = hits(path, texts)
            gone = dropped(Toxicity(words=path), texts)
            rate, share = number.sum() / words * 1e6, (number > 0).mean()
            row = [name, str(len(texts)), str(words), known, f"{rate:.1f}", f"{share:.4f}"]
            rows.append([*row, str(gone)])
    head = ["documents", "words", "list", "hits per million words", "documents with one"]
    table(["", *head, "dropped by default"], rows)

    print(f"clean texts: sentences at or above {DOLMA}")
    rows = []
    for name, texts in documents.items():
        words, own = int(view(texts).word_counts().sum()), sentences(texts)
        for known, model in models.items():
            toxic = model.probabilities(own) >= DOLMA
            share, rate = toxic.mean(), toxic.sum() / words * 1e6
            rows.append([name, str(len(own)), known, f"{share:.4f}", f"{rate:.0f}"])
    table(["", "sentences", "trained on", "share", "per million words"], rows)


def dropped(stage: Toxicity, texts: list[str]) -> int:
    """How many English documents the rule over the share of words drops."""
    tags = pa.array(["en"] * len(texts), pa.string())
    docs = Documents({"text": pa.array(texts, pa.large_string()), "language": tags})
    [rule] = [rule for rule in stage.rules if rule.signal == "word_share"]
    shares = stage.score(docs)["word_share"]
    assert isinstance(shares, pa.Array)
    return int(rule.violated(shares, rule.threshold(stage, tags)).sum())


if __name__ == "__main__":
    main()
