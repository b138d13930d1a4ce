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

from curation.text.cache import inline, kernel
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
#: No host has one of these (WHATWG URL, forbidden host code points).
FORBIDDEN = (0x3C, 0x3E, OPENING, BACKSLASH, CLOSING, 0x5E, 0x7C, DELETE)
#: What a scheme may have besides letters (RFC 3986, 3.1).
SCHEME = (0x2B, 0x2D, DOT, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57)


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
def after_scheme(data: Any, begin: Any, end: Any) -> Any:
    """Where the authority begins, and whether `//` says so."""
    i = begin
    while i < end and (97 <= lower(data[i]) <= 122 or (i > begin and data[i] in SCHEME)):
        i += 1
    if i > begin and i < end and data[i] == COLON:
        i += 1
    else:
        i = begin
    if i + 1 < end and data[i] == SLASH and data[i + 1] == SLASH:
        return i + 2, True
    return begin, False


@kernel
def split_list(data: Bytes, begins: Longs, ends: Longs) -> int:
    """The entries of a list, one a line, and their number; `begins` and `ends` have room for all.

    Lines that begin with '#', and what follows a '#' after white space, are comments. After a first
    word that is an IP address come the names of a line of a hosts file. Of `*.name` remains
    `.name`.
    """
    n, stop = 0, 0
    while stop < data.size:
        begin = stop
        while stop < data.size and data[stop] != 10 and data[stop] != 13:
            stop += 1
        end = stop
        stop += 1
        for i in range(begin, end):
            if data[i] == HASH and (i == begin or data[i - 1] <= SPACE):
                end = i
                break
        while begin < end and data[begin] <= SPACE:
            begin += 1
        while begin < end and data[end - 1] <= SPACE:
            end -= 1
        if begin == end:
            continue
        space, version4, version6, colon = begin, True, True, False
        while space < end and data[space] > SPACE:
            digit = is_digit(data[space]) or data[space] == DOT
            version4 &= digit
            version6 &= digit or data[space] == COLON or 97 <= lower(data[space]) <= 102
            colon |= data[space] == COLON
            space += 1
        if space == end or not (version4 or (version6 and colon)):
            begins[n] = begin + (begin + 1 < end and data[begin] == STAR and data[begin + 1] == DOT)
            ends[n] = end
            n += 1
            continue
        while space < end:
            while data[space] <= SPACE:
                space += 1
            begins[n] = space
            while space < end and data[space] > SPACE:
                space += 1
            ends[n] = space
            n += 1
    return n


@kernel
def locate(data: Bytes, begins: Longs, ends: Longs, spans: Longs, odd: Bools) -> None:
    """Host and rest of each URL; `odd` are hosts that have to be rewritten before they compare:
    those with letters beyond ASCII, escapes or brackets."""
    for d in range(begins.size):
        spans[4 * d], odd[d] = -1, False
        begin, end = begins[d], ends[d]
        while begin < end and data[begin] <= SPACE:
            begin += 1
        while begin < end and data[end - 1] <= SPACE:
            end -= 1
        begin, slashes = after_scheme(data, begin, end)
        stop = begin
        while stop < end and not (
            data[stop] == SLASH
            or data[stop] == BACKSLASH
            or data[stop] == QUESTION
            or data[stop] == HASH
        ):
            stop += 1
        for i in range(stop - 1, begin - 1, -1):
            if data[i] == AT:
                begin = i + 1 if slashes else stop
                break
        host = begin
        if begin < stop and data[begin] == OPENING:
            while host < stop and data[host] != CLOSING:
                host += 1
            good, odd[d] = host < stop, True
            host += 1
        else:
            good = True
            while host < stop and data[host] != COLON:
                byte = data[host]
                if byte <= SPACE or byte in FORBIDDEN:
                    good = False
                odd[d] |= byte > 0x7F or byte == PERCENT
                host += 1
            if not slashes and host < stop:
                good &= host + 1 < stop
                for i in range(host + 1, stop):
                    good &= is_digit(data[i])
        while host > begin and data[host - 1] == DOT:
            host -= 1
        if not good or host == begin or (host - begin > LONGEST_HOST and not odd[d]):
            odd[d] = False
            continue
        last = stop
        while last < end and data[last] != HASH:
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
        suffix, right = True, np.int64(-1)
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
                right = np.int64(-1)
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
    return (
        byte == SLASH
        or byte == BACKSLASH
        or byte == QUESTION
        or byte == AMPERSAND
        or byte == SEMICOLON
    )


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
