"""The engine `blocks` from page to text, and in the sandbox: languages, odd and hostile pages."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings

from curation.extract.engines import blocks
from curation.extract.stage import Extract
from tests.test_blocks_scan import MARKUP
from tests.test_extract import article, documents

SENTENCES = {
    "en": "The mill stands by the river, and its wheel has turned for three hundred years.",
    "zh": "水车磨坊坐落在河边，它的轮子已经转动了三百年，村民们至今仍在使用它。",
    "ja": "水車小屋は川のほとりに立っており、その車輪は三百年にわたって回り続けています。",
    "th": "โรงสีตั้งอยู่ริมแม่น้ำและกังหันของมันหมุนมาเป็นเวลาสามร้อยปีแล้วชาวบ้านยังคงใช้มันอยู่",
    "ar": "تقف الطاحونة بجانب النهر، وقد دارت عجلتها منذ ثلاثمائة عام، وما زال أهلها يستعملونها.",
    "he": "הטחנה עומדת ליד הנהר, וגלגלה מסתובב כבר שלוש מאות שנה, ואנשי הכפר עדיין משתמשים בה.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_content_of_any_script_is_kept_as_it_is(language: str) -> None:
    paragraphs = [" ".join([SENTENCES[language]] * count) for count in (2, 3, 4)]
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    html = f"<nav><a href=/>Home</a></nav><main><article>{body}</article></main>"
    assert blocks(html) == "\n\n".join(paragraphs)
    rtl = html.replace("<main>", "<main dir=rtl>")
    assert blocks(rtl) == blocks(html)


@pytest.mark.parametrize(
    "html",
    [
        "<ul>" + "<li><a href=/x>Mill</a></li>" * 30 + "</ul>",
        "<table>" + "<tr><td>Mill<td>Grain" * 10 + "</table>",
        "<form><p>Mill</form>",
        "<div class=post><b>anna</b> Mill?</div><div class=post><b>ben</b> no</div>",
        "Mill",
        "<html amp4ads hidden><body style='visibility:hidden'><amp-story>Mill</amp-story>",
        "<html \u26a1><amp-sidebar hidden><p>No</p></amp-sidebar><amp-img src=a></amp-img><p>Mill",
        "<title>No body</title></head></body></html><p>Mill",
        "</p></b></table><li></ul>Mill<td></html><!--",
        "<div style='display:none'>no <div>no</div></div><span hidden>no</span><b>Mill</b>",
        "<iframe src=a>no</iframe><object>no</object><p dir=rtl>Mill",
    ],
)
def test_no_page_with_text_comes_out_empty(html: str) -> None:
    assert "Mill" in blocks(html)


@pytest.mark.parametrize(
    "html",
    [
        "",
        "<frameset><frame src=a><noframes>a</noframes></frameset>",
        "<script>a</script>",
        "<p> <p>",
        "<p>&shy;<ul><li>\xad</ul><pre>\xad\n</pre>",
    ],
)
def test_pages_without_text_are_empty(html: str) -> None:
    assert blocks(html) == ""


def test_readings_and_soft_hyphens_do_not_part_words() -> None:
    kanji = "<ruby>水車<rp>(</rp><rt>すいしゃ</rt><rp>)</rp></ruby>小屋"
    sentence = SENTENCES["ja"] * 2
    assert blocks(f"<main><p>{kanji}。{sentence}</main>") == f"水車小屋。{sentence}"
    words = SENTENCES["en"] * 2
    for written in ("mi\xadll", "mi&shy;ll", "mi&#173;ll"):
        assert blocks(f"<main><p>{words.replace('mill', written)}</main>") == words
    assert blocks(f"<main><p>{words} &shy; {words}<br>&shy;<br>a</main>") == f"{words} {words}\na"


def test_hidden_text_is_none() -> None:
    page = article("Watermill").replace("<main>", "<main><p hidden>Hidden words, a sentence.</p>")
    assert "Hidden" not in blocks(page, threshold=0)
    assert "Hidden" in blocks(page.replace(" hidden", ""), threshold=0)


@settings(max_examples=100, deadline=None)
@given(MARKUP)
def test_any_markup_is_extracted_the_same_every_time(html: str) -> None:
    assert blocks(html) == blocks(html)
    assert blocks(html, threshold=0) or not blocks(html)
    blocks(html, threshold=1, markdown=True, tables=False, links=True)


def test_a_lower_threshold_gives_no_less() -> None:
    html = article("Watermill")
    lengths = [len(blocks(html, threshold=at)) for at in (0, 0.2, 0.4, 0.6, 0.8)]
    assert lengths == sorted(lengths, reverse=True) and "Home" in blocks(html, threshold=0)


HOSTILE = {
    "paragraphs": "<p>x",
    "cells": "<td>x",
    "rows": "<tr><td>x<td>y",
    "breaks": "x<br>",
    "misnested": "<b><p>x</b></p>",
    "links": "<a href=x>y",
    "references": "&amp;&lt;&nbsp;",
    "comments": "<!--x-->",
    "brackets": "<",
    "text": "lorem ipsum dolor. ",
    "spaces": " \n\t",
    "scripts": "<script><!--<script></script>",
    "options": "<option>x",
    "styles": "<i style='d:d:d display :'>x</i>",
}


def test_no_markup_takes_the_time_that_a_page_may_take() -> None:
    """Two million characters of the same piece; what took the square would be cut off."""
    pages: list[bytes | None] = [
        ("<table>" * (name in ("cells", "rows")) + piece * (2_000_000 // len(piece))).encode()
        for name, piece in HOSTILE.items()
    ]
    stage = Extract(engine="blocks", max_tags=3_000_000, markdown=True, links=True, threshold=0)
    assert stage.edit(documents(pages)).failures == {}


@pytest.mark.parametrize("piece", ["<ul><li>x", "<blockquote>x", "<table><tr><td>x", "<b>"])
def test_nesting_makes_no_more_text_than_there_is(piece: str) -> None:
    found = blocks(piece * 3000 + "x", threshold=0, markdown=True)
    assert "x" in found and len(found) < 3000 * 100


def test_hostile_pages_in_the_sandbox() -> None:
    pages: list[bytes | None] = [
        b"<div>" * 100_000 + b"x",
        article("Watermill").encode(),
        b"<b><p></b></p>x" * 60_000,
        b"<table>" + b"<tr><td>x<td>y" * 150_000,
        b"<p " + b"a=b " * 200_000 + b">x",
        b"x" * 30_000_000,
        article("Windmill").encode(),
    ]
    edited = Extract(engine="blocks").edit(documents(pages))
    assert edited.failures == {0: "too_deep", 5: "too_large"}
    texts = edited.text.to_pylist()
    assert texts[1].count("three hundred years") == texts[6].count("three hundred years") == 15
    assert len(texts[3]) >= 300_000 and "x" in texts[4]


def test_a_page_of_fifty_megabytes() -> None:
    page = b"<p>The mill stands by the river. <a href=/x>More.</a></p>\n" * 850_000
    stage = Extract(engine="blocks", max_bytes=60_000_000, max_tags=5_000_000)
    edited = stage.edit(documents([page]))
    assert edited.failures == {}
    assert edited.text.to_pylist()[0].count("river") == 850_000


def test_titles_and_dates_are_signals_where_they_are_wanted() -> None:
    html = article("Watermill").replace(
        "<head>", '<head><meta property="article:published_time" content="2024-05-03">'
    )
    pages: list[bytes | None] = [html.encode(), b"<p>No title here, only a sentence.</p>", None]
    plain = Extract(engine="blocks").edit(documents(pages))
    told = Extract(engine="blocks", metadata=True).edit(documents(pages))
    assert told.text.equals(plain.text)
    assert not {"title", "date"} & plain.signals.keys()
    titles = told.signals["title"].to_pylist()
    assert titles[0] is not None and "Watermill" in titles[0] and titles[1:] == [None, None]
    assert told.signals["date"].to_pylist() == ["2024-05-03", None, None]


@pytest.mark.real
def test_real_pages_have_text_and_fail_nowhere(shared_data: Path) -> None:
    files = sorted((shared_data / "html_extraction").glob("*/html/*.html.gz"))
    pages: list[bytes | None] = [gzip.decompress(file.read_bytes()) for file in files]
    edited = Extract(engine="blocks").edit(documents(pages))
    assert pages and edited.failures == {}
    assert sum(len(text) < 100 for text in edited.text.to_pylist()) < 0.02 * len(pages)
    again = Extract(engine="blocks").edit(documents(pages[::-1]))
    assert again.text.to_pylist()[::-1] == edited.text.to_pylist()
