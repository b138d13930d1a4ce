"""The compiled kernels of URLs and of lists of domains.

What may live here: loops over the bytes of URLs in numba. Each has its plain Python reference of
the same meaning in `reference.py`. `data` (uint8) holds the bytes of a batch, `begins` and `ends`
(int64) those of each URL, half-open. `spans` (int64, four a URL) says where its host lies and where
what follows host and port does, without the fragment; -1 where there is no host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from curation.text.cache import inline, kernel, pointer
from curation.text.kernels import finalise

Bytes = NDArray[np.uint8]
States = NDArray[np.int32]
Longs = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Bools = NDArray[np.bool_]

#: Names are hashed from their end, so that one pass gives the hashes of a host and its parents. A
#: polynomial modulo 2**64 tells strings apart that are shorter than 1,024 bytes.
BASE = 0xD6E8FEB86659FD93
LONGEST_HOST = 255  # bytes; DNS allows 253 (RFC 1035, 2.3.4)

#: What a rule of the public suffix list says of a name: it is one; all names right below it are,
#: but for exceptions.
SUFFIX, WILDCARD, EXCEPTION = 1, 2, 4

LETTERS = 36  # of words: a-z, 0-9
DEAD = 1  # the state of no word

SPACE, HASH, PERCENT, STAR, DOT, SLASH, COLON = 0x20, 0x23, 0x25, 0x2A, 0x2E, 0x2F, 0x3A
QUESTION, AT, OPENING, BACKSLASH, CLOSING, DELETE = 0x3F, 0x40, 0x5B, 0x5C, 0x5D, 0x7F
AMPERSAND, SEMICOLON = 0x26, 0x3B


def _marks() -> Bytes:
    """What each byte is, to whoever takes URLs apart: a sum of `NO_HOST` ... `OF_SCHEME`."""
    marks = np.zeros(256, np.uint8)
    marks[: SPACE + 1] |= NO_HOST
    marks[[*b"<>[\\]^|", DELETE]] |= NO_HOST
    marks[[PERCENT, *range(0x80, 0x100)]] |= ODD
    marks[[*b"/\\?#"]] |= ENDS_AUTHORITY
    marks[[*b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"]] |= LETTER | OF_SCHEME
    marks[[*b"+-.0123456789"]] |= OF_SCHEME
    return marks


#: No host has it (WHATWG URL, forbidden host code points); it has to be rewritten in a host; it
#: ends host and port; an ASCII letter; part of a scheme (RFC 3986, 3.1).
NO_HOST, ODD, ENDS_AUTHORITY, LETTER, OF_SCHEME = 1, 2, 4, 8, 16
MARKS = _marks()


@inline
def lower(byte: Any) -> Any:
    return byte + 32 if 65 <= byte <= 90 else byte


@inline
def is_digit(byte: Any) -> Any:
    return 48 <= byte <= 57


@inline
def more(state: Any, byte: Any) -> Any:
    """The state of a hash after one more byte, in lower case."""
    return state * np.uint64(BASE) + np.uint64(lower(byte))


@inline
def position(keys: Any, key: Any) -> Any:
    """Where a key lies in an ascending array, or -1."""
    low, count = 0, keys.size
    while count > 1:
        half = count // 2
        low = low + half if keys[low + half] <= key else low
        count -= half
    return low if count and keys[low] == key else -1


@inline
def trim(data: Any, begin: Any, end: Any) -> Any:
    """These bytes without white space and control characters at either end."""
    while begin < end and data[begin] <= SPACE:
        begin += 1
    while begin < end and data[end - 1] <= SPACE:
        end -= 1
    return begin, end


@inline
def after_scheme(data: Any, begin: Any, end: Any) -> Any:
    """Where the authority begins, and whether `//` says so."""
    i = begin
    if i < end and MARKS[data[i]] & LETTER:
        while i < end and MARKS[data[i]] & OF_SCHEME:
            i += 1
        i = i + 1 if i < end and data[i] == COLON else begin
    if i + 1 < end and data[i] == SLASH and data[i + 1] == SLASH:
        return i + 2, True
    return begin, False


@inline
def host_end(data: Any, begin: Any, stop: Any, slashes: Any) -> Any:
    """Where the host ends that begins an authority, and what marks its bytes have."""
    end, marks = begin, np.uint8(0)
    if begin < stop and data[begin] == OPENING:
        while end < stop and data[end] != CLOSING:
            end += 1
        return (end + 1, np.uint8(ODD)) if end < stop else (end, np.uint8(NO_HOST))
    while end < stop and data[end] != COLON:
        marks |= MARKS[data[end]]
        end += 1
    if not slashes and end < stop:  # `name:80`, but not `mailto:`
        if end + 1 == stop:
            marks |= np.uint8(NO_HOST)
        for i in range(end + 1, stop):
            if not is_digit(data[i]):
                marks |= np.uint8(NO_HOST)
    while end > begin and data[end - 1] == DOT:
        end -= 1
    return end, marks


@kernel
def split_list(data: Bytes, begins: Longs, ends: Longs) -> int:
    """The entries of a list, one a line, and their number; `begins` and `ends` have room for all.

    Lines that begin with '#', and what follows a '#' after white space, are comments. After a first
    word that is an IP address come the names of a line of a hosts file. Of `*.name` remains
    `.name`.
    """
    text, size = pointer(data), data.size
    n, stop = 0, 0
    while stop < size:
        begin, end = stop, -1
        while stop < size and text[stop] != 10 and text[stop] != 13:
            if text[stop] == HASH and end < 0 and (stop == begin or text[stop - 1] <= SPACE):
                end = stop
            stop += 1
        begin, end = trim(text, begin, stop if end < 0 else end)
        stop += 1
        if begin == end:
            continue
        space, version4, version6, colon = begin, True, True, False
        while space < end and text[space] > SPACE:
            digit = is_digit(text[space]) or text[space] == DOT
            version4 &= digit
            version6 &= digit or text[space] == COLON or 97 <= lower(text[space]) <= 102
            colon |= text[space] == COLON
            space += 1
        if space == end or not (version4 or (version6 and colon)):
            begins[n] = begin + (begin + 1 < end and text[begin] == STAR and text[begin + 1] == DOT)
            ends[n] = end
            n += 1
            continue
        while space < end:
            while text[space] <= SPACE:
                space += 1
            begins[n] = space
            while space < end and text[space] > SPACE:
                space += 1
            ends[n] = space
            n += 1
    return n


@kernel
def locate(data: Bytes, begins: Longs, ends: Longs, spans: Longs, odd: Bools) -> None:
    """Host and rest of each URL; `odd` are hosts that have to be rewritten before they compare:
    those with letters beyond ASCII, escapes or brackets."""
    text = pointer(data)
    for d in range(begins.size):
        begin, end = trim(text, begins[d], ends[d])
        begin, slashes = after_scheme(text, begin, end)
        stop, user = begin, begin
        while stop < end and not MARKS[text[stop]] & ENDS_AUTHORITY:
            stop += 1
            if text[stop - 1] == AT:
                user = stop
        if user > begin:
            begin = user if slashes else stop
        host, marks = host_end(text, begin, stop, slashes)
        odd[d] = marks & ODD != 0
        if marks & NO_HOST or host == begin or (host - begin > LONGEST_HOST and not odd[d]):
            spans[4 * d], odd[d] = -1, False
            continue
        last = stop
        while last < end and text[last] != HASH:
            last += 1
        spans[4 * d], spans[4 * d + 1], spans[4 * d + 2], spans[4 * d + 3] = begin, host, stop, last


@inline
def plain(data: Any, begin: Any, end: Any) -> Any:
    """Where a host begins without its `www.`: at `begin` where no dot follows that."""
    if end - begin < 5 or data[begin + 3] != DOT:
        return begin
    for i in range(begin, begin + 3):
        if lower(data[i]) != 119:
            return begin
    for i in range(begin + 4, end):
        if data[i] == DOT:
            return begin + 4
    return begin


@kernel
def find_registrable(data: Bytes, spans: Longs, rules: Hashes, kinds: Bytes, starts: Longs) -> None:
    """Where the registrable domain of each host begins; -1 of a public suffix or an IP address."""
    for d in range(starts.size):
        starts[d] = -1
        begin, end = spans[4 * d], spans[4 * d + 1]
        if begin < 0 or data[begin] == OPENING:
            continue
        label, number = end, True
        while label > begin and data[label - 1] != DOT:
            label -= 1
            number &= is_digit(data[label])
        if number:
            continue
        state, below = np.uint64(0), False
        suffix, right = True, -1
        for i in range(end - 1, begin - 1, -1):
            state = more(state, data[i])
            if i > begin and data[i - 1] != DOT:
                continue
            at = position(rules, finalise(state))
            kind = kinds[at] if at >= 0 else np.uint8(0)
            if kind & EXCEPTION:
                starts[d] = i
                break
            if suffix or below or kind & SUFFIX:
                right = -1
            elif right < 0:
                right = i
            starts[d] = right
            below, suffix = kind & WILDCARD != 0, False


@kernel
def hash_entries(data: Bytes, spans: Longs, keys: Hashes) -> int:
    """The keys of the entries of a list, and their number: at most two an entry.

    A name has one. `.name` has that and one of all that is below it; a name with a path has one of
    both together, and one that says that the host has such.
    """
    n = 0
    for d in range(spans.size // 4):
        begin, end = spans[4 * d], spans[4 * d + 1]
        if begin < 0:
            continue
        dotted = data[begin] == DOT
        begin = begin + 1 if dotted else plain(data, begin, end)
        state = np.uint64(0)
        for i in range(end - 1, begin - 1, -1):
            state = more(state, data[i])
        start, stop = spans[4 * d + 2], spans[4 * d + 3]
        while stop > start and (data[stop - 1] == SLASH or data[stop - 1] == BACKSLASH):
            stop -= 1
        if start < stop:
            keys[n] = finalise(more(state, SLASH))
            for i in range(start, stop):
                state = more(state, SLASH if data[i] == BACKSLASH else data[i])
            n += 1
        elif dotted:
            keys[n] = finalise(more(state, DOT))
            n += 1
        keys[n] = finalise(state)
        n += 1
    return n


@kernel
def look_up(
    data: Bytes, spans: Longs, starts: Longs, keys: Hashes, labels: Bytes, found: Longs
) -> None:
    """The label of the entry that each URL falls under, the most specific one; -1 of none.

    `starts` as `find_registrable` gives them, `keys` ascending, with a label each.
    """
    for d in range(starts.size):
        found[d] = -1
        begin, end = spans[4 * d], spans[4 * d + 1]
        if begin < 0:
            continue
        begin = plain(data, begin, end)
        state = np.uint64(0)
        for i in range(end - 1, begin - 1, -1):
            state = more(state, data[i])
            if i > begin and data[i - 1] != DOT:
                continue
            own = i == begin or (starts[d] >= 0 and i <= starts[d])
            at = position(keys, finalise(state if own else more(state, DOT)))
            if at >= 0:
                found[d] = labels[at]
        if position(keys, finalise(more(state, SLASH))) < 0:
            continue
        start, stop = spans[4 * d + 2], spans[4 * d + 3]
        for i in range(start, stop):
            state = more(state, SLASH if data[i] == BACKSLASH else data[i])
            if i > start and (i + 1 == stop or ends_part(data[i + 1])):
                at = position(keys, finalise(state))
                if at >= 0:
                    found[d] = labels[at]


@inline
def ends_part(byte: Any) -> Any:
    """Whether a listed path may end before this byte."""
    return byte in (SLASH, BACKSLASH, QUESTION, AMPERSAND, SEMICOLON)


@kernel
def copy_lower(data: Bytes, begins: Longs, ends: Longs, target: Bytes) -> None:
    """Copies stretches of bytes, one after the other, in lower case."""
    n = 0
    for d in range(begins.size):
        for i in range(begins[d], ends[d]):
            target[n] = lower(data[i])
            n += 1


@kernel
def count_words(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    inside: States,
    words: States,
    shorter: States,
    whole: States,
    kinds: Bytes,
    counts: Longs,
) -> None:
    """Three numbers a URL: how many different words occur anywhere in its letters and digits taken
    together, and how many of the first and of the second kind between other characters.

    `inside` is an automaton (Aho and Corasick 1975), `whole` a tree: `LETTERS` transitions a state.
    `words` gives the state of the longest word that ends in a state of `inside`, `shorter` that of
    the next longest one that ends with a word's state, 0 for none; `kinds` (two bits) the kinds of
    the word that a state of `whole` is.
    """
    seen, met = np.full(words.size, -1), np.full(kinds.size, -1)
    for d in range(begins.size):
        strict, hard, soft = 0, 0, 0
        state, word = 0, 0
        for i in range(begins[d], ends[d] + 1):
            byte = lower(data[i]) if i < ends[d] else np.uint8(0)
            if 97 <= byte <= 122:
                letter = byte - 97
            elif is_digit(byte):
                letter = byte - 22
            else:
                if kinds[word] and met[word] != d:
                    met[word] = d
                    hard += kinds[word] & 1
                    soft += kinds[word] >> 1
                word = 0
                continue
            word = whole[word * LETTERS + letter]
            state = inside[state * LETTERS + letter]
            last = words[state]
            while last > 0 and seen[last] != d:  # what ends with a word that was seen was seen too
                seen[last] = d
                strict += 1
                last = shorter[last]
        counts[3 * d], counts[3 * d + 1], counts[3 * d + 2] = strict, hard, soft
