"""Quality classifiers against human judgement, and their speed.

    PYTHONPATH=. python bench/scores_quality.py DATA [--texts TEXTS.jsonl] [--peer PEER_PYTHON]

DATA is the folder of labelled data: filters/dclm-human has documents that people held to be good or
bad, html_extraction pages as they were captured, mixture and text good prose. Every figure is the
area under the ROC curve with its 95 % interval (DeLong), over all documents and over those of which
all judges agree; the gain is over the length alone, on the same documents. With --texts (JSONL of
`text`) documents per second on one core, beside bare fastText and datatrove's fastText filter.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa

from curation.document import Documents, RawDocument
from curation.extract.contrast import Sides, contrast
from curation.filters.quality import Quality
from curation.models import card, classifier
from curation.models.classifier import KIND, Options
from curation.models.scores import roc_auc, roc_auc_gain
from curation.stage import Filter
from curation.stages import STAGES

FOLDS = 10
#: What was chosen for few labelled documents: words alone, in a small space, looked at often.
FEW = Options(dim=20, epochs=20, ngrams=1, lr=0.5)
#: For some thousand texts: as published, but looked at more often.
SOME = Options(dim=20, epochs=10, bucket=500_000)


class Judged:
    """The documents that people judged."""

    def __init__(self, data: Path) -> None:
        rows = list(_rows(data / "filters/dclm-human/labels.jsonl.gz"))
        self.texts = [str(row["text"]) for row in rows]
        self.good = np.array([bool(row["keep"]) for row in rows])
        self.unanimous = np.array([bool(row["unanimous"]) for row in rows])
        self.length = np.log([len(text) for text in self.texts])
        self.fold = np.array([_hash(text) % FOLDS for text in self.texts])

    def out_of_fold(self, score: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """Scores of each fold by what was trained on the others: `score(train, test)`, indices."""
        found = np.zeros(len(self.texts))
        for fold in range(FOLDS):
            train, test = np.flatnonzero(self.fold != fold), np.flatnonzero(self.fold == fold)
            found[test] = score(train, test)
        return found

    def of(self, indices: Iterable[int]) -> list[str]:
        return [self.texts[i] for i in indices]


def _rows(path: Path) -> Iterator[dict[str, object]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def probabilities(
    good: Sequence[str], bad: Sequence[str], texts: Sequence[str], how: Options, preparation: str
) -> np.ndarray:
    """What a classifier trained on good and bad texts says of others."""
    with tempfile.TemporaryDirectory() as place:
        with card.new(Path(place) / "m", kind=KIND) as (inside, settings):
            settings.update(classifier.fit(good, bad, inside, how, preparation))
        return classifier.load(Path(place) / "m").probabilities(texts)


def crossed(judged: Judged, how: Options, preparation: str, share: float = 1.0) -> np.ndarray:
    """fastText on a part of the judged documents, by cross-validation."""

    def score(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        train = train[: int(share * len(train))]
        good, bad = (judged.of(train[judged.good[train] == side]) for side in (True, False))
        return probabilities(good, bad, judged.of(test), how, preparation)

    return judged.out_of_fold(score)


# --- a linear model over signals, for comparison ----------------------------------------------


def heuristics(judged: Judged) -> np.ndarray:
    """The signals of the heuristics, a column each."""
    docs = Documents({"text": pa.array(judged.texts, pa.large_string())})
    columns = []
    for name in ("gopher_quality", "gopher_repetition", "fineweb"):
        stage = STAGES[name].model_validate({})
        assert isinstance(stage, Filter)
        for values in stage.score(docs).values():
            column = pa.array(values).to_numpy(zero_copy_only=False).astype(float)
            columns.append(np.nan_to_num(column))
    return np.stack(columns, axis=1)


def linear(judged: Judged, *columns: np.ndarray) -> np.ndarray:
    """Logistic regression (ridge 1, standardised columns), by cross-validation."""
    table = np.column_stack(columns)

    def score(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        centre, spread = table[train].mean(axis=0), table[train].std(axis=0) + 1e-9
        scaled = np.column_stack([np.ones(len(table)), (table - centre) / spread])
        weights = _logistic(scaled[train], judged.good[train].astype(float))
        return np.asarray(scaled[test] @ weights)

    return judged.out_of_fold(score)


def _logistic(table: np.ndarray, labels: np.ndarray) -> np.ndarray:
    ridge = np.diag([0.0, *[1.0] * (table.shape[1] - 1)])
    weights = np.zeros(table.shape[1])
    for _ in range(50):  # Newton's steps
        found = 1 / (1 + np.exp(-table @ weights))
        slope = table.T @ (found - labels) + ridge @ weights
        curve = (table * (found * (1 - found))[:, None]).T @ table + ridge
        weights -= np.linalg.solve(curve, slope)
    return weights


def logit(probability: np.ndarray) -> np.ndarray:
    """Log odds, cut at a millionth."""
    inside = np.clip(probability, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(inside / (1 - inside)))


# --- texts from elsewhere -----------------------------------------------------------------------


def pages(data: Path) -> Iterator[RawDocument]:
    """Captured pages, in many languages."""
    folder = data / "html_extraction"
    for path in sorted(folder.glob("*/html/*.html.gz")):
        yield RawDocument(id="0" * 32, content=gzip.decompress(path.read_bytes()))
    for row in _rows(folder / "webmainbench-sample/sample.jsonl.gz"):
        yield RawDocument(id="0" * 32, content=str(row["html"]).encode(), charset="utf-8")


def prose(data: Path) -> list[str]:
    """Abstracts, openings of novels, speeches."""
    paths = [data / f"mixture/{name}/docs.jsonl.gz" for name in ("pubmed-abstracts",)]
    paths += sorted((data / "text/us-speeches").glob("*.jsonl.gz"))
    return [str(row["text"])[:3000] for path in paths for row in _rows(path)]


# --- tables -------------------------------------------------------------------------------------


def _interval(found: tuple[float, float, float]) -> str:
    return f"{found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})"


def report(judged: Judged, name: str, scores: np.ndarray) -> None:
    """A line of the table."""
    some = judged.unanimous
    cells = [
        _interval(roc_auc(scores, judged.good)),
        _interval(roc_auc(scores[some], judged.good[some])),
        _interval(roc_auc_gain(scores, judged.length, judged.good)),
    ]
    print(f"{name:<58}" + "".join(f"{cell:<26}" for cell in cells).rstrip(), flush=True)


def tables(data: Path) -> None:
    """The whole table of scores."""
    judged = Judged(data)
    print(
        f"{len(judged.texts)} documents, {judged.good.sum()} good; "
        f"{judged.unanimous.sum()} unanimous, {judged.good[judged.unanimous].sum()} good\n"
    )
    print(f"{'':<58}{'all':<26}{'unanimous':<26}gain over length, all")
    report(judged, "length", judged.length)
    signals = heuristics(judged)
    report(
        judged,
        "heuristics and length, linear (cross-validation)",
        linear(judged, signals, judged.length),
    )

    print("\ntrained on the judged documents, by cross-validation")
    for preparation in ("words", "line"):
        report(judged, f"fastText, {preparation}", crossed(judged, FEW, preparation))
    pairs = replace(FEW, ngrams=2, bucket=500_000)
    report(judged, "fastText, words, pairs too", crossed(judged, pairs, "words"))
    report(
        judged, "fastText, words, fastText's defaults", crossed(judged, Options(ngrams=1), "words")
    )
    mine = crossed(judged, FEW, "words")
    for share in (0.25, 0.5, 0.75):
        name = f"fastText, words, {share:.0%} of the labels"
        report(judged, name, crossed(judged, FEW, "words", share))
    report(judged, "fastText and length, linear", linear(judged, logit(mine), judged.length))
    report(
        judged,
        "fastText, length, heuristics, linear",
        linear(judged, logit(mine), judged.length, signals),
    )

    print("\ntrained elsewhere")
    sides = list(contrast(pages(data)))
    good, bad = _both(sides)
    print(f"({len(sides)} pages: {len(good)} pieces of prose, {len(bad)} of the rest)")
    report(
        judged,
        "abstracts, speeches against pages, words",
        probabilities(prose(data), [*good, *bad], judged.texts, SOME, "words"),
    )
    for preparation in ("line", "words"):
        name = f"prose of pages against their rest, {preparation}"
        report(judged, name, probabilities(good, bad, judged.texts, SOME, preparation))
    name = "prose of pages against their rest, line, defaults"
    report(judged, name, probabilities(good, bad, judged.texts, Options(), "line"))
    theirs = probabilities(good, bad, judged.texts, SOME, "line")
    report(
        judged,
        "both fastText models, linear (cross-validation)",
        linear(judged, logit(mine), logit(theirs)),
    )
    report(
        judged,
        "prose against rest, and length, linear",
        linear(judged, logit(theirs), judged.length),
    )


def _both(sides: Iterable[Sides]) -> tuple[list[str], list[str]]:
    found = list(sides)
    return [t for side in found for t in side.prose], [t for side in found for t in side.rest]


# --- speed --------------------------------------------------------------------------------------

_PEER = """
import json, sys, time
from datatrove.data import Document
from datatrove.pipeline.filters import FastTextClassifierFilter
path, model, count = sys.argv[1:]
texts = [json.loads(line)["text"] for line in open(path, encoding="utf-8")][:int(count)]
judge = FastTextClassifierFilter(model, keep_labels=("positive", 0.5), newline_replacement=" ")
judge.filter(Document(text="x", id="0"))
start = time.process_time()
for text in texts:
    judge.filter(Document(text=text, id="0"))
