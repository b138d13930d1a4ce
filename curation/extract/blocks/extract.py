"""The engine `blocks`: HTML to the text of its main content.

What may live here: the way from a page to its text, and the parser's name.
"""

from __future__ import annotations

from functools import cache

from selectolax.lexbor import LexborHTMLParser

from curation.extract.blocks.choose import choose
from curation.extract.blocks.page import Page
from curation.extract.blocks.render import render
from curation.extract.blocks.scan import scan


def parse(html: str) -> Page:
    """The page's elements and blocks.

    Lexbor takes time in the square of the depth of nested elements, and of one tag's attributes;
    all that follows is linear in the length.
    """
    tree = LexborHTMLParser(html.encode("utf-8", "replace"))
    return scan((tree.html or "").encode("utf-8", "replace"))


def extract(
    html: str,
    *,
    threshold: float = 0.5,
    markdown: bool = False,
    tables: bool = True,
    links: bool = False,
) -> str:
    """The text of the page's main content; see `choose` and `render`."""
    _compile()
    return _extract(html, threshold, markdown, tables, links)


def _extract(html: str, threshold: float, markdown: bool, tables: bool, links: bool) -> str:
    page = parse(html)
    chosen = choose(page, threshold)
    return render(page, chosen, markdown=markdown, tables=tables, links=links)


@cache
def _compile() -> None:
    """Has all kernels compiled or loaded, so that no page is charged with it."""
    _extract("<title>a</title><p>b", 0.5, False, True, False)
