"""datatrove's URLFilter on URLs, one core: what it says of each, and how long it takes.

    PEER_PYTHON bench/datatrove_urls.py URLS.json

Run by `bench/scores_url.py` and `bench/judges_url.py` in datatrove's own environment
(`pip install 'datatrove[io,processing]==0.10.1' tldextract pyahocorasick fasteners`). The file has
a list of URLs, and whether the list of domains that comes with datatrove is asked. Prints JSON: the
reasons (null: kept), CPU seconds of the judging and of the loading, MiB of memory at the most.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import datatrove
from datatrove.data import Document
from datatrove.pipeline.filters import URLFilter

ASSETS = Path(datatrove.__file__).parent / "assets"
LISTS = ("banned_words", "banned_subwords", "soft_banned_words")


def prepared(integrated: bool) -> URLFilter:
    if integrated:
        return URLFilter()
    words = {name: (ASSETS / f"{name}.txt").read_text().splitlines() for name in LISTS}
    return URLFilter(use_integrated_lists=False, **words)


def main() -> None:
    wanted = json.loads(Path(sys.argv[1]).read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        import huggingface_hub.constants

        huggingface_hub.constants.HF_ASSETS_CACHE = folder
        before = time.process_time()
        judge = prepared(wanted["integrated"])
        judge.filter(Document(text="", id="0", metadata={"url": "http://example.com"}))
        loaded = time.process_time()
        reasons = []
        for url in wanted["urls"]:
            verdict = judge.filter(Document(text="", id="0", metadata={"url": url}))
            reasons.append(None if verdict is True else verdict[1])
        found = {
            "reasons": reasons,
            "seconds": time.process_time() - loaded,
            "loading": loaded - before,
            "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
