"""Titles and dates: which of the places where a page says them is believed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from curation.extract.blocks.metadata import LONGEST_TITLE, Metadata, metadata


def of(html: str) -> Metadata:
    return metadata(LexborHTMLParser(html))


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title> A  tale\n of two </title>", "A tale of two"),
        ("<title>A tale | The Site</title><h1>A <b>tale</b></h1>", "A tale"),
        ("<title>The Site: A tale</title><h1>A tale</h1>", "A tale"),
        ("<title>A tale</title><h1>Other</h1>", "A tale"),
        ("<title>A tale | Site</title><h1>A tale</h1><h1>Another</h1>", "A tale | Site"),
        ("<meta property=og:title content='Graph'><title>Title</title>", "Graph"),
        ("<meta property=og:title content=' '><title>Title</title>", "Title"),
        ("<h1></h1><h1>First</h1><h1>Second</h1>", "First"),
        ("<p>no title", None),
        ("", None),
        ("<title>A wa&shy;ter&shy;mill</title>", "A watermill"),
        ("<title>標題</title>", "標題"),
    ],
)
def test_titles(html: str, title: str | None) -> None:
    assert of(html).title == title


def test_long_titles_are_cut() -> None:
    title = of(f"<title>{'ab ' * 1000}</title>").title
    assert title is not None and LONGEST_TITLE - 3 <= len(title) <= LONGEST_TITLE


PUBLISHED = '<meta property="article:published_time" content="{}">'


@pytest.mark.parametrize(
    ("said", "date"),
    [
        ("2024-05-03T10:00:00+02:00", "2024-05-03"),
        ("2024-05-03", "2024-05-03"),
        ("20240503", "2024-05-03"),
        ("2024/05/03 10:00", "2024-05-03"),
        ("Fri, 03 May 2024 10:00:00 GMT", "2024-05-03"),
        ("2024-13-03", None),
        ("2023-02-29", None),
        ("1024-05-03", None),
        ("9999-05-03", None),
        ("20240503123456", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_dates_as_they_are_written(said: str, date: str | None) -> None:
    assert of(PUBLISHED.format(said)).date == date


def test_the_first_valid_place_counts() -> None:
    script = json.dumps({"@graph": [{"a": 1}, {"author": {"datePublished": "2021-01-02"}}]})
    html = (
        "<time datetime=2024-01-01>x</time>"
        f"<script type='application/ld+json'>{script}</script>"
        "<meta name=date content='no date'>"
    )
    assert of(html).date == "2021-01-02"
    assert of(html + PUBLISHED.format("2020-02-03")).date == "2020-02-03"
    assert of("<article><time datetime=2024-01-01></time></article>").date == "2024-01-01"
    assert of("<span itemprop=datePublished>2019-08-07</span>").date == "2019-08-07"


@given(st.text(alphabet='{}[]":,datePublished0123-\\ ', max_size=60), st.text(max_size=20))
def test_nothing_that_a_page_says_is_an_error(script: str, said: str) -> None:
    html = f"<script type='application/ld+json'>{script}</script>"
    for date in (of(html).date, of(f"<time datetime='{said}'>{said}</time>").date):
        assert date is None or len(date) == 10


def test_json_that_nests_without_end_is_no_date() -> None:
    script = "[" * 100_000
    assert of(f"<script type='application/ld+json'>{script}</script>").date is None


@pytest.mark.real
def test_titles_of_labelled_pages(shared_data: Path) -> None:
    """Of Readability's pages that are said to have a title, most are found as it writes them."""
    pages = sorted(
        (shared_data / "html_extraction/readability-test-pages").glob("*/source.html.gz")
    )
    same = total = 0
    for page in pages:
        expected = json.loads((page.parent / "expected-metadata.json").read_text())
        if title := " ".join((expected.get("title") or "").split()):
            html = gzip.decompress(page.read_bytes()).decode(errors="replace")
            found = of(html).title or ""
            total += 1
            same += title in found or (len(found) > 8 and found in title)
    assert total > 50
    assert same / total > 0.85, (same, total)
