"""datatrove's n-gram decontamination on some texts. Run by `bench/tokens_decontamination.py`.

What may live here: this measurement alone.

    PEER_PYTHON bench/datatrove_decontamination.py TEXTS.jsonl SET.jsonl.gz NGRAM DOCUMENTS

Runs in datatrove's own environment: `pip install 'datatrove[io,processing]==0.10.1' spacy`. The
index is written as its indexer would (which asks for lighteval's tasks); then its filter is timed.
Prints JSON: seconds, documents and bytes of the filter, and how many it drops.
"""

import gzip
import json
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
from datatrove.data import Document
from datatrove.pipeline.decont.n_grams import (
    NGramsDecontConfig,
    NGramsDecontFilter,
    NGramsDecontIndexer,
)


def main() -> None:
    texts_path, set_path, ngram, documents = sys.argv[1:5]
    config = NGramsDecontConfig(n_grams=int(ngram), find_overlap_ngrams=False)
    NGramsDecontIndexer._requires_dependencies = []
    with open(texts_path, encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in islice(file, int(documents))]
    with tempfile.TemporaryDirectory() as folder:
        indexer = NGramsDecontIndexer(folder, config=config)
        start = time.perf_counter()
        with gzip.open(set_path, "rt", encoding="utf-8") as file:
            hashes = {h for line in file for h in indexer.compute_hashes(json.loads(line)["text"])}
        kind = config.hash_config.np_descr
        np.array(list(hashes), dtype=kind).tofile(Path(folder) / "set.index.hashes")
        indexed = time.perf_counter() - start
        judge = NGramsDecontFilter(folder, config=config)
        judge.filter(Document(text="the first one loads the index", id=""))
        start = time.perf_counter()
        dropped = sum(judge.filter(Document(text=t, id="")) is not True for t in texts)
        seconds = time.perf_counter() - start
    size = sum(len(text.encode()) for text in texts)
    print(json.dumps({"index_seconds": indexed, "seconds": seconds, "documents": len(texts),
                      "bytes": size, "dropped": dropped}))  # fmt: skip


if __name__ == "__main__":
    main()
