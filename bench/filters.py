"""How fast the heuristics are, each alone and as a group, beside datatrove's; where the time goes.

    python bench/filters.py RUN ... [--limit N] [--peer-python PATH --peer-documents 400]

The documents of finished runs are the texts (English ones, say). Everything on one core, in
CPU time of the process; ours the best of the repetitions. datatrove sees an even sample of the same
texts, once. C4 is without its rule of terminal marks on both sides, as FineWeb has it.
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
import pyarrow.parquet as pq

from curation.document import Documents
from curation.filters.c4 import C4
from curation.filters.fineweb import FineWeb
from curation.filters.gopher_quality import GopherQuality
from curation.filters.gopher_repetition import GopherRepetition
from curation.stage import Editor, Filter
from curation.text import repetition
from curation.text.datatrove import SYMBOLS_ONLY
from curation.text.view import Definition, TextView

DEFINITIONS: tuple[Definition, ...] = ("datatrove", "unicode")
BATCH = 256


def stages(words: Definition) -> dict[str, Filter | Editor]:
    return {
        "gopher_repetition": GopherRepetition(words=words),
        "gopher_quality": GopherQuality(words=words),
        "c4": C4(words=words, terminal_punctuation=False),
        "fineweb": FineWeb(words=words),
    }


def judge(stage: Filter | Editor, docs: Documents) -> Any:
    return stage.edit(docs) if isinstance(stage, Editor) else stage.score(docs)


def steps(words: Definition) -> dict[str, Callable[[TextView], Any]]:
    """What the group asks of a view, in an order in which nothing is computed twice."""
    return {
        "words": lambda view: view.words_of(words),
        "n-grams": lambda view: repetition.ngram_shares(view, words),
        "duplicated lines": lambda view: repetition.line_shares(view, words),
        "stop words, sums": lambda view: (
            view.vocabulary_counts(GopherQuality().stop_words, words),
            view.word_sums(words, SYMBOLS_ONLY),
        ),
        "lines, marks": lambda view: (view.line_totals_of(words), view.mark_totals),
        "tokens": lambda view: view.token_totals if words == "unicode" else None,
        "line ends": lambda view: view.line_ends(30, words == "unicode"),
    }


def best(batches: list[pa.Array], work: Callable[[pa.Array], Any], repeat: int) -> float:
    work(batches[0])  # compiles
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        for batch in batches:
            work(batch)
        seconds.append(time.process_time() - start)
    return min(seconds)


def shares(batches: list[pa.Array], words: Definition, repeat: int) -> dict[str, float]:
    """Seconds of each step over all batches, each the best of the repetitions."""
    found = {name: float("inf") for name in steps(words)}
    for _ in range(repeat):
        round_ = dict.fromkeys(found, 0.0)
        for batch in batches:
            view = TextView(batch)
            for name, work in steps(words).items():
                start = time.process_time()
                work(view)
                round_[name] += time.process_time() - start
        found = {name: min(found[name], round_[name]) for name in found}
    return found


def peer(python: str, texts: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        script = str(Path(__file__).with_name("datatrove_filters.py"))
        done = subprocess.run([python, script, str(path)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", help="finished runs: their documents")
    parser.add_argument("--limit", type=int, help="documents (all)")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--peer-python", help="of an environment with datatrove and spaCy")
    parser.add_argument("--peer-documents", type=int, default=400)
    options = parser.parse_args()
    files = [path for run in options.runs for path in sorted(run.glob("documents/*.parquet"))]
    texts = pa.concat_tables([pq.read_table(file, columns=["text"]) for file in files])
    column = texts["text"].combine_chunks().slice(0, options.limit)
    batches = [column.slice(start, BATCH) for start in range(0, len(column), BATCH)]
    count, size = len(column), sum(int(TextView(b).byte_counts().sum()) for b in batches)
    print(f"{count} documents, {size / count:.0f} bytes on average")

    rates: dict[str, float] = {}
    for words in DEFINITIONS:
        four = stages(words)
        print(f"\nwords: {words}")
        work: dict[str, Callable[[pa.Array], Any]] = {
            name: lambda batch, stage=stage: judge(stage, Documents({"text": batch}))
            for name, stage in four.items()
        }

        def group(batch: pa.Array, four: dict[str, Any] = four) -> None:
            docs = Documents({"text": batch})
            for stage in four.values():
                judge(stage, docs)

        work["all four"] = group
        for name, once in work.items():
            seconds = best(batches, once, options.repeat)
            if words == "datatrove":
                rates[name] = count / seconds
            print(f"{name:20}{count / seconds:10,.0f} documents/s{size / seconds / 1e6:8.1f} MB/s")
        whole = shares(batches, words, options.repeat)
        total = sum(whole.values())
        print("of the view's time: " + ", ".join(f"{n} {s / total:.0%}" for n, s in whole.items()))

    if options.peer_python:
        step = max(1, count // options.peer_documents)
        sample = column.take(pa.array(range(0, count, step)))
        theirs = peer(options.peer_python, sample.to_pylist())
        bytes_ = int(TextView(sample).byte_counts().sum())
        print(f"\ndatatrove, {len(sample)} documents of {bytes_ / len(sample):.0f} bytes")
        # Ours on the very same texts, for the ratio.
        for name, stage in [*stages("datatrove").items(), ("all four", None)]:

            def once(batch: pa.Array, stage: Any = stage) -> None:
                docs = Documents({"text": batch})
                for some in [stage] if stage else stages("datatrove").values():
                    judge(some, docs)

            parts = [sample.slice(i, BATCH) for i in range(0, len(sample), BATCH)]
            seconds = best(parts, once, options.repeat)
            rate = len(sample) / theirs[name]["seconds"]
            ratio = theirs[name]["seconds"] / seconds
            print(f"{name:20}{rate:10,.1f} documents/s; ours {ratio:,.0f} times as many")


if __name__ == "__main__":
    main()
