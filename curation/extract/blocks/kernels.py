"""The compiled kernels of the engine `blocks`.

What may live here: loops in numba. Each has its plain Python reference of the same meaning: the
scan in `reference.py`. Records are taken as runs of int32 (see ELEMENT, BLOCK and LINK in
`page.py`, whose constants are compiled in), and functions that kernels share take pointers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from curation.extract.blocks.page import (
    BLOCK,
    COMMAS,
    COMMENTS,
    ELEMENT,
    HINTED,
    LINK,
    MOST_HINTS,
    PRE_BIT,
    TAG,
    word_hash,
)
from curation.text.cache import inline, kernel, load8, part, pointer
from curation.text.characters import (
    CLASS_BITS,
    CLOSING,
    KATAKANA,
    LETTER,
    NUMBER,
    OTHER,
    SPACE,
    TERMINAL,
    UPPER,
)
from curation.text.kernels import decode

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Table = NDArray[np.uint32]
Singles = NDArray[np.float32]
Floats = NDArray[np.float64]

CLASS = (1 << CLASS_BITS) - 1
TERMINAL_MARK = np.uint32(TERMINAL << CLASS_BITS)
CLOSING_MARK = np.uint32(CLOSING << CLASS_BITS)
CAPITAL = np.uint32(UPPER << CLASS_BITS)
COMMA_POINTS = tuple(sorted(map(ord, COMMAS)))
ELLIPSIS = 0x2026

# --- records --------------------------------------------------------------------------------------

ELEMENT_SIZE, BLOCK_SIZE, LINK_SIZE = (len(dtype.names or ()) for dtype in (ELEMENT, BLOCK, LINK))
(
    E_PARENT,
    E_DEPTH,
    E_TAG,
    E_BORDER,
    E_FIRST,
    E_STOP,
    E_CHARACTERS,
    E_LINK_CHARACTERS,
    E_LINKS,
    E_HINTS,
    E_HINTS_STOP,
    E_HREF,
    E_HREF_STOP,
    E_ANCESTORS,
    E_KIND,
    E_LEVEL,
    E_LISTS,
    E_QUOTES,
    E_ITEM,
    E_NUMBER,
    E_TABLE,
    E_ROW,
    E_COLUMN,
    E_COUNTED,
    E_COMMENTS,
) = range(ELEMENT_SIZE)
(
    B_START,
    B_STOP,
    B_ELEMENT,
    B_LEAF,
    B_CHARACTERS,
    B_WORDS,
    B_SHORT_WORDS,
    B_LETTERS,
    B_SINGLES,
    B_CAPITALS,
    B_DIGITS,
    B_COMMAS,
    B_TERMINALS,
    B_ENDS,
    B_BREAKS,
    B_LINK_CHARACTERS,
    B_LINKS,
) = range(BLOCK_SIZE)

#: The state of a scan, int64s: the innermost open element, what is in the arrays so far, the bytes
#: of the title, and of the block under way what `reference` has under the same names.
(
    HERE,
    ELEMENTS,
    BLOCKS,
    LINKS,
    HINTS,
    OUT,
    TITLE,
    BEGUN,
    LAST,
    WAITING,
    BREAKS,
    WORD,
    OPEN_LINK,
) = range(13)
STATE_SIZE = 13

#: What a tag is, as bits of its entry of `traits`; its kind plus one and its bit of ANCESTORS are
#: above them.
IS_BORDER, IS_SKIPPED, IS_VOID, IS_RAW = 1, 2, 4, 8
KIND_SHIFT, KIND_MASK, ANCESTOR_SHIFT = 4, 15, 8

# --- names ----------------------------------------------------------------------------------------

FNV_SEED, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
SEED, PRIME = np.uint64(FNV_SEED), np.uint64(FNV_PRIME)
#: Slots of the open hash table of tags, 0 where empty.
NAME_SLOTS = 512


def name_hash(name: str) -> int:
    """The 64-bit hash (FNV-1a) of a tag's or an attribute's name; two names with the same one
    would be taken for the same."""
    value = FNV_SEED
    for byte in name.encode():
        value = (value ^ byte) * FNV_PRIME & (1 << 64) - 1
    return value


HINTED_HASHES = tuple(np.uint64(name_hash(name)) for name in HINTED)
HIDDEN, ARIA_HIDDEN, STYLE, HREF, START, ITEM_TYPE = (
    np.uint64(name_hash(name))
    for name in ("hidden", "aria-hidden", "style", "href", "start", "itemtype")
)
COMMENT_HASHES = tuple(np.uint32(word_hash(word.encode())) for word in sorted(COMMENTS))
DISPLAY_NONE = tuple(b"display:none")
VISIBILITY_HIDDEN = tuple(b"visibility:hidden")

HTML, BODY, HEAD, TITLE_TAG, BR, A = (
    TAG[name] for name in ("html", "body", "head", "title", "br", "a")
)
UL, OL, DL, MENU, DIR, LI, DT, DD = (
    TAG[name] for name in ("ul", "ol", "dl", "menu", "dir", "li", "dt", "dd")
)
TABLE, TR, TD, TH, QUOTE_TAG, H1, H6 = (
    TAG[name] for name in ("table", "tr", "td", "th", "blockquote", "h1", "h6")
)
SCRIPT, PLAINTEXT = TAG["script"], TAG["plaintext"]
assert H6 - H1 == 5

ONES, HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)


@inline
def is_space(byte: Any) -> Any:
    """HTML's white space."""
    return byte == 32 or byte == 10 or byte == 9 or byte == 12 or byte == 13


