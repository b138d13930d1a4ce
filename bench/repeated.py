"""Texts repeated with new words, so that repetitions are no duplicates of each other.

What may live here: the replacement of words, and the files of a corpus of repetitions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_PIECES = re.compile(r"[^\W\d_]+|(?:[\W\d_])+")
_ENGLISH = re.compile(r"\b(the|and|of|to|is)\b")


def english(lines: Iterable[str], limit: int) -> Iterator[str]:
    """The first texts of JSON lines that look English, as the baseline of `shared/peers/cpu` takes
    them: 12 of five words in the first 2,000 characters."""
    for line in lines:
        text = json.loads(line)["text"]
        if len(_ENGLISH.findall(text[:2000])) >= 12:
            yield text
            limit -= 1
            if not limit:
                return


class Repetitions:
    """Texts whose words are exchanged for other words of the corpus, of the same length and case.

    In repetition r a word becomes the r-th next one of its kind, so a repetition has the lengths
    and the duplicates of the texts themselves, which are repetition 0. Kinds with few words come
    round again soon, but a run of five words hardly ever does.
    """

    def __init__(self, texts: list[str]) -> None:
        pieces = [_PIECES.findall(text) for text in texts]
        self._ends = np.cumsum([0, *map(len, pieces)])
        flat = pa.array([piece for some in pieces for piece in some], pa.string())
        coded = flat.dictionary_encode()
        self._pieces, self._codes = coded.dictionary, coded.indices.to_numpy().astype(np.int64)
        kinds: dict[tuple[int, bool, bool], list[int]] = {}
        for code, piece in enumerate(self._pieces.to_pylist()):
            if piece[0].isalpha():
                kinds.setdefault((len(piece), piece[0].isupper(), piece.isupper()), []).append(code)
        self._kinds = [np.array(codes) for codes in kinds.values()]

    def texts(self, repetition: int) -> pa.StringArray:
        becomes = np.arange(len(self._pieces))
        for codes in self._kinds:
            becomes[codes] = np.roll(codes, -repetition)
        pieces = self._pieces.take(pa.array(becomes[self._codes]))
        lists = pa.ListArray.from_arrays(pa.array(self._ends, pa.int32()), pieces)
        return pc.binary_join(lists, "")

    def write(self, folder: Path, repetitions: int, per_file: int) -> None:
        """Writes the repetitions as `*.parquet` with columns `id` and `text`."""
        folder.mkdir(parents=True)
        for repetition in range(repetitions):
            texts = self.texts(repetition)
            ids = pa.array([f"{repetition}-{i}" for i in range(len(texts))])
            table = pa.table({"id": ids, "text": texts})
            for part, start in enumerate(range(0, len(texts), per_file)):
                path = folder / f"{repetition:05d}-{part}.parquet"
                pq.write_table(table.slice(start, per_file), path, compression="zstd")
