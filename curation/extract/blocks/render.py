"""Chosen blocks as text: paragraphs, headings, lists, tables, code, quotes; plain or Markdown.

What may live here: `render`. Nothing is chosen here, but for tables that are not wanted. Characters
that mean something in Markdown are not escaped where they are text: texts are for models to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curation.extract.blocks.page import (
    BLOCK,
    CELL,
    ELEMENT,
    HEADING,
    ITEM,
    PARAGRAPH,
    PREFORMATTED,
    SOFT_HYPHEN,
    TAG,
    TERM,
    Page,
)

#: What an item of a list within an item is indented by: enough for Markdown under any marker.
INDENT = "    "
#: Levels of items and of quotes beyond which no deeper is shown: a page may nest thousands, and
#: each line would repeat them all.
DEEPEST = 12
#: Empty cells that a Markdown table may be filled up with, per cell; else cells are not aligned.
MOST_EMPTY = 8
_BAR = r"\|"
_ADDRESS = str.maketrans({" ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E", "\n": None})


class _Block(NamedTuple):
    """A chosen block: fields of its own, and of its element (see `page`)."""

    text: str
    kind: int
    level: int
    quotes: int
    item: int
    number: int
    table: int
    row: int
    column: int


_BLOCK_FIELDS = BLOCK.names or ()
_AROUND = [(ELEMENT.names or ()).index(name) for name in _Block._fields[1:]]


class _Line(NamedTuple):
    """A block, or the rows of a table, as text; `tight` ones are not set apart by a blank line."""

    text: str
    tight: bool


def render(
    page: Page,
    chosen: NDArray[np.bool_],
    *,
    markdown: bool = False,
    tables: bool = True,
    links: bool = False,
) -> str:
    """The text of the chosen blocks, in document order, each once.

    Blank lines part paragraphs; items of lists have bullets or numbers and are indented; rows of
    tables are lines with tabs between cells, or a Markdown table; without `tables` they are left
    out. What only stands in a table for its place on the page stays text: rows whose cells hold
    more than a block, and rows of one cell without others. `links` are written as in Markdown,
    addresses as they are in the page.
    """
    blocks = _blocks(page, np.flatnonzero(chosen), links)
    items = _Items(page)
    lines: list[_Line] = []
    for run in _runs(blocks):
        if not run.is_table:
            lines += [_line(block, items, markdown) for block in run.blocks]
        elif tables:
            lines.append(_Line(_table(run.blocks, markdown), False))
    parts: list[str] = []
    for line, before in zip(lines, [_Line("", True), *lines], strict=False):
        parts += ("\n" if line.tight and before.tight else "\n\n", line.text)
    return "".join(parts[1:])


def _blocks(page: Page, chosen: NDArray[np.intp], links: bool) -> list[_Block]:
    own, all_around = _integers(page.blocks)[chosen], _integers(page.elements)
    around = all_around[own[:, _BLOCK_FIELDS.index("element")]][:, _AROUND].tolist()
    data = page.text.tobytes()
    bounds = own[:, [_BLOCK_FIELDS.index("start"), _BLOCK_FIELDS.index("stop")]].tolist()
    if links:
        texts = _with_links(page, data, bounds)
    else:
        texts = [data[start:stop].decode() for start, stop in bounds]
    blocks = (_Block(text, *fields) for text, fields in zip(texts, around, strict=True))
    return [block for block in map(_unbroken, blocks) if block.text]


def _unbroken(block: _Block) -> _Block:
    """Without soft hyphens, and without the spaces and lines that hold nothing else."""
    if SOFT_HYPHEN not in block.text:
        return block
    text = block.text.replace(SOFT_HYPHEN, "")
    if block.kind == PREFORMATTED:
        return block._replace(text=text if text.strip() else "")
    lines = (re.sub(" +", " ", line).strip(" ") for line in text.split("\n"))
    return block._replace(text="\n".join(filter(None, lines)))


def _integers(records: NDArray[Any]) -> NDArray[np.int32]:
    """Records as rows, which is faster to choose from."""
    return records.view(np.int32).reshape(len(records), len(records.dtype.names or ()))


def _with_links(page: Page, data: bytes, bounds: list[list[int]]) -> list[str]:
    source = page.source.tobytes()
    links = page.links.tolist()
    firsts, lasts = np.searchsorted(page.links["start"], np.array(bounds).reshape(-1, 2).T).tolist()
    texts = []
    for (start, stop), first, last in zip(bounds, firsts, lasts, strict=True):
        parts: list[str] = []
        at = start
        for begin, end, href, href_stop in links[first:last]:
            address = unescape(source[href:href_stop].decode("utf-8", "replace")).strip()
            if not address or address.startswith("#") or address.lower().startswith("javascript:"):
                continue
            text = data[begin:end].decode()
            parts += (data[at:begin].decode(), f"[{text}]({address.translate(_ADDRESS)})")
            at = end
        texts.append("".join((*parts, data[at:stop].decode())))
    return texts


class _Items:
    """Which items of lists have their marker, and how deep they are indented."""

    def __init__(self, page: Page) -> None:
        self.elements = page.elements
        self.levels: dict[int, int] = {}  # of items that have text
        self._above: dict[int, int] = {}

    def marks(self, block: _Block) -> bool:
        """Whether the block is the first of its item."""
        if block.item < 0 or block.item in self.levels:
            return False
        self.levels[block.item] = self._level(block.item)
        return True

    def _level(self, item: int) -> int:
        """One more than that of the nearest item around it which has text, or 0."""
        passed = []
        outer = self._outer(item)
        while outer >= 0 and outer not in self.levels:
            passed.append(outer)
            outer = self._outer(outer)
        self._above.update(dict.fromkeys((item, *passed), outer))
        return self.levels[outer] + 1 if outer >= 0 else 0

    def _outer(self, item: int) -> int:
        if item not in self._above:
            self._above[item] = int(self.elements["item"][self.elements["parent"][item]])
        return self._above[item]

    def is_listed(self, item: int) -> bool:
        return bool(self.elements["tag"][item] == TAG["li"])


def _line(block: _Block, items: _Items, markdown: bool) -> _Line:
    text, kind = block.text, block.kind
    if kind == PARAGRAPH and block.item < 0 and not block.quotes:
        return _Line(text, False)
    begins = items.marks(block)
    tight = kind in (ITEM, TERM)
    if kind == PREFORMATTED and markdown:
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
        text = f"{fence}\n{text}\n{fence}"
    elif kind == HEADING:
        text = " ".join(text.split("\n"))
        text = f"{'#' * block.level} {text}" if markdown else text
    if block.item >= 0:
        indent = INDENT * min(items.levels[block.item], DEEPEST)
        if kind == ITEM and begins and items.is_listed(block.item):
            marker = f"{block.number}. " if block.number > 0 else "- "
            text = indent + marker + _indented(text, indent + " " * len(marker))
        elif markdown:
            if kind not in (HEADING, TERM) and items.is_listed(block.item):
                indent += INDENT
                tight = False
            text = indent + _indented(text, indent)
    if markdown and block.quotes:
        prefix = "> " * min(block.quotes, DEEPEST)
        text = prefix + text.replace("\n", "\n" + prefix)
    return _Line(text, tight)


def _indented(text: str, indent: str) -> str:
    return text.replace("\n", "\n" + indent) if indent else text


class _Run(NamedTuple):
    """Blocks one after the other: the rows of a table, or none of these."""

    blocks: list[_Block]
    is_table: bool


def _runs(blocks: list[_Block]) -> Iterator[_Run]:
    """All blocks in order, rows of tables told from the others."""
    waiting: list[_Block] = []  # rows of one table, each a line
    wide = False
    for (table, _), group in groupby(blocks, key=lambda block: (block.table, block.row)):
        row = list(group)
        is_row = _is_row(row)
        if waiting and not (is_row and waiting[0].table == table):
            yield _Run(waiting, wide)
            waiting, wide = [], False
        if is_row:
            waiting += row
            wide |= len(row) > 1
        else:
            yield _Run(row, False)
    if waiting:
        yield _Run(waiting, wide)


def _is_row(blocks: list[_Block]) -> bool:
    """Whether blocks of a row are cells of a line each."""
    if blocks[0].table < 0 or any(block.kind != CELL or "\n" in block.text for block in blocks):
        return False
    return all(one.column < next_.column for one, next_ in pairwise(blocks))


def _table(blocks: list[_Block], markdown: bool) -> str:
    rows: dict[int, dict[int, str]] = {}
    for block in blocks:
        rows.setdefault(block.row, {})[block.column] = block.text
    if not markdown:
        return "\n".join("\t".join(row.values()) for row in rows.values())
    columns = sorted({column for row in rows.values() for column in row})
    if len(columns) * len(rows) > MOST_EMPTY * len(blocks):
        columns = []
    lines = [_cells(row.get(column, "") for column in columns or row) for row in rows.values()]
    lines.insert(1, _cells("---" for _ in columns or rows[blocks[0].row]))
    quotes = "> " * min(blocks[0].quotes, DEEPEST)
    return "\n".join(quotes + line for line in lines)


def _cells(texts: Iterable[str]) -> str:
    return "".join(("|", *(f" {text.replace('|', _BAR)} |" for text in texts)))
