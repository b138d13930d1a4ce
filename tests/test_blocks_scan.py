"""The scan of serialised HTML: elements, blocks of text, links; compiled and plain alike."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from curation.extract import decode
from curation.extract.blocks import page as records
from curation.extract.blocks import reference
from curation.extract.blocks.page import (
    ANCESTORS,
    CAPTION,
    CELL,
    HEADING,
    ITEM,
    PARAGRAPH,
    PREFORMATTED,
    QUOTE,
    TAG,
    TAGS,
    TERM,
    Page,
    word_hash,
)
from curation.extract.blocks.scan import scan

NAMES = [*TAGS[1:], "x-y", "DIV", "rt", "math", "a<b"]
ATTRIBUTES = [
    *("", " hidden", ' class="mainText aB HTMLBox x"', " id='a-b_c' role=\"main\"", " itemprop=x"),
    *(' style="Display :none"', ' style="visibility:\thidden"', ' style="color:red"', ' x="a>b"'),
    *(' aria-hidden="TRUE"', ' href="/a?b=1&amp;c"', " href", ' start=" +7x"', ' start="-3"'),
    *(' id="Comments-2"', ' itemtype="https://schema.org/UserComments"', " itemtype=x"),
    *(' class="', " a'b = =", ' class="a1 b2 bb cc dd ee ff gg hh ii jj kk"', "/", " /", " y"),
]
TEXTS = [
    *("a", "Words and so on.", " ", "\n", "\t \n  ", "\u00a0", "&shy;", "&nbsp;", "&amp;", "&"),
    "&lt;p&gt;",
    *("&am", "&quot;", "\u3000", "\u2028", "\u0e44\u0e17\u0e22", "\u4e2d\u6587\u3002", "\u05d0"),
    *(
        "e\u0301",
        "\U0001f600",
        "\u2026",
        "Ab, 12; \u060c",
        '."',
        "<",
        ">",
        "<3",
        "--",
        "-->",
        "]]>",
    ),
    *(
        "<!--",
        "<!-- c -->",
        "<!-->",
        "<?x?>",
        "<![CDATA[ x ]]>",
        "<!doctype html>",
        "</",
        "</x",
        "\x0b",
    ),
    *("<script>", "</script >", "</SCRIPT>", "<!--<script>", "<textarea>", "</textarea>"),
]
TAGGED = st.builds(
    "<{}{}>".format,
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(ATTRIBUTES), max_size=2).map("".join),
)
PIECES = st.one_of(
    TAGGED,
    st.sampled_from(NAMES).map("</{}>".format),
    st.sampled_from(TEXTS),
    st.text(max_size=3).map(lambda text: text.encode("utf-8", "replace").decode()),
    st.sampled_from(
        ["<br>", "<br><br>", "<p>", "</p>", "<li>", "<ol><li>", "<table><tr><td>", "<td>"]
    ),
)
MARKUP = st.lists(PIECES, max_size=80).map("".join)


def serialised(html: str) -> bytes:
    return (LexborHTMLParser(html).html or "").encode()


def check_same(source: bytes) -> Page:
    plain, compiled = reference.scan(source), scan(source)
    for name in ("elements", "blocks", "links", "hints", "text"):
        np.testing.assert_array_equal(getattr(compiled, name), getattr(plain, name), name)
    assert compiled.title == plain.title
    starts = source.count(b"<") - source.count(b"</")  # what the kernel's room is reckoned by
    assert len(plain.elements) <= starts + 1
    assert max(len(plain.blocks), len(plain.links)) <= 2 * starts + 1
    assert len(plain.hints) <= min(len(source) // 2, 8 * starts)
    assert len(plain.text) <= len(source)
    return compiled


def check_sound(page: Page) -> None:
    """What holds for every page."""
    elements, blocks, links = page.elements, page.blocks, page.links
    parents = elements["parent"]
    assert parents[0] == -1 and (parents[1:] < np.arange(1, len(parents))).all()
    assert (parents[1:] >= 0).all()
    assert (elements["depth"][1:] == elements["depth"][parents[1:]] + 1).all()
    assert (elements["first"] <= elements["stop"]).all()
    assert (elements["first"][1:] >= elements["first"][parents[1:]]).all()
    assert (elements["stop"][1:] <= elements["stop"][parents[1:]]).all()
    assert (blocks["start"] < blocks["stop"]).all()
    edges = np.stack([blocks["start"], blocks["stop"]], 1).ravel()
    assert list(edges) == sorted(edges)  # every character at most once, in document order
    assert blocks["characters"].sum() == elements["characters"][0]
    assert blocks["link_characters"].sum() == elements["link_characters"][0]
    assert blocks["links"].sum() == len(links)
    for element, block in zip(elements[blocks["leaf"]], blocks, strict=True):
        assert element["border"] == block["element"]
    for block, text in zip(blocks, page.texts(), strict=True):
        words = text.split()
        assert words and text == text.rstrip()
        assert block["characters"] == sum(map(len, words)) and block["words"] == len(words)
        assert block["short_words"] == sum(len(word) <= 3 for word in words)
        assert block["breaks"] == text.count("\n")
        assert block["link_characters"] <= block["characters"]
        if not elements["ancestors"][block["element"]] & records.PRE_BIT:
            assert text == "\n".join(" ".join(line.split(" ")) for line in text.split("\n"))
            assert "  " not in text and not text.startswith((" ", "\n"))


@settings(max_examples=300, deadline=None)
@given(MARKUP)
def test_the_compiled_scan_is_the_plain_one_on_serialised_pages(html: str) -> None:
    check_sound(check_same(serialised(html)))


@settings(max_examples=300, deadline=None)
@given(MARKUP)
@example("<!--><q>")
def test_the_compiled_scan_is_the_plain_one_on_any_markup(html: str) -> None:
    check_sound(check_same(html.encode()))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["<!--", "-->", "<script>", "</script>", "-", "<", "x"]), max_size=12)
)
def test_scripts_end_where_the_parser_ends_them(pieces: list[str]) -> None:
    """Whatever comments and tags a script has, its source is no text, what follows is."""
    html = f"<body><p>a<script>{''.join(pieces)}"
    tree = LexborHTMLParser(html + "</script><p>end")
    tree.strip_tags(["script"])
    page = check_same(serialised(html + "</script><p>end"))
    seen = "".join("".join(page.texts()).split())
    assert seen == "".join((tree.body.text() if tree.body else "").split())


@settings(max_examples=200, deadline=None)
@given(
    st.lists(PIECES.filter(lambda piece: "hidden" not in piece.lower()), max_size=30).map("".join)
)
def test_all_text_of_the_page_is_in_the_blocks_once(html: str) -> None:
    """Beside the tree's own text: what is not below a skipped or hidden element, in order."""
    if any(mark in html.lower() for mark in ("display", "title", "plaintext", "<head", "xmp")):
        return
    tree = LexborHTMLParser(serialised(html).decode())
    tree.strip_tags([TAGS[tag] for tag in sorted(records.SKIPPED)])
    if tree.body is None or tree.body.tag != "body":
        return
    seen = "".join("".join(scan(serialised(html)).texts()).split())
    assert seen == "".join(tree.body.text().split())


