"""Counting the words of a sample that may have any number of them, in bounded memory.

What may live here: the table of counts, its spilling to disk, and the choice of the words that a
trainer is given. Counts are exact and what is chosen depends on them alone, so neither the order of
the texts nor the size of the table matters.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Characters of a word at most; a longer run without spaces is cut into pieces of this length.
#: None of the presets' vocabularies has longer letters; lines of dashes and blanks have repeats.
LONGEST = 64
#: Words in memory at most, before they go to disk: some 200 MB, for words of up to 64 characters.
TABLE = 1_000_000
#: Ranges of a spilled table, of which one at a time is added up.
RANGES = 64

_SCHEMA = pa.schema([("word", pa.large_string()), ("hash", pa.uint32()), ("count", pa.int64())])


class Words:
    """Counts of words, in memory and in `folder`, an empty directory that the caller removes."""

    def __init__(self, folder: Path, table: int = TABLE) -> None:
        self._folder, self._limit = folder, table
        self._counts: Counter[str] = Counter()
        self._spills = 0

    def add(self, words: list[str]) -> None:
        """Counts the words of one text."""
        if words and max(map(len, words)) > LONGEST:
            words = [piece for word in words for piece in _pieces(word)]
        self._counts.update(words)
        if len(self._counts) > self._limit:
            self._spill()

    def chosen(self, limit: int) -> Iterator[tuple[str, int]]:
        """Words and their counts, up to `limit` bytes of distinct words in all.

        All of them where they fit; else the most frequent ones, and of the rarest count that still
        comes in as many, by a hash, as there is room for.
        """
        self._spill()
        least, bound = self._cut(limit)
        for table in self._ranges():
            counts, hashes = table["count"].to_numpy(), table["hash"].to_numpy()
            keep = (counts > least) | ((counts == least) & (hashes < bound))
            kept = table.filter(pa.array(keep))
            yield from zip(kept["word"].to_pylist(), kept["count"].to_pylist(), strict=True)

    def _cut(self, limit: int) -> tuple[int, int]:
        """The count from which on all words come in, less one, and the bound of the hashes of those
        that have just this count."""
        sizes: Counter[int] = Counter()
        for table in self._ranges():
            bytes_of = pc.binary_length(table["word"])
            by = pa.table({"count": table["count"], "bytes": bytes_of})
            summed = by.group_by("count").aggregate([("bytes", "sum")])
            pairs = zip(summed["count"].to_pylist(), summed["bytes_sum"].to_pylist(), strict=True)
            for count, size in pairs:
                sizes[count] += size
        for count in sorted(sizes, reverse=True):
            if sizes[count] > limit:
                return count, (limit << 32) // sizes[count]
            limit -= sizes[count]
        return 0, 0

    def _spill(self) -> None:
        """The table to disk, a file for each range of hashes; and emptied."""
        if not self._counts:
            return
        hashes = np.fromiter(map(_hash, self._counts), np.uint32, len(self._counts))
        columns = [list(self._counts), hashes, list(self._counts.values())]
        table = pa.table([pa.array(c, t) for c, t in zip(columns, _SCHEMA.types, strict=True)],
                         schema=_SCHEMA)  # fmt: skip
        order = np.argsort(hashes % RANGES, kind="stable")
        ends = np.searchsorted((hashes % RANGES)[order], np.arange(RANGES + 1))
        for i, (begin, end) in enumerate(pairwise(ends)):
            if begin < end:
                path = self._folder / f"{i:02d}-{self._spills:06d}.arrow"
                with pa.ipc.new_file(path, _SCHEMA) as out:
                    out.write_table(table.take(order[begin:end]))
        self._spills += 1
        self._counts.clear()

    def _ranges(self) -> Iterator[pa.Table]:
        """Distinct words with their hash and count, a range at a time, in order of the word."""
        for i in range(RANGES):
            parts = [pa.ipc.open_file(path).read_all() for path in
                     sorted(self._folder.glob(f"{i:02d}-*.arrow"))]  # fmt: skip
            if parts:
                joined = pa.concat_tables(parts).group_by(["word", "hash"])
                yield (
                    joined.aggregate([("count", "sum")])
                    .rename_columns(_SCHEMA.names)
                    .sort_by("word")
                )


def _pieces(word: str) -> Iterable[str]:
    return (word[i : i + LONGEST] for i in range(0, len(word), LONGEST))


def _hash(word: str) -> int:
    return zlib.crc32(word.encode())
