"""The filter `perplexity` on one core: documents per second, as a whole and in parts, beside peers.

    python bench/judges_perplexity.py documents.jsonl [--model kenlm/sample] [--documents 600]

The parts are those of CCNet's chain, each over whole documents: its normaliser, SentencePiece, and
KenLM's score of the pieces; then, in the same call, datatrove's class of CCNet's perplexity with
the same files. CPU seconds of this process, the best of three. The model decides much: KenLM's
tables, if they are large, are read from memory at random, and a small vocabulary means many pieces.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import kenlm as bare
import pyarrow as pa
from sentencepiece import SentencePieceProcessor

from curation import models
from curation.document import Documents
from curation.filters.perplexity import Perplexity
from curation.models import kenlm
from curation.models.kenlm.normalise import ccnet

BATCH = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("documents", type=Path, help="JSON lines with `text`")
    parser.add_argument("--model", default="kenlm/sample", help="with the normaliser ccnet")
    parser.add_argument("--documents-wanted", type=int, default=600)
    options = parser.parse_args()
    lines = options.documents.read_text(encoding="utf-8").split("\n")
    every = [json.loads(line)["text"] for line in lines if line]
    step = max(1, len(every) // options.documents_wanted)
    texts = list(islice(every, 0, None, step))
    size = sum(len(text.encode()) for text in texts)
    print(f"{len(texts)} documents of {size / len(texts):,.0f} bytes, model {options.model}")

    path = models.find(options.model)
    _, settings = kenlm.read(path)
    assert isinstance(settings.tokenizer, kenlm.SentencePiece)
    model = bare.Model(str(path / settings.model))
    pieces = SentencePieceProcessor(model_file=str(path / settings.tokenizer.file))
    normalised = [ccnet(text) for text in texts]
    encoded = pieces.encode(normalised, out_type=str, num_threads=1)
    joined = [" ".join(found) for found in encoded]
    stage = Perplexity(model=options.model)
    batches = [_documents(texts[i : i + BATCH]) for i in range(0, len(texts), BATCH)]

    whole = _seconds(lambda: [stage.score(docs) for docs in batches])
    rows = [
        ("the stage", whole),
        ("the normaliser", _seconds(lambda: [ccnet(text) for text in texts])),
        (
            "SentencePiece alone",
            _seconds(lambda: pieces.encode(normalised, out_type=str, num_threads=1)),
        ),
        ("KenLM's score alone", _seconds(lambda: [model.score(line) for line in joined])),
    ]
    if peer := _datatrove(model, pieces):
        rows.append(("datatrove's KenlmModel", _seconds(lambda: [peer(text) for text in texts], 1)))
    print(f"{'':<24}{'documents/s':>12}{'MB/s':>8}{'of the stage':>14}")
    for name, seconds in rows:
        speed = f"{len(texts) / seconds:12,.0f}{size / seconds / 1e6:8.1f}"
        print(f"{name:<24}{speed}{seconds / whole:14.0%}")
    print(f"{sum(map(len, encoded)) / len(texts):,.0f} pieces a document")


def _documents(texts: list[str]) -> Documents:
    return Documents(
        {
            "text": pa.array(texts, pa.large_string()),
            "language": pa.array(["en"] * len(texts)),
            "url": pa.nulls(len(texts), pa.string()),
        }
    )


def _datatrove(model: Any, pieces: Any) -> Callable[[str], float] | None:
    try:
        from datatrove.utils.perplexity import KenlmModel, SentencePiece
    except ImportError:
        return None
    peer = KenlmModel("ours", "en")
    peer._model, peer._tokenizer = model, SentencePiece("ours", "en")
    peer._tokenizer._model = pieces
    return peer.get_perplexity


def _seconds(work: Callable[[], object], times: int = 3) -> float:
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


if __name__ == "__main__":
    main()
