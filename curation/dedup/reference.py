"""The plain Python of `kernels`: slow, and meant to be read.

What may live here: shingles, signatures and band hashes over `str` and `int`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from curation.text import reference as text_reference

MASK64 = (1 << 64) - 1
MASK32 = (1 << 32) - 1
BASE = 0xD6E8FEB86659FD93
GOLDEN = 0x9E3779B97F4A7C15


def finalise(state: int) -> int:
    """MurmurHash3's finaliser of 64 bits."""
    state = (state ^ state >> 33) * 0xFF51AFD7ED558CCD & MASK64
    state = (state ^ state >> 33) * 0xC4CEB9FE1A85EC53 & MASK64
    return state ^ state >> 33


def shingle_hash(words: Sequence[int]) -> int:
    """The hash of these words' hashes in this order."""
    state = 0
    for word in words:
        state = (state * BASE + word) & MASK64
    return finalise(state)


def shingles(text: str, ngram: int) -> list[int]:
    """The hash of every shingle of the text, in order and as often as it occurs."""
    words = [text_reference.word_hash(word.text, True) for word in text_reference.words(text)]
    return [shingle_hash(words[i : i + ngram]) for i in range(len(words) - ngram + 1)]


def splitmix64(index: int) -> int:
    """Output number `index`, counted from 0, of the generator splitmix64 with seed 0."""
    state = (index + 1) * GOLDEN & MASK64
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK64
    return state ^ state >> 31


def permutation(k: int) -> tuple[int, int]:
    """The multiplier, made odd, and the addend of the k-th permutation of 32 bits."""
    bits = splitmix64(k)
    return bits & MASK32 | 1, bits >> 32


def signature(hashes: Sequence[int], permutations: int) -> list[int]:
    """The low 16 bits of the minimum of each permutation over the upper halves of the hashes."""
    if not hashes:
        return [0] * permutations
    values = []
    for k in range(permutations):
        a, b = permutation(k)
        values.append(min((a * (x >> 32) + b) & MASK32 for x in hashes) & 0xFFFF)
    return values


def band_hashes(signature: Sequence[int], bands: int, rows: int, salt: int) -> list[int]:
    """The hash of each band of `rows` values."""
    hashes = []
    for k, (first, stop) in enumerate(pairwise(range(0, (bands + 1) * rows, rows))):
        state = finalise((salt + k * GOLDEN) & MASK64)
        for value in signature[first:stop]:
            state = (state ^ value) * BASE & MASK64
            state ^= state >> 32
        hashes.append(finalise(state))
    return hashes
