"""Evaluation sets: the items that texts are held against, and the n-grams that tell them.

What may live here: reading sets of items from JSONL, and the tables of their n-grams. What becomes
of a document that has some is decided in `curation.filters.decontaminate`.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curation.text.ngrams import GramWords, Hits, Known, find, gram_words, known
from curation.text.view import TextView, offsets_of

#: Items that an n-gram is attributed to, at most: what more of them share (an instruction that all
#: items begin with) says of none that it is there.
SHARED = 16


class EvaluationError(ValueError):
    """A set that cannot be read, or in which nothing can be looked for."""


@dataclass(frozen=True)
class Item:
    """An item of a set: its name (the id, else the number of its line) and its passages."""

    set: str
    name: str
    passages: tuple[str, ...]


def stem(path: str) -> str:
    """What a set is called that has no other name: its file, without `.jsonl` and `.gz`."""
    name = Path(path).name
    for suffix in (".gz", ".jsonl", ".json"):
        name = name.removesuffix(suffix)
    return name


def expand(pattern: str) -> list[str]:
    """The files that a glob means, in order; of anything else itself. Raises EvaluationError."""
    if not has_magic(pattern) or Path(pattern).exists():
        return [pattern]
    if not (found := sorted(glob(pattern, recursive=True))):
        raise EvaluationError(f"sets: no file is {pattern}")
    return found


def _parsed(line: str, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # an integer of 5,000 digits is a ValueError
        raise EvaluationError(f"{path}:{number}: not JSON ({error})") from None


def read(name: str, path: Path, fields: Sequence[str] | None, identifier: str) -> Iterator[Item]:
    """The items of a JSONL file, plain or gzip: one object a line; blank lines are none.

    A passage is a string, or one in lists and objects, of the `fields` named, else of all but the
    `identifier`. Raises EvaluationError with the line of the first that is not so.
    """
    number = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(
            path, "rt", encoding="utf-8-sig"
        ) as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                item = _parsed(line, path, number)
                if not isinstance(item, dict):
                    raise EvaluationError(f"{path}:{number}: not an object")
                own = item.get(identifier)
                named = own if isinstance(own, (str, int)) else number
                wanted = [key for key in item if key != identifier] if fields is None else fields
                passages = [s for key in wanted for s in _strings(item.get(key))]
                yield Item(name, _text(str(named)), tuple(passages))
    except UnicodeDecodeError:
        raise EvaluationError(f"{path}:{number + 1}: not UTF-8") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise EvaluationError(f"{path}: damaged ({error})") from None


def _text(value: str) -> str:
    """A string of JSON as UTF-8 can have it."""
    return value.encode("utf-8", "replace").decode()


def _strings(value: Any) -> Iterator[str]:
    """The strings of a JSON value, in order, as UTF-8 can have them."""
    if isinstance(value, str):
        yield _text(value)
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


@dataclass(frozen=True)
class Sets:
    """The items of all sets by number, and the n-grams of which they are told.

    N-grams are numbered through the tables. Those of `ngram` words are all of a passage that has as
    many; a shorter one of at least `least` words is one n-gram, as a whole.
    """

    items: tuple[tuple[str, str], ...]  # set, name
    words: NDArray[np.int64]  # per item: of its longest passage
    least: int
    tables: tuple[Known, ...]  # by size
    offsets: NDArray[np.int64]  # of n-gram k, the items are `owners[offsets[k]:offsets[k + 1]]`
    owners: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Bytes of the tables, and about those of the names."""
        tables = sum(table.nbytes for table in self.tables)
        return tables + self.offsets.nbytes + self.owners.nbytes + 200 * len(self.items)

    @property
    def searchable(self) -> NDArray[np.bool_]:
        """Which items have a passage that is long enough."""
        return self.words >= self.least

    def owners_of(self, number: int) -> list[int]:
        """The items of an n-gram."""
        found: list[int] = self.owners[self.offsets[number] : self.offsets[number + 1]].tolist()
        return found

    def find(self, view: TextView, words: GramWords) -> Hits:
        """Their n-grams in a batch, in order of document and place."""
        first, hits = 0, []
        for table in self.tables:
            one = find(view, words, table)
            hits.append(Hits(one.documents, one.numbers + np.int32(first), one.starts, one.stops))
            first += len(table)
        columns = [
            np.concatenate([getattr(one, name) for one in hits])
            for name in ("documents", "numbers", "starts", "stops")
        ]
        order = np.lexsort((columns[1], columns[3], columns[2], columns[0]))
        return Hits(*(column[order] for column in columns))


def load(
    files: Mapping[str, tuple[Path, str]],
    fields: Sequence[str] | None,
    identifier: str,
    ngram: int,
    least: int,
) -> Sets:
    """The sets in files with these digests, by name; the last ones are kept. Raises
    EvaluationError, also for a set in which nothing is long enough to be looked for."""
    listed = tuple((name, path, digest) for name, (path, digest) in sorted(files.items()))
    return _load(listed, None if fields is None else tuple(fields), identifier, ngram, least)


@lru_cache(maxsize=2)
def _load(
    files: tuple[tuple[str, Path, str], ...],
    fields: tuple[str, ...] | None,
    identifier: str,
    ngram: int,
    least: int,
) -> Sets:
    items = [item for name, path, _ in files for item in read(name, path, fields, identifier)]
    counts = offsets_of(np.array([len(item.passages) for item in items], np.int64))
    owners = np.repeat(np.arange(len(items)), np.diff(counts))
    texts = pa.array([p for item in items for p in item.passages], pa.large_string())
    words = np.diff(gram_words(TextView(texts)).offsets)
    longest = np.zeros(len(items), np.int64)
    np.maximum.at(longest, owners, words)
    for name, path, _ in files:
        mine = [item.set == name for item in items]
        if not (longest[mine] >= least).any():
            what = f"none of its {sum(mine)} items has {least} words" if any(mine) else "no items"
            raise EvaluationError(f"set {name}: {path}: {what}")
    sizes = np.where(words >= ngram, ngram, np.where(words >= least, words, 0))
    tables: list[Known] = []
    pairs = [np.empty((0, 2), np.int64)]
    first = 0
    for size in np.unique(sizes[sizes > 0]).tolist():
        some = np.flatnonzero(sizes == size)
        table, texts_of, numbers = known(texts.take(pa.array(some)), size)
        pairs.append(np.stack([numbers + first, owners[some][texts_of]], axis=1))
        tables.append(table)
        first += len(table)
    offsets, owned = _postings(np.unique(np.concatenate(pairs), axis=0), first)
    names = tuple((item.set, item.name) for item in items)
    return Sets(names, longest, least, tuple(tables), offsets, owned)


def _postings(pairs: NDArray[np.int64], ngrams: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The items of each n-gram, given distinct, sorted pairs: the first SHARED of them."""
    starts = np.searchsorted(pairs[:, 0], np.arange(ngrams))
    pairs = pairs[np.arange(len(pairs)) - starts[pairs[:, 0]] < SHARED]
    counts = np.bincount(pairs[:, 0], minlength=ngrams)
    return offsets_of(counts.astype(np.int64)), pairs[:, 1].astype(np.int32)


def totals(sets: Sets) -> Iterable[tuple[str, int, int]]:
    """Of each set its name, its items, and how many of these can be looked for."""
    searchable = sets.searchable
    names = np.array([name for name, _ in sets.items], object)
    for name in sorted(set(names.tolist())):
        mine = names == name
        yield name, int(mine.sum()), int(searchable[mine].sum())