def page_of(html: str) -> Page:
    return check_same(serialised(html))


def texts(html: str) -> list[str]:
    return page_of(html).texts()


def of_blocks(page: Page, field: str) -> list[int]:
    found: list[int] = page.elements[field][page.blocks["element"]].tolist()
    return found


def test_blocks_end_at_the_borders_of_block_level_elements() -> None:
    assert texts("a <b>b</b><p>c<span> d</span> </p>e<hr>f<div>g") == ["a b", "c d", "e", "f", "g"]


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ('<div class="postComment"', 1),
        ('<li id="comment-7"', 1),
        ('<ol class="a b commentlist"', 1),
        ('<section itemscope itemtype="http://schema.org/Comment"', 1),
        ('<div class="commented commentary"', 0),
        ('<div title="comments"', 0),
        ('<span class="comment"', 0),
        ('<body class="comments"', 0),
        ('<pre class="comment"', 0),
    ],
)
def test_an_element_says_that_it_holds_comments(tag: str, said: int) -> None:
    page = page_of(f"{tag}>a<p>b")
    assert page.elements["comments"].sum() == said
    own = page.elements[page.elements["comments"] != 0]
    assert own["stop"].tolist() == [2] * said


def test_one_break_is_a_newline_and_two_are_a_border() -> None:
    assert texts("<p>a <br> b<br>\n<br>c<br><br><br>d<br>") == ["a\nb", "c", "d"]


def test_white_space_is_collapsed_but_in_preformatted_text() -> None:
    assert texts("<p> a&nbsp;\n b\u3000\u2003c </p>") == ["a b c"]
    assert texts("<pre>\n\n  a\n\tb  c \n</pre>") == ["  a\n\tb  c"]


def test_nothing_of_skipped_and_hidden_elements_is_read() -> None:
    assert texts(
        "a<script>1</script><style>2</style><noscript><p>3</p></noscript><svg><text>4</text></svg>"
        "<select><option>5</select><button>6</button><iframe>7</iframe><textarea>8</textarea>"
        "<p hidden>9</p><b aria-hidden=true>10</b><div style='x:y; DISPLAY : none'>11<p>12</div>"
        "<template><p>13</template><i style=visibility:hidden>14</i>z"
    ) == ["az"]


