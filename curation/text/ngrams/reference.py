"""N-grams in plain Python: what the kernels must find.

What may live here: one plain function per kernel, on `str` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from curation.text.characters import FORMAT, MARK, NUMBER, SINGLE, SPACE
from curation.text.reference import character_class, fold, word_hash

_BASE, _MASK = 0xD6E8FEB86659FD93, (1 << 64) - 1


def words(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of a text (`curation.text.ngrams`), folded, with start and stop in UTF-8 bytes."""
    word, start, stop, at = "", 0, 0, 0
    single = attached = False
    for character in text:
        kind, after = character_class(character), at + len(character.encode())
        ends = kind == SPACE or (kind >= NUMBER and (single or kind == SINGLE))
        if word and ends:
            yield word, start, stop
        if ends:
            word, attached = "", False
        if kind >= NUMBER or (kind == MARK and attached):
            if not word:
                start, single = at, kind == SINGLE
            word, stop, attached = word + fold(character), after, True
        elif kind != FORMAT:
            attached = False
        at = after
    if word:
        yield word, start, stop


def ngram_hash(grams: Sequence[str]) -> int:
    """The hash of an n-gram, given by its words."""
    state = 0
    for word in grams:
        state = state * _BASE + word_hash(word)
    state &= _MASK
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        state = (state ^ state >> 33) * multiplier & _MASK
    return state ^ state >> 33


def find_hashes(hashes: Sequence[int], known: Sequence[int]) -> list[int]:
    """The place of each hash among known ones, -1 where it is not among them, or 0."""
    return [known.index(value) if value and value in known else -1 for value in hashes]


def find(text: str, known: Sequence[Sequence[str]], size: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and stop of every known n-gram (tuples of folded words) in a text."""
    found = list(words(text))
    for i in range(len(found) - size + 1):
        gram = tuple(word for word, *_ in found[i : i + size])
        if gram in known:
            yield known.index(gram), found[i][1], found[i + size - 1][2]
