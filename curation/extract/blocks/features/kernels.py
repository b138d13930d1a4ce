"""The compiled kernels of blocks' features.

What may live here: loops in numba over a page's records, taken as matrices of int32 (see ELEMENT
and BLOCK in `page.py`, whose columns are compiled in). What the numbers mean is told in
`features/__init__.py`; `features/reference.py` gives the same in plain Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curation.extract.blocks.kernels import (
    B_BREAKS,
    B_CAPITALS,
    B_CHARACTERS,
    B_COMMAS,
    B_DIGITS,
    B_ELEMENT,
    B_ENDS,
    B_LEAF,
    B_LETTERS,
    B_LINK_CHARACTERS,
    B_LINKS,
    B_SHORT_WORDS,
    B_SINGLES,
    B_START,
    B_STOP,
    B_TERMINALS,
    B_WORDS,
    E_ANCESTORS,
    E_DEPTH,
    E_FIRST,
    E_HINTS,
    E_HINTS_STOP,
    E_KIND,
    E_LEVEL,
    E_LISTS,
    E_PARENT,
    E_STOP,
    E_TAG,
)
from curation.extract.blocks.page import ANCESTORS
from curation.text.cache import inline, kernel


def _bits(names: str) -> int:
    return sum(1 << ANCESTORS.index(name) for name in names.split())


ARTICLE = _bits("article main")
MARGINAL = _bits("nav aside header footer form")
INSIDE = tuple(_bits(name) for name in ("table", "figure", "section"))

OPENING = 12  # words at the beginning of a block that are looked at
TITLE_WORDS = 32
LEVELS = 3  # containers around a block that are looked at
WINDOWS = (2, 5, 12, 30)
NEIGHBOURS = (-2, -1, 1, 2)
FAR = 99  # distances beyond count as this
NEAR = 3  # blocks on either side whose probabilities are looked at
AROUND = (3, 8)  # widths of windows of probabilities
HALF = 0.55  # the share of the page's prose that the smallest `half` container holds
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@inline
def slot(word: Any, size: Any) -> Any:
    """Where the weight of a word of that hash stands, in a table of a power of two."""
    return np.int64((word ^ (word >> np.uint32(15))) & np.uint32(size - 1))


@inline
def pair(before: Any, word: Any) -> Any:
    """The hash of two words in a row."""
    both = np.uint32(before * np.uint32(0x9E3779B1)) ^ word
    return np.uint32(both ^ (both >> np.uint32(13)))


@inline
def next_word(text: Any, i: Any, stop: Any) -> Any:
    """The hash (FNV-1a; 0 for none) of the word that begins at byte `i` or later, and its end.

    A word is a run of letters and digits; from U+3000 on every character is one. A to Z and the
    capitals of Latin-1 are folded, all digits are one. What begins with the bytes C2 and E2
    (punctuation, signs) parts words.
    """
    word = np.uint32(0x811C9DC5)
    empty = True
    while i < stop:
        byte = np.int64(text[i])
        if byte >= 0xE3:
            if not empty:
                break
            size = 3 if byte < 0xF0 else 4
            for j in range(i, min(stop, i + size)):
                word = np.uint32((word ^ np.uint32(text[j])) * np.uint32(0x01000193))
            return word, min(stop, i + size)
        if 65 <= byte <= 90 or (i and 0x80 <= byte <= 0x9E and text[i - 1] == 0xC3):
            byte += 32
        elif 48 <= byte <= 57:
            byte = np.int64(48)
        elif byte == 0xC2 or byte == 0xE2 or (byte < 128 and not 97 <= byte <= 122):
            if not empty:
                break
            i += 3 if byte == 0xE2 else 2 if byte == 0xC2 else 1
            continue
        word = np.uint32((word ^ np.uint32(byte)) * np.uint32(0x01000193))
        empty = False
        i += 1
    return np.uint32(0) if empty else word, min(i, stop)


@kernel
def opening_words(text: Any, blocks: Any, title: int, words: Any, counts: Any) -> None:
    """Fills `words` (uint32, blocks + 1 rows of TITLE_WORDS) and `counts` with the hashes of each
    block's first OPENING words, and in the last row those of the title."""
    n = len(blocks)
    for b in range(n + 1):
        i, stop, most = np.int64(0), np.int64(title), TITLE_WORDS
        if b < n:
            i, stop, most = np.int64(blocks[b, B_START]), np.int64(blocks[b, B_STOP]), OPENING
        counts[b] = 0
        while counts[b] < most:
            word, i = next_word(text, i, stop)
            if not word:
                break
            words[b, counts[b]] = word
            counts[b] += 1


