"""A page's own title and date of publication, as its markup tells them.

What may live here: where a page says them, in the order in which it is believed. What stands in the
text alone ("Posted on 3 May") is not looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date
from email.utils import parsedate
from typing import Any, NamedTuple

from curation.extract.blocks.page import SOFT_HYPHEN

#: Titles are cut to so many characters.
LONGEST_TITLE = 500
#: Years that a page of the web can have been published in.
YEARS = range(1990, 2100)

_TITLES = ('meta[property="og:title"]', 'meta[name="twitter:title"]')
#: Open Graph, schema.org's microdata, Dublin Core, and names in wide use.
_DATES = (
    *('meta[property="article:published_time"]', 'meta[property="og:published_time"]'),
    *('[itemprop="datePublished"]', 'meta[name="datePublished"]', 'meta[name="pubdate"]'),
    *('meta[name="publishdate"]', 'meta[name="publish-date"]', 'meta[name="publish_date"]'),
    *('meta[name="parsely-pub-date"]', 'meta[name="sailthru.date"]', 'meta[name="date"]'),
    *('meta[name="DC.date.issued"]', 'meta[name="dc.date"]', 'meta[name="DC.Date"]'),
    *('meta[name="dcterms.created"]', 'meta[name="dcterms.date"]'),
)
_TIMES = ("time[pubdate]", "article time[datetime]", "main time[datetime]", "time[datetime]")
_ISO = re.compile(r"(\d{4})[-/.]?(\d{2})[-/.]?(\d{2})(?!\d)")


class Metadata(NamedTuple):
    """What a page says of itself; None for what it does not say."""

    title: str | None
    date: str | None  # of its publication: YYYY-MM-DD


def metadata(tree: Any) -> Metadata:
    """Of a page that is parsed (`selectolax.lexbor.LexborHTMLParser`)."""
    return Metadata(_title(tree), next(_dates(tree), None))


def _title(tree: Any) -> str | None:
    """Its only `<h1>` where the page's other titles begin or end with it (what they have more is
    the name of the site); else the first of these titles, else the first `<h1>`."""
    headings = [text for node in tree.css("h1") if (text := _line(node.text(separator=" ")))]
    named = [_line(_attribute(node, "content")) for name in _TITLES for node in tree.css(name)]
    if (node := tree.css_first("title")) is not None:
        named.append(_line(node.text()))
    titles = [title for title in named if title]
    if len(headings) == 1 and any(
        title.startswith(headings[0]) or title.endswith(headings[0]) for title in titles
    ):
        titles = headings
    found = next(iter([*titles, *headings]), None)
    return found[:LONGEST_TITLE].rstrip() if found else None


def _dates(tree: Any) -> Iterator[str]:
    for name in _DATES:
        for node in tree.css(name):
            said = (_attribute(node, key) for key in ("content", "datetime"))
            yield from _valid(next((text for text in said if text), node.text()))
    for node in tree.css('script[type="application/ld+json"]'):
        yield from _published(node.text())
    for name in _TIMES:
        for node in tree.css(name):
            yield from _valid(_attribute(node, "datetime") or node.text())


def _published(script: str) -> Iterator[str]:
    """Dates of publication in JSON-LD (schema.org), which may be nested in any way."""
    try:
        waiting = [json.loads(script)]
    except (ValueError, RecursionError):
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, dict):
            if isinstance(said := value.get("datePublished"), str):
                yield from _valid(said)
            waiting += reversed(list(value.values()))


def _valid(text: str) -> Iterator[str]:
    """A date that begins as ISO 8601 has it (YYYY-MM-DD, also with other signs or none between), or
    is written as in mail (RFC 5322)."""
    text = text.strip()
    if found := _ISO.match(text):
        numbers = [int(group) for group in found.groups()]
    else:
        numbers = list((parsedate(text) or ())[:3])
    try:
        if numbers and numbers[0] in YEARS:
            yield date(*numbers).isoformat()
    except ValueError:
        pass


def _attribute(node: Any, name: str) -> str:
    return node.attributes.get(name) or ""


def _line(text: str) -> str:
    return " ".join(text.replace(SOFT_HYPHEN, "").split())
