"""The stage `normalise` beside ftfy alone: documents per second of CPU time, in this process.

python bench/normalise.py documents.jsonl
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import ftfy
import pyarrow as pa

from curation.document import Documents
from curation.filters.normalise import Normalise, ftfy_config

BATCH = 256
SAMPLE = 1500  # documents for ftfy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents", type=Path, help="JSON lines with `text`")
    lines = parser.parse_args().documents.read_text(encoding="utf-8").split("\n")
    texts = [json.loads(line)["text"] for line in lines if line]
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{len(texts)} documents, {size:.1f} MB")
    batches = [
        Documents({"text": pa.array(texts[i : i + BATCH], pa.large_string())})
        for i in range(0, len(texts), BATCH)
    ]
    for name, stage in (
        ("normalise", Normalise()),
        ("normalise, repair: false", Normalise(repair=False)),
        ("normalise, every step on", Normalise(quotes=True, white_space=True)),
    ):
        stage.edit(batches[0])
        start = time.process_time()
        for docs in batches:
            stage.edit(docs)
        seconds = time.process_time() - start
        print(f"{name:26} {len(texts) / seconds:8.0f} documents/s  {size / seconds:6.1f} MB/s")
    some = texts[:: max(1, len(texts) // SAMPLE)]
    start = time.process_time()
    for text in some:
        ftfy.fix_text(text, ftfy_config())
    print(f"{'ftfy alone':26} {len(some) / (time.process_time() - start):8.0f} documents/s")


if __name__ == "__main__":
    main()
