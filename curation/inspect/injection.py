"""Recall by injection: evaluation items planted in copies of a run's documents, and looked for.

What may live here: what is planted, how it is changed before, and the count of what is found. The
run itself is only read.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pyarrow as pa

from curation.document import DOCUMENT_SCHEMA, Documents
from curation.engine.plan import Plan
from curation.engine.recipe import RecipeError
from curation.engine.stats import receipts
from curation.engine.tables import read_batches
from curation.filters.decontaminate import Decontaminate
from curation.filters.evaluation import Item, Sets
from curation.inspect.contamination import aligned, counts_of, sets_of, steps

BATCH = 256  # copies that are searched at once


def _spaced(text: str) -> str:
    """Words with two spaces or a line break between them, in turn."""
    words = text.split()
    return "".join(f"{word}{'  ' if i % 2 else chr(10)}" for i, word in enumerate(words))


def _punctuated(text: str) -> str:
    """Without ASCII's punctuation, and a comma after every third word."""
    words = text.translate(str.maketrans("", "", string.punctuation)).split()
    return " ".join(f"{word}," if i % 3 == 2 else word for i, word in enumerate(words))


def _worn(text: str) -> str:
    """Every tenth word is missing: no run of 13 is left, which n-grams of 13 words cannot find."""
    return " ".join(word for i, word in enumerate(text.split(), 1) if i % 10)


#: What an item has gone through before it is planted.
CHANGES: Mapping[str, Callable[[str], str]] = {
    "whole": lambda text: text,
    "case": str.upper,
    "punctuation": _punctuated,
    "white_space": _spaced,
    "words_missing": _worn,
}


def measure(plan: Plan, count: int) -> list[dict[str, Any]]:
    """Recall of each stage that looks for evaluation sets, on `count` items (or all there are).

    Items and documents are those with the smallest hashes; where there are fewer documents, they
    are used again. N-grams that the run ignored as common are ignored, unless `gc` has removed
    their counts. Raises RecipeError where the sets are not here as the run had them, or the run has
    no documents.
    """
    found = []
    for spec, stage in steps(plan):
        sets, note = sets_of(plan, spec, stage)
        if sets is None:
            raise RecipeError(f"--recall: {note}")
        counts = counts_of(plan, spec)
        ignored = np.empty(0, np.uint32) if counts is None else stage.common(counts)
        items = _some_items(stage, count)
        texts = _some_texts(plan, len(items))
        if not texts:
            raise RecipeError(f"--recall: {plan.run} has no documents to plant items in")
        found.append({"stage": spec.name, **recall(stage, sets, items, texts, ignored)})
    return found


def recall(
    stage: Decontaminate,
    sets: Sets,
    items: Sequence[tuple[Item, int]],
    texts: Sequence[str],
    ignored: np.ndarray,
) -> dict[str, Any]:
    """How many of the items (with the words of their longest passage) are found when planted in
    copies of these texts, by set and length and by what they have gone through."""
    hit = {
        name: _found(stage, sets, items, texts, ignored, change) for name, change in CHANGES.items()
    }
    rows: dict[tuple[str, int, str], dict[str, Any]] = {}
    for i, (item, words) in enumerate(items):
        low, label = _length(stage, words)
        row = rows.setdefault(
            (item.set, low, label),
            {"set": item.set, "words": label, "items": 0, "found": dict.fromkeys(CHANGES, 0)},
        )
        row["items"] += 1
        for name in CHANGES:
            row["found"][name] += hit[name][i]
    return {"items": len(items), "documents": len(texts), "recall": [rows[k] for k in sorted(rows)]}


def _length(stage: Decontaminate, words: int) -> tuple[int, str]:
    """The class of lengths that a number of words is in: its least, and what it is called."""
    bounds = sorted({0, stage.min_item_words, stage.ngram, 2 * stage.ngram, 4 * stage.ngram})
    at = int(np.searchsorted(bounds, words, side="right")) - 1
    low = bounds[at]
    return low, f"{low}-{bounds[at + 1] - 1}" if at + 1 < len(bounds) else f"{low}+"


def _found(
    stage: Decontaminate,
    sets: Sets,
    items: Sequence[tuple[Item, int]],
    texts: Sequence[str],
    ignored: np.ndarray,
    change: Callable[[str], str],
) -> list[bool]:
    """Of each item whether the stage names it in a copy in which it is planted."""
    copies = [
        _planted(text, change("\n\n".join(item.passages)), item)
        for (item, _), text in zip(items, cycle(texts), strict=False)
    ]
    named: set[tuple[int, str, str]] = set()
    for start in range(0, len(copies), BATCH):
        some = copies[start : start + BATCH]
        rows = pa.array(range(start, start + len(some)), pa.int64())
        docs = Documents({"row": rows, "text": pa.array(some, pa.large_string())})
        records = stage.prepare(docs)
        edits = stage.decide(records[~np.isin(records["ngram"], ignored)], sets)
        said = pa.array(edits.evidence["matches"]).to_pylist()
        for row, matches in zip(edits.noted.tolist(), said, strict=True):
            named.update((row, match[0], match[1]) for match in json.loads(matches))
    return [(i, item.set, item.name) in named for i, (item, _) in enumerate(items)]


def _planted(text: str, planted: str, item: Item) -> str:
    """A text with another one in it: at the end of a word, which the item's name decides."""
    place = _hash(item.set, item.name, "place") % (len(text) + 1)
    blank = text.find(" ", place)
    place = len(text) if blank < 0 else blank
    return f"{text[:place]} {planted} {text[place:]}"


def _hash(*parts: str) -> int:
    return int.from_bytes(hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).digest())


def _some_items(stage: Decontaminate, count: int) -> list[tuple[Item, int]]:
    """The items with the smallest hashes, each with the words of its longest passage."""
    words = stage.load().words.tolist()
    numbered = zip(stage.items(), words, strict=True)
    return heapq.nsmallest(count, numbered, key=lambda one: _hash(one[0].set, one[0].name))


def _some_texts(plan: Plan, count: int) -> list[str]:
    """The texts of the documents with the smallest hashes of their ids."""

    def documents() -> Iterator[tuple[int, str, str]]:
        schema = DOCUMENT_SCHEMA.metadata[b"gristmill.schema"].decode()
        for receipt in receipts(plan, plan.segments[-1]):
            for kind, output in receipt.outputs.items():
                if kind.startswith("documents"):
                    for table in read_batches(output.locate(plan.run), schema, ["id", "text"]):
                        for row in table.to_pylist():
                            yield _hash(row["id"]), row["id"], row["text"]

    return [text for _, _, text in heapq.nsmallest(count, documents())]


def render(found: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for stage in found:
        lines.append(
            f"{stage['stage']}: {stage['items']:,} items planted in copies of "
            f"{stage['documents']:,} documents; share found"
        )
        head = ("set", "words", "items", *(name.replace("_", " ") for name in CHANGES))
        rows = [
            (
                *(row["set"], row["words"], f"{row['items']:,}"),
                *(f"{row['found'][name] / row['items']:.3f}" for name in CHANGES),
            )
            for row in stage["recall"]
        ]
        lines += aligned([head, *rows])
    return "\n".join(lines)
