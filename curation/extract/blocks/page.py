"""What a scan of a page gives: its elements, blocks of text, words of attributes, and links.

What may live here: the records and the sets of tags and attributes that both scans go by. How a
page is walked is told in `reference`, done fast in `scan`.

A *block* is a run of text between the borders of block-level elements; two or more `<br>` in a row
are a border too. White space (all that Unicode has, no-break spaces with it) is collapsed to a
space, kept as it is in `<pre>`, and a single `<br>` is a newline. Nothing below a SKIPPED or hidden
element is in any record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAMES = """
? html body p div section article main header footer nav aside ul ol li table thead tbody tfoot tr
td th caption h1 h2 h3 h4 h5 h6 hgroup blockquote pre xmp listing plaintext form fieldset legend
figure figcaption dl dt dd address details summary center hr dialog menu dir search a span b strong
i em u small font code tt q cite time label abbr sup sub ins del s mark br img input wbr area base
basefont bgsound col embed frame keygen link meta param source track script style noscript template
svg head title select datalist button iframe object textarea canvas video audio noembed noframes
annotation rt rp
"""
#: Names of elements by their number; 0 is any other.
TAGS = tuple(_NAMES.split())
TAG = {name: number for number, name in enumerate(TAGS)}

#: Where a word may be broken at the end of a line: nothing, in text that has other lines.
SOFT_HYPHEN = "\xad"


def _integers(names: str) -> np.dtype[Any]:
    return np.dtype([(name, np.int32) for name in names.split()])


def _tags(names: str) -> frozenset[int]:
    return frozenset(TAG[name] for name in names.split())


#: Elements that begin and end blocks.
BORDERS = _tags(
    "html body p div section article main header footer nav aside ul ol li table thead tbody tfoot "
    "tr td th caption h1 h2 h3 h4 h5 h6 hgroup blockquote pre xmp listing plaintext form fieldset "
    "legend figure figcaption dl dt dd address details summary center hr dialog menu dir search"
)
#: Elements of which nothing is read.
SKIPPED = _tags(
    "script style noscript template svg head title select datalist button iframe object textarea "
    "canvas video audio noembed noframes annotation rt rp"
)
#: Elements without an end tag.
VOID = _tags(
    "br hr img input wbr area base basefont bgsound col embed frame keygen link meta param source "
    "track"
)
#: Elements whose text stands unescaped in a serialisation; that of `plaintext` goes to the end.
RAW = _tags("script style xmp iframe noembed noframes plaintext")

#: Kinds of blocks: that of the nearest element around the block which has one.
PARAGRAPH, HEADING, ITEM, TERM, CELL, PREFORMATTED, QUOTE, CAPTION = range(8)
KINDS = {
    **dict.fromkeys(_tags("h1 h2 h3 h4 h5 h6"), HEADING),
    **dict.fromkeys(_tags("li dd"), ITEM),
    TAG["dt"]: TERM,
    **dict.fromkeys(_tags("td th"), CELL),
    **dict.fromkeys(_tags("pre xmp listing plaintext"), PREFORMATTED),
    TAG["blockquote"]: QUOTE,
    **dict.fromkeys(_tags("caption figcaption legend"), CAPTION),
}

#: Bits of `ancestors`, in this order from 1 on: the element or one around it is one of these.
ANCESTORS = (
    "article",
    "main",
    "nav",
    "aside",
    "header",
    "footer",
    "form",
    "table",
    "figure",
    "list",
    "blockquote",
    "preformatted",
    "section",
    "heading",
    "address",
    "details",
)
_MEMBERS = {
    "list": "ul ol dl menu dir",
    "preformatted": "pre xmp listing plaintext",
    "heading": "h1 h2 h3 h4 h5 h6",
}
BITS = {
    tag: 1 << bit for bit, name in enumerate(ANCESTORS) for tag in _tags(_MEMBERS.get(name, name))
}
PRE_BIT = 1 << ANCESTORS.index("preformatted")

#: Attributes of which the words are kept, and how many words of an element at most.
HINTED = ("class", "id", "role", "itemprop")
MOST_HINTS = 8

_COMMENTS = """
comment comments commentlist commentaires comentarios commenti kommentar kommentare reacties
komentarze disqus
"""
#: Words of those attributes and of `itemtype` (schema.org's Comment, UserComments) by which an
#: element says that it holds readers' comments.
COMMENTS = frozenset(_COMMENTS.split())

#: An element, in the order of the start tags; void, skipped and hidden ones have no record. The
#: first record, of tag 0, is the document.
#:
#: - `parent`: its parent's index, less than its own; -1 for the first. `depth`: elements around it.
#: - `tag`: see TAGS. `border`: the innermost of BORDERS around it or itself; 0 if there is none.
#: - `first`, `stop`: blocks [first, stop) are those that begin inside it.
#: - `characters`: code points of the text below it that are not white space; `link_characters`:
#:   those of them inside an `<a>` with `href`; `links`: runs of them (see LINK).
#: - `hints`, `hints_stop`: its words are `Page.hints[hints:hints_stop]`.
#: - `href`, `href_stop`: bytes of the source that are the `href` (escaped) of the `<a>` that it is
#:   or that is around it; -1 both if there is none.
#: - `ancestors`: bits of ANCESTORS of the element and those around it.
#: - `kind`: that of its blocks. `level`: of the nearest heading, 1 to 6; 0 outside of headings.
#: - `lists`: lists around it. `quotes`: block quotes around it, itself counted.
#: - `item`: index of the nearest `<li>`, `<dt>` or `<dd>` (or itself), -1 if there is none;
#:   `number`: of that item in its `<ol>` (which may say where it starts), 0 for bullets.
#: - `table`: index of the nearest `<table>`, -1 if there is none; `row`, `column`: of the nearest
#:   cell, counted from 0 by `<tr>` in the table and by cell in the row; -1 outside.
#: - `counted`: of a table its rows, of a row its cells, of an `<ol>` the number of its last item.
#: - `comments`: 1 if its words or those of its type (MOST_HINTS of each) are among COMMENTS, and it
#:   is one of BORDERS, outside of `<pre>`, and neither `<html>` nor `<body>`.
ELEMENT = _integers(
    "parent depth tag border first stop characters link_characters links hints hints_stop href "
    "href_stop ancestors kind level lists quotes item number table row column counted comments"
)

#: A block, in document order. Counts are of code points of its text unless they say otherwise.
#:
#: - `start`, `stop`: bytes of `Page.text`; never empty, no white space at either end (but the
#:   indentation of a first line in `<pre>`).
#: - `element`: the innermost border element around it: its kind, list, cell and so on are there.
#:   `leaf`: the innermost element of any sort in which it begins.
#: - `characters`: not white space. `words`: runs of these. `short_words`: those of 1 to 3.
#: - `letters`: of categories L*; `singles`: those of scripts without spaces (Han, Kana, Thai ...);
#:   `capitals`: upper case; `digits`: of categories N*.
#: - `commas`: COMMAS; `terminals`: marks that end sentences in any script.
#: - `ends`: 1 if the last character, but for closing quotes and brackets, is a terminal mark or an
#:   ellipsis.
#: - `breaks`: newlines inside it. `link_characters`, `links` as in ELEMENT.
BLOCK = _integers(
    "start stop element leaf characters words short_words letters singles capitals digits commas "
    "terminals ends breaks link_characters links"
)

#: A run of text inside one `<a>` with `href` and one block: bytes [start, stop) of `Page.text` (no
#: white space at either end), and the bytes of the source that are its address, escaped.
LINK = _integers("start stop href href_stop")

#: Commas, semicolons and colons of the scripts: Latin, Arabic, CJK and its full-width forms.
COMMAS = frozenset(",;:\u060c\u061b\u3001\uff0c\uff1a\uff1b\uff64")


@dataclass(frozen=True, slots=True)
class Page:
    """What a scan gives of one page.

    `source`: the serialised HTML, UTF-8 (uint8). `text`: UTF-8 (uint8), first the page's title
    (`<title>`, collapsed) of `title` bytes, then the blocks' texts. `hints` (uint32): hashes (see
    `word_hash`) of the words of elements' attributes HINTED, at most MOST_HINTS an element.
    """

    source: NDArray[np.uint8]
    elements: NDArray[Any]
    blocks: NDArray[Any]
    links: NDArray[Any]
    hints: NDArray[np.uint32]
    text: NDArray[np.uint8]
    title: int

    def texts(self) -> list[str]:
        """The blocks' texts."""
        data = self.text.tobytes()
        bounds = zip(self.blocks["start"].tolist(), self.blocks["stop"].tolist(), strict=True)
        return [data[start:stop].decode() for start, stop in bounds]


def word_hash(word: bytes) -> int:
    """The 32-bit hash (FNV-1a) of a hint's word, which is of two or more letters a to z."""
    value = 0x811C9DC5
    for byte in word:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value
