"""Extraction engines: HTML as a string in, the text of its main content out.

What may live here: one function per engine, and `load`. An engine is a pure function of its
arguments (no memory of earlier pages); its library is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Content(NamedTuple):
    """What an engine gives that tells more of a page than its text; None for what it does not
    say."""

    text: str
    title: str | None
    date: str | None  # of publication: YYYY-MM-DD


Engine = Callable[..., str | Content]


def resiliparse(
    html: str, *, main_content: bool = True, alt_texts: bool = False, list_bullets: bool = True
) -> str:
    """Resiliparse: fast, takes more around the content; the engine of DCLM (arXiv 2406.11794, 3.2).

    Of the page's text, `main_content` keeps what is not navigation, header or footer; `alt_texts`
    adds descriptions of images (off: they lower F1), `list_bullets` marks items of lists.
    """
    from resiliparse.extract.html2text import extract_plain_text

    text: str = extract_plain_text(
        html, main_content=main_content, alt_texts=alt_texts, list_bullets=list_bullets
    )
    return text


def trafilatura(html: str, *, favor_precision: bool = True) -> str:
    """Trafilatura: ten times slower; set as in FineWeb (arXiv 2406.17557, 3.2).

    Its deduplication stays off: it remembers earlier pages, so the output would depend on order.
    """
    from trafilatura import extract

    return (
        extract(html, favor_precision=favor_precision, include_comments=False, deduplicate=False)
        or ""
    )


def blocks(
    html: str,
    *,
    threshold: float = 0.5,
    markdown: bool = False,
    tables: bool = True,
    links: bool = False,
    comments: bool = False,
    metadata: bool = False,
) -> str | Content:
    """The default: blocks of text chosen by a learned model; see `curation.extract.blocks`.

    A block is kept if its probability of being main content is at least `threshold`: lower for more
    text, higher for surer text. `markdown` marks headings, quotes, code and tables, `links` writes
    links as in Markdown; without `tables` they are left out; with `comments` those of readers are
    added. `metadata` gives the page's own title and date along.
    """
    from curation.extract.blocks.extract import extract, parse

    page, told = parse(html, metadata)
    text = extract(
        page,
        threshold=threshold,
        markdown=markdown,
        tables=tables,
        links=links,
        comments=comments,
    )
    return text if told is None else Content(text, *told)


def load(name: str) -> Engine:
    """The engine of that name, or any function named as `module:function`."""
    module, _, function = name.rpartition(":")
    engine: Any = getattr(import_module(module or __name__), function)
    return engine  # type: ignore[no-any-return]
