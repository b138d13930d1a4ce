"""The compiled kernels of datatrove's words.

What may live here: loops over UTF-8 bytes in numba; each has its plain reference in `reference.py`.
They take what those of `curation.text` take, with the table of this package; and special cases:
`slots` (uint64: an open hash table, 0 where empty), `pieces` (int32 per slot: -1 for a unit, else
twice the place in `sizes` where its pieces begin, and one more where the rules alone would divide
it), `sizes` (int32: the bytes of each piece, 0 after the last), and `borders` (uint64[512]: by the
first byte, and from 256 on by the last, a bit for each length in bytes that a case may have).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from curation.text.cache import inline, kernel, part, pointer
from curation.text.datatrove import (
    ALPHA,
    DIGIT,
    DIVIDING,
    ENDS_SENTENCE,
    HOST,
    ICON,
    LETTER,
    LONGEST_CASE,
    LOWER,
    PREFIX,
    PUNCT,
    PUNCT_ONLY,
    QUOTE,
    SCHEME,
    SENTENCE_END,
    SPACE,
    STOPPED,
    SUFFIX,
    SYMBOL,
    SYMBOLS_ONLY,
    TERMINAL,
    UPPER,
)
from curation.text.kernels import (
    ELLIPSIS,
    Bytes,
    Hashes,
    Ints,
    Longs,
    Table,
    break_size,
    bytes_hash,
    decode,
    is_digit,
    last_point,
)

# What can make a run without white space more than one word, unless it is a special case.
HARD = PREFIX | SUFFIX | ICON | DIVIDING | DIGIT


class Cases(NamedTuple):
    """Pointers to the tables of special cases."""

    slots: Any
    mask: Any  # uint64: the number of slots, less one
    pieces: Any
    sizes: Any
    borders: Any


class Words(NamedTuple):
    """Pointers to what is noted of each word."""

    starts: Any
    stops: Any
    lengths: Any
    hashes: Any
    flags: Any


@inline
def find(value: Any, cases: Any) -> Any:
    """The slot of a hash, or -1."""
    s = value & cases.mask
    while cases.slots[s] != 0:
        if cases.slots[s] == value:
            return np.int64(s)
        s = (s + np.uint64(1)) & cases.mask
    return np.int64(-1)


@inline
def may_be_special(data: Any, start: Any, stop: Any, cases: Any) -> Any:
    """Whether a special case has this length, first byte and last byte: most words have not."""
    size = stop - start
    if size > LONGEST_CASE or size < 1:
        return False
    lengths = cases.borders[data[start]] & cases.borders[256 + np.int64(data[stop - 1])]
    return lengths >> np.uint64(size) & np.uint64(1) != 0


@part
def look_up(data: Any, start: Any, stop: Any, cases: Any) -> Any:
    """As `special`, in the table itself."""
    s = find(bytes_hash(data, start, stop), cases)
    return np.int64(cases.pieces[s]) if s >= 0 else np.int64(-1)


@inline
def special(data: Any, start: Any, stop: Any, cases: Any) -> Any:
    """The entry in `pieces` of the special case at bytes [start, stop), or -1."""
    if not may_be_special(data, start, stop, cases):
        return np.int64(-1)
    return look_up(data, start, stop, cases)


@inline
def prefix_size(data: Any, start: Any, stop: Any, table: Any) -> Any:
    """Bytes that are cut off the front, 0 for none."""
    point, size = decode(data, start, stop)
    if point == 46:
        i = start + 1
        while i < stop and data[i] == 46:
            i += 1
        return i - start if i > start + 1 else 0
    if table[point] & PREFIX:
        return size
    if point == 43:
        return 0 if start + 1 < stop and is_digit(data[start + 1]) else 1
    if point == 85 and start + 2 < stop and data[start + 1] == 83 and data[start + 2] == 36:
        return 3
    if (point == 65 or point == 67) and start + 1 < stop and data[start + 1] == 36:
        return 2
    return 0


@inline
def stop_size(data: Any, start: Any, stop: Any, table: Any) -> Any:
    """As `suffix_size`, for a word that ends with a full stop."""
    i = stop - 1
    while i > start and data[i - 1] == 46:
        i -= 1
    if i < stop - 1:
        return stop - i
    if i == start:
        return 0
    one, point = last_point(data, start, i)
    bits = table[point]
    if bits & STOPPED:
        return 1
    if one > start:
        _, other = last_point(data, start, one)
        if bits & UPPER and table[other] & UPPER:
            return 1
        if other == 0xB0 and (
            point == 70 or point == 102 or point == 67 or point == 99 or point == 75 or point == 107
        ):
            return 1
    return 0


@inline
def suffix_size(data: Any, start: Any, stop: Any, some: Any, table: Any, cases: Any) -> Any:
    """Bytes that are cut off the end, 0 for none: the longest that fits."""
    if start >= stop:
        return 0
    last, point = last_point(data, start, stop)
    if point == 46:
        return stop_size(data, start, stop, table)
    most = 0
    if table[point] & SUFFIX:
        most = stop - last
    if point == ELLIPSIS and last > start:
        i, other = last_point(data, start, last)
        if other == ELLIPSIS:
            most = stop - i
    if (point == 115 or point == 83) and last > start:
        i, other = last_point(data, start, last)
        if other == 39 or other == 0x2019:
            most = stop - i
    if not some & DIGIT:
        return most
    # A unit stands right after the last digit.
    i = stop
    while i > start and stop - i < LONGEST_CASE and not is_digit(data[i - 1]):
        i -= 1
    if start < i < stop and is_digit(data[i - 1]) and stop - i > most:
        s = find(bytes_hash(data, i, stop) ^ np.uint64(1), cases)
        if s >= 0 and cases.pieces[s] < 0:
            most = stop - i
    return most


@inline
def infix_end(data: Any, start: Any, i: Any, stop: Any, table: Any) -> Any:
    """Where the mark that divides the word at byte `i` ends; `i` where none does."""
    point, size = decode(data, i, stop)
    bits = table[point]
    if bits & ICON:
        return i + size
    if not bits & DIVIDING:
        return i
    after = i + size
    if point == 46 and after < stop and data[after] == 46:
        while after < stop and data[after] == 46:
            after += 1
        return after
    if i == start or after >= stop:
        return i
    _, left_point = last_point(data, start, i)
    right_point, _ = decode(data, after, stop)
    left, right = table[left_point], table[right_point]
    digit = is_digit(left_point)
    if point == 46:
        return after if left & (LOWER | QUOTE) and right & (UPPER | QUOTE) else i
    if point == 44:
        return after if left & ALPHA and right & ALPHA else i
    arithmetic = point == 43 or point == 45 or point == 42 or point == 94
    if arithmetic and digit and (is_digit(right_point) or right_point == 45):
        return after
    if not (left & ALPHA or digit):
        return i
    if point == 45 or point == 0x2014:  # also as two, the hyphen as three
        most = 3 if point == 45 else 2
        count = 1
        while right_point == point and count < most and after + size < stop:
            after += size
            count += 1
            right_point, _ = decode(data, after, stop)
        return after if table[right_point] & ALPHA else i
    if point == 43 or point == 42 or point == 94:
        return i
    return after if right & ALPHA else i


@inline
def is_host(data: Any, i: Any, stop: Any, table: Any) -> Any:
    """Whether a host name begins at byte `i` and the rest is a port and a path, or nothing."""
    labels = 0
    begin = i  # of the label
    length = 0  # code points of the label
    lower = True  # the label has letters of LOWER alone
    clean = True  # all its code points may be in a label, and not only in a top-level domain
    first = False  # its first code point may begin it
    last = False  # its last one may end it
    while True:
        point = np.int64(0)
        size = 1
        if i < stop:
            point, size = decode(data, i, stop)
        bits = table[point]
        joining = point == 45 or point == 95
        if i < stop and (bits & (HOST | LOWER) != 0 or joining):
            last = bits & HOST != 0
            if i == begin:
                first = last
            lower = lower and bits & LOWER != 0
            clean = clean and (last or joining)
            length += 1
            i += size
            continue
        if i < stop and point == 46:
            if not (first and last and clean) or length > 64:
                return False
            labels += 1
            i += 1
            begin = i
            length = 0
            lower = True
            clean = True
            first = False
            last = False
            continue
        break
    if labels == 0 or not lower or length < 2 or length > 63:
        return False
    if i < stop and data[i] == 58:
        digits = 0
        i += 1
        while i < stop and is_digit(data[i]):
            i += 1
            digits += 1
        if digits < 2 or digits > 5:
            return False
    return i >= stop or data[i] == 47 or data[i] == 63 or data[i] == 35


@inline
def is_url(data: Any, start: Any, stop: Any, table: Any) -> Any:
    """Whether the word is an address: `[scheme://][user@]host[:port][/path]`."""
    dots = False
    for i in range(start, stop):
        dots = dots or data[i] == 46
    if not dots:
        return False
    if is_host(data, start, stop, table):
        return True
    base = start
    i = start
    points = 0
    while i < stop:
        point, size = decode(data, i, stop)
        if not (table[point] & SCHEME or point == 43 or point == 45 or point == 46):
            break
        points += 1
        i += size
    scheme = i + 2 < stop and data[i] == 58 and data[i + 1] == 47 and data[i + 2] == 47
    if scheme and points >= 2:
        base = i + 3
        if is_host(data, base, stop, table):
            return True
    found = False
    for i in range(start + 1, stop):
        # After any '@' with something before it; a scheme is something, too.
        found = found or (data[i] == 64 and is_host(data, i + 1, stop, table))
    return found


@inline
def marks(length: Any, every: Any, some: Any) -> Any:
    """The flags of a word: from its length, the bits of all its characters, and of any."""
    flags = np.uint8(some & LETTER != 0)  # ALPHABETIC
    flags |= np.uint8(SYMBOLS_ONLY * (every & SYMBOL != 0))
    flags |= np.uint8(PUNCT_ONLY * (every & PUNCT != 0))
    flags |= np.uint8(ENDS_SENTENCE * (length == 1 and every & SENTENCE_END != 0))
    return flags


@inline
def describe(data: Any, start: Any, stop: Any, table: Any) -> Any:
    """Code points and flags of a word."""
    i = start
    length = 0
    every = np.uint32(SYMBOL | PUNCT | SENTENCE_END)
    some = np.uint32(0)
    while i < stop:
        point, size = decode(data, i, stop)
        bits = table[point]
        every &= bits
        some |= bits
        length += 1
        i += size
    return length, marks(length, every, some)


@inline
def write(data: Any, start: Any, stop: Any, length: Any, flags: Any, w: Any, out: Any) -> Any:
    """Writes word `w`; returns the number of the next."""
    out.starts[w] = start
    out.stops[w] = stop
    out.lengths[w] = length
    out.flags[w] = flags
    out.hashes[w] = bytes_hash(data, start, stop)
    return w + 1


@part
def emit(data: Any, start: Any, stop: Any, table: Any, w: Any, out: Any) -> Any:
    """As `write`, for a word that is still to be described."""
    length, flags = describe(data, start, stop, table)
    return write(data, start, stop, length, flags, w, out)


@part
def emit_pieces(
    data: Any,
    start: Any,
    case: Any,
    cases: Any,
    table: Any,
    w: Any,
    out: Any,
) -> Any:
    """Writes the pieces of a special case."""
    case >>= 1
    while cases.sizes[case] > 0:
        stop = start + cases.sizes[case]
        w = emit(data, start, stop, table, w, out)
        start = stop
        case += 1
    return w


@part
def divide(
    data: Any,
    start: Any,
    stop: Any,
    some: Any,
    table: Any,
    cases: Any,
    stack: Any,
    w: Any,
    out: Any,
) -> Any:
    """Writes the words of a run without white space, whose characters have the bits `some`."""
    first = w
    low, high = start, stop
    depth = 0
    size = np.int64(-1)
    while low < high and high - low != size:
        if special(data, low, high, cases) >= 0:
            break
        size = high - low
        front = prefix_size(data, low, high, table)
        if front and special(data, low + front, high, cases) >= 0:
            w = emit(data, low, low + front, table, w, out)
            low += front
            break
        back = suffix_size(data, low + front, high, some, table, cases)
        if back:
            stack[depth] = high - back
            if special(data, low, high - back, cases) >= 0:
                depth += 1
                high -= back
                break
        if front and (not back or front + back <= high - low):
            w = emit(data, low, low + front, table, w, out)
            low += front
        if back:
            depth += 1
            high -= back
    if low < high:
        case = special(data, low, high, cases)
        if case >= 0:
            w = emit_pieces(data, low, case, cases, table, w, out)
        elif not some & (ICON | DIVIDING) or is_url(data, low, high, table):
            w = emit(data, low, high, table, w, out)
        else:
            piece = low
            i = low
            while i < high:
                end = infix_end(data, low, i, high, table)
                if end == i:
                    _, step = decode(data, i, high)
                    i += step
                    continue
                if i > low:
                    if i > piece:
                        w = emit(data, piece, i, table, w, out)
                    w = emit(data, i, end, table, w, out)
                    piece = end
                i = end
            if piece < high:
                w = emit(data, piece, high, table, w, out)
    while depth > 0:
        depth -= 1
        end = stack[depth - 1] if depth > 0 else stop
        w = emit(data, stack[depth], end, table, w, out)
    if w - first > 1:
        w = join_cases(data, first, w, table, cases, stack, out)
    return w


@inline
def join_cases(
    data: Any,
    first: Any,
    last: Any,
    table: Any,
    cases: Any,
    stack: Any,
    out: Any,
) -> Any:
    """Neighbours among words [first, last) that make up a special case are divided as it says."""
    found = False
    for w in range(first, last):
        v = w
        while v < last and out.stops[v] - out.starts[w] <= LONGEST_CASE and not found:
            this = special(data, out.starts[w], out.stops[v], cases)
            found = this >= 0 and this & 1 == 1
            v += 1
    if not found:
        return last
    count = last - first
    end = out.stops[last - 1]
    for w in range(first, last):
        stack[w - first] = out.starts[w]
    w = first
    i = 0
    while i < count:
        case = np.int64(-1)
        j = i + 1
        for k in range(i + 1, count + 1):
            stop = end if k == count else stack[k]
            if stop - stack[i] > LONGEST_CASE:
                break
            this = special(data, stack[i], stop, cases)
            if this >= 0 and this & 1 == 1:
                case = this
                j = k
        stop = end if j == count else stack[j]
        if case >= 0:
            w = emit_pieces(data, stack[i], case, cases, table, w, out)
        else:
            w = emit(data, stack[i], stop, table, w, out)
        i = j
    return w


@kernel
def find_words(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    table: Table,
    slots: Hashes,
    pieces: Ints,
    sizes: Ints,
    borders: Hashes,
    stack: Ints,
    counts: Longs,
    starts: Ints,
    stops: Ints,
    lengths: Ints,
    hashes: Hashes,
    flags: Bytes,
) -> int:
    """Per document: its words (int64). Per word: bytes [start, stop), code points, hash, flags.

    There are at most as many words as bytes. `stack` is room for as many numbers as the longest
    document has bytes. Returns the number of words.
    """
    text, classes = pointer(data), pointer(table)
    mask = np.uint64(slots.size - 1)
    cases = Cases(pointer(slots), mask, pointer(pieces), pointer(sizes), pointer(borders))
    out = Words(pointer(starts), pointer(stops), pointer(lengths), pointer(hashes), pointer(flags))
    room = pointer(stack)
    w = 0
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        first = w
        while i < end:
            point, size = decode(text, i, end)
            bits = classes[point]
            if bits & SPACE:
                i += size
                continue
            start = i
            length = 0
            every = np.uint32(SYMBOL | PUNCT | SENTENCE_END)
            some = np.uint32(0)
            # The same of all but the last character, that character, and the one before it.
            stem_every, stem_some, last, left = every, some, some, some
            stop = i  # of the stem
            while not bits & SPACE:
                stem_every, stem_some, stop = every, some, i
                left, last = last, bits
                every &= bits
                some |= bits
                length += 1
                i += size
                if i >= end:
                    break
                point, size = decode(text, i, end)
                bits = classes[point]
            if not some & HARD:
                if special(text, start, i, cases) < 0:
                    w = write(text, start, i, length, marks(length, every, some), w, out)
                    continue
            elif special(text, start, i, cases) < 0:
                # A plain word with one mark after it: the same as `divide` gives, in less time.
                cut = last & SUFFIX != 0 or (text[stop] == 46 and left & STOPPED != 0)
                plain = stop > start and not stem_some & HARD
                if plain and cut and special(text, start, stop, cases) < 0:
                    stem = marks(length - 1, stem_every, stem_some)
                    w = write(text, start, stop, length - 1, stem, w, out)
                    w = write(text, stop, i, 1, marks(1, last, last), w, out)
                    continue
            w = divide(text, start, i, some, classes, cases, room, w, out)
        counts[d] = w - first
    return w


@inline
def trim(data: Any, start: Any, stop: Any, table: Any) -> Any:
    """The bytes [start, stop) without white space at both ends."""
    while start < stop:
        point, size = decode(data, start, stop)
        if not table[point] & SPACE:
            break
        start += size
    while start < stop:
        last, point = last_point(data, start, stop)
        if not table[point] & SPACE:
            break
        stop = last
    return start, stop


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
    """Per document (int64): lines as `str.splitlines` has them, blank ones too; those that begin
    with U+2022 or '-' after white space, and that end with an ellipsis before it."""
    text, classes = pointer(data), pointer(table)
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        count, bullet, ellipsis = 0, 0, 0
        while i < end:
            start = i
            size = 0
            while i < end:
                # Nearly all bytes are letters or spaces, which end no line.
                if text[i] <= 30 or text[i] == 0xC2 or text[i] == 0xE2:
                    size = break_size(text, i, end)
                    if size:
                        break
                i += 1
            first, last = trim(text, start, i, classes)
            i += size
            count += 1
            if first < last:
                point, _ = decode(text, first, last)
                bullet += point == 0x2022 or point == 45
                _, point = last_point(text, first, last)
                dots = last - first >= 3 and text[last - 1] == 46
                dots = dots and text[last - 2] == 46 and text[last - 3] == 46
                ellipsis += point == ELLIPSIS or dots
        lines[d] = count
        bullets[d] = bullet
        ellipses[d] = ellipsis


@kernel
def count_line_ends(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    table: Table,
    most: int,
    trimmed: bool,
    lines: Longs,
    terminal: Longs,
    short: Longs,
    newlines: Longs,
) -> None:
    """Per document (int64): lines that are not blank; of them, those that end with a terminal mark,
    and those of at most `most` code points; newlines. Lines are taken as they are, or `trimmed`."""
    text, classes = pointer(data), pointer(table)
    for d in range(begins.size):
        i, end = begins[d], ends[d]
        count, ended, few, breaks = 0, 0, 0, 0
        while i < end:
            start = i
            while i < end and text[i] != 10:
                i += 1
            stop = i
            breaks += i < end
            i += 1
            first, last = trim(text, start, stop, classes)
            if first < last:
                if trimmed:
                    start, stop = first, last
                _, point = last_point(text, start, stop)
                count += 1
                ended += classes[point] & TERMINAL != 0
                points = 0
                for k in range(start, stop):
                    points += text[k] & 0xC0 != 0x80
                few += points <= most
        lines[d] = count
        terminal[d] = ended
        short[d] = few
        newlines[d] = breaks


@kernel
def count_sentences(
    data: Bytes,
    offsets: Longs,
    starts: Ints,
    stops: Ints,
    flags: Bytes,
    line_offsets: Longs,
    line_starts: Ints,
    line_stops: Ints,
    counts: Longs,
) -> None:
    """Per document: the sentences of these of its lines, from its words (int64).

    In a line, a word that is not punctuation begins one if a mark that ends sentences came before
    it, and so does white space of more than one space. A line, and each newline in it, ends one.
    """
    text = pointer(data)
    for d in range(counts.size):
        count = 0
        w, last = offsets[d], offsets[d + 1]
        for n in range(line_offsets[d], line_offsets[d + 1]):
            while w < last and starts[w] < line_starts[n]:
                w += 1
            begun = False
            seen = False
            while w < last and starts[w] < line_stops[n]:
                if begun:
                    start, stop = stops[w - 1], starts[w]
                    blank = stop - start > 1 or (stop > start and text[start] != 32)
                    for i in range(start, stop):
                        begun = begun and text[i] != 10
                    if seen and blank and begun:
                        count += 1
                        seen = False
                if not begun:
                    count += 1
                    begun = True
                    seen = False
                if flags[w] & ENDS_SENTENCE:
                    seen = True
                elif seen and not flags[w] & PUNCT_ONLY:
                    count += 1
                    seen = False
                w += 1
        counts[d] = count
