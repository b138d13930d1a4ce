"""Dumps of MediaWiki as documents: one page, in its last revision, is one document.

What may live here: cutting an XML export into pages, and what a page's elements say. What its
wikitext means is the business of `wikitext`.

A dump is a head (siteinfo) and pages. In its text every `<` is escaped, so that pages are cut out
by their tags alone, and each is parsed by itself: damage costs one page, a page of any size costs
no memory, and no document type is ever read, so that there are no entities to expand.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass as plain_dataclass
from typing import BinaryIO
from xml.etree import ElementTree
from xml.sax.saxutils import unescape

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from curation.document import RawDocument
from curation.extract.decode import sanitise
from curation.read.identity import of_native
from curation.read.lines import Decompressed
from curation.read.tally import Tally
from curation.read.wikitext import Namespaces, plain_text

_OPEN, _CLOSE = b"<page>", b"</page>"
_MAX_HEAD = 1 << 20  # bytes before the first page
_REDIRECT = re.compile(r"\s*#\s?redirect\b", re.IGNORECASE)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class MediawikiOptions:
    """How dumps are read.

    `namespaces`: numbers of those whose pages are documents; 0 has the articles. `source`: part of
    the ids. `max_page`: bytes of a page with its revisions, as XML.
    """

    namespaces: tuple[int, ...] = (0,)
    source: str | None = None
    max_page: int = 16 << 20


def read_mediawiki(
    stream: BinaryIO, path: str, tally: Tally, options: MediawikiOptions
) -> Iterator[RawDocument]:
    """The pages of a dump, plain or compressed (gzip, bzip2, xz, Zstandard)."""
    content = Decompressed(stream)
    pieces = _Pieces(content, options.max_page)
    site = None
    for offset, page in pieces:
        if site is None:
            site = _Site.of(pieces.head)
        if page is None:
            tally.skip("truncated" if pieces.ended else "too_large")
            continue
        try:
            element = ElementTree.fromstring(page)
        except (ElementTree.ParseError, ValueError) as error:
            tally.skip("bad_page")
            tally.problem("bad_page", offset, str(error)[:200], incomplete=False)
            continue
        found = _document(element, site, options)
        if isinstance(found, str):
            tally.skip(found)
        else:
            tally.keep()
            yield found
    if content.damage:
        tally.problem(content.damage, pieces.offset)
    elif b"<mediawiki" not in pieces.head:
        tally.problem("not_mediawiki", 0)
    elif b"</mediawiki>" not in pieces.rest:
        tally.problem("truncated", pieces.offset)


class _Pieces:
    """The pages of a dump as bytes, each with its offset in the content; None for one that is too
    large or cut off. `head` is what comes before the first, `rest` what comes after the last."""

    def __init__(self, content: Decompressed, longest: int) -> None:
        self.content = content
        self.longest = longest
        self.head = b""
        self.rest = b""
        self.offset = 0  # bytes of the content that are done with
        self.ended = False

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        data = bytearray()
        inside = too_large = False
        searched = 0  # bytes of `data` in which there is no tag of the kind that is looked for
        for piece in self.content:
            data += piece
            while True:
                tag = _CLOSE if inside else _OPEN
                place = data.find(tag, searched)
                if place < 0:
                    break
                stop = place + len(tag) if inside else place
                if inside:
                    whole = not too_large and stop <= self.longest
                    yield self.offset, bytes(data[:stop]) if whole else None
                elif not self.head:
                    self.head = bytes(data[:stop])
                del data[:stop]
                self.offset += stop
                inside, too_large, searched = not inside, False, 0
            searched = max(0, len(data) - len(_CLOSE))
            if searched > (self.longest if inside else _MAX_HEAD):
                self.head = self.head or bytes(data[:searched])
                too_large = inside
                self.offset += searched
                del data[:searched]
                searched = 0
        self.ended = True
        if inside:
            yield self.offset, None
        self.rest = bytes(data)
        self.head = self.head or self.rest


@plain_dataclass(frozen=True)
class _Site:
    """What a dump says of the wiki."""

    name: str | None
    language: str | None
    articles: str | None  # URL to which a title is appended
    namespaces: Namespaces

    @staticmethod
    def of(head: bytes) -> _Site:
        text = head.decode("utf-8", "replace")

        def said(pattern: str) -> str | None:
            found = re.search(pattern, text)
            return unescape(found[1].strip()) if found else None

        base = said(r"<base>([^<]*)</base>")
        names: dict[int, str] = {}
        for key, name in re.findall(r'<namespace key="(-?\d{1,9})"[^>]*>([^<]*)</namespace>', text):
            names[int(key)] = unescape(name)
        return _Site(
            said(r"<dbname>([^<]*)</dbname>") or base,
            said(r'<mediawiki[^>]*\bxml:lang="([^"]*)"'),
            base.rpartition("/")[0] + "/" if base and "/" in base else None,
            Namespaces.of(names),
        )


def _document(
    page: ElementTree.Element, site: _Site, options: MediawikiOptions
) -> RawDocument | str:
    """A page as a document, or why it is skipped."""
    title = (page.findtext("title") or "").strip()
    namespace = page.findtext("ns") or "0"
    revision = page.find("revision[last()]")
    if revision is None or not title:
        return "bad_page"
    if namespace not in map(str, options.namespaces):
        return "namespace"
    wikitext = revision.findtext("text") or ""
    if page.find("redirect") is not None or _REDIRECT.match(wikitext):
        return "redirect"
    if (revision.findtext("model") or "wikitext") != "wikitext":
        return "no_wikitext"
    text = plain_text(sanitise(wikitext)[0], site.namespaces)
    if not text:
        return "empty"
    number, version = page.findtext("id") or title, revision.findtext("id") or ""
    where = urllib.parse.quote(title.replace(" ", "_"), safe="/:@!$*(),;'~-._")
    return RawDocument(
        id=of_native(options.source or site.name, f"{number}:{version}"),
        text=f"{sanitise(title)[0]}\n\n{text}",
        media_type="text/plain",
        url=site.articles + where if site.articles else None,
        date=revision.findtext("timestamp"),
        source=options.source,
        language=site.language,
        metadata={"title": title, "page": number, "revision": version},
    )
