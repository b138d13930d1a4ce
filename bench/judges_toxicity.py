"""How fast toxicity is judged on one core: by lists, and by a classifier for each sentence.

    python bench/judges_toxicity.py TEXTS.jsonl DATA [--documents N]

TEXTS has English documents under `text`; DATA has toxicity/ldnoobw and toxicity/davidson, on half
of which the classifier is trained. Beside them, in the same minute: datatrove's C4BadWordsFilter
with the same list, and what fastText alone takes for the same sentences, prepared beforehand. CPU
time of the process, the best of three. Every eighth document is for those who take long.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from datatrove.data import Document
from datatrove.pipeline.filters import C4BadWordsFilter, c4_filters

from bench.scores_toxicity import davidson, halves, read, sentences, train
from curation.document import Documents
from curation.filters.toxicity import Toxicity, ToxicSentences
from curation.models.classifier import PREPARATIONS
from curation.stage import Editor

BATCH = 256


def documents(texts: list[str]) -> list[dict[str, pa.Array]]:
    parts = [texts[i : i + BATCH] for i in range(0, len(texts), BATCH)]
    return [
        {"text": pa.array(p, pa.large_string()), "language": pa.array(["en"] * len(p), pa.string())}
        for p in parts
    ]


def seconds(work: Callable[[], Any]) -> float:
    def once() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return min(once() for _ in range(3))


def judge(stage: Toxicity | ToxicSentences, batches: list[dict[str, pa.Array]]) -> None:
    for columns in batches:
        docs = Documents(columns)
        _ = stage.edit(docs) if isinstance(stage, Editor) else stage.score(docs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--documents", type=int, default=2000)
    options = parser.parse_args()
    every = [row["text"] for row in read(options.texts)][: options.documents]
    some = every[::8]
    lists = options.data / "toxicity/ldnoobw"
    c4_filters.cached_asset_path_or_download = lambda address, **_: lists / address.split("/")[-1]
    peer = C4BadWordsFilter()
    half = halves(davidson(options.data))
    print(f"{len(every)} documents of {sum(map(len, every)) / len(every):.0f} characters")
    with tempfile.TemporaryDirectory() as scratch:
        model = train(*half.train, Path(scratch) / "toxic")
        own = sentences(some)
        prepared = [PREPARATIONS["words"](sentence) + "\n" for sentence in own]
        names: dict[str, tuple[list[str], Callable[[], Any]]] = {}
        for name, stage, texts in (
            ("toxicity, built-in list", Toxicity(), every),
            ("toxicity, LDNOOBW", Toxicity(words=str(lists)), every),
            ("toxicity, classifier", Toxicity(words=None, models=[f"{scratch}/toxic"]), some),
            ("toxic_sentences", ToxicSentences(models=[f"{scratch}/toxic"]), some),
        ):
            names[name] = texts, partial(judge, stage, documents(texts))
        names["datatrove, LDNOOBW"] = (
            some,
            lambda: [peer.filter(Document(text=text, id="0")) for text in some],
        )
        predict = model._predict
        names["fastText alone"] = (
            some,
            lambda: [predict(line, -1, 0.0, "strict") for line in prepared],
        )
        names["preparation of sentences"] = some, lambda: [PREPARATIONS["words"](s) for s in own]
        for name, (texts, work) in names.items():
            work()  # compiles, loads
            rate = len(texts) / seconds(work)
            print(f"{name:28}{rate:12,.0f} documents/s")
        print(f"{len(own) / len(some):.0f} sentences a document")


if __name__ == "__main__":
    main()
