"""datatrove's filters on texts, one core: seconds of each alone, and of the four per document.

    PEER_PYTHON bench/datatrove_filters.py TEXTS.jsonl

Run by `bench/filters.py` in datatrove's own environment
(`pip install 'datatrove[io,processing]==0.10.1' spacy`). Prints JSON: CPU seconds by name, and how
many documents each kept. No filter stops another: each sees every document, as it was.
"""

import json
import sys
import time

from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.utils.text import split_into_parts

FILTERS = {
    "gopher_repetition": GopherRepetitionFilter(),
    "gopher_quality": GopherQualityFilter(),
    "c4": C4QualityFilter(filter_no_terminal_punct=False),
    "fineweb": FineWebQualityFilter(),
}


def passes(name: str, text: str) -> bool:
    try:
        return FILTERS[name].filter(Document(text=text, id="0")) is True
    except ZeroDivisionError:  # datatrove's runner counts such a document as dropped, too
        return False


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    for name in FILTERS:
        passes(name, texts[0])  # loads the tokenizer
    found = {}
    for name in FILTERS:
        split_into_parts.cache_clear()
        start = time.process_time()
        kept = sum(passes(name, text) for text in texts)
        found[name] = {"seconds": time.process_time() - start, "kept": kept}
    split_into_parts.cache_clear()
    start = time.process_time()
    kept = 0
    for text in texts:
        kept += all([passes(name, text) for name in FILTERS])
    found["all four"] = {"seconds": time.process_time() - start, "kept": kept}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
