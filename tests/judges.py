"""Stages that read their scores out of the text: what a document will meet is written in it.

What may live here: stages for tests of thresholds; no tests. A text such as "a=3 b=5 c=1 cut cut x"
scores 3 with `First`, 5 with `Second` and so on; `Cutter` takes every "cut" out.
"""

from __future__ import annotations

import re
from typing import ClassVar

import pyarrow as pa

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
