"""The compiled kernels of the text view.

What may live here: loops over UTF-8 bytes in numba. Each has its plain Python reference of the same
meaning in `reference.py`. Kernels take `data` (uint8: the bytes of a batch) and `begins`, `ends`
(int64: the bytes of each document, half-open), `table` (see `characters.table`), and fill arrays
that the caller made. The parts that they share take pointers in place of arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from curation.text.cache import inline, kernel, load8, part, pointer
from curation.text.characters import (
    ALPHABETIC,
    APOSTROPHE,
    BULLET,
    BULLET_LINE,
    CLASS_BITS,
    CLOSING,
    ELLIPSIS_LINE,
    FOLD_SHIFT,
    FORMAT,
    FULL_STOPS,
    KATAKANA,
    LETTER,
    LOWER,
    MARK,
    MARKED,
    NUMBER,
    OTHER,
    PARAGRAPH_LINE,
    SINGLE,
    SPACE,
    TERMINAL,
)

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Table = NDArray[np.uint32]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

CLASS = (1 << CLASS_BITS) - 1
ELLIPSIS = 0x2026
ENDING = np.uint32(TERMINAL << CLASS_BITS)
ENDING_OR_CLOSING = np.uint32((TERMINAL | CLOSING) << CLASS_BITS)
LOWER_CASE = np.uint32(LOWER << CLASS_BITS)
FULL_STOP_POINTS = tuple(sorted(map(ord, FULL_STOPS)))
SEED = np.uint64(0x9E3779B97F4A7C15)  # with which a hash begins


@inline
def decode(data: Any, i: Any, end: Any) -> Any:
    """Code point at byte `i` < `end`, and its length in bytes. Never reads from `end` on.

    Arrow's strings are valid UTF-8; were one not, the answer is some code point below 0x110000.
    """
    first = np.int64(data[i])
    if first < 0x80:
        return first, 1
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if i + size > end:
        return np.int64(0xFFFD), end - i
    second = np.int64(data[i + 1] & 0x3F)
    if size == 2:
        return (first & 0x1F) << 6 | second, 2
    third = np.int64(data[i + 2] & 0x3F)
    if size == 3:
        return (first & 0x0F) << 12 | second << 6 | third, 3
    point = (first & 0x07) << 18 | second << 12 | third << 6 | np.int64(data[i + 3] & 0x3F)
    return min(point, 0x10FFFF), 4


@inline
def is_digit(byte: Any) -> Any:
    return 48 <= byte <= 57


@inline
def break_size(data: Any, i: Any, end: Any) -> Any:
    """Bytes of the line break at byte `i`, one of those of `str.splitlines`; else 0."""
    byte = data[i]
    if 10 <= byte <= 13 or 28 <= byte <= 30:
        return 2 if byte == 13 and i + 1 < end and data[i + 1] == 10 else 1
    if byte == 0xC2 and i + 1 < end and data[i + 1] == 0x85:
        return 2
    if byte == 0xE2 and i + 2 < end and data[i + 1] == 0x80 and data[i + 2] & 0xFE == 0xA8:
        return 3
    return 0


@inline
def last_point(data: Any, start: Any, stop: Any) -> Any:
    """Where the last character of the bytes [start, stop) begins, and its code point."""
    at = stop - 1
    while at > start and data[at] & 0xC0 == 0x80:
        at -= 1
    point, _ = decode(data, at, stop)
    return at, point


@inline
def trim_end(data: Any, start: Any, stop: Any, table: Any) -> Any:
    """Where the bytes [start, stop) end without the white space at their end."""
    while start < stop:
        at, point = last_point(data, start, stop)
        if table[point] & CLASS != SPACE:
            break
        stop = at
    return stop


@inline
def trim(data: Any, start: Any, stop: Any, table: Any) -> Any:
    """The bytes [start, stop) without white space at both ends; both are `stop` if nothing else."""
    while start < stop:
        point, size = decode(data, start, stop)
        if table[point] & CLASS != SPACE:
            break
        start += size
    return start, trim_end(data, start, stop, table)


@inline
def next_word(data: Any, i: Any, end: Any, table: Any) -> Any:
    """The first word from byte `i` on: its bytes [start, stop), code points, has a letter.

    `start` is `end` when there is none. This is the one place that knows what a word is.
    """
    base = 0
    size = 0
    while i < end:
        point, size = decode(data, i, end)
        base = table[point] & CLASS
        if base >= NUMBER:
            break
        i += size
    if i >= end:
        return end, end, 0, False
    start = i
    i += size
    # Classes that join the word: NUMBER and LETTER, or KATAKANA, or none.
    first = NUMBER if base <= LETTER else KATAKANA
    last = LETTER if base <= LETTER else KATAKANA if base == KATAKANA else OTHER
    length = 1
    highest = base
    stop = i
    while True:
        while i < end and data[i] < 0x80:  # the common case, written out
            kind = table[data[i]] & CLASS
            if kind < FORMAT:
                return start, i, length + i - stop, highest > NUMBER
            if kind < first or kind > last:
                break
            highest = max(highest, kind)
            i += 1
        length += i - stop
        stop = i
        passed = 0  # format characters and apostrophe after `stop`, not yet known to be inside
        apostrophe = False
        while i < end:
            point, size = decode(data, i, end)
            kind = table[point] & CLASS
            i += size
            passed += 1
            if first <= kind <= last or (kind == MARK and not apostrophe):
                break
            if kind != FORMAT and (kind != APOSTROPHE or apostrophe):
                return start, stop, length, highest > NUMBER
            apostrophe |= kind == APOSTROPHE
        else:
            return start, stop, length, highest > NUMBER
        highest = max(highest, kind)
        length += passed
        stop = i


@inline
def mix(state: Any, value: Any) -> Any:
    """The state of a hash after one more value."""
    state = (state ^ np.uint64(value)) * np.uint64(0xD6E8FEB86659FD93)
    return state ^ state >> np.uint64(32)


@inline
def finalise(state: Any) -> Any:
    """The hash of a state: the finaliser of MurmurHash3."""
    state = (state ^ state >> np.uint64(33)) * np.uint64(0xFF51AFD7ED558CCD)
    state = (state ^ state >> np.uint64(33)) * np.uint64(0xC4CEB9FE1A85EC53)
    return state ^ state >> np.uint64(33)


@inline
def plain_word(data: Any, i: Any, end: Any, table: Any) -> Any:
    """`next_word` and `word_hash` (folded) in one pass, for a word of ASCII letters and digits with
    nothing but ASCII before it, as most are: its bytes [start, stop), its hash.

    `start` is `stop` where the next word, which begins there or later, is none of these.
    """
    while i < end and data[i] < 0x80 and table[data[i]] & CLASS < NUMBER:
        i += 1
    start = i
    state = SEED
    while i < end:
        byte = data[i]
        entry = table[byte]
        if byte >= 0x80 or entry & CLASS == APOSTROPHE:  # the word may go on
            return start, start, np.uint64(0)
        if entry & CLASS < NUMBER:
            break
        state = mix(state, np.uint64(byte) ^ np.uint64(entry >> FOLD_SHIFT))
        i += 1
    return start, i, finalise(state)


@inline
def word_hash(data: Any, start: Any, stop: Any, table: Any, folded: Any) -> Any:
    """The 64-bit hash of the word at bytes [start, stop), case-folded first if `folded`."""
    state = SEED
    i = start
    while i < stop:
        point, size = decode(data, i, stop)
        if folded:
            point ^= np.int64(table[point] >> FOLD_SHIFT)
        state = mix(state, point)
        i += size
    return finalise(state)


@inline
def bytes_hash(data: Any, start: Any, stop: Any) -> Any:
    """A 64-bit hash of the bytes [start, stop), eight at a time: cheaper than `word_hash`."""
    state = SEED ^ np.uint64(stop - start)
    i = start
    while i + 8 <= stop:
        state = mix(state, load8(data, i))
        i += 8
    if i < stop:
        chunk = np.uint64(0)
        if stop >= 8:  # the last eight bytes, without those that are not of the rest
            chunk = load8(data, stop - 8) >> np.uint64(8 * (8 - stop + i))
        else:
            for k in range(i, stop):
                chunk |= np.uint64(data[k]) << np.uint64(8 * (k - i))
        state = mix(state, chunk)
    return finalise(state)


@kernel
def count_words(
    data: Bytes, begins: Longs, ends: Longs, table: Table, words: Longs, sums: Longs
) -> None:
    """Per document: words, and their code points in sum (int64 each)."""
    text, classes = pointer(data), pointer(table)
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        count = 0
        total = 0
        while i < end:
            start, i, length, _ = next_word(text, i, end, classes)
            count += start < end
            total += length
        words[d] = count
        sums[d] = total


@kernel
def find_words(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    table: Table,
    words: Longs,
    sums: Longs,
    starts: Ints,
    stops: Ints,
    lengths: Ints,
    hashes: Hashes,
    flags: Bytes,
) -> int:
    """As `count_words`; and per word: its bytes [start, stop), code points, folded hash, flags.

    Returns the number of words. Hashing along costs half of what a pass of its own does.
    """
    text, classes = pointer(data), pointer(table)
    w = 0
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        before = w
        total = 0
        while i < end:
            start, i, length, alphabetic = next_word(text, i, end, classes)
            if start < end:
                starts[w] = start
                stops[w] = i
                lengths[w] = length
                hashes[w] = word_hash(text, start, i, classes, True)
                flags[w] = ALPHABETIC * alphabetic
                w += 1
                total += length
        words[d] = w - before
        sums[d] = total
    return w


@kernel
def find_word_hashes(
    data: Bytes, begins: Longs, ends: Longs, table: Table, words: Longs, hashes: Hashes
) -> int:
    """Per document: its words (int64); per word: its folded hash. Returns the number of words."""
    text, classes, target = pointer(data), pointer(table), pointer(hashes)
    w = 0
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        before = w
        while i < end:
            start, i, value = plain_word(text, i, end, classes)
            if start == i:
                start, i, _, _ = next_word(text, start, end, classes)
                value = word_hash(text, start, i, classes, True)
            if start < end:
                target[w] = value
                w += 1
        words[d] = w - before
    return w


@kernel
def find_tokens(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    table: Table,
    counts: Longs,
    starts: Ints,
    stops: Ints,
    lengths: Ints,
    hashes: Hashes,
    flags: Bytes,
) -> int:
    """Per document: its runs without white space. Per run: as `find_words`, hash of the bytes.

    Returns the number of runs.
    """
    text, classes = pointer(data), pointer(table)
    w = 0
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        first = w
        while i < end:
            point, size = decode(text, i, end)
            kind = classes[point] & CLASS
            if kind == SPACE:
                i += size
                continue
            start = i
            length = 0
            lettered = False
            marked = False
            while kind != SPACE:
                length += 1
                lettered |= kind >= LETTER
                marked |= point == 35 or point == ELLIPSIS
                i += size
                if i >= end:
                    break
                point, size = decode(text, i, end)
                kind = classes[point] & CLASS
            starts[w] = start
            stops[w] = i
            lengths[w] = length
            hashes[w] = bytes_hash(text, start, i)
            flags[w] = ALPHABETIC * lettered | MARKED * marked
            w += 1
        counts[d] = w - first
    return w


@kernel
def hash_texts(data: Bytes, begins: Ints, ends: Ints, hashes: Hashes) -> None:
    """Per document: the hash (uint64) of its bytes."""
    text = pointer(data)
    for d in range(begins.size):
        hashes[d] = bytes_hash(text, begins[d], ends[d])


@kernel
def hash_words(
    data: Bytes, starts: Ints, stops: Ints, table: Table, folded: bool, hashes: Hashes
) -> None:
    """Per word: its hash (uint64), exact or after case folding."""
    text, classes = pointer(data), pointer(table)
    for w in range(starts.size):
        hashes[w] = word_hash(text, starts[w], stops[w], classes, folded)


@kernel
def begins_single(data: Bytes, starts: Ints, table: Table, single: Bools) -> None:
    """Per word: whether it begins with a letter that is a word of its own (bool)."""
    text, classes = pointer(data), pointer(table)
    for w in range(starts.size):
        point, _ = decode(text, starts[w], data.size)
        single[w] = classes[point] & CLASS == SINGLE


@kernel
def sum_words(
    offsets: Longs,
    lengths: Ints,
    flags: Bytes,
    without: int,
    words: Longs,
    points: Longs,
    alphabetic: Longs,
) -> None:
    """Per document (int64): words that have none of the flags `without`, their code points in sum,
    and, of all words, those that are ALPHABETIC."""
    for d in range(words.size):
        count = 0
        total = 0
        lettered = 0
        for w in range(offsets[d], offsets[d + 1]):
            plain = flags[w] & without == 0
            count += plain
            total += plain * lengths[w]
            lettered += flags[w] & ALPHABETIC
        words[d] = count
        points[d] = total
        alphabetic[d] = lettered


@kernel
def median_lengths(offsets: Longs, lengths: Ints, medians: Floats) -> None:
    """Per document: the median of the lengths of its words, NaN where it has none (float64)."""
    for d in range(medians.size):
        own = lengths[offsets[d] : offsets[d + 1]]
        medians[d] = np.median(own) if own.size else np.nan


@kernel
def count_vocabulary(
    offsets: Longs, hashes: Hashes, slots: Hashes, distinct: bool, seen: Longs, counts: Longs
) -> None:
    """Per document: how many words of a vocabulary it contains, each once if `distinct` (int64).

    `slots` (uint64, a power of two, never full) is the vocabulary's open hash table, 0 where empty;
    `seen` (int64, one per slot, -1 at first) holds the last document that contained the word.
    """
    mask = np.uint64(slots.size - 1)
    for d in range(counts.size):
        count = 0
        for w in range(offsets[d], offsets[d + 1]):
            value = hashes[w]
            s = value & mask
            while slots[s] != value and slots[s] != 0:
                s = (s + np.uint64(1)) & mask
            if slots[s] == value and (seen[s] != d or not distinct):
                seen[s] = d
                count += 1
        counts[d] = count


@inline
def next_line(data: Any, i: Any, end: Any, table: Any) -> Any:
    """The line at byte `i`, trimmed: its bytes [start, stop), flags, and where the next begins.

    `start` is `stop` when the line is blank.
    """
    stop = i
    while stop < end and data[stop] != 10:
        stop += 1
    after = stop + 1
    start = i
    flags = 0
    while start < stop:
        point, size = decode(data, start, stop)
        kind = table[point] & CLASS
        if kind != SPACE:
            flags = BULLET_LINE * (kind == BULLET)
            break
        start += size
    while start < stop:
        last = stop - 1
        while last > start and data[last] & 0xC0 == 0x80:
            last -= 1
        point, size = decode(data, last, stop)
        if table[point] & CLASS != SPACE:
            dots = point == 46 and last >= start + 2 and data[last - 1] == 46 == data[last - 2]
            flags |= ELLIPSIS_LINE * (point == ELLIPSIS or dots)
            break
        stop = last
    return start, stop, flags, after


@kernel
def count_lines(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    table: Table,
    lines: Longs,
    bullets: Longs,
    ellipses: Longs,
) -> None:
    """Per document: lines, bullet lines, lines that end with an ellipsis (int64 each)."""
    text, classes = pointer(data), pointer(table)
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        count = 0
        bullet = 0
        ellipsis = 0
        while i < end:
            start, stop, flags, i = next_line(text, i, end, classes)
            count += start < stop
            bullet += flags & BULLET_LINE != 0
            ellipsis += flags & ELLIPSIS_LINE != 0
        lines[d] = count
        bullets[d] = bullet
        ellipses[d] = ellipsis


@kernel
def count_line_marks(
    data: Bytes, begins: Longs, ends: Longs, lines: Longs, bullets: Longs, ellipses: Longs
) -> None:
    """Per document (int64): what lies between newlines, blank or not; that begins with '*' or '-';
    that ends with U+2026. Nothing is trimmed; an empty document is one line."""
    text = pointer(data)
    for d in range(begins.size):
        start, end = begins[d], ends[d]
        count, bullet, ellipsis = 0, 0, 0
        while start <= end:
            stop = start
            while stop < end and text[stop] != 10:
                stop += 1
            count += 1
            bullet += start < stop and (text[start] == 42 or text[start] == 45)
            mark = stop - start >= 3 and text[stop - 3] == 0xE2 and text[stop - 2] == 0x80
            ellipsis += mark and text[stop - 1] == 0xA6
            start = stop + 1
        lines[d] = count
        bullets[d] = bullet
        ellipses[d] = ellipsis


@kernel
def find_lines(
    data: Bytes, begins: Longs, ends: Longs, table: Table, starts: Ints, stops: Ints, flags: Bytes
) -> None:
    """Per line of the batch: its bytes [start, stop) (int32) and flags (uint8)."""
    text, classes = pointer(data), pointer(table)
    n = 0
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        paragraph = PARAGRAPH_LINE
        while i < end:
            start, stop, form, i = next_line(text, i, end, classes)
            if start < stop:
                starts[n] = start
                stops[n] = stop
                flags[n] = form | paragraph
                n += 1
                paragraph = 0
            else:
                paragraph = PARAGRAPH_LINE


@kernel
def count_marks(
    data: Bytes, begins: Longs, ends: Longs, points: Longs, hashes: Longs, ellipses: Longs
) -> None:
    """Per document (int64): code points, '#', and ellipses ("..." without overlap, and U+2026)."""
    text = pointer(data)
    for d in range(begins.size):
        start, end = begins[d], ends[d]
        count, sharp = 0, 0
        for i in range(start, end):
            count += text[i] & 0xC0 != 0x80
            sharp += text[i] == 35
        mark = 0
        i = start
        while i < end:
            if text[i] == 46 and i + 2 < end and text[i + 1] == 46 == text[i + 2]:
                mark += 1
                i += 2
            elif text[i] == 0xE2 and i + 2 < end and text[i + 1] == 0x80 and text[i + 2] == 0xA6:
                mark += 1
            i += 1
        points[d] = count
        hashes[d] = sharp
        ellipses[d] = mark


@kernel
def count_tokens(
    data: Bytes, begins: Longs, ends: Longs, table: Table, tokens: Longs, alphabetic: Longs
) -> None:
    """Per document: runs without white space, and those with a letter (int64 each)."""
    text, classes = pointer(data), pointer(table)
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        n_tokens = 0
        n_alphabetic = 0
        inside = 0  # a token
        lettered = 0  # the token has a letter
        while i < end:
            point, size = decode(text, i, end)
            kind = classes[point] & CLASS
            i += size
            solid = int(kind != SPACE)
            n_tokens += solid & ~inside
            n_alphabetic += lettered & ~solid
            lettered = (lettered | int(kind >= LETTER)) & solid
            inside = solid
        tokens[d] = n_tokens
        alphabetic[d] = n_alphabetic + lettered


@kernel
def count_symbols(data: Bytes, begins: Longs, ends: Longs, table: Table, symbols: Longs) -> None:
    """Per document: code points that are neither letter, mark, number, format nor white space."""
    text, classes = pointer(data), pointer(table)
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        count = 0
        while i < end:
            point, size = decode(text, i, end)
            kind = classes[point] & CLASS
            count += kind in (OTHER, BULLET, APOSTROPHE)
            i += size
        symbols[d] = count


@part
def abbreviated(data: Any, begin: Any, stop: Any, table: Any, slots: Any, mask: Any) -> Any:
    """Whether the bytes [begin, stop) end with a single letter, or with a word of `slots`."""
    start = stop
    letters = 0  # characters of the word, as far as two
    kind = 0
    while start > begin:
        at = start - 1
        while at > begin and data[at] & 0xC0 == 0x80:
            at -= 1
        point, _ = decode(data, at, stop)
        if table[point] & CLASS < FORMAT:
            break
        kind = table[point] & CLASS
        letters += 1
        start = at
    if letters <= 1:
        return letters == 1 and kind == LETTER
    value = word_hash(data, start, stop, table, True)
    s = value & mask
    while slots[s] != value and slots[s] != 0:
        s = (s + np.uint64(1)) & mask
    return slots[s] == value


@part
def lower_follows(data: Any, i: Any, end: Any, table: Any) -> Any:
    """Whether the first letter, number or terminal mark of the line from byte `i` on is LOWER."""
    while i < end and data[i] != 10:
        point, size = decode(data, i, end)
        if table[point] & ENDING or table[point] & CLASS >= NUMBER:
            return table[point] & LOWER_CASE != 0
        i += size
    return False


@inline
def next_sentence(
    data: Any, i: Any, begin: Any, end: Any, table: Any, slots: Any, mask: Any
) -> Any:
    """The first sentence from byte `i` on of a document: its bytes [start, stop), not trimmed.

    `i` is where the one before it ends, or `begin`. `start` is `end` when there is none. This is
    the one place that knows what a sentence is.
    """
    start = i
    lettered = False  # since `start`
    while i < end:
        point, size = decode(data, i, end)
        entry = table[point]
        if not entry & ENDING:
            if point == 10:
                if lettered:
                    break
                start = i + 1
            lettered |= entry & CLASS > NUMBER
            i += size
            continue
        mark = i
        marks = 0
        stops = 0  # those of the marks that are full stops
        spaceless = False  # one of the marks needs no space after it
        spaced = False
        while True:
            if entry & ENDING:
                full = point in FULL_STOP_POINTS
                marks += 1
                stops += full
                spaceless |= point > 0x7F and not full
            i += size
            if i >= end:
                spaced = True
                break
            point, size = decode(data, i, end)
            entry = table[point]
            kind = entry & CLASS
            if not entry & ENDING_OR_CLOSING and kind != FORMAT and kind != MARK:
                spaced = kind == SPACE
                break
        if not lettered:
            continue
        ended = spaceless or spaced
        if spaced and stops == marks:
            ended = not lower_follows(data, i, end, table)
            if ended and marks == 1:
                ended = not abbreviated(data, begin, mark, table, slots, mask)
        if ended:
            break
    if not lettered:
        return end, end
    return start, i


@kernel
def count_sentences(
    data: Bytes, begins: Longs, ends: Longs, table: Table, slots: Hashes, counts: Longs
) -> None:
    """Per document: its sentences (int64). `slots` (see `count_vocabulary`): abbreviations."""
    text, classes, words = pointer(data), pointer(table), pointer(slots)
    mask = np.uint64(slots.size - 1)
    for d in range(begins.size):
        begin, end = begins[d], ends[d]
        count = 0
        stop = begin
        while stop < end:
            start, stop = next_sentence(text, stop, begin, end, classes, words, mask)
            count += start < end
        counts[d] = count


@kernel
def find_sentences(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    table: Table,
    slots: Hashes,
    starts: Ints,
    stops: Ints,
) -> None:
    """All sentences in order: start, stop (byte offsets). `slots` as in `count_sentences`."""
    text, classes, words = pointer(data), pointer(table), pointer(slots)
    mask = np.uint64(slots.size - 1)
    found = 0
    for d in range(begins.size):
        begin, end = begins[d], ends[d]
        stop = begin
        while stop < end:
            start, stop = next_sentence(text, stop, begin, end, classes, words, mask)
            if start < end:
                starts[found], stops[found] = trim(text, start, stop, classes)
                found += 1