def test_a_page_that_hides_its_body_is_read() -> None:
    assert texts("<html hidden><body style='visibility:hidden'>a") == ["a"]


def test_the_title_stands_before_the_blocks() -> None:
    page = page_of("<title> A &amp;\n B </title><p>c")
    assert page.text.tobytes() == b"A & Bc" and page.title == 5
    assert page.texts() == ["c"]
    assert page_of("<title></title><p>c").title == 0
    assert page_of("<p><title>a</title>c").title == 1
    assert page_of("<svg><title>a</title></svg>c").title == 0


def test_kinds_and_places_of_blocks() -> None:
    page = page_of(
        "<h2>a</h2><ul><li>b<ol start=3><li>c<li><p>d</ol></ul><dl><dt>e<dd>f</dl>"
        "<table><caption>g</caption><tr><th>h<td>i<tr><td>j</table><blockquote><p>k</blockquote>"
        "<pre>l</pre><figure><figcaption>m</figcaption></figure>n"
    )
    assert page.texts() == list("abcdefghijklmn")
    assert of_blocks(page, "kind") == [
        *(HEADING, ITEM, ITEM, ITEM, TERM, ITEM, CAPTION, CELL, CELL, CELL),
        *(QUOTE, PREFORMATTED, CAPTION, PARAGRAPH),
    ]
    assert of_blocks(page, "level")[0] == 2
    assert of_blocks(page, "lists")[:6] == [0, 1, 2, 2, 1, 1]
    assert of_blocks(page, "number")[1:4] == [0, 3, 4]
    assert of_blocks(page, "row")[7:10] == [0, 0, 1]
    assert of_blocks(page, "column")[7:10] == [0, 1, 0]
    assert of_blocks(page, "quotes")[10] == 1


def test_bits_of_ancestors() -> None:
    page = page_of("<main><article><p>a</article></main><nav><ul><li>b</ul></nav>")
    names = [
        {name for bit, name in enumerate(ANCESTORS) if bits >> bit & 1}
        for bits in of_blocks(page, "ancestors")
    ]
    assert names == [{"main", "article"}, {"nav", "list"}]


def test_links_and_their_addresses() -> None:
    page = page_of(
        "<p>a <a href='/x?y=1&z'>b <i>c</i></a><a href=w>d</a> <a>e</a><a href=v><p>f<p>g"
    )
    source, text = page.source.tobytes(), page.text.tobytes()
    assert [
        (text[start:stop], source[href:href_stop])
        for start, stop, href, href_stop in page.links.tolist()
    ] == [(b"b c", b"/x?y=1&amp;z"), (b"d", b"w"), (b"f", b"v"), (b"g", b"v")]
    assert page.blocks["link_characters"].tolist() == [3, 1, 1]


def test_words_of_attributes() -> None:
    page = page_of('<div id="x1" data-a="no" class="articleBody post_ID2 y" role="main">a')
    div = page.elements[page.elements["tag"] == TAG["div"]][0]
    assert page.hints[div["hints"] : div["hints_stop"]].tolist() == [
        word_hash(word) for word in (b"article", b"body", b"post", b"id", b"main")
    ]


def test_sentences_end_in_any_script() -> None:
    page = page_of("<p>One.<p>Two<p>\u4e09\u3002<p>\u201cFour!\u201d<p>Five \u2026<p>\u06c1\u06d4")
    assert page.blocks["ends"].tolist() == [1, 0, 1, 1, 1, 1]


def test_as_many_blocks_and_links_as_tags() -> None:
    page = page_of("<a href=x>" + "<p>a</p>b" * 500)
    assert len(page.blocks) == len(page.links) == 1000


@pytest.mark.parametrize("html", ["", " ", "<frameset><frame src=a></frameset>", "<!-- a -->", "<"])
def test_pages_without_text(html: str) -> None:
    page = page_of(html)
    assert len(page.blocks) == (html == "<")


def test_depth_costs_no_more_than_length() -> None:
    page = scan(b"<html><body>" + b"<div>" * 200_000 + b"a" + b"</div>" * 200_000)
    assert page.texts() == ["a"] and page.elements["depth"].max() == 200_002


@pytest.mark.real
def test_real_pages(shared_data: Path) -> None:
    pages = sorted((shared_data / "html_extraction").glob("*/html/*.html.gz"))
    assert pages
    for path in pages[:: max(1, len(pages) // 60)]:
        html, *_ = decode.decode(gzip.decompress(path.read_bytes()), None, "text/html")
        check_sound(check_same(serialised(html)))