@inline
def is_letter(byte: Any) -> Any:
    return 97 <= byte | 0x20 <= 122


@inline
def ends_name(byte: Any) -> Any:
    return byte == 62 or byte == 47 or is_space(byte)


@inline
def find(data: Any, i: Any, end: Any, byte: Any) -> Any:
    """Where the byte first is from `i` on, or `end`."""
    pattern = ONES * np.uint64(byte)
    while i + 8 <= end:
        word = load8(data, i) ^ pattern
        if (word - ONES) & ~word & HIGHS:
            break
        i += 8
    while i < end and data[i] != byte:
        i += 1
    return i


@inline
def behind(data: Any, i: Any, end: Any, byte: Any) -> Any:
    """Where what follows the first such byte from `i` on begins, or `end`."""
    i = find(data, i, end, byte)
    return i + 1 if i < end else end


@inline
def name_end(data: Any, i: Any, end: Any) -> Any:
    """Where the name of a tag that begins at `i` ends, and its hash."""
    state = SEED
    while i < end and not ends_name(data[i]):
        state = (state ^ np.uint64(data[i])) * PRIME
        i += 1
    return i, state


@inline
def tag_number(state: Any, names: Any, numbers: Any) -> Any:
    s = np.int64(state & np.uint64(NAME_SLOTS - 1))
    while names[s] != state and names[s] != 0:
        s = (s + 1) & (NAME_SLOTS - 1)
    return np.int64(numbers[s])


@inline
def next_attribute(data: Any, i: Any, end: Any) -> Any:
    """The attribute at or after `i` in a tag: the hash of its name, the bytes [start, stop) of its
    value, and where it ends; the hash is 0 if there is none, and it ends at the tag's `>`."""
    while i < end and (data[i] == 47 or is_space(data[i])):
        i += 1
    if i >= end or data[i] == 62:
        return np.uint64(0), i, i, i
    state = (SEED ^ np.uint64(data[i])) * PRIME
    i += 1
    while i < end and data[i] != 61 and not ends_name(data[i]):
        state = (state ^ np.uint64(data[i])) * PRIME
        i += 1
    if i >= end or data[i] != 61:
        return state, i, i, i
    i += 1
    start = i
    if i < end and data[i] == 34:
        stop = find(data, i + 1, end, 34)
        if stop == end:
            return np.uint64(0), end, end, end
        return state, i + 1, stop, stop + 1
    while i < end and data[i] != 62 and not is_space(data[i]):
        i += 1
    return state, start, i, i


@part
def tag_end(data: Any, i: Any, end: Any) -> Any:
    """Where what follows a start tag begins, its name ending at `i`."""
    found = SEED
    while found != 0:
        found, _, _, i = next_attribute(data, i, end)
    return min(i + 1, end)


