"""The engine `blocks`: HTML to the text of its main content.

What may live here: the way from a page to its text, and the parser's name.
"""

from __future__ import annotations

from functools import cache

from selectolax.lexbor import LexborHTMLParser

from curation.extract.blocks.choose import choose
from curation.extract.blocks.metadata import Metadata, metadata
from curation.extract.blocks.model import package_model
from curation.extract.blocks.page import Page
from curation.extract.blocks.render import render
from curation.extract.blocks.scan import scan


def parse(html: str, told: bool = False) -> tuple[Page, Metadata | None]:
    """The page's elements and blocks, and what it says of itself where that is to be `told`.

    Lexbor takes time in the square of the depth of nested elements, and of one tag's attributes;
    all that follows is linear in the length. Its tree, many times as large as the page, goes first.
    """
    tree = LexborHTMLParser(html.encode("utf-8", "replace"))
    said = metadata(tree) if told else None
    source = (tree.html or "").encode("utf-8", "replace")
    del tree
    return scan(source), said


def extract(
    page: Page,
    *,
    threshold: float = 0.5,
    markdown: bool = False,
    tables: bool = True,
    links: bool = False,
    comments: bool = False,
) -> str:
    """The text of the page's main content; see `choose` and `render`."""
    _compile()
    return _extract(page, threshold, markdown, tables, links, comments)


def _extract(
    page: Page, threshold: float, markdown: bool, tables: bool, links: bool, comments: bool
) -> str:
    chosen = choose(page, package_model().probabilities(page), threshold, comments)
    return render(page, chosen, markdown=markdown, tables=tables, links=links)


@cache
def _compile() -> None:
    """Has all kernels compiled or loaded, so that no page is charged with it."""
    _extract(parse("<title>a</title><p>b")[0], 0.5, False, True, False, False)
