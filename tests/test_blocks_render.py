"""Chosen blocks as plain text and as Markdown."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from curation.extract.blocks.page import SOFT_HYPHEN
from curation.extract.blocks.render import render
from curation.extract.blocks.scan import scan
from tests.test_blocks_scan import MARKUP, serialised


def text_of(html: str, without: str = "", **options: Any) -> str:
    """All blocks of a page as text, but those that have a word."""
    page = scan((LexborHTMLParser(html).html or "").encode())
    chosen = np.array([not without or without not in text for text in page.texts()], bool)
    return render(page, chosen, **options)


def markdown(html: str, **options: Any) -> str:
    return text_of(html, markdown=True, **options)


@settings(max_examples=200, deadline=None)
@example("<p>a<p>\xad<ul><li>\xad<li>b \xad c\xadd<br>\xad<br>e</ul><pre>\xad</pre>", Random(0))
@given(MARKUP, st.randoms(use_true_random=False))
def test_chosen_texts_stand_in_order_and_once(html: str, chance: Any) -> None:
    page = scan(serialised(html))
    chosen = np.array([chance.random() < 0.6 for _ in page.blocks], bool)
    plain = render(page, chosen)
    at = 0
    for text, keep in zip(page.texts(), chosen, strict=True):
        for line in text.split("\n") if keep else []:
            words = line.replace(SOFT_HYPHEN, "").split()
            for part in words if SOFT_HYPHEN in line else [line.strip()]:
                at = plain.index(part, at) + len(part)
    markers = sum(page.elements["item"][page.blocks["element"][chosen]] >= 0)
    hyphens = sum(text.count(SOFT_HYPHEN) for text in itertools.compress(page.texts(), chosen))
    characters = int(page.blocks["characters"][chosen].sum()) - hyphens
    assert characters <= len("".join(plain.split())) <= characters + 12 * markers
    render(page, chosen, markdown=True, links=True)


def test_paragraphs_and_headings() -> None:
    html = "<h1>A<br>b</h1><p>c<br>d</p><h3>e</h3>f"
    assert text_of(html) == "A b\n\nc\nd\n\ne\n\nf"
    assert markdown(html) == "# A b\n\nc\nd\n\n### e\n\nf"


def test_lists() -> None:
    html = "a<ul><li>b<li>c<br>d<ol start=9><li>e<li>f</ol><li>g</ul>h"
    expected = "a\n\n- b\n- c\n  d\n    9. e\n    10. f\n- g\n\nh"
    assert text_of(html) == markdown(html) == expected


def test_an_item_of_several_paragraphs_has_one_marker() -> None:
    html = "<ul><li><p>a</p><p>b</p></li><li><h2>c</h2>d</ul>"
    assert text_of(html) == "- a\nb\n\nc\n\nd"
    assert markdown(html) == "- a\n\n    b\n\n## c\n\n    d"


def test_lists_that_only_place_things_indent_nothing() -> None:
    assert text_of("<ul><li><ul><li><ul><li>a<ul><li>b") == "- a\n    - b"


def test_terms() -> None:
    assert text_of("<dl><dt>a<dd>b<dt>c<dd>d</dl>e") == "a\nb\nc\nd\n\ne"


def test_tables() -> None:
    html = "a<table><caption>b</caption><tr><th>c<th>d<tr><td>e|f<td></td><td>g<tr><td>h</table>i"
    assert text_of(html) == "a\n\nb\n\nc\td\ne|f\tg\nh\n\ni"
    assert markdown(html) == (
        "a\n\nb\n\n| c | d |  |\n| --- | --- | --- |\n| e\\|f |  | g |\n| h |  |  |\n\ni"
    )
    assert text_of(html, tables=False) == "a\n\nb\n\ni"


def test_tables_that_only_place_things_are_text() -> None:
    html = "<table><tr><td><p>a<p>b<td>c<tr><td>d</table>"
    for options in ({}, {"tables": False}, {"markdown": True}):
        assert text_of(html, **options) == "a\n\nb\n\nc\n\nd"


def test_code_is_kept() -> None:
    html = "<p>a<pre>if x:\n    `y`  = ```\n</pre>"
    assert text_of(html) == "a\n\nif x:\n    `y`  = ```"
    assert markdown(html) == "a\n\n````\nif x:\n    `y`  = ```\n````"


def test_quotes() -> None:
    html = "<blockquote><p>a<br>b<blockquote>c</blockquote></blockquote>d"
    assert text_of(html) == "a\nb\n\nc\n\nd"
    assert markdown(html) == "> a\n> b\n\n> > c\n\nd"


def test_links() -> None:
    html = (
        "<p>a <a href='/x?y=1&amp;z=(2)'>b c</a>, <a href='#d'>d</a> "
        "<a href=javascript:e()>e</a><a href=f>f</a>"
    )
    assert text_of(html) == "a b c, d ef"
    assert text_of(html, links=True) == "a [b c](/x?y=1&z=%282%29), d e[f](f)"


def test_what_is_not_chosen_is_not_there() -> None:
    assert text_of("<ul><li>a<li>x<li>b</ul><p>xy</p>c", without="x") == "- a\n- b\n\nc"
    assert text_of("<p>x", without="x") == text_of("") == ""


def test_wide_and_long_tables_cost_no_more_than_their_cells() -> None:
    wide = "<tr>" + "<td>a" * 3000
    long = "<tr><td>b<td>c" * 3000 + "<tr><td>d" * 3000
    found = markdown(f"<table>{wide}{long}</table>")
    assert len(found) < 10 * 12000 + 100
    assert sum(found.count(letter) for letter in "abcd") == 12000
