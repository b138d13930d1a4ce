"""How fast `language` is with each of its options, beside the bare libraries and datatrove.

    python bench/judges_language.py TEXTS.jsonl [--limit N] [--peer-python PATH]

TEXTS.jsonl has texts under the key `text`. All on one core, in CPU time of the process, each the
best of the repetitions. datatrove's `LanguageFilter` (in an environment of its own, with
`fasttext-numpy2-wheel`) is given the same model and the same texts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from curation import models
from curation.document import Documents
from curation.filters import cld2
from curation.filters.language import LID_176, Language, _load
from curation.text import scripts

PEER = """
import json, sys, time
from datatrove.data import Document
from datatrove.pipeline.filters import LanguageFilter
from fasttext.FastText import load_model
texts = [json.loads(line)["text"] for line in open(sys.argv[1], encoding="utf-8")]
stage = LanguageFilter(languages=["en"])
stage.model._model = load_model(sys.argv[2])
seconds = []
for _ in range(int(sys.argv[3])):
    start = time.process_time()
    for text in texts:
        stage.filter(Document(text=text, id="0"))
    seconds.append(time.process_time() - start)
print(min(seconds))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peer-python", help="of an environment with datatrove and fastText")
    options = parser.parse_args()
    with open(options.texts, encoding="utf-8") as file:
        every = [json.loads(line)["text"] for line in file]
    texts = every[:: max(1, len(every) // options.limit)][: options.limit]
    docs = Documents({"text": pa.array(texts, pa.large_string())})
    print(f"{len(texts)} texts, {sum(map(len, texts)) / len(texts):,.0f} code points on average")
    bare = _load(LID_176)._predict

    def stage(**parameters: Any) -> Callable[[], object]:
        judge = Language(min_score=None, **parameters)
        return lambda: judge.score(docs)

    work: dict[str, Callable[[], object]] = {
        "fastText alone": lambda: [bare(t.replace("\n", " ") + "\n", 1, 0.0, "") for t in texts],
        "language": stage(),
        "language, max_chars: 4000": stage(max_chars=4000),
        "language, max_chars: 1000": stage(max_chars=1000),
        "language, second: cld2": stage(second="cld2"),
        "language, both (4000)": stage(second="cld2", max_chars=4000),
        "pycld2 alone": lambda: [cld2.ask(text) for text in texts],
        "scripts alone": lambda: [scripts.counts(text) for text in texts],
    }
    best = dict.fromkeys(work, float("inf"))
    for _ in range(options.repeat):  # in turn: what else the machine does meets all of them
        for name, once in work.items():
            start = time.process_time()
            once()
            best[name] = min(best[name], time.process_time() - start)
    if options.peer_python:
        best["datatrove's LanguageFilter"] = peer(options.peer_python, texts, options.repeat)
    for name, seconds in best.items():
        ratio = best["language"] / seconds
        print(f"{name:28}{len(texts) / seconds:10,.0f} texts/s{ratio:8.2f} x language")


def peer(python: str, texts: list[str], repeat: int) -> float:
    """CPU seconds of datatrove's filter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        command = [python, "-c", PEER, str(path), str(models.find(LID_176)), str(repeat)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return float(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