@inline
def clip(value: Any) -> Any:
    return min(FAR, max(-FAR, value))


@inline
def claim(keys: Any, key: Any) -> Any:
    """The place of a key in an open hash table (0: free; a power of two, never full)."""
    key = np.uint64(key * GOLDEN)
    key = np.uint64((key ^ (key >> np.uint64(31))) | np.uint64(1))
    size = np.uint64(len(keys) - 1)
    at = key & size
    while keys[at] != 0 and keys[at] != key:
        at = (at + np.uint64(1)) & size
    keys[at] = key
    return np.int64(at)


@inline
def table_size(count: int) -> Any:
    size = 4
    while size < 2 * count:
        size *= 2
    return size


@kernel
def features(
    elements: Any,
    blocks: Any,
    hints: Any,
    text: Any,
    words: Any,
    counts: Any,
    hint_weights: Any,
    word_weights: Any,
    out: Any,
) -> None:
    """Fills `out` (float32, a row a block, features first)."""
    n, m = len(blocks), len(elements)

    # Sums over the blocks before each block: characters, those of links, those of prose.
    chars, linked, prose = np.zeros(n + 1), np.zeros(n + 1), np.zeros(n + 1)
    longest = 0.0
    for i in range(n):
        all_, link = blocks[i, B_CHARACTERS], blocks[i, B_LINK_CHARACTERS]
        marks = blocks[i, B_TERMINALS] + blocks[i, B_COMMAS]
        is_prose = link * 2 <= all_ and (marks >= 3 or (blocks[i, B_ENDS] and all_ >= 25))
        mine = np.float64(all_ - link) if is_prose else 0.0
        longest = max(longest, mine)
        chars[i + 1], linked[i + 1] = chars[i] + all_, linked[i] + link
        prose[i + 1] = prose[i] + mine
    total, all_prose = max(1.0, chars[n]), max(1.0, prose[n])

    # Words: their scores, and the share of them that the title has, too.
    score, overlap = np.zeros(n), np.zeros(n)
    for i in range(n):
        before, shared = np.uint32(0), 0
        for j in range(counts[i]):
            word = words[i, j]
            score[i] += word_weights[slot(word, len(word_weights))]
            score[i] += word_weights[slot(pair(before, word), len(word_weights))]
            before = word
            for t in range(counts[n]):
                if words[n, t] == word:
                    shared += 1
                    break
        overlap[i] = shared / max(1, counts[i])

    # Elements: scores of their hints, and how many brothers look the same.
    kind = np.zeros(m, np.uint64)
    own, path, greatest, least, nearest = (
        np.zeros(m),
        np.zeros(m),
        np.zeros(m),
        np.zeros(m),
        np.zeros(m),
    )
    half = 0
    keys = np.zeros(table_size(m), np.uint64)
    alike, place = np.zeros(len(keys), np.int32), np.zeros(m, np.int64)
    for e in range(m):
        first, stop = elements[e, E_HINTS], elements[e, E_HINTS_STOP]
        mark = np.uint64(elements[e, E_TAG] + 1) * GOLDEN
        for j in range(first, stop):
            own[e] += hint_weights[slot(hints[j], len(hint_weights))]
            if j < first + 3:
                mark = (mark ^ np.uint64(hints[j])) * np.uint64(0x100000001B3)
        kind[e] = mark ^ (mark >> np.uint64(29))
        p = elements[e, E_PARENT]
        path[e] = own[e]
        if p >= 0:
            path[e] += path[p]
            greatest[e], least[e] = max(greatest[p], own[e]), min(least[p], own[e])
            nearest[e] = own[e] if stop > first else nearest[p]
        place[e] = claim(keys, kind[e] ^ np.uint64(p + 1))
        alike[place[e]] += elements[e, E_STOP] > elements[e, E_FIRST]
        if prose[elements[e, E_STOP]] - prose[elements[e, E_FIRST]] > HALF * all_prose:
            half = e

    # Containers: the elements around a block that each hold more blocks than the one before. The
    # best is voted for by the prose of the blocks, and less so from further in.
    outer = np.zeros(m, np.int64)
    for e in range(1, m):
        p = elements[e, E_PARENT]
        more = (
            elements[p, E_STOP] - elements[p, E_FIRST] > elements[e, E_STOP] - elements[e, E_FIRST]
        )
        outer[e] = p if more else outer[p]
    chain = np.zeros((n, LEVELS + 1), np.int64)
    votes = np.zeros(m)
    for i in range(n):
        chain[i, 0] = blocks[i, B_ELEMENT]
        for level in range(1, LEVELS + 1):
            chain[i, level] = outer[chain[i, level - 1]]
            votes[chain[i, level]] += (prose[i + 1] - prose[i]) / level
    best = 0
    for e in range(m):
        if votes[e] > votes[best]:
            best = e

    # From every element up to the nearest that is around the best container: steps, and which.
    climb, meeting = np.full(m, -1, np.int64), np.zeros(m, np.int64)
    up = best
    while up >= 0:
        climb[up], meeting[up] = 0, up
        up = elements[up, E_PARENT]
    for e in range(1, m):
        if climb[e] < 0:
            p = elements[e, E_PARENT]
            climb[e], meeting[e] = climb[p] + 1, meeting[p]

    # Groups: blocks of elements that look the same, in parents that do, and in the same parent.
    group = np.zeros((n, 2), np.int64)
    sums = np.zeros((2, table_size(n), 5))
    for which in range(2):
        keys = np.zeros(table_size(n), np.uint64)
        for i in range(n):
            e = blocks[i, B_ELEMENT]
            p = max(0, elements[e, E_PARENT])
            other = np.uint64(p) if which else kind[p]
            at = claim(keys, kind[e] * np.uint64(31) + other)
            group[i, which] = at
            sums[which, at, 0] += 1
            sums[which, at, 1] += chars[i + 1] - chars[i]
            sums[which, at, 2] += linked[i + 1] - linked[i]
            sums[which, at, 3] += prose[i + 1] - prose[i]
            sums[which, at, 4] += blocks[i, B_ENDS]

    # Landmarks: the first heading of level 1, the block most like the title, the next prose.
    headline, titled = -1, -1
    likeness = 0.0
    until = np.zeros(n, np.int64)
    for i in range(n):
        level = elements[blocks[i, B_ELEMENT], E_LEVEL]
        if headline < 0 and level == 1:
            headline = i
        like = overlap[i] * min(1.0, blocks[i, B_WORDS] / 4) * (1.5 if level else 1.0)
        if like > likeness:
            likeness, titled = like, i
    distance = FAR
    for i in range(n - 1, -1, -1):
        until[i] = distance
        distance = 1 if prose[i + 1] > prose[i] else min(FAR, distance + 1)

    since, heading = FAR, -1
    best_first, best_stop = elements[best, E_FIRST], elements[best, E_STOP]
    half_first, half_stop = elements[half, E_FIRST], elements[half, E_STOP]
    for i in range(n):
        row = out[i]
        here, leaf = blocks[i, B_ELEMENT], blocks[i, B_LEAF]
        c, w = max(1, blocks[i, B_CHARACTERS]), max(1, blocks[i, B_WORDS])
        letters = max(1, blocks[i, B_LETTERS])
        mine = prose[i + 1] - prose[i]
        # own
        row[0] = np.log1p(c)
        row[1] = np.log1p(w)
        row[2] = blocks[i, B_LINK_CHARACTERS] / c
        row[3] = blocks[i, B_LINKS] / w
        row[4] = blocks[i, B_COMMAS] / w
        row[5] = np.log1p(blocks[i, B_TERMINALS])
        row[6] = blocks[i, B_ENDS]
        row[7] = blocks[i, B_DIGITS] / c
        row[8] = blocks[i, B_CAPITALS] / letters
        row[9] = blocks[i, B_SHORT_WORDS] / w
        row[10] = c / w
        row[11] = blocks[i, B_LETTERS] / c
        row[12] = blocks[i, B_SINGLES] / c
        row[13] = blocks[i, B_TERMINALS] / c
        row[14] = blocks[i, B_BREAKS]
        row[15] = text[blocks[i, B_START]]
        # place
        bits = elements[here, E_ANCESTORS]
        row[16] = elements[here, E_TAG]
        row[17] = elements[leaf, E_TAG]
        row[18] = elements[max(0, elements[here, E_PARENT]), E_TAG]
        row[19] = elements[here, E_KIND]
        row[20] = elements[here, E_LEVEL]
        row[21] = elements[here, E_DEPTH]
        row[22] = elements[here, E_LISTS]
        row[23] = (bits & ARTICLE) != 0
        row[24] = (bits & MARGINAL) != 0
        row[25] = (bits & INSIDE[0]) != 0
        row[26] = (bits & INSIDE[1]) != 0
        row[27] = (bits & INSIDE[2]) != 0
        # hints and words
        row[28] = path[leaf]
        row[29] = greatest[leaf]
        row[30] = least[leaf]
        row[31] = nearest[leaf]
        row[32] = own[here]
        row[33] = path[leaf] - path[chain[i, 2]]
        row[34] = score[i]
        row[35] = overlap[i]
        row[36] = row[37] = row[38] = 0
        row[39] = FAR
        if heading >= 0:
            row[36] = score[heading]
            row[37] = path[blocks[heading, B_LEAF]]
            row[38] = elements[blocks[heading, B_ELEMENT], E_LEVEL]
            row[39] = clip(i - heading)
        # containers
        k = 40
        for level in range(1, LEVELS + 1):
            a = chain[i, level]
            first, stop = elements[a, E_FIRST], elements[a, E_STOP]
            inside = max(1.0, chars[stop] - chars[first])
            row[k] = np.log1p(stop - first)
            row[k + 1] = np.log1p(chars[stop] - chars[first])
            row[k + 2] = (linked[stop] - linked[first]) / inside
            row[k + 3] = (prose[stop] - prose[first]) / all_prose
            row[k + 4] = (prose[stop] - prose[first]) / inside
            row[k + 5] = elements[a, E_TAG]
            row[k + 6] = clip(alike[place[a]])
            row[k + 7] = (i - first) / (stop - first)
            k += 8
        row[k] = clip(alike[place[here]])
        k += 1
        # groups
        for which in range(2):
            those = sums[which, group[i, which]]
            row[k] = clip(those[0])
            row[k + 1] = np.log1p(those[1] / those[0])
            row[k + 2] = those[2] / max(1.0, those[1])
            row[k + 3] = those[3] / all_prose
            row[k + 4] = those[4] / those[0]
            k += 5
        # best and half
        row[k] = best_first <= i < best_stop
        row[k + 1] = (i - best_first) / max(1, best_stop - best_first)
        row[k + 2] = clip(i - best_first)
        row[k + 3] = clip(best_stop - 1 - i)
        row[k + 4] = climb[here]
        row[k + 5] = elements[best, E_DEPTH] - elements[meeting[here], E_DEPTH]
        row[k + 6] = (prose[best_stop] - prose[best_first]) / all_prose
        row[k + 7] = path[best]
        row[k + 8] = half_first <= i < half_stop
        row[k + 9] = (half_stop - half_first) / n
        row[k + 10] = (i - half_first) / max(1, half_stop - half_first)
        k += 11
        # page
        row[k] = np.log1p(n)
        row[k + 1] = np.log1p(total)
        row[k + 2] = linked[n] / total
        row[k + 3] = prose[n] / total
        row[k + 4] = np.log1p(longest)
        row[k + 5] = i / n
        row[k + 6] = chars[i] / total
        row[k + 7] = prose[i] / all_prose
        row[k + 8] = (prose[n] - prose[i + 1]) / all_prose
        row[k + 9] = clip(i - headline) if headline >= 0 else -FAR - 1
        row[k + 10] = clip(i - titled) if titled >= 0 else -FAR - 1
        row[k + 11] = since
        row[k + 12] = until[i]
        row[k + 13] = mine
        k += 14
        # windows
        for q in range(len(WINDOWS)):
            lo, hi = max(0, i - WINDOWS[q]), min(n, i + WINDOWS[q] + 1)
            row[k] = np.log1p(prose[hi] - prose[lo])
            row[k + 1] = (linked[hi] - linked[lo]) / max(1.0, chars[hi] - chars[lo])
            k += 2
        # neighbours
        for q in range(len(NEIGHBOURS)):
            j = i + NEIGHBOURS[q]
            row[k : k + 7] = -1
            if 0 <= j < n:
                size = max(1, blocks[j, B_CHARACTERS])
                row[k] = np.log1p(size)
                row[k + 1] = blocks[j, B_LINK_CHARACTERS] / size
                row[k + 2] = blocks[j, B_ENDS]
                row[k + 3] = elements[blocks[j, B_ELEMENT], E_TAG]
                row[k + 4] = path[blocks[j, B_LEAF]] - path[leaf]
                row[k + 5] = score[j]
                row[k + 6] = chain[j, 1] == chain[i, 1]
            k += 7
        if elements[here, E_LEVEL]:
            heading = i
        since = 1 if mine > 0 else min(FAR, since + 1)