@part
def comment_end(data: Any, i: Any, end: Any) -> Any:
    """Where what follows the comment or declaration at `i` begins."""
    if i + 4 > end or data[i + 1] != 33 or data[i + 2] != 45 or data[i + 3] != 45:
        return behind(data, i + 2, end, 62)
    i = min(i + 6, end)
    while True:
        i = find(data, i, end, 62)
        if i == end:
            return end
        if data[i - 1] == 45 and data[i - 2] == 45:
            return i + 1
        i += 1


@inline
def closes(data: Any, i: Any, end: Any, state: Any) -> Any:
    """Whether the `<` at `i` begins the end tag of that name, in upper or lower case."""
    if i + 2 >= end or data[i + 1] != 47:
        return False
    i += 2
    found = SEED
    while i < end and not ends_name(data[i]):
        byte = data[i]
        found = (found ^ np.uint64(byte | 0x20 if 65 <= byte <= 90 else byte)) * PRIME
        i += 1
    return i < end and found == state


@part
def script_end(data: Any, i: Any, end: Any, state: Any) -> Any:
    """The end tag of a script whose text begins at `i`, or `end`; see `reference`."""
    escaped = False
    twice = False
    while True:
        if escaped:
            while i < end and data[i] != 60 and data[i] != 45:
                i += 1
        else:
            i = find(data, i, end, 60)
        if i == end:
            return end
        if data[i] == 45:
            if i + 2 < end and data[i + 1] == 45 and data[i + 2] == 62:
                escaped = False
                twice = False
        elif i + 3 < end and data[i + 1] == 33 and data[i + 2] == 45 and data[i + 3] == 45:
            escaped = True
            i += 1
        elif closes(data, i, end, state):
            if not twice:
                return i
            twice = False
        elif escaped:
            stop = i + 1
            found = SEED
            while stop < end and not ends_name(data[stop]):
                byte = data[stop]
                found = (found ^ np.uint64(byte | 0x20 if 65 <= byte <= 90 else byte)) * PRIME
                stop += 1
            if stop < end and found == state:
                twice = True
        i += 1


@part
def raw_end(data: Any, i: Any, end: Any, tag: Any, hashes: Any) -> Any:
    """The end tag of a raw element whose text begins at `i`, or `end`."""
    if tag == SCRIPT:
        return script_end(data, i, end, hashes[tag])
    if tag == PLAINTEXT:
        at = end - 12
        while at >= i:
            if data[at] == 60 and closes(data, at, end, hashes[tag]) and data[at + 11] == 62:
                lower = True
                for k in range(at + 2, at + 11):
                    lower &= data[k] >= 97
                if lower:
                    return at
            at -= 1
        return end
    while True:
        i = find(data, i, end, 60)
        if i == end or closes(data, i, end, hashes[tag]):
            return i
        i += 1


# --- text -----------------------------------------------------------------------------------------


@inline
def make_ready(blocks: Any, state: Any) -> Any:
    block = state[BLOCKS] * BLOCK_SIZE
    for k in range(BLOCK_SIZE):
        blocks[block + k] = 0
    blocks[block + B_START] = state[OUT]
    state[LAST] = state[OUT]
    state[BEGUN] = 0
    state[WAITING] = 0
    state[BREAKS] = 0
    state[WORD] = 0
    state[OPEN_LINK] = -1


@part
def border(blocks: Any, text: Any, state: Any) -> Any:
    """Ends the block, if one has begun, and makes ready for the next."""
    if state[BEGUN]:
        block = state[BLOCKS] * BLOCK_SIZE
        stop = state[LAST]
        blocks[block + B_STOP] = stop
        blocks[block + B_SHORT_WORDS] += 1 <= state[WORD] <= 3
        breaks = 0
        for k in range(blocks[block + B_START], stop):
            breaks += text[k] == 10
        blocks[block + B_BREAKS] = breaks
        state[BLOCKS] += 1
    state[OUT] = state[LAST]
    make_ready(blocks, state)


@inline
def reference(data: Any, i: Any, end: Any) -> Any:
    """The code point that the `&` at `i` begins, and how many bytes stand for it."""
    if i + 3 < end and data[i + 2] == 116 and data[i + 3] == 59:
        if data[i + 1] == 108:
            return np.int64(60), 4
        if data[i + 1] == 103:
            return np.int64(62), 4
    if i + 4 < end and data[i + 1] == 97 and data[i + 2] == 109 and data[i + 3] == 112:
        if data[i + 4] == 59:
            return np.int64(38), 5
    elif i + 5 < end and data[i + 1] == 110 and data[i + 2] == 98 and data[i + 3] == 115:  # noqa: SIM102
        if data[i + 4] == 112 and data[i + 5] == 59:
            return np.int64(0xA0), 6
    return np.int64(38), 1


