"""The compiled kernels that take lines out of texts.

What may live here: loops over UTF-8 bytes in numba; each has its plain reference in `reference.py`.
They take what those of `curation.text` take, and write the texts that are left into `out` (uint8,
as long as `data`), the offset after each into `ends` (int64, documents + 1), and counts (int64,
documents x columns) in the order of `curation.text.lines`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from curation.text.cache import inline, kernel, part, pointer
from curation.text.characters import CLASS_BITS, NUMBER, SPACE, UPPER
from curation.text.kernels import (
    CLASS,
    Bools,
    Bytes,
    Ints,
    Longs,
    Table,
    break_size,
    decode,
    is_digit,
    last_point,
    next_word,
    trim,
    trim_end,
)
from curation.text.lines import (
    ANYWHERE,
    CITATIONS,
    COUNTERS,
    JAVASCRIPT,
    LOREM_IPSUM,
    PHRASE_WORDS,
    POLICIES,
    PREFIX,
    SUFFIXES,
)


def _packed(*phrases: str) -> tuple[Bytes, Longs]:
    """Phrases one behind the other, and where each begins."""
    sizes = [len(phrase.encode()) for phrase in phrases]
    return np.frombuffer("".join(phrases).encode(), np.uint8), np.cumsum([0, *sizes])


def _beginnings(*phrases: str) -> NDArray[np.uint64]:
    """By a byte in either case: where it is in the first eight bytes of each of eight phrases.

    Bit 8 p + k for place k in phrase p.
    """
    bits = [0] * 256
    for p, phrase in enumerate(phrases):
        for k, character in enumerate(phrase[:8]):
            for form in {character.lower(), character.upper()}:
                bits[ord(form)] |= 1 << (8 * p + k)
    return np.array(bits, np.uint64)


# Compiled in, as all of a kernel's global arrays are.
SOUGHT, SOUGHT_AT = _packed(LOREM_IPSUM, JAVASCRIPT, *POLICIES)
BEGINNINGS = _beginnings(LOREM_IPSUM, JAVASCRIPT, *POLICIES)
BEGUN, EIGHTH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
SCRIPT = 2  # bit of JAVASCRIPT; those above are policies, the one below is LOREM_IPSUM
CITED, CITED_AT = _packed(*CITATIONS)
COUNTED, COUNTED_AT = _packed(*COUNTERS)
CUT, CUT_AT = _packed(PREFIX, ANYWHERE, *SUFFIXES)
SPACES = np.array([chr(byte).isspace() for byte in range(128)], np.uint8)
#: Bytes with which a line break may begin.
BREAKS = np.array([len(f"{chr(b)}.".splitlines()) == 2 for b in range(128)] + [0] * 128, np.uint8)
BREAKS[[0xC2, 0xE2]] = 1

UPPER_CASE = np.uint32(UPPER << CLASS_BITS)
NEWLINE, BRACKET, CLOSED, BRACE = 10, 91, 93, 123


@inline
def lowered(byte: Any) -> Any:
    return byte | 0x20 if 65 <= byte <= 90 else byte


@inline
def phrase_at(data: Any, i: Any, stop: Any, phrases: Any, at: Any, p: Any) -> Any:
    """Bytes of phrase `p` if it is, in any case, at byte `i` and ends before `stop`; else 0."""
    size = at[p + 1] - at[p]
    if i + size > stop:
        return 0
    for k in range(size):
        if lowered(data[i + k]) != phrases[at[p] + k]:
            return 0
    return size


@part
def any_phrase_at(data: Any, i: Any, stop: Any) -> Any:
    """The bit of the one of the SOUGHT that is at byte `i`; else 0."""
    for p in range(SOUGHT_AT.size - 1):
        if phrase_at(data, i, stop, SOUGHT, SOUGHT_AT, p):
            return 1 << p
    return 0


@inline
def look(data: Any, i: Any, stop: Any) -> Any:
    """What there is from byte `i` on: bits of the SOUGHT, times of the first, curly brackets.

    A bit of `state` is set while the bytes up to here begin a phrase (the Shift-And algorithm of
    Baeza-Yates and Gonnet 1992, for eight phrases in one word).
    """
    found = 0
    lorem = 0
    braces = 0
    state = np.uint64(0)
    while i < stop:
        byte = data[i]
        state = (state << np.uint64(1) | BEGUN) & BEGINNINGS[byte]
        if state & EIGHTH:
            bit = any_phrase_at(data, i - 7, stop)
            found |= bit
            lorem += bit == 1
        braces += byte == BRACE
        i += 1
    return found, lorem, braces


@inline
def copy(data: Any, i: Any, stop: Any, out: Any, o: Any) -> Any:
    """Writes the bytes [i, stop) to `out` from `o` on, also forward within; returns their end."""
    while i < stop:
        out[o] = data[i]
        o += 1
        i += 1
    return o


@inline
def count_tokens(data: Any, i: Any, stop: Any, table: Any) -> Any:
    """Tokens in the bytes [i, stop)."""
    tokens = np.int64(0)
    before = np.int64(1)  # white space
    while i < stop:
        byte = data[i]
        if byte < 0x80:
            space = np.int64(SPACES[byte])
            i += 1
        else:
            point, size = decode(data, i, stop)
            space = np.int64(table[point] & CLASS == SPACE)
            i += size
        tokens += before & ~space
        before = space
    return tokens


@part
def longest_token(data: Any, i: Any, stop: Any, table: Any) -> Any:
    """Code points of the longest token in the bytes [i, stop)."""
    longest = 0
    length = 0
    while i < stop:
        point, size = decode(data, i, stop)
        length = 0 if table[point] & CLASS == SPACE else length + 1
        longest = max(longest, length)
        i += size
    return longest


@part
def citation_size(data: Any, i: Any, stop: Any) -> Any:
    """Bytes of the citation at the bracket at byte `i`; else 0."""
    j = i + 1
    while j < stop and is_digit(data[j]):
        j += 1
    if j < stop and data[j] == CLOSED:
        return j + 1 - i
    for p in range(CITED_AT.size - 1):
        size = CITED_AT[p + 1] - CITED_AT[p]
        same = i + size <= stop
        for k in range(size):
            same = same and data[i + k] == CITED[CITED_AT[p] + k]
        if same:
            return size
    return 0


@inline
def without_citations(data: Any, i: Any, stop: Any, out: Any, o: Any) -> Any:
    """Writes the bytes [i, stop) without citations to `out` from `o` on; returns their end."""
    while i < stop:
        byte = data[i]
        if byte == BRACKET:
            size = citation_size(data, i, stop)
            if size > 0:
                i += size
                continue
        out[o] = byte
        o += 1
        i += 1
    return o


@inline
def is_marked(data: Any, start: Any, stop: Any, marks: Any, count: Any) -> Any:
    """Whether the bytes [start, stop) end with one of the marks, and not with "..."."""
    if start == stop:
        return False
    at, point = last_point(data, start, stop)
    if point == 46 and at >= start + 2 and data[at - 1] == 46 == data[at - 2]:
        return False
    found = False
    for m in range(count):
        found |= marks[m] == point
    return found


@kernel
def c4_lines(
    data: Bytes,
    begins: Longs,
    ends_in: Longs,
    table: Table,
    marked: bool,
    end_marks: Longs,
    min_words: int,
    max_word_length: int,
    javascript: bool,
    policy: bool,
    citations: bool,
    whole_page: bool,
    out: Bytes,
    ends: Longs,
    counts: Longs,
    kept: Longs,
    starts: Ints,
    stops: Ints,
    uncut: Bools,
) -> int:
    """C4's line rules: the texts that are left, and C4_COUNTS; per document the lines that are
    kept, and whether no citation was cut out of them; per such line its bytes in the old text.

    Returns the number of these lines, at most that of bytes and documents together.
    """
    text, classes, marks, room = pointer(data), pointer(table), pointer(end_marks), pointer(out)
    o = np.int64(0)
    n = 0
    for d in range(begins.size):
        i, end = begins[d], ends_in[d]
        page = o
        first = n
        same = True
        lines, long_word, no_mark, few_words = 0, 0, 0, 0
        scripts, policies, lorem, braces = 0, 0, 0, 0
        if whole_page:
            _, lorem, braces = look(text, i, end)
        while i < end:
            start = i
            skip = 0
            while i < end:
                if BREAKS[text[i]]:
                    skip = break_size(text, i, end)
                    if skip > 0:
                        break
                i += 1
            start, stop = trim(text, start, i, classes)
            i += skip
            lines += start < stop
            long_line = stop - start > max_word_length
            if long_line and longest_token(text, start, stop, classes) > max_word_length:
                long_word += 1
                continue
            # Written behind what is kept; only if the line is kept, `o` moves on.
            line = o + (o > page)
            if citations:
                p = without_citations(text, start, stop, room, line)
            else:
                p = copy(text, start, stop, room, line)
            if marked and not is_marked(room, line, p, marks, end_marks.size):
                no_mark += start < stop
                continue
            if count_tokens(text, start, stop, classes) < min_words:
                few_words += start < stop
                continue
            found, times, curly = look(room, line, p)
            if not whole_page:
                lorem += times
            if javascript and found & SCRIPT:
                scripts += 1
                continue
            if not whole_page:
                braces += curly
            if policy and found >= 2 * SCRIPT:
                policies += 1
                continue
            starts[n] = start
            stops[n] = stop
            same = same and p - line == stop - start
            n += 1
            if o > page:
                room[o] = NEWLINE
                o = p
            else:  # the first that is not blank: without white space before it
                start, p = trim(room, line, p, classes)
                o = copy(room, start, p, room, o)
        o = trim_end(room, page, o, classes)
        ends[d + 1] = o
        kept[d] = n - first
        uncut[d] = same
        row = (lines, long_word, no_mark, few_words, scripts, policies, lorem, braces)
        for column in range(len(row)):
            counts[d, column] = row[column]
    return n


@inline
def forms(data: Any, i: Any, stop: Any, table: Any) -> Any:
    """Code points of the bytes [i, stop); of them, upper case, and numbers."""
    points = 0
    upper = 0
    numbers = 0
    while i < stop:
        point, size = decode(data, i, stop)
        entry = table[point]
        points += 1
        upper += entry & UPPER_CASE != 0
        numbers += entry & CLASS == NUMBER
        i += size
    return points, upper, numbers


@inline
def after_marks(data: Any, i: Any, stop: Any, table: Any) -> Any:
    """The next byte of a letter, number or low line, from byte `i` on; `stop` if there is none."""
    while i < stop:
        point, size = decode(data, i, stop)
        if table[point] & CLASS >= NUMBER or point == 95:
            return i
        i += size
    return stop


@part
def is_counter(data: Any, i: Any, stop: Any, table: Any) -> Any:
    """Whether the line is a counter: a number, perhaps K, M or B, and one of the COUNTERS."""
    i = after_marks(data, i, stop, table)
    if i >= stop or not is_digit(data[i]):
        return False
    while i < stop and (is_digit(data[i]) or data[i] == 44 or data[i] == 46):
        i += 1
    if i < stop and lowered(data[i]) in (98, 107, 109):
        i += 1
    word, _ = trim(data, i, stop, table)
    if word == i:
        return False
    for p in range(COUNTED_AT.size - 1):
        size = phrase_at(data, word, stop, COUNTED, COUNTED_AT, p)
        if size > 0:
            return after_marks(data, word + size, stop, table) == stop
    return False


@inline
def space_before(data: Any, start: Any, stop: Any, table: Any) -> Any:
    """`stop`, or where the white space of one character that ends there begins."""
    if start < stop:
        at, point = last_point(data, start, stop)
        if table[point] & CLASS == SPACE:
            return at
    return stop


@part
def without_phrases(data: Any, start: Any, stop: Any, table: Any, out: Any, o: Any) -> Any:
    """Writes the line [start, stop) to `out` from `o` on, the phrases cut out; returns its end."""
    size = phrase_at(data, start, stop, CUT, CUT_AT, 0)
    if size > 0:
        start += size
        if start < stop:
            point, size = decode(data, start, stop)
            start += size if table[point] & CLASS == SPACE else 0
    line = o
    copied = start  # what is before was written or cut out
    while start < stop:
        size = phrase_at(data, start, stop, CUT, CUT_AT, 1)
        if size > 0:
            if start > copied:
                o = space_before(out, line, o, table)
            start += size
            copied = start
            continue
        out[o] = data[start]
        o += 1
        start += 1
    for p in range(2, CUT_AT.size - 1):
        size = CUT_AT[p + 1] - CUT_AT[p]
        if o - size >= line and phrase_at(out, o - size, o, CUT, CUT_AT, p) > 0:
            return space_before(out, line, o - size, table)
    return o


@part
def count_words(data: Any, i: Any, stop: Any, table: Any) -> Any:
    """Words of the text view in the bytes [i, stop)."""
    words = 0
    while i < stop:
        start, i, _, _ = next_word(data, i, stop, table)
        words += start < i
    return words


@kernel
def refinedweb_lines(
    data: Bytes,
    begins: Longs,
    ends_in: Longs,
    table: Table,
    max_uppercase: float,
    min_words: int,
    numbers: bool,
    counters: bool,
    phrases: bool,
    out: Bytes,
    ends: Longs,
    counts: Longs,
) -> None:
    """RefinedWeb's line rules: the texts that are left, and REFINEDWEB_COUNTS."""
    text, classes, room = pointer(data), pointer(table), pointer(out)
    o = np.int64(0)
    for d in range(begins.size):
        i, end = begins[d], ends_in[d]
        page = o
        lines, upper_lines, number_lines, counter_lines, short_lines = 0, 0, 0, 0, 0
        cut_lines, removed = 0, 0
        while i < end:
            first = i
            while i < end and text[i] != NEWLINE:
                i += 1
            last = i
            i += 1
            start, stop = trim(text, first, last, classes)
            if start < stop:
                lines += 1
                points, upper, digits = forms(text, start, stop, classes)
                if upper / points > max_uppercase:
                    upper_lines += 1
                    removed += count_words(text, start, stop, classes)
                    continue
                if numbers and digits == points:
                    number_lines += 1
                    removed += count_words(text, start, stop, classes)
                    continue
                if counters and is_counter(text, start, stop, classes):
                    counter_lines += 1
                    removed += count_words(text, start, stop, classes)
                    continue
                tokens = count_tokens(text, start, stop, classes)
                if tokens < min_words:
                    short_lines += 1
                    removed += count_words(text, start, stop, classes)
                    continue
                if phrases and tokens <= PHRASE_WORDS:
                    # Written behind what is kept, and left there if something was cut out.
                    line = o + (o > page)
                    p = without_phrases(text, start, stop, classes, room, line)
                    if p - line < stop - start:
                        cut_lines += 1
                        removed += count_words(text, start, stop, classes)
                        removed -= count_words(room, line, p, classes)
                        rest, p = trim(room, line, p, classes)
                        if rest < p:
                            if o > page:
                                room[o] = NEWLINE
                            o = copy(room, rest, p, room, line)
                        continue
            elif o == page:
                continue
            if o > page:
                room[o] = NEWLINE
                o = copy(text, first, last, room, o + 1)
            else:
                o = copy(text, start, last, room, o)
        o = trim_end(room, page, o, classes)
        ends[d + 1] = o
        row = (lines, upper_lines, number_lines, counter_lines, short_lines, cut_lines, removed)
        for column in range(len(row)):
            counts[d, column] = row[column]


@kernel
def third_longest_lines(data: Bytes, begins: Longs, ends: Longs, lengths: Longs) -> None:
    """Per document: code points of the third longest of what lies between newlines (int64)."""
    text = pointer(data)
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        first, second, third = 0, 0, 0
        while i <= end:
            length = 0
            while i < end and text[i] != NEWLINE:
                length += text[i] & 0xC0 != 0x80
                i += 1
            i += 1
            third = max(third, min(second, length))
            second = max(second, min(first, length))
            first = max(first, length)
        lengths[d] = third
