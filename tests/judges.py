"""Stages that read their scores out of the text: what a document will meet is written in it.

What may live here: stages and documents for tests of thresholds; no tests. A text such as "a=3 b=5
c=1 cut cut x" scores 3 and 5 with `First` and 1 with `Second`; `Cutter` takes every "cut" out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from kit import write_jsonl

from curation import Filter, Rule
from curation.document import Documents
from curation.stage import Edited, Editor, Signals


def numbers(docs: Documents, letter: str) -> pa.Array:
    """The number after a letter in each text; null where there is none, an error for `letter=!`."""
    found = []
    for text in docs.text.to_pylist():
        if f"{letter}=!" in text:
            raise ValueError(text)
        match = re.search(rf"\b{letter}=(\d+)", text)
        found.append(int(match[1]) if match else None)
    return pa.array(found, pa.int64())


class First(Filter):
    """Two rules over two signals."""

    version: ClassVar[int] = 1
    group: ClassVar[str | None] = "marks"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("low", signal="a", below="least"),
        Rule("high", signal="b", above="most"),
    )
    least: int | None = 3
    most: int | None = 7

    def score(self, docs: Documents) -> Signals:
        return {"a": numbers(docs, "a"), "b": numbers(docs, "b")}


class Second(Filter):
    """Of the same group as `First`."""

    version: ClassVar[int] = 1
    group: ClassVar[str | None] = "marks"
    rules: ClassVar[tuple[Rule, ...]] = (Rule("low", signal="c", below="least"),)
    least: int | None = 2

    def score(self, docs: Documents) -> Signals:
        return {"c": numbers(docs, "c")}


class Cutter(Editor):
    """Takes words out, and drops what had too many of them."""

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (Rule("much_cut", signal="cut", above="most"),)
    word: str = "cut"
    most: int | None = 2

    def edit(self, docs: Documents) -> Edited:
        texts = docs.text.to_pylist()
        cut = [text.split().count(self.word) for text in texts]
        kept = [" ".join(w for w in text.split() if w != self.word) for text in texts]
        return Edited(pa.array(kept, pa.large_string()), {"cut": pa.array(cut, pa.int64())})


class Alone(Filter):
    """Scores only who is still alive, and from the text as it is by then."""

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (Rule("short", signal="length", below="least"),)
    least: int | None = 4

    def score(self, docs: Documents) -> Signals:
        return {"length": [len(text.split()) for text in docs.text.to_pylist()]}


class Tagger(Filter):
    """Fills the language of a document."""

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (Rule("short", signal="length", below="least"),)
    adds: ClassVar[Mapping[str, str]] = {"language": "label"}
    least: int = 1

    def score(self, docs: Documents) -> Signals:
        lengths = [len(text.split()) for text in docs.text.to_pylist()]
        return {"label": ["de" if n % 2 else "en" for n in lengths], "length": lengths}


#: Two filters of a group, an edit with a rule, a filter of what it leaves, a dedup, and one more.
STAGES = (
    {"judges:First": {"as": "first"}},
    {"judges:Second": {"as": "second"}},
    {"judges:Cutter": {"as": "cutter"}},
    {"judges:Alone": {"as": "alone"}},
    {"exact_dedup": {}},
    {"judges:Second": {"as": "last", "least": 1}},
)
THRESHOLDS = ("first.least", "first.most", "second.least", "cutter.most", "alone.least")


def flags(values: Mapping[str, int | None]) -> list[str]:
    """Settings as the command line takes them."""
    return [f"{name}={'null' if value is None else value}" for name, value in values.items()]


def write_documents(folder: Path) -> Path:
    """Three files of documents of every kind: failing, emptied, edited, with the same URL."""
    dice = random.Random(5)
    for name in "xyz":
        texts, urls = [], []
        for _ in range(60):
            marks = [f"{letter}={dice.randrange(10)}" for letter in "abc" if dice.random() < 0.9]
            marks += ["cut"] * dice.choice((0, 0, 0, 1, 2, 3))
            marks += ["c=!"] * (dice.random() < 0.05) + ["word"] * dice.randrange(3)
            texts.append(" ".join(marks) if dice.random() < 0.95 else "cut")
            urls.append(f"https://example.org/{dice.randrange(40)}")
        write_jsonl(folder / f"{name}.jsonl", texts, urls)
    return folder