@inline
def point_at(data: Any, i: Any, end: Any, raw: Any) -> Any:
    """The code point at `i`, references resolved unless `raw`, and how many bytes stand for it."""
    if data[i] == 38 and not raw:
        return reference(data, i, end)
    return decode(data, i, end)


@inline
def put(text: Any, out: Any, data: Any, i: Any, size: Any, point: Any) -> Any:
    """Writes the code point that the `size` bytes at `i` stand for; where the text then ends."""
    if point < 0x80:
        text[out] = point
        return out + 1
    if point == 0xA0:
        text[out] = 0xC2
        text[out + 1] = 0xA0
        return out + 2
    for k in range(size):
        text[out + k] = data[i + k]
    return out + size


@part
def read(
    data: Any,
    i: Any,
    end: Any,
    raw: Any,
    table: Any,
    elements: Any,
    blocks: Any,
    links: Any,
    text: Any,
    state: Any,
) -> Any:
    """Takes in the text of the bytes [i, end), below the element that is open."""
    element = state[HERE] * ELEMENT_SIZE
    block = state[BLOCKS] * BLOCK_SIZE
    href = elements[element + E_HREF]
    pre = elements[element + E_ANCESTORS] & PRE_BIT != 0
    out, last = state[OUT], state[LAST]
    begun, waiting = state[BEGUN] != 0, state[WAITING]
    word, link = state[WORD], state[OPEN_LINK]
    ends = blocks[block + B_ENDS] != 0
    characters, words, short_words, letters, singles = 0, 0, 0, 0, 0
    capitals, digits, commas, terminals, runs = 0, 0, 0, 0, 0
    while i < end:
        point, size = point_at(data, i, end, raw)
        entry = table[point]
        kind = entry & CLASS
        if kind == SPACE:
            short_words += 1 <= word <= 3
            word = 0
            if not pre:
                if waiting == 0:
                    waiting = 32
            elif point == 10 and not begun:
                out = np.int64(blocks[block + B_START])
            else:
                out = put(text, out, data, i, size, point)
            i += size
            continue
        if not begun:
            begun = True
            blocks[block + B_ELEMENT] = elements[element + E_BORDER]
            blocks[block + B_LEAF] = state[HERE]
        elif waiting:
            text[out] = waiting
            out += 1
        waiting = 0
        words += word == 0
        word += 1
        if href < 0:
            link = -1
        elif link < 0 or links[link * LINK_SIZE + 2] != href:
            link = state[LINKS]
            state[LINKS] += 1
            links[link * LINK_SIZE] = out
            links[link * LINK_SIZE + 2] = href
            links[link * LINK_SIZE + 3] = elements[element + E_HREF_STOP]
            runs += 1
        out = put(text, out, data, i, size, point)
        last = out
        i += size
        characters += 1
        if kind == OTHER:
            commas += point in COMMA_POINTS
        letters += kind >= LETTER
        singles += kind >= KATAKANA
        digits += kind == NUMBER
        capitals += entry & CAPITAL != 0
        if entry & TERMINAL_MARK:
            terminals += 1
            ends = True
        else:
            ends = point == ELLIPSIS or (ends and entry & CLOSING_MARK != 0)
        if link >= 0:
            links[link * LINK_SIZE + 1] = out
    linked = characters if href >= 0 else 0
    if characters:
        state[BREAKS] = 0
    blocks[block + B_ENDS] = ends
    blocks[block + B_CHARACTERS] += characters
    blocks[block + B_WORDS] += words
    blocks[block + B_SHORT_WORDS] += short_words
    blocks[block + B_LETTERS] += letters
    blocks[block + B_SINGLES] += singles
    blocks[block + B_CAPITALS] += capitals
    blocks[block + B_DIGITS] += digits
    blocks[block + B_COMMAS] += commas
    blocks[block + B_TERMINALS] += terminals
    blocks[block + B_LINK_CHARACTERS] += linked
    blocks[block + B_LINKS] += runs
    elements[element + E_CHARACTERS] += characters
    elements[element + E_LINK_CHARACTERS] += linked
    elements[element + E_LINKS] += runs
    state[OUT], state[LAST] = out, last
    state[BEGUN], state[WAITING] = begun, waiting
    state[WORD], state[OPEN_LINK] = word, link


