"""The compiled kernels of n-grams: words, hashes, and known n-grams found again.

What may live here: loops over UTF-8 bytes and word hashes in numba; each has its plain reference in
`reference.py`. They take what those of `curation.text` take, and the arrays of `GramWords` and
`Known`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curation.text.cache import inline, kernel, part, pointer
from curation.text.characters import FOLD_SHIFT, FORMAT, MARK, NUMBER, SINGLE, SPACE
from curation.text.kernels import (
    CLASS,
    SEED,
    Bytes,
    Hashes,
    Ints,
    Longs,
    Table,
    decode,
    finalise,
    mix,
)

#: Odd, 3 modulo 8: of B, B**2, ... as few as possible are near 1 in their low bits.
BASE = 0xD6E8FEB86659FD93


@inline
def power(exponent: Any) -> Any:
    """BASE to this power."""
    result = np.uint64(1)
    for _ in range(exponent):
        result *= np.uint64(BASE)
    return result


@kernel
def find_gram_words(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    table: Table,
    counts: Longs,
    starts: Ints,
    stops: Ints,
    hashes: Hashes,
) -> int:
    """Per document its number of words; per word the columns of `GramWords`. Returns their sum."""
    text, classes = pointer(data), pointer(table)
    n = 0
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        before = n
        inside = False  # a word has begun
        single = False  # it is a letter of a script without spaces
        attached = False  # the last character is one of the word
        start = stop = i
        state = SEED
        while i < end:
            point, size = decode(text, i, end)
            entry = classes[point]
            kind = entry & CLASS
            if kind >= NUMBER:
                if inside and (single or kind == SINGLE):
                    starts[n], stops[n], hashes[n] = start, stop, finalise(state)
                    n += 1
                    inside = False
                if not inside:
                    start, state, inside = i, SEED, True
                    single = kind == SINGLE
                state = mix(state, point ^ np.int64(entry >> FOLD_SHIFT))
                stop, attached = i + size, True
            elif kind == MARK and attached:
                state = mix(state, point ^ np.int64(entry >> FOLD_SHIFT))
                stop = i + size
            elif kind == SPACE:
                if inside:
                    starts[n], stops[n], hashes[n] = start, stop, finalise(state)
                    n += 1
                inside = attached = False
            elif kind != FORMAT:
                attached = False
            i += size
        if inside:
            starts[n], stops[n], hashes[n] = start, stop, finalise(state)
            n += 1
        counts[d] = n - before
    return n


@kernel
def spell_words(
    data: Bytes, starts: Ints, stops: Ints, table: Table, at: Longs, points: Ints
) -> int:
    """Folded code points of each word, and where they begin. Returns their number."""
    text, classes = pointer(data), pointer(table)
    n = 0
    for w in range(starts.size):
        at[w] = n
        i = np.int64(starts[w])
        attached = False
        while i < stops[w]:
            point, size = decode(text, i, stops[w])
            entry = classes[point]
            kind = entry & CLASS
            if kind >= NUMBER or (kind == MARK and attached):
                points[n] = point ^ np.int64(entry >> FOLD_SHIFT)
                n += 1
                attached = True
            elif kind != FORMAT:
                attached = False
            i += size
    at[starts.size] = n
    return n


@kernel
def hash_ngrams(offsets: Longs, words: Hashes, ngram: int, starts: Longs, hashes: Hashes) -> None:
    """Per n-gram: its hash. Those of document `d` are `hashes[starts[d]:starts[d + 1]]`."""
    source, target = pointer(words), pointer(hashes)
    leaving = power(ngram)
    for d in range(offsets.size - 1):
        state = np.uint64(0)
        s = starts[d]
        for w in range(offsets[d], offsets[d + 1]):
            state = state * np.uint64(BASE) + source[w]
            if w >= offsets[d] + ngram:
                state -= source[w - ngram] * leaving
            if w >= offsets[d] + ngram - 1:
                target[s] = finalise(state)
                s += 1


@kernel
def fill_slots(hashes: Hashes, slots: Hashes, numbers: Ints) -> None:
    """The open hash table of distinct hashes, and of each slot which of them it holds."""
    mask = np.uint64(slots.size - 1)
    for k in range(hashes.size):
        s = hashes[k] & mask
        while slots[s] != 0:
            s = (s + np.uint64(1)) & mask
        slots[s], numbers[s] = hashes[k], k


@kernel
def find_hashes(hashes: Hashes, slots: Hashes, numbers: Ints, found: Ints) -> None:
    """Per hash: its number in the table of `fill_slots`, -1 where it is not in it."""
    heads, held = pointer(slots), pointer(numbers)
    mask = np.uint64(slots.size - 1)
    for k in range(hashes.size):
        value = hashes[k]
        s = value & mask
        while heads[s] != value and heads[s] != 0:
            s = (s + np.uint64(1)) & mask
        found[k] = held[s] if heads[s] == value and value != 0 else -1


@part
def same_words(
    data: Any,
    table: Any,
    starts: Any,
    stops: Any,
    first: Any,
    size: Any,
    at: Any,
    points: Any,
    other: Any,
) -> Any:
    """Whether `size` words of a text from `first` on are spelt as the known ones from `other`."""
    for w in range(size):
        k, last = at[other + w], at[other + w + 1]
        i, end = np.int64(starts[first + w]), np.int64(stops[first + w])
        attached = False
        while i < end:
            point, width = decode(data, i, end)
            entry = table[point]
            kind = entry & CLASS
            if kind >= NUMBER or (kind == MARK and attached):
                if k == last or points[k] != point ^ np.int64(entry >> FOLD_SHIFT):
                    return False
                k += 1
                attached = True
            elif kind != FORMAT:
                attached = False
            i += width
        if k != last:
            return False
    return True


@kernel
def find_ngrams(
    data: Bytes,
    table: Table,
    offsets: Longs,
    starts: Ints,
    stops: Ints,
    words: Hashes,
    ngram: int,
    slots: Hashes,
    numbers: Ints,
    firsts: Longs,
    at: Longs,
    points: Ints,
    documents: Ints,
    found: Ints,
    places: Longs,
) -> int:
    """Per occurrence of a known n-gram: document, number and first word. Returns how many."""
    source, heads = pointer(words), pointer(slots)
    text, classes, letters = pointer(data), pointer(table), pointer(points)
    begins, ends, spelt = pointer(starts), pointer(stops), pointer(at)
    mask = np.uint64(slots.size - 1)
    leaving = power(ngram)
    n = 0
    for d in range(offsets.size - 1):
        state = np.uint64(0)
        whole = offsets[d] + ngram
        for w in range(offsets[d], offsets[d + 1]):
            state = state * np.uint64(BASE) + source[w]
            if w >= whole:
                state -= source[w - ngram] * leaving
            if w < whole - 1:
                continue
            value = finalise(state)
            s = value & mask
            while heads[s] != value and heads[s] != 0:
                s = (s + np.uint64(1)) & mask
            first = w - ngram + 1
            if heads[s] == value and same_words(
                text, classes, begins, ends, first, ngram, spelt, letters, firsts[numbers[s]]
            ):
                documents[n], found[n], places[n] = d, numbers[s], first
                n += 1
    return n