print(time.process_time() - start)
"""


def speed(path: Path, peer: str | None, count: int = 2000) -> None:
    """Documents per second on one core, three turns each, the best of them."""
    with open(path, encoding="utf-8") as lines:
        texts = [
            str(json.loads(line)["text"]) for line, _ in zip(lines, range(count), strict=False)
        ]
    docs = Documents(
        {
            "text": pa.array(texts, pa.large_string()),
            "language": pa.nulls(len(texts), pa.string()),
            "url": pa.nulls(len(texts), pa.string()),
        }
    )
    with tempfile.TemporaryDirectory() as place:
        target = Path(place) / "m"
        with card.new(target, kind=KIND) as (inside, settings):
            how = Options(dim=100, epochs=1, bucket=500_000)
            settings.update(classifier.fit(texts[:200], texts[200:400], inside, how))
        stage, file = Quality(model=str(target)), target / "model.bin"
        from fasttext.FastText import load_model

        model = load_model(str(file))
        lines_of = [classifier.as_line(text) for text in texts]
        ways: dict[str, Callable[[], object]] = {
            "quality": lambda: stage.score(docs),
            "bare fastText, texts prepared": lambda: [model.predict(line, 2) for line in lines_of],
        }
        turns = [{name: _seconds(do) for name, do in ways.items()} for _ in range(3)]
        taken = {name: min(turn[name] for turn in turns) for name in ways}
        if peer:
            command = [peer, "-c", _PEER, str(path), str(file), str(len(texts))]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            taken["datatrove's filter"] = float(done.stdout.split()[-1])
    print(f"\n{len(texts)} documents, {np.mean([len(t) for t in texts]):,.0f} characters each")
    for name, seconds in taken.items():
        ratio = taken["bare fastText, texts prepared"] / seconds
        print(f"{name:<32}{len(texts) / seconds:>8,.0f} documents/s   {ratio:.2f} x bare")


def _seconds(do: Callable[[], object]) -> float:
    start = time.process_time()
    do()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--peer")
    options = parser.parse_args()
    if options.data:
        tables(options.data)
    if options.texts:
        speed(options.texts, options.peer)


if __name__ == "__main__":
    main()