@part
def read_title(data: Any, i: Any, end: Any, table: Any, blocks: Any, text: Any, state: Any) -> Any:
    """Writes the text at `i`, white space collapsed, as the title, unless text was read before."""
    out = state[OUT]
    if out:
        return
    end = find(data, i, end, 60)
    waiting = False
    while i < end:
        point, size = point_at(data, i, end, False)
        if table[point] & CLASS == SPACE:
            waiting = out > 0
        else:
            if waiting:
                text[out] = 32
                out += 1
            waiting = False
            out = put(text, out, data, i, size, point)
        i += size
    state[OUT] = out
    state[TITLE] = out
    make_ready(blocks, state)


@part
def line_break(elements: Any, blocks: Any, text: Any, state: Any) -> Any:
    """Takes in a `<br>`."""
    block = state[BLOCKS] * BLOCK_SIZE
    blocks[block + B_SHORT_WORDS] += 1 <= state[WORD] <= 3
    state[WORD] = 0
    if elements[state[HERE] * ELEMENT_SIZE + E_ANCESTORS] & PRE_BIT:
        if state[BEGUN]:
            text[state[OUT]] = 10
            state[OUT] += 1
        else:
            state[OUT] = blocks[block + B_START]
        return
    state[WAITING] = 10
    breaks = state[BREAKS] + 1
    if breaks > 1:
        border(blocks, text, state)
    state[BREAKS] = breaks


# --- elements -------------------------------------------------------------------------------------


@inline
def says(data: Any, i: Any, end: Any, words: Any) -> Any:
    """Whether the bytes [i, end) have `words` (bytes in lower case), white space left out."""
    while i < end:
        if data[i] | 0x20 == words[0]:
            at = i
            matched = 0
            while at < end and matched < len(words):
                byte = data[at]
                if not is_space(byte) and byte != 11:
                    if (byte | 0x20 if 65 <= byte <= 90 else byte) != words[matched]:
                        break
                    matched += 1
                at += 1
            if matched == len(words):
                return True
        i += 1
    return False


@inline
def is_true(data: Any, i: Any, end: Any) -> Any:
    """Whether the bytes [i, end) are `true`, in upper or lower case."""
    if end - i != 4:
        return False
    t, r, u, e = data[i] | 0x20, data[i + 1] | 0x20, data[i + 2] | 0x20, data[i + 3] | 0x20
    return t == 116 and r == 114 and u == 117 and e == 101


@inline
def take_hints(data: Any, i: Any, end: Any, hints: Any, n: Any, most: Any) -> Any:
    """Hashes of the words of the bytes [i, end), written from `n` to below `most`; the new `n`."""
    while i < end and n < most:
        while i < end and not is_letter(data[i]):
            i += 1
        start = i
        value = np.uint32(0x811C9DC5)
        lower = False
        while i < end and is_letter(data[i]):
            if lower and data[i] < 97:
                break
            lower = data[i] >= 97
            value = np.uint32((value ^ np.uint32(data[i] | 0x20)) * np.uint32(0x01000193))
            i += 1
        if i - start > 1:
            hints[n] = value
            n += 1
    return n


@inline
def says_comments(hints: Any, n: Any, stop: Any) -> Any:
    """Whether one of the words `hints[n:stop]` is among COMMENTS."""
    found = False
    for k in range(n, stop):
        found |= hints[k] in COMMENT_HASHES
    return found


@inline
def integer(data: Any, i: Any, end: Any, default: Any) -> Any:
    """The number that the bytes [i, end) begin with, of up to nine digits."""
    while i < end and is_space(data[i]):
        i += 1
    negative = i < end and data[i] == 45
    if i < end and (negative or data[i] == 43):
        i += 1
    value = np.int64(0)
    digits = 0
    while i < end and digits < 9 and 48 <= data[i] <= 57:
        value = value * 10 + np.int64(data[i]) - 48
        digits += 1
        i += 1
    if digits == 0:
        return default
    return -value if negative else value


