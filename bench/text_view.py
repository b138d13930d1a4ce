"""How fast the text view and the Gopher quality filter are, on one core.

    python bench/text_view.py DOCUMENTS.jsonl [--limit N] [--batch 2000] [--repeat 5]

Reads the texts of a JSONL file (field "text") and prints documents/s and MB/s of each thing that
can be asked of a view: UTF-8 bytes, CPU time of this process, the best of the repetitions.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pyarrow as pa

from curation.document import Documents
from curation.filters.gopher_quality import STOP_WORDS, GopherQuality
from curation.text.view import TextView


def whole_view(texts: pa.LargeStringArray) -> None:
    """Everything: words with both hashes, lines, counts."""
    view = TextView(texts)
    _ = (
        view.words,
        view.exact_hashes,
        view.lines,
        view.line_totals,
        view.mark_totals,
        view.token_totals,
    )


WORK: dict[str, Callable[[pa.LargeStringArray], Any]] = {
    "word counts": lambda texts: TextView(texts).word_counts(),
    "line counts": lambda texts: TextView(texts).line_totals,
    "sentence counts": lambda texts: TextView(texts).sentence_counts(),
    "mark counts": lambda texts: TextView(texts).mark_totals,
    "token counts": lambda texts: TextView(texts).token_totals,
    "words": lambda texts: TextView(texts).words,
    "words, stop words": lambda texts: TextView(texts).vocabulary_counts(STOP_WORDS),
    "words and exact hashes": lambda texts: TextView(texts).exact_hashes,
    "whole view": whole_view,
    "GopherQuality": lambda texts: GopherQuality().score(Documents({"text": texts})),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("documents", help="JSONL file with a field 'text'")
    parser.add_argument("--limit", type=int, help="documents to read (all)")
    parser.add_argument("--batch", type=int, default=2000, help="documents per batch")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions, of which the best")
    options = parser.parse_args()
    with open(options.documents, encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in islice(lines, options.limit)]
    batches = [
        pa.array(texts[i : i + options.batch], pa.large_string())
        for i in range(0, len(texts), options.batch)
    ]
    size = sum(int(TextView(batch).byte_counts().sum()) for batch in batches)
    print(f"{len(texts)} documents, {size / len(texts):.0f} bytes on average")
    for name, work in WORK.items():
        work(batches[0])  # compiles
        seconds = []
        for _ in range(options.repeat):
            start = time.process_time()
            for batch in batches:
                work(batch)
            seconds.append(time.process_time() - start)
        rate = 1 / min(seconds)
        print(f"{name:24}{len(texts) * rate:10,.0f} documents/s{size * rate / 1e6:8.0f} MB/s")


if __name__ == "__main__":
    main()
