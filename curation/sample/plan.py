"""A capture, and how pages become captures: choosing sites, filling templates, making digests.

What may live here: `Capture`, `Plan` and the draws that stand in for chance. Which captures the
sample has is decided in `captures.py`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from curation.sample.delivery import CODINGS, UTF8, Charset, Coding, Headers
from curation.sample.pages import TEMPLATES, Page, article_html
from curation.sample.sites import AUTHORS, SITES, Site

GROUPED = 12  # English pages


@dataclass(frozen=True)
class Capture:
    """One record with a target URL; `body` is what stands after the HTTP header, codings and all.

    `headers` come after Content-Type and end with Content-Length unless they carry a
    Transfer-Encoding or a Content-Length of their own.
    """

    url: str
    fate: str
    body: bytes = b""
    group: str = ""
    status: str = "200 OK"
    content_type: str = "text/html; charset=utf-8"
    headers: Headers = ()
    truncated: str = ""
    type: str = "response"

    def http_head(self) -> bytes:
        fields = [("Server", "sample")]
        if self.content_type:
            fields.append(("Content-Type", self.content_type))
        fields += self.headers
        if not {"Content-Length", "Transfer-Encoding"} & {name for name, _ in self.headers}:
            fields.append(("Content-Length", str(len(self.body))))
        lines = [f"HTTP/1.1 {self.status}", *(f"{name}: {value}" for name, value in fields)]
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


def draw(*labels: object) -> int:
    """A number that looks random and is a function of the labels (64 bits)."""
    return int.from_bytes(hashlib.blake2b(repr(labels).encode(), digest_size=8).digest())


@dataclass(frozen=True)
class Plan:
    """The pages, split once into those that the themes share out."""

    seed: int
    pages: Mapping[str, Page]

    @property
    def english(self) -> list[Page]:
        """The English pages worth keeping, in an order of the seed's choosing."""
        chosen = [
            page for page in self.pages.values() if page.language == "en" and page.fate == "keep"
        ]
        return sorted(chosen, key=lambda page: draw(self.seed, "page", page.slug))

    @property
    def grouped(self) -> list[Page]:
        """English pages that are served as groups of equal texts only."""
        return self.english[:GROUPED]

    @property
    def single(self) -> list[Page]:
        """English pages that are served once by themselves."""
        return self.english[GROUPED:]

    def digests(self, step: int) -> list[Page]:
        """The first paragraphs of each page with later ones of the page `step` places on.

        Digests of one step share no text, those of two steps at most half of it.
        """
        pages = self.english
        return [
            _digest(page, pages[(number + step) % len(pages)]) for number, page in enumerate(pages)
        ]

    def site(self, page: Page, skip: int = 0) -> Site:
        """A site that carries such pages; another one for another `skip`, while there are any."""
        sites = [site for site in SITES if page.kind in site.kinds]
        return sites[(draw(self.seed, "site", page.slug) + skip) % len(sites)]

    def html(self, page: Page, site: Site, charset: Charset = UTF8) -> str:
        others = [
            other
            for other in self.pages.values()
            if other.language == page.language and other.title != page.title
        ]
        others.sort(key=lambda other: draw(self.seed, page.slug, other.slug))
        who = draw(self.seed, "author", page.slug)
        return TEMPLATES[site.template].substitute(
            lang=page.language,
            title=page.title,
            site=site.name,
            meta=f'<meta charset="{charset.meta}">' if charset.meta else "",
            date=f"2026-03-{1 + who % 13:02d}",
            author=AUTHORS[who % len(AUTHORS)],
            reader=AUTHORS[(who + 1) % len(AUTHORS)],
            article=article_html(page, tidy=site.template not in ("old", "broken")),
            links="\n".join(
                f'<li><a href="/{other.slug}">{other.title}</a></li>' for other in others[:4]
            ),
        )

    def serve(
        self,
        page: Page,
        site: Site | None = None,
        *,
        fate: str = "",
        group: str = "",
        charset: Charset = UTF8,
        coding: Coding = CODINGS[0],
    ) -> Capture:
        """The page as a response of the site."""
        site = site or self.site(page)
        html = self.html(page, site, charset)
        headers, body = coding(charset.bom + html.encode(charset.codec, "xmlcharrefreplace"))
        label = f"; charset={charset.http}" if charset.http else ""
        return Capture(
            url=f"https://{site.host}{site.path.format(page.slug)}",
            fate=fate or page.fate,
            body=body,
            group=group,
            content_type=f"text/html{label}",
            headers=headers,
        )


def _digest(first: Page, second: Page) -> Page:
    blocks = [
        f"## {first.title}",
        *first.paragraphs[:2],
        f"## {second.title}",
        *second.paragraphs[2:4],
    ]
    return replace(
        first,
        slug=f"{first.slug}-and-{second.slug}",
        blocks=tuple(blocks),
        title=f"Two short reads: {first.title}; {second.title}",
    )
