"""Words that a URL should not have, as RefinedWeb looks for them (arXiv 2306.01116, G.1).

What may live here: `Words`, the automata made of three lists, and where the lists lie.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curation import models
from curation.filters.urls import Addresses, kernels

#: The name of the lists that come with the package.
BUILT_IN = "built-in"

#: Names of the three files in a folder: ours; datatrove's.
_FILES = (
    ("strict.txt", "hard.txt", "soft.txt"),
    ("banned_subwords.txt", "banned_words.txt", "soft_banned_words.txt"),
)


class WordsError(ValueError):
    """No lists of words; the message is one line."""


def files(name: str) -> tuple[Path, Path, Path]:
    """The lists of strict, hard and soft words: the built-in ones, or those of a folder given by
    path or by name. Raises ModelNotFound, WordsError."""
    folder = Path(__file__).parent / "built_in" if name == BUILT_IN else models.find(name)
    for strict, hard, soft in _FILES:
        found = folder / strict, folder / hard, folder / soft
        if all(path.is_file() for path in found):
            return found
    raise WordsError(f"{folder}: no lists of words ({', '.join(_FILES[0])})")


def read(path: Path) -> frozenset[str]:
    """The words of a file, one a line, in lower case and without what is no ASCII letter or digit;
    lines that begin with '#' are comments. Raises WordsError for a line that has neither."""
    found = set()
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        word = re.sub("[^a-z0-9]", "", line.lower())
        if not word:
            raise WordsError(f"{path}, line {number}: {line!r} has no ASCII letter or digit")
        found.add(word)
    return frozenset(found)


class Words:
    """Three lists of words, made into automata."""

    def __init__(self, strict: frozenset[str], hard: frozenset[str], soft: frozenset[str]) -> None:
        self._inside, self._words, self._shorter = _automaton(strict)
        self._whole, self._kinds = _tree(hard, soft)

    def count(self, addresses: Addresses) -> NDArray[np.int64]:
        """Per address how many different strict words occur in its letters and digits taken
        together, and how many hard and soft ones between other characters: (addresses, 3)."""
        counts = np.zeros((len(addresses), 3), np.int64)
        kernels.count_words(
            addresses.data,
            addresses.begins,
            addresses.ends,
            self._inside,
            self._words,
            self._shorter,
            self._whole,
            self._kinds,
            counts.ravel(),
        )
        return counts


def load(paths: tuple[Path, Path, Path]) -> Words:
    """The words of three files, read once per process."""
    return _load_once(paths, tuple(models.digest(path) for path in paths))


@lru_cache(maxsize=4)
def _load_once(paths: tuple[Path, Path, Path], digests: tuple[str, ...]) -> Words:
    strict, hard, soft = map(read, paths)
    return Words(strict, hard, soft)


def _grow(words: Iterable[str], first: int) -> tuple[list[list[int]], dict[str, int]]:
    """The tree of words: transitions (0: none) from its root 0 and states from `first` on, and the
    state of each word."""
    states = [[0] * kernels.LETTERS for _ in range(first)]
    ends = {}
    for word in sorted(words):
        state = 0
        for byte in word.encode():
            letter = byte - 97 if byte >= 97 else byte - 22
            if not states[state][letter]:
                states[state][letter] = len(states)
                states.append([0] * kernels.LETTERS)
            state = states[state][letter]
        ends[word] = state
    return states, ends


def _tree(
    hard: frozenset[str], soft: frozenset[str]
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    states, ends = _grow(hard | soft, first=2)
    kinds = np.zeros(len(states), np.uint8)
    for word, state in ends.items():
        kinds[state] = (word in hard) + 2 * (word in soft)
    table = np.array(states, np.int32).ravel()
    table[table == 0] = kernels.DEAD
    return table, kinds


def _automaton(
    words: frozenset[str],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """The automaton of Aho and Corasick, with all its transitions."""
    states, ends = _grow(words, first=1)
    longest, shorter = np.zeros((2, len(states)), np.int32)
    longest[list(ends.values())] = list(ends.values())
    fail = [0] * len(states)
    waiting = deque([0])
    while waiting:
        state = waiting.popleft()
        shorter[state] = longest[fail[state]]
        if not longest[state]:
            longest[state] = shorter[state]
        for letter, follower in enumerate(states[state]):
            back = states[fail[state]][letter] if state else 0
            if follower:
                fail[follower] = back
                waiting.append(follower)
            else:
                states[state][letter] = back
    return np.array(states, np.int32).ravel(), longest, shorter
