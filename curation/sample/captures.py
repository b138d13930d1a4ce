"""Which page is served where, in which charset and coding, and what should become of it.

This is the content of the sample. One function per theme yields captures; a theme that grows a
second idea becomes two functions. No page text lives here beyond single sentences.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from curation.sample import framing
from curation.sample.delivery import CODINGS, LANGUAGE_CHARSETS, LATIN_CHARSETS, UTF8
from curation.sample.pages import Page
from curation.sample.plan import Capture, Plan, draw
from curation.sample.sites import SITES

# Each theme that needs distinct long texts takes digests of its own step.
_DIGEST_STEPS = {7: 55, 16: 30}  # to the number of digests taken
_URL_GROUP_STEP, _URL_WORD_STEP, _ODD_TYPE_STEP, _DAMAGED_STEP, _CUT_STEP = 20, 23, 26, 29, 32


def captures(pages: Mapping[str, Page], seed: int) -> Iterator[Capture]:
    """All captures of the sample, theme by theme."""
    plan = Plan(seed, pages)
    for theme in (
        _singles,
        _digests,
        _text_groups,
        _url_groups,
        _near_groups,
        _foreign,
        _judged,
        _long_page,
        _url_words,
        _odd_types,
        _damaged_text,
        _no_text,
        _statuses,
        _content_types,
        _unreadable,
        _resources,
    ):
        yield from theme(plan)


def _singles(plan: Plan) -> Iterator[Capture]:
    """Every page once, in all charsets and all codings that a decent reader undoes."""
    for number, page in enumerate(plan.single):
        yield plan.serve(
            page,
            charset=LATIN_CHARSETS[number % len(LATIN_CHARSETS)],
            coding=CODINGS[number % len(CODINGS)],
        )


def _digests(plan: Plan) -> Iterator[Capture]:
    for step, count in _DIGEST_STEPS.items():
        for number, page in enumerate(plan.digests(step)[:count]):
            yield plan.serve(page, plan.site(page, number), coding=CODINGS[number % len(CODINGS)])


def _text_groups(plan: Plan) -> Iterator[Capture]:
    """One text on several sites whose boilerplate does not survive extraction."""
    sites = [site for site in SITES if site.template in ("news", "docs", "forum", "broken")]
    for number, page in enumerate(plan.grouped):
        for copy in range(2 + number % 3):
            capture = plan.serve(
                page,
                sites[(number + copy) % len(sites)],
                fate="group",
                group=f"text/{page.slug}",
                charset=LATIN_CHARSETS[(number + copy) % len(LATIN_CHARSETS)],
            )
            yield capture
            if copy == 0 and number % 3 == 0:
                yield replace(capture, url=f"{capture.url}?view=print")


def _url_groups(plan: Plan) -> Iterator[Capture]:
    """Different texts under URLs that mean the same."""
    variants: Sequence[Callable[[str, str], str]] = (
        lambda host, path: f"https://{host}{path}",
        lambda host, path: f"http://{host}{path}",
        lambda host, path: f"https://www.{host}{path}",
        lambda host, path: f"https://{host}{path}?utm_source=letter&utm_medium=mail",
        lambda host, path: f"https://{host}{path}#part-2",
        lambda host, path: f"https://{host}{path}/",
        lambda host, path: f"https://{host.upper()}:443{path}",
    )
    digests = plan.digests(_URL_GROUP_STEP)
    for number in range(10):
        path = f"/weekly/edition-{number + 1}"
        for page, form in zip(
            digests[2 * number : 2 * number + 2],
            (variants[0], variants[1 + number % (len(variants) - 1)]),
            strict=True,
        ):
            capture = plan.serve(page, fate="group", group=f"url/edition-{number + 1}")
            yield replace(capture, url=form("desk.example.org", path))


def _near_groups(plan: Plan) -> Iterator[Capture]:
    """Long texts with a sentence added before or after, words added inside."""
    pages = plan.single
    added = "This page was last looked over in spring, and nothing of substance has changed since."
    for number in range(8):
        first, second = pages[number], pages[number + 9]
        blocks = [*first.paragraphs, *second.paragraphs]
        versions = (
            blocks,
            [*blocks, added],
            [f"Some readers have asked us to print this again. {blocks[0]}", *blocks[1:]],
            [*blocks[:-3], *(block.replace(" and ", " and also ", 1) for block in blocks[-3:])],
        )
        for which in range(2 + number % 3):
            page = replace(
                first,
                slug=f"{first.slug}-with-{second.slug}-{which}",
                title=f"{first.title}, and {second.title.lower()}",
                blocks=tuple(versions[which]),
            )
            yield plan.serve(
                page, plan.site(first, which), fate="near_group", group=f"near/{first.slug}"
            )


def _foreign(plan: Plan) -> Iterator[Capture]:
    """Pages in other languages, each in one of the charsets that its language is served in."""
    pages = [page for page in plan.pages.values() if page.language not in ("en", "mul")]
    for number, page in enumerate(pages):
        charsets = LANGUAGE_CHARSETS.get(page.language, (UTF8,))
        yield plan.serve(page, charset=charsets[number % len(charsets)])
        if len(charsets) > 1:
            other = replace(page, slug=f"{page.slug}-2")
            yield plan.serve(
                other, plan.site(page, 1), charset=charsets[(number + 1) % len(charsets)]
            )


def _judged(plan: Plan) -> Iterator[Capture]:
    """Pages that one rule drops or edits; dropped ones twice, since no duplicate gets so far."""
    for page in plan.pages.values():
        if page.language in ("en", "mul") and page.fate != "keep":
            yield plan.serve(page)
            if page.fate.startswith("drop:"):
                yield plan.serve(replace(page, slug=f"{page.slug}-again"), plan.site(page, 1))


def _long_page(plan: Plan) -> Iterator[Capture]:
    """More than 100,000 words of well-formed nonsense: sentence frames filled from the pages."""
    words = sorted(
        {
            word
            for page in plan.english
            for block in page.paragraphs
            for word in block.split()
            if word.isascii() and word.isalpha() and word.islower() and 4 < len(word) < 10
        }
    )
    frames = (
        "The {} of a {} {} may {} the {} when every {} {} has been {}.",
        "Some {} {} and {} with the {} {} that we {} for {} {}.",
        "No {} could {} under {} {}, and the {} {} to {} again.",
    )
    sentences = []
    for number in range(7700):
        frame = frames[number % len(frames)]
        fill = [
            words[draw(plan.seed, number, slot) % len(words)] for slot in range(frame.count("{}"))
        ]
        sentences.append(frame.format(*fill))
    blocks = [" ".join(sentences[start : start + 7]) for start in range(0, len(sentences), 7)]
    page = Page(
        "long-read",
        "en",
        "A very long read",
        "article",
        "drop:gopher_quality:too_many_words",
        tuple(blocks),
    )
    yield plan.serve(page, SITES[0], coding=CODINGS[1])


def _url_words(plan: Plan) -> Iterator[Capture]:
    """Harmless texts at addresses that a URL filter knows by their words."""
    hosts = (
        "casino-royale-slots.example",
        "free-porn-videos.example",
        "xxx-cams.test",
        "best-online-casino.example",
        "hotsex.example",
        "poker-bonus-bets.test",
    )
    for host, page in zip(hosts, plan.digests(_URL_WORD_STEP)[: len(hosts)], strict=True):
        site = replace(plan.site(page), host=host)
        yield plan.serve(replace(page, slug="welcome"), site, fate="drop:url_filter")


def _odd_types(plan: Plan) -> Iterator[Capture]:
    """Content types of web pages in other spellings."""
    for number, content_type in enumerate(
        (
            'Text/HTML; Charset="UTF-8"',
            "text/html;charset=utf8",
            "application/xhtml+xml; charset=utf-8",
        )
    ):
        page = replace(plan.digests(_ODD_TYPE_STEP)[number], slug=f"typed-{number}")
        yield replace(plan.serve(page), content_type=content_type)


def _damaged_text(plan: Plan) -> Iterator[Capture]:
    """One bad byte, NUL characters, half a surrogate pair: the page is kept all the same."""
    for number, old, new in (
        (0, b". ", b".\x80 "),
        (1, b". ", b".\x00 "),
        (2, b". ", b" &#xD83D;. "),
        (3, b". ", b" &#0;. "),
    ):
        page = replace(plan.digests(_DAMAGED_STEP)[number], slug=f"damaged-{number}")
        capture = plan.serve(page, SITES[0])
        head, tag, rest = capture.body.partition(b"<h1>")
        yield replace(capture, body=head + tag + rest.replace(old, new, 1))


def _no_text(plan: Plan) -> Iterator[Capture]:
    """Bodies that hold no main text."""

    def page(name: str, html: str) -> Capture:
        return Capture(f"https://wobbly.example/{name}", "drop:extract:empty", html.encode())

    yield page("white", " \n\t \r\n  ")
    yield page(
        "frame",
        "<!doctype html><title>App</title><div id=root></div>"
        "<script>start({root: 'root'});</script>",
    )
    yield page("images", "<html><body><main><img src=a.png alt='A mill'><img src=b.png></main>")
    yield page("comment", "<html><head><title>Gone</title></head><body><!-- moved --></body>")
    yield page(
        "open",
        "<html><body><div class=nav><ul><li><a href=/>Start</a></ul><p>This menu"
        " is never closed, so that all of the page is a part of it.</p></body></html>",
    )
    yield page(
        "form",
        "<html><body><form><input name=q value=seek><select><option>one"
        "<option>two</select></form></body></html>",
    )


def _statuses(plan: Plan) -> Iterator[Capture]:
    """Redirects and errors, most of them with a body."""
    gone = b"<html><body><h1>Not here</h1><p>The page you look for is not here.</p></body></html>"
    busy = b"<html><body><p>We are mending the mill. Please come back later.</p></body></html>"
    moved = (("Location", "https://desk.example.org/new"),)
    for path, status, body, headers in (
        ("old", "301 Moved Permanently", b"", moved),
        ("older", "301 Moved Permanently", gone, moved),
        ("here-today", "302 Found", b"", moved),
        ("other", "307 Temporary Redirect", b"", moved),
        ("same", "304 Not Modified", b"", ()),
        ("missing", "404 Not Found", gone, ()),
        ("nowhere", "404 Not Found", gone, ()),
        ("secret", "403 Forbidden", gone, ()),
        ("late", "410 Gone", gone, ()),
        ("fault", "500 Internal Server Error", busy, ()),
        ("upkeep", "503 Service Unavailable", busy, (("Retry-After", "3600"),)),
        ("gateway", "502 Bad Gateway", busy, ()),
    ):
        yield Capture(
            f"https://desk.example.org/{path}",
            f"skip:status_{status[0]}xx",
            body,
            status=status,
            headers=headers,
        )


def _content_types(plan: Plan) -> Iterator[Capture]:
    """Successful responses that are no web pages."""
    for path, content_type, body in (
        ("mill.png", "image/png", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01"),
        ("photo.jpg", "image/jpeg", b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x02\x00\xff\xd9"),
        ("leaflet.pdf", "application/pdf", b"%PDF-1.4\n% an empty leaflet\n%%EOF\n"),
        ("tides.json", "application/json; charset=utf-8", b'{"high": "06:12", "low": "12:25"}'),
        ("site.css", "text/css", b"body { margin: 0; }\n"),
        ("app.js", "application/javascript", b"console.log('hello');\n"),
        ("bell.mp3", "audio/mpeg", b"ID3\x04\x00\x00\x00\x00\x00\x00"),
    ):
        yield Capture(
            f"https://harbourpost.example/files/{path}",
            "skip:content_type",
            body,
            content_type=content_type,
        )


_NOISE = bytes(range(32))


def _unreadable(plan: Plan) -> Iterator[Capture]:
    """Bodies that are empty, cut off by the crawler, or cannot be decoded."""
    page, other = plan.digests(_CUT_STEP)[:2]
    whole = plan.serve(replace(page, slug="cut"), fate="skip:truncated")
    yield replace(whole, body=whole.body[: len(whole.body) * 2 // 3], truncated="length")
    whole = plan.serve(replace(other, slug="cut-2"), fate="skip:truncated")
    yield replace(whole, body=whole.body[: len(whole.body) // 2], truncated="time")
    for number in range(3):
        yield Capture(f"https://notes.example.com/nothing-{number}", "skip:empty")
    for number, (coding, body) in enumerate(
        (
            # Two gzip headers, one before the block type that deflate reserves and one before a
            # stored block whose length is not confirmed; a Brotli stream with a reserved bit set;
            # a Zstandard frame with a reserved block type.
            ("gzip", framing.gzip_member(b"")[:10] + b"\x07" + _NOISE),
            ("gzip", framing.gzip_member(b"")[:10] + b"\x01" + _NOISE),
            ("br", b"\x11" + _NOISE),
            ("zstd", framing.zstd(b"")[:5] + b"\x20\x00\x00\x00\x07" + _NOISE),
        )
    ):
        yield Capture(
            f"https://notes.example.com/spoilt-{number}",
            "skip:content_encoding",
            body,
            headers=(("Content-Encoding", coding),),
        )


def _resources(plan: Plan) -> Iterator[Capture]:
    """Files that were not fetched over HTTP."""
    yield Capture(
        "https://harbourpost.example/robots.txt",
        "skip:resource",
        b"User-agent: *\nDisallow:\n",
        content_type="text/plain",
        type="resource",
    )
    yield Capture(
        "https://notes.example.com/saved.html",
        "skip:resource",
        b"<html><body><p>A page saved by hand.</p></body></html>",
        content_type="text/html",
        type="resource",
    )