@kernel
def context(elements: Any, blocks: Any, chances: Any, column: int, out: Any) -> None:
    """Fills `out` (float32, a row a block) from `column` on with CONTEXT, from the blocks'
    probabilities (float64)."""
    n, m = len(blocks), len(elements)
    sizes, kept = np.zeros(n + 1), np.zeros(n + 1)
    of_parent = np.zeros((m, 2))
    highest = 0.0
    for i in range(n):
        size = np.sqrt(blocks[i, B_CHARACTERS])
        sizes[i + 1], kept[i + 1] = sizes[i] + size, kept[i] + size * chances[i]
        parent = max(0, elements[blocks[i, B_ELEMENT], E_PARENT])
        of_parent[parent, 0] += size
        of_parent[parent, 1] += size * chances[i]
        highest = max(highest, chances[i])
    before, k = 0.0, column
    for i in range(n):
        row = out[i]
        for j in range(-NEAR, NEAR + 1):
            row[column + j + NEAR] = chances[i + j] if 0 <= i + j < n else 0.0
        k = column + 2 * NEAR + 1
        for q in range(len(AROUND)):
            lo, hi = max(0, i - AROUND[q]), min(n, i + AROUND[q] + 1)
            row[k] = (kept[hi] - kept[lo]) / max(1.0, sizes[hi] - sizes[lo])
            k += 1
        parent = max(0, elements[blocks[i, B_ELEMENT], E_PARENT])
        before = max(before, chances[i])
        row[k] = of_parent[parent, 1] / max(1.0, of_parent[parent, 0])
        row[k + 1] = kept[i] / max(1e-9, kept[n])
        row[k + 2] = highest
        row[k + 3] = before
    after = 0.0
    for i in range(n - 1, -1, -1):
        after = max(after, chances[i])
        out[i, k + 4] = after