@part
def skip(
    data: Any,
    i: Any,
    end: Any,
    outer: Any,
    names: Any,
    numbers: Any,
    traits: Any,
    hashes: Any,
    table: Any,
    blocks: Any,
    text: Any,
    state: Any,
) -> Any:
    """Where what follows an element begins whose start tag ends at `i`; takes the title along."""
    if traits[outer] & IS_RAW:
        return behind(data, raw_end(data, i, end, outer, hashes), end, 62)
    if outer == TITLE_TAG:
        read_title(data, i, end, table, blocks, text, state)
    depth = 1
    while depth and i < end:
        if data[i] != 60 or i + 1 >= end:
            i = find(data, i + 1, end, 60)
            continue
        byte = data[i + 1]
        if byte == 33 or byte == 63:
            i = comment_end(data, i, end)
        elif byte == 47:
            i, found = name_end(data, i + 2, end)
            depth -= traits[tag_number(found, names, numbers)] & IS_VOID == 0
            i = behind(data, i, end, 62)
        elif not is_letter(byte):
            i = find(data, i + 1, end, 60)
        else:
            i, found = name_end(data, i + 1, end)
            tag = tag_number(found, names, numbers)
            i = tag_end(data, i, end)
            if traits[tag] & IS_RAW:
                i = behind(data, raw_end(data, i, end, tag, hashes), end, 62)
            elif traits[tag] & IS_VOID == 0:
                depth += 1
                if tag == TITLE_TAG and outer == HEAD:
                    read_title(data, i, end, table, blocks, text, state)
    return i


@inline
def open_element(elements: Any, tag: Any, trait: Any, state: Any) -> Any:
    """Makes an element the innermost; what its attributes decide is left to the caller."""
    index = state[ELEMENTS]
    state[ELEMENTS] += 1
    new, outer = index * ELEMENT_SIZE, state[HERE] * ELEMENT_SIZE
    for k in range(ELEMENT_SIZE):
        elements[new + k] = elements[outer + k]
    elements[new + E_PARENT] = state[HERE]
    elements[new + E_DEPTH] += 1
    elements[new + E_TAG] = tag
    elements[new + E_FIRST] = state[BLOCKS] + state[BEGUN]
    elements[new + E_STOP] = 0
    elements[new + E_CHARACTERS] = 0
    elements[new + E_LINK_CHARACTERS] = 0
    elements[new + E_LINKS] = 0
    elements[new + E_COUNTED] = 0
    elements[new + E_ANCESTORS] |= trait >> ANCESTOR_SHIFT
    if trait & IS_BORDER:
        elements[new + E_BORDER] = index
    if trait >> KIND_SHIFT & KIND_MASK:
        elements[new + E_KIND] = (trait >> KIND_SHIFT & KIND_MASK) - 1
    if H1 <= tag <= H6:
        elements[new + E_LEVEL] = tag - H1 + 1
    elif tag in (LI, DT, DD):
        elements[new + E_ITEM] = index
        elements[new + E_NUMBER] = 0
        if tag == LI and elements[outer + E_TAG] == OL:
            elements[outer + E_COUNTED] += 1
            elements[new + E_NUMBER] = elements[outer + E_COUNTED]
    elif tag in (UL, OL, DL, MENU, DIR):
        elements[new + E_LISTS] += 1
    elif tag in (TD, TH):
        elements[new + E_COLUMN] = 0
        if elements[outer + E_TAG] == TR:
            elements[new + E_COLUMN] = elements[outer + E_COUNTED]
            elements[outer + E_COUNTED] += 1
    elif tag == TR:
        elements[new + E_ROW] = 0
        elements[new + E_COLUMN] = -1
        if elements[new + E_TABLE] >= 0:
            rows = elements[new + E_TABLE] * ELEMENT_SIZE + E_COUNTED
            elements[new + E_ROW] = elements[rows]
            elements[rows] += 1
    elif tag == TABLE:
        elements[new + E_TABLE] = index
        elements[new + E_ROW] = -1
        elements[new + E_COLUMN] = -1
    elif tag == QUOTE_TAG:
        elements[new + E_QUOTES] += 1
    state[HERE] = index
    return new


