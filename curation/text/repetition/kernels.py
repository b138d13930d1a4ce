"""The compiled kernels of repetition.

What may live here: loops in numba over the lines and words of documents, each with its plain
reference in `reference.py`. Pieces (lines, paragraphs) are compared by 64-bit hashes of their
bytes, n-grams by 64-bit hashes of the hashes of their words. `offsets`, `hashes` and `lengths`
(int64, uint64, int32) are those of pieces or words: document `d` has `offsets[d]:offsets[d + 1]`,
and lengths are code points.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curation.text.cache import inline, kernel, pointer
from curation.text.characters import SPACE
from curation.text.kernels import (
    CLASS,
    Bytes,
    Hashes,
    Ints,
    Longs,
    Table,
    bytes_hash,
    decode,
    next_line,
    trim,
)

# How n-grams are counted; see `curation.text.repetition`.
ONCE = 0
DATATROVE = 1
DOLMA = 2

FIRST, LAST = 2, 10  # words of the shortest and of the longest n-gram
TOP = 4  # up to this length the most common n-gram is looked for, then duplicated ones


@inline
def code_points(data: Any, start: Any, stop: Any) -> Any:
    """The code points of the bytes [start, stop)."""
    count = 0
    for i in range(start, stop):
        count += data[i] & 0xC0 != 0x80
    return count


@inline
def is_blank(data: Any, start: Any, stop: Any, table: Any) -> Any:
    """Whether the bytes [start, stop) are white space."""
    i = start
    while i < stop:
        point, size = decode(data, i, stop)
        if table[point] & CLASS != SPACE:
            return False
        i += size
    return True


@kernel
def split(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    table: Table,
    least: int,
    runs: bool,
    blank: bool,
    counts: Longs,
    hashes: Hashes,
    lengths: Ints,
) -> int:
    """Pieces of each document between newlines: their number; per piece hash and code points.

    With `runs`, a run of `least` or more newlines separates, else every newline. Pieces of white
    space count where `blank`. An empty document is one empty piece. Returns the number of pieces,
    at most that of bytes and documents together.
    """
    text, classes = pointer(data), pointer(table)
    n = 0
    for d in range(begins.size):
        start, end = begins[d], ends[d]
        first = n
        i = start
        while i <= end:
            stop = i
            while stop < end and text[stop] != 10:
                stop += 1
            after = min(stop + 1, end)
            while runs and after < end and text[after] == 10:
                after += 1
            if stop < end and runs and after - stop < least:
                i = after
                continue
            if blank or not is_blank(text, start, stop, classes):
                hashes[n] = bytes_hash(text, start, stop)
                lengths[n] = code_points(text, start, stop)
                n += 1
            if stop >= end:
                break
            i = start = after
        counts[d] = n - first
    return n


@kernel
def strip(
    data: Bytes, begins: Longs, ends: Longs, table: Table, starts: Longs, stops: Longs
) -> None:
    """The bytes of each document without white space at both ends."""
    text, classes = pointer(data), pointer(table)
    for d in range(begins.size):
        start, stop = trim(text, begins[d], ends[d], classes)
        starts[d] = start
        stops[d] = stop


@kernel
def find_paragraphs(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    table: Table,
    lines: Longs,
    line_hashes: Hashes,
    line_lengths: Ints,
    paragraphs: Longs,
    hashes: Hashes,
    lengths: Ints,
) -> tuple[int, int]:
    """Lines and paragraphs (of `curation.text.view`): their numbers; per piece hash and length.

    A paragraph is a run of lines that are not blank, and as long as they are together. Returns the
    numbers of lines and of paragraphs.
    """
    text, classes = pointer(data), pointer(table)
    n = 0
    p = 0
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        first_line, first = n, p
        inside = False
        while i < end:
            start, stop, _, i = next_line(text, i, end, classes)
            if start >= stop:
                inside = False
                continue
            value = bytes_hash(text, start, stop)
            length = code_points(text, start, stop)
            line_hashes[n] = value
            line_lengths[n] = length
            n += 1
            if not inside:
                hashes[p] = 0
                lengths[p] = 0
                p += 1
                inside = True
            hashes[p - 1] = chain(hashes[p - 1], value)
            lengths[p - 1] += length
        lines[d] = n - first_line
        paragraphs[d] = p - first
    return n, p


@inline
def chain(state: Any, value: Any) -> Any:
    """The hash of a sequence of hashes, with one more at its end."""
    state = (state ^ value) * np.uint64(0x9E3779B97F4A7C15)
    return state ^ state >> np.uint64(29)


@inline
def room_for(count: Any) -> Any:
    """The slots of an open hash table for so many entries: a power of two, half of it empty."""
    slots = 16
    while slots < 2 * count:
        slots *= 2
    return slots


@inline
def place(value: Any, i: Any, hashes: Any, first: Any, slots: Any, mask: Any) -> Any:
    """The first place in `hashes` of a value that is now at place `i`, both after `first`."""
    s = np.int64(value) & mask
    while slots[s] != 0:
        seen = np.int64(slots[s]) - 1
        if hashes[first + seen] == value:
            return seen
        s = (s + 1) & mask
    slots[s] = i + 1
    return i


@kernel
def count_duplicates(
    offsets: Longs,
    hashes: Hashes,
    lengths: Ints,
    slots: Ints,
    repeated: Ints,
    duplicates: Longs,
    chars: Longs,
    every: Longs,
    every_chars: Longs,
    total: Longs,
) -> None:
    """Per document (int64): pieces that repeat an earlier one, and their code points; all pieces
    that occur more than once, and theirs; the code points of all pieces.

    `slots` and `repeated` are room: as many as `room_for` the longest document, and its pieces.
    """
    values = pointer(hashes)
    for d in range(duplicates.size):
        first, last = offsets[d], offsets[d + 1]
        count = last - first
        size = room_for(count)
        slots[:size] = 0
        n, n_chars, n_every, n_every_chars, n_total = 0, 0, 0, 0, 0
        for i in range(count):
            length = int(lengths[first + i])
            n_total += length
            repeated[i] = 0
            seen = place(values[first + i], i, values, first, pointer(slots), size - 1)
            if seen < i:
                n += 1
                n_chars += length
                if repeated[seen] == 0:
                    n_every += 1
                    n_every_chars += length
                repeated[seen] = 1
                n_every += 1
                n_every_chars += length
        duplicates[d] = n
        chars[d] = n_chars
        every[d] = n_every
        every_chars[d] = n_every_chars
        total[d] = n_total


@kernel
def count_ngrams(
    offsets: Longs,
    hashes: Hashes,
    lengths: Ints,
    counting: int,
    grams: Hashes,
    active: Ints,
    seen: Ints,
    counts: Ints,
    slots: Ints,
    chars: Longs,
    totals: Longs,
) -> None:
    """Characters in n-grams of 2 to 10 words: int64[documents, 9] each, `totals` to divide by.

    For n up to 4 those of the most common n-gram (of several, the one that comes first), from 5 on
    those of duplicated n-grams; as `counting` says, see `__init__`. -1 where a
    document has fewer words than an n-gram.

    An n-gram can only occur twice where the shorter ones at its first and second word do: after the
    pairs, most places need not be looked at again. The four arrays of room are as long as the
    longest document has words, `slots` as `room_for` says.
    """
    values = pointer(hashes)
    gram, places, table = pointer(grams), pointer(active), pointer(slots)
    of, times = pointer(seen), pointer(counts)
    for d in range(offsets.size - 1):
        first = offsets[d]
        words = offsets[d + 1] - first
        total = 0
        for i in range(words):
            total += lengths[first + i]
            gram[i] = chain(np.uint64(0), values[first + i])
            places[i] = i
        some = words  # places that are still looked at
        for n in range(FIRST, LAST + 1):
            column = n - FIRST
            totals[d, column] = total
            if words < n:
                chars[d, column] = -1
                continue
            while some > 0 and places[some - 1] + n > words:
                some -= 1
            # The n-grams at those places, how often each occurs, and the most common one.
            size = room_for(some)
            slots[:size] = 0
            best, most = 0, 1
            for a in range(some):
                i = places[a]
                value = chain(gram[i], values[first + i + n - 1])
                gram[i] = value
                j = place(value, i, gram, 0, table, size - 1)
                of[i] = j
                count = 1 if j == i else times[j] + 1
                times[j] = count
                if count > most or (count == most and j < best):
                    best, most = j, count
            found = 0
            if n <= TOP:
                size_of = n - 1 if counting == DATATROVE else 0
                for i in range(best, best + n):
                    size_of += lengths[first + i]
                if counting != ONCE:
                    found = most * size_of
                elif most > 1:
                    free = 0  # the first word that is not counted yet
                    for a in range(some):
                        i = places[a]
                        if of[i] == best:
                            for k in range(max(i, free), i + n):
                                found += lengths[first + k]
                            free = i + n
            elif counting == DOLMA:
                weight = 0
                window = 0
                for i in range(words):
                    window += lengths[first + i]
                    if i >= n:
                        window -= lengths[first + i - n]
                    if i >= n - 1:
                        weight += window
                totals[d, column] = weight
                for a in range(some):
                    i = places[a]
                    if times[of[i]] > 1:
                        for k in range(i, i + n):
                            found += lengths[first + k]
            elif counting == ONCE:
                free = 0
                for a in range(some):
                    i = places[a]
                    if of[i] < i:  # it occurred before
                        for k in range(max(i, free), i + n):
                            found += lengths[first + k]
                        free = i + n
            else:
                # One walk: where an n-gram has been met, it is counted and stepped over.
                free = 0
                for a in range(some):
                    i = places[a]
                    if i < free or times[of[i]] < 2:
                        continue
                    j = of[i]
                    if times[j] & MET:
                        for k in range(i, i + n):
                            found += lengths[first + k]
                        free = i + n
                    else:
                        times[j] |= MET
            chars[d, column] = found
            # Where an n-gram occurs twice, and the one that begins a word later: there go on.
            kept = 0
            if some > 0:
                here = places[0]
                twice = times[of[here]] > 1
                for a in range(1, some):
                    after = places[a]
                    again = times[of[after]] > 1
                    places[kept] = here
                    kept += twice & again & (after == here + 1)
                    here, twice = after, again
            some = kept


#: Bit of a count: the n-gram has been met by the walk.
MET = 1 << 30


@kernel
def find_longest_runs(offsets: Longs, hashes: Hashes, longest: Longs) -> None:
    """Per document: the most equal pieces in a row (int64), 0 where it has none."""
    for d in range(longest.size):
        best = 0
        run = 0
        for i in range(offsets[d], offsets[d + 1]):
            run = run + 1 if run and hashes[i] == hashes[i - 1] else 1
            best = max(best, run)
        longest[d] = best
