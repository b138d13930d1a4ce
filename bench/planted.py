"""A corpus of short documents of real words, with planted copies whose likeness is known.

    python bench/planted.py OUT --documents 1000000 --words TEXTS.jsonl [--seed 20]

OUT/corpus/*.parquet has columns `text` and `id`, 100,000 documents a file, 44 to 60 words each
(some 300 bytes), drawn by the frequency that the words of TEXTS (JSON lines with `text`, or plain
text) have there. 30 % are copies: exact ones, ones with a run of words replaced, groups of 2 to
1,000, chains of edits. Another 10 % look alike without being copies: a common footer, a common
template. OUT/truth.parquet has a row for each document that was made from another: `id`, `kind`,
`group`, `size` of the group, `original` (the id it was made from), and `jaccard`, the exact
similarity of the two by sets of 5 words.

Everything about a document is a function of its number, which is its id, and the seed, so any of
them is made on its own: nothing is kept in memory, and a benchmark can ask for the similarity of
any two (`jaccard`). Members of a group have adjacent numbers; where a document lies in the files
is another matter (`number_at`), which spreads every group over all of them.

What may live here: the planting, and nothing about the engines that are measured on it.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SHINGLE = 5  # words
LEAST, MOST = 44, 60  # words in a document
BATCH = 10_000  # documents made at a time: some 50 MB of arrays
FILE = 100_000  # documents, at most
FILES = 4  # at least
VOCABULARY = 20_000  # words, the most frequent ones
DRAWS = 20  # bits that choose a word: one of 2**20 places, shared out by frequency

#: Numbers are laid out in blocks of this many, each with the groups below: (kind, documents in the
#: group, groups, similarity of a copy to what it was made from). The first of a group is no copy.
BLOCK = 10_000
GROUPS = (
    ("exact", 2, 122, 1.0),
    ("exact", 1_000, 1, 1.0),
    ("near", 2, 200, 0.95),
    ("near", 2, 200, 0.9),
    ("near", 2, 200, 0.85),
    ("near", 2, 200, 0.8),
    ("near", 2, 200, 0.7),
    ("near", 2, 200, 0.6),
    ("near", 2, 200, 0.5),
    ("near", 10, 20, 0.9),
    ("near", 100, 1, 0.95),
    ("chain", 3, 100, 0.85),
    ("footer", 500, 1, 0.0),
    ("template", 500, 1, 0.0),
)
FOOTER = 0.3  # of a document's words, at its end; the same in the whole corpus
TEMPLATE_PERIOD, TEMPLATE_OWN = 20, 3  # of so many words of a template so many are a page's own

_GOLDEN = 0x9E3779B97F4A7C15
_FOOTER_KEY = 1 << 62  # beyond the numbers of documents


@cache
def _layout() -> dict[str, np.ndarray]:
    """By place in a block: `kind`, and `first` and `parent` (places of the group's first document
    and of what this one was made from), `size` of the group, `target` similarity to the parent."""
    groups = [
        ((turn + 0.5) / count, kind, size, target)
        for kind, size, count, target in GROUPS
        for turn in range(count)
    ]
    alone = BLOCK - sum(size for _, _, size, _ in groups)
    groups += [((turn + 0.5) / alone, "alone", 1, 1.0) for turn in range(alone)]
    columns: dict[str, list[object]] = {name: [] for name in ("kind", "first", "parent")}
    columns |= {"size": [], "target": []}
    for _, kind, size, target in sorted(groups, key=lambda group: group[0]):  # evenly mixed
        first = len(columns["kind"])
        for turn in range(size):
            columns["kind"].append(kind)
            columns["first"].append(first)
            columns["parent"].append(first + max(turn - 1, 0) if kind == "chain" else first)
            columns["size"].append(size)
            columns["target"].append(target if turn else 1.0)
    return {name: np.array(values) for name, values in columns.items()}


def _mix(keys: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64: uint64 to uint64, one to one."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


@dataclass(frozen=True)
class Corpus:
    """`documents` documents of words from `vocabulary`, (word, count) with the most frequent first.

    A smaller corpus is the beginning of a larger one, in other files: a group may be cut short.
    """

    documents: int
    vocabulary: tuple[tuple[str, int], ...]
    seed: int = 20

    @cached_property
    def _table(self) -> np.ndarray:
        """A word's index for each of 2**DRAWS draws."""
        counts = np.array([count for _, count in self.vocabulary], dtype=np.float64)
        draws = (np.arange(1 << DRAWS) + 0.5) / (1 << DRAWS)
        return np.searchsorted(np.cumsum(counts) / counts.sum(), draws).astype(np.int32)

    @cached_property
    def _strings(self) -> pa.Array:
        return pa.array([word for word, _ in self.vocabulary], pa.string())

    @cached_property
    def _step(self) -> int:
        """How far adjacent numbers lie apart: the golden section, which scatters evenly."""
        step = max(round(self.documents * 0.6180339887), 1)
        while math.gcd(step, self.documents) != 1:
            step += 1
        return step

    def number_at(self, positions: np.ndarray) -> np.ndarray:
        """Numbers of the documents that lie at these positions: file * per_file + row."""
        back = pow(self._step, -1, self.documents) if self.documents > 1 else 0
        return positions * back % self.documents

    def words(self, numbers: np.ndarray) -> np.ndarray:
        """Words of documents as indices into the vocabulary: int32 [documents, MOST], -1 after the
        last one."""
        layout, place = _layout(), numbers % BLOCK
        start = numbers - place
        first, parent = start + layout["first"][place], start + layout["parent"][place]
        length = LEAST + (self._hash(first, 1) % np.uint64(MOST - LEAST + 1)).astype(np.int64)
        column = np.arange(MOST)
        words = self._draw(first, column)

        kind = layout["kind"][place]
        some = np.flatnonzero(kind == "template")
        own = column % TEMPLATE_PERIOD >= TEMPLATE_PERIOD - TEMPLATE_OWN
        words[np.ix_(some, own)] = self._draw(numbers[some], column[own])

        some = np.flatnonzero(kind == "footer")
        words[some] = self._draw(numbers[some], column)
        from_end = length[some, None] - 1 - column
        footer = self._draw(np.array([_FOOTER_KEY]), np.arange(MOST))[0]
        inside = (from_end >= 0) & (from_end < FOOTER * length[some, None])
        words[some] = np.where(inside, footer[np.maximum(from_end, 0)], words[some])

        copy = ~np.isin(kind, ("template", "footer"))
        for maker in (parent, numbers):  # a chain's third document has its second's edit, too
            some = np.flatnonzero(copy & (layout["target"][maker % BLOCK] < 1))
            edits = self._draw(maker[some], column)
            words[some] = np.where(self._run(maker[some], length[some]), edits, words[some])
        words[column >= length[:, None]] = -1
        return words

    def _run(self, numbers: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Which words a copy has of its own: bool [documents, MOST], one run of words each.

        Of S shingles, d that are lost and d new ones leave a Jaccard of (S - d) / (S + d). A run at
        an end of the text costs as many shingles as it has words, one inside SHINGLE - 1 more.
        """
        target = _layout()["target"][numbers % BLOCK]
        lost = (length - SHINGLE + 1) * (1 - target) / (1 + target)
        chance = self._hash(numbers, 2) / 2.0**64
        lost = np.maximum(np.floor(lost + chance), 1).astype(np.int64)
        inside = lost >= SHINGLE
        run = np.where(inside, lost - SHINGLE + 1, lost)
        room = (length - 2 * (SHINGLE - 1) - run + 1).astype(np.uint64)
        drawn = self._hash(numbers, 3)
        begin = SHINGLE - 1 + (drawn % room).astype(np.int64)
        end = np.where(numbers % 2 == 0, 0, length - run)  # of a chain, each link at another
        begin = np.where(inside, begin, end)[:, None]
        column = np.arange(MOST)
        return (column >= begin) & (column < begin + run[:, None])

    def _hash(self, keys: np.ndarray, purpose: int) -> np.ndarray:
        seed = (self.seed * 64 + purpose + 1) * _GOLDEN % (1 << 64)
        return _mix(_mix(keys.astype(np.uint64) + np.uint64(seed)))

    def _draw(self, keys: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The words that each key has at these columns: int32 [keys, columns]."""
        steps = column.astype(np.uint64) * np.uint64(_GOLDEN)
        draws = _mix(self._hash(keys, 0)[:, None] + steps)
        return self._table[(draws >> np.uint64(64 - DRAWS)).astype(np.int64)]

    def texts(self, numbers: np.ndarray) -> pa.StringArray:
        words = self.words(numbers)
        there = words >= 0
        ends = np.concatenate([[0], there.sum(axis=1).cumsum()]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), self._strings.take(pa.array(words[there])))
        return pc.binary_join(lists, " ")

    def jaccard(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Exact similarity of pairs of documents by their sets of SHINGLE words, 0 to 1."""
        found = np.empty(len(left))
        for start in range(0, len(left), BATCH):
            some = slice(start, start + BATCH)
            a, b = (_shingles(self.words(numbers[some])) for numbers in (left, right))
            both = _distinct(a) + _distinct(b)
            either = _distinct(np.concatenate([a, b], axis=1))
            found[some] = (both - either) / either
        return found

    def truth(self, numbers: np.ndarray) -> pa.Table:
        """What is known of those of the documents that were made from others."""
        layout, place = _layout(), numbers % BLOCK
        made = layout["first"][place] != place
        numbers, place = numbers[made], place[made]
        start = numbers - place
        group, size = start + layout["first"][place], layout["size"][place]
        original = start + layout["parent"][place]
        return pa.table(
            {
                "id": pa.array(numbers).cast(pa.string()),
                "kind": pa.array(layout["kind"][place]),
                "group": pa.array(group),
                "size": pa.array(np.minimum(size, self.documents - group)),
                "original": pa.array(original).cast(pa.string()),
                "jaccard": pa.array(self.jaccard(original, numbers)),
            }
        )

    @property
    def per_file(self) -> int:
        """Documents in a file: FILE, less where that would leave workers without one."""
        return min(FILE, -(-self.documents // FILES))

    def write(self, folder: Path) -> None:
        """Writes `corpus/*.parquet` and `truth.parquet`, a file at a time."""
        (folder / "corpus").mkdir(parents=True)
        writer = None
        for file, begin in enumerate(range(0, self.documents, self.per_file)):
            parts = []
            for numbers in self._batches(begin, min(begin + self.per_file, self.documents)):
                ids = pa.array(numbers).cast(pa.string())
                parts.append(pa.table({"id": ids, "text": self.texts(numbers)}))
                truth = self.truth(numbers)
                writer = writer or pq.ParquetWriter(folder / "truth.parquet", truth.schema)
                writer.write_table(truth)
            path = folder / "corpus" / f"{file:05d}.parquet"
            pq.write_table(pa.concat_tables(parts), path, compression="zstd")
        if writer:
            writer.close()

    def _batches(self, begin: int, end: int) -> Iterator[np.ndarray]:
        for start in range(begin, end, BATCH):
            yield self.number_at(np.arange(start, min(start + BATCH, end)))


def _shingles(words: np.ndarray) -> np.ndarray:
    """64-bit hashes of the documents' shingles; 0 where there is none."""
    hashes = np.zeros((len(words), MOST - SHINGLE + 1), dtype=np.uint64)
    for offset in range(SHINGLE):
        word = words[:, offset : MOST - SHINGLE + 1 + offset].astype(np.uint64)
        hashes = _mix(hashes + word + np.uint64(_GOLDEN))
    hashes[words[:, SHINGLE - 1 :] < 0] = 0
    return hashes


def _distinct(hashes: np.ndarray) -> np.ndarray:
    """How many different hashes each row has; 0 is none."""
    hashes = np.sort(hashes, axis=1)
    new = hashes[:, 1:] != hashes[:, :-1]
    return new.sum(axis=1) + (hashes[:, 0] != 0)


def vocabulary(lines: Iterable[str], size: int = VOCABULARY) -> tuple[tuple[str, int], ...]:
    """The most frequent words (of two ASCII letters or more) with their counts; the more frequent
    first, then by the alphabet."""
    counts: Counter[str] = Counter()
    for line in lines:
        text = json.loads(line)["text"] if line.startswith("{") else line
        counts.update(re.findall(r"\b[a-z]{2,}\b", text.lower(), re.ASCII))
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:size])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--documents", type=int, required=True)
    parser.add_argument("--words", type=Path, required=True, help="texts to take the words from")
    parser.add_argument("--seed", type=int, default=20)
    options = parser.parse_args()
    with options.words.open(encoding="utf-8") as lines:
        known = vocabulary(lines)
    Corpus(options.documents, known, options.seed).write(options.output)


if __name__ == "__main__":
    main()