@inline
def close_element(elements: Any, blocks: Any, text: Any, is_border: Any, state: Any) -> Any:
    """Makes the parent of the innermost element the innermost."""
    if is_border:
        border(blocks, text, state)
    here = state[HERE] * ELEMENT_SIZE
    elements[here + E_STOP] = state[BLOCKS] + state[BEGUN]
    state[HERE] = elements[here + E_PARENT]


@kernel
def count_tags(source: Bytes) -> int:
    """How many `<` there are that begin no end tag."""
    data = pointer(source)
    count = 0
    for i in range(source.size - 1):
        count += (data[i] == 60) & (data[i + 1] != 47)
    return count + 1


@kernel
def scan(
    source: Bytes,
    names: Hashes,
    numbers: Ints,
    traits: Ints,
    hashes: Hashes,
    table: Table,
    elements: Ints,
    blocks: Ints,
    links: Ints,
    hints: Table,
    text: Bytes,
    state: Longs,
) -> None:
    """Fills the arrays of a `Page`; `state` (zeros) tells how much of each, see HERE and so on.

    `names` and `numbers` are an open hash table of tags; per tag `traits` and the hash of its name.
    """
    data, end = pointer(source), source.size
    slots, tags, kinds, keys = pointer(names), pointer(numbers), pointer(traits), pointer(hashes)
    classes = pointer(table)
    records, runs, refs = pointer(elements), pointer(blocks), pointer(links)
    words, out, now = pointer(hints), pointer(text), pointer(state)
    for k in range(ELEMENT_SIZE):
        records[k] = 0
    for field in (E_PARENT, E_HREF, E_HREF_STOP, E_ITEM, E_TABLE, E_ROW, E_COLUMN):
        records[field] = -1
    now[ELEMENTS] = 1
    make_ready(runs, now)
    i = 0
    while i < end:
        byte = data[i + 1] if i + 1 < end else data[i]
        if (
            data[i] != 60
            or i + 1 >= end
            or not (byte == 47 or byte == 33 or byte == 63 or is_letter(byte))
        ):
            stop = find(data, i + 1, end, 60)
            read(data, i, stop, False, classes, records, runs, refs, out, now)
            i = stop
            continue
        if byte == 47:
            i, found = name_end(data, i + 2, end)
            tag = tag_number(found, slots, tags)
            i = behind(data, i, end, 62)
            if now[HERE] and records[now[HERE] * ELEMENT_SIZE + E_TAG] == tag:
                close_element(records, runs, out, kinds[tag] & IS_BORDER, now)
            continue
        if byte == 33 or byte == 63:
            i = comment_end(data, i, end)
            continue
        i, found = name_end(data, i + 1, end)
        tag = tag_number(found, slots, tags)
        trait = kinds[tag]
        hidden = False
        comments = False
        href, href_stop, start, start_stop = -1, -1, -1, -1
        n = now[HINTS]
        most = n + MOST_HINTS
        while True:
            found, first, stop, i = next_attribute(data, i, end)
            if found == 0:
                break
            if found in HINTED_HASHES:
                n = take_hints(data, first, stop, words, n, most)
            elif found == HREF:
                href, href_stop = first, stop
            elif found == ITEM_TYPE:  # its words are no hints: what follows may overwrite them
                last = take_hints(data, first, stop, words, n, n + MOST_HINTS)
                comments |= says_comments(words, n, last)
            elif found == STYLE:
                hidden |= says(data, first, stop, DISPLAY_NONE)
                hidden |= says(data, first, stop, VISIBILITY_HIDDEN)
            elif found == ARIA_HIDDEN:
                hidden |= is_true(data, first, stop)
            elif found == HIDDEN:
                hidden = True
            elif found == START:
                start, start_stop = first, stop
        i = min(i + 1, end)
        if trait & IS_SKIPPED or (hidden and tag != HTML and tag != BODY):
            if trait & IS_VOID == 0:
                i = skip(data, i, end, tag, slots, tags, kinds, keys, classes, runs, out, now)
            continue
        if tag == BR:
            line_break(records, runs, out, now)
            continue
        if trait & IS_BORDER:
            border(runs, out, now)
        if trait & IS_VOID:
            continue
        new = open_element(records, tag, trait, now)
        records[new + E_HINTS] = now[HINTS]
        records[new + E_HINTS_STOP] = n
        comments |= says_comments(words, now[HINTS], n)
        records[new + E_COMMENTS] = (
            comments
            and trait & IS_BORDER != 0
            and tag != HTML
            and tag != BODY
            and records[new + E_ANCESTORS] & PRE_BIT == 0
        )
        now[HINTS] = n
        if tag == A and href >= 0:
            records[new + E_HREF] = href
            records[new + E_HREF_STOP] = href_stop
        elif tag == OL:
            records[new + E_COUNTED] = integer(data, start, start_stop, 1) - 1
        if trait & IS_RAW:
            stop = raw_end(data, i, end, tag, keys)
            read(data, i, stop, True, classes, records, runs, refs, out, now)
            close_element(records, runs, out, trait & IS_BORDER, now)
            i = behind(data, stop, end, 62)
    while now[HERE]:
        tag = records[now[HERE] * ELEMENT_SIZE + E_TAG]
        close_element(records, runs, out, kinds[tag] & IS_BORDER, now)
    border(runs, out, now)
    records[E_STOP] = now[BLOCKS]
    for element in range(now[ELEMENTS] - 1, 0, -1):
        own = element * ELEMENT_SIZE
        outer = records[own + E_PARENT] * ELEMENT_SIZE
        records[outer + E_CHARACTERS] += records[own + E_CHARACTERS]
        records[outer + E_LINK_CHARACTERS] += records[own + E_LINK_CHARACTERS]
        records[outer + E_LINKS] += records[own + E_LINKS]


# --- ensemble -------------------------------------------------------------------------------------

#: Rows that are taken at once, so that one instruction compares several. (Fewer, and LLVM unrolls
#: the loop over them before it thinks of that: seven times slower.)
LANES = 64
#: The number of zeros below the one bit of a uint32, by the highest five bits of its product with
#: a de Bruijn sequence.
DE_BRUIJN = np.uint32(0x077CB531)
ZEROS = np.zeros(32, np.int32)
for _bit in range(32):
    ZEROS[(0x077CB531 << _bit & 0xFFFFFFFF) >> 27] = _bit
EVERY = np.uint32(0xFFFFFFFF)


@kernel
def sum_leaves(
    features: Singles,
    width: int,
    feature: Ints,
    threshold: Singles,
    mask: Table,
    nodes: Ints,
    leaves: Ints,
    value: Singles,
    sums: Floats,
) -> None:
    """Per row of `features` (float32, rows of `width`, flat): the sum of its leaves' values, tree
    by tree (float64). Trees as in `ensemble.Ensemble`; `mask` and `value` as in `ensemble._Masks`.

    All nodes of a tree are asked: each that a row passes to the right rules out the leaves at its
    left, and the row's leaf is the first that remains (Lucchese et al., QuickScorer, SIGIR 2015;
    Ye et al., RapidScorer, KDD 2018). There is nothing to wait for and no branch to guess.
    """
    rows = sums.size
    chunk = np.empty(width * LANES, np.float32)
    bits = np.empty(LANES, np.uint32)
    total = np.empty(LANES, np.float64)
    x, left, added = pointer(chunk), pointer(bits), pointer(total)
    limits, masks, fields = pointer(threshold), pointer(mask), pointer(feature)
    for first in range(0, rows, LANES):
        for lane in range(LANES):
            row = min(first + lane, rows - 1) * width
            for k in range(width):
                x[k * LANES + lane] = features[row + k]
            added[lane] = 0.0
        for tree in range(leaves.size - 1):
            for lane in range(LANES):
                left[lane] = EVERY
            for node in range(nodes[tree], nodes[tree + 1]):
                at = np.int64(fields[node]) * LANES
                limit, others = limits[node], masks[node]
                for lane in range(LANES):
                    left[lane] &= EVERY if x[at + lane] <= limit else others
            for lane in range(LANES):
                lowest = np.uint32(left[lane] & (~left[lane] + np.uint32(1)))
                leaf = ZEROS[np.uint32(lowest * DE_BRUIJN) >> np.uint32(27)]
                added[lane] += value[leaves[tree] + leaf]
        for lane in range(min(LANES, rows - first)):
            sums[first + lane] = added[lane]
