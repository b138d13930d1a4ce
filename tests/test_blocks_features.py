"""Features of blocks: compiled and plain alike, and what some of them mean."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from curation.extract.blocks.features import (
    CONTEXT,
    NAMES,
    Weights,
    add_context,
    features,
    opening_words,
    reference,
)
from curation.extract.blocks.features.kernels import OPENING, TITLE_WORDS
from curation.extract.blocks.page import Page
from curation.extract.blocks.scan import scan
from curation.extract.decode import decode

RANDOM = np.random.default_rng(0)
WEIGHTS = Weights(
    RANDOM.integers(-8, 8, 64).astype(np.float32) / 4,
    RANDOM.integers(-8, 8, 128).astype(np.float32) / 4,
)
TAGS = "p div li ul ol h1 h2 section article nav footer table tr td a span figure pre".split()  # noqa: SIM905
HINTS = ["", ' class="post body"', ' class="menu"', ' id="x nav-2"', ' href="/a" class="more"']
TEXTS = [
    *("word ", "Two words. ", "One, two, three; and a sentence that goes on for longer. ", "«a» "),
    *(
        "世界你好。",
        "ÄÖÜ ",
        "Größe, Élan ",
        "ไทย ",
        "12 May 2020 ",
        "– ",
        "…",
        "“Quoted” ",
        "<br><br>",
    ),
]
PIECES = st.one_of(
    st.builds("<{}{}>".format, st.sampled_from(TAGS), st.sampled_from(HINTS)),
    st.sampled_from(TAGS).map("</{}>".format),
    st.sampled_from(TEXTS),
    st.text(max_size=4).map(lambda text: text.encode("utf-8", "replace").decode()),
)
PAGES = st.builds(
    "<title>{}</title><body>{}".format,
    st.lists(st.sampled_from(TEXTS[:4]), max_size=2).map("".join),
    st.lists(PIECES, max_size=60).map("".join),
)


def page_of(html: str) -> Page:
    return scan((LexborHTMLParser(html).html or "").encode())


def column(html: str, name: str) -> list[float]:
    values: list[float] = features(page_of(html), WEIGHTS)[:, NAMES.index(name)].tolist()
    return values


def assert_same(page: Page) -> None:
    found = features(page, WEIGHTS)[:, : len(NAMES)]
    wanted = np.array(reference.features(page, WEIGHTS), np.float64).reshape(-1, len(NAMES))
    assert found.shape == wanted.shape
    differing = ~np.isclose(found, wanted, rtol=1e-5, atol=1e-5).all(axis=0)
    assert not differing.any(), [NAMES[i] for i in np.flatnonzero(differing)]


@settings(max_examples=150, deadline=None)
@given(PAGES)
def test_kernel_and_reference_agree(html: str) -> None:
    assert_same(page_of(html))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(TEXTS) | st.text(max_size=5), max_size=30).map(" ".join))
def test_words_of_kernel_and_reference_agree(text: str) -> None:
    page = page_of(f"<title>{text.replace('<', '')}</title><p>{text}")
    words, counts = opening_words(page)
    texts = [*(text.encode() for text in page.texts()), page.text.tobytes()[: page.title]]
    for i, part in enumerate(texts):
        most = OPENING if i < len(page.blocks) else TITLE_WORDS
        assert words[i, : counts[i]].tolist() == reference.opening_words(part, most)


@settings(max_examples=100, deadline=None)
@given(PAGES, st.integers(0, 2**32))
def test_context_of_kernel_and_reference_agree(html: str, seed: int) -> None:
    page = page_of(html)
    chances = np.random.default_rng(seed).random(len(page.blocks))
    wanted = reference.context(page, chances.tolist())
    found = features(page, WEIGHTS)
    add_context(page, found, chances)
    context = found[:, len(NAMES) :]
    assert np.allclose(context, np.array(wanted).reshape(-1, len(CONTEXT)), rtol=1e-5)


def test_names_are_distinct() -> None:
    assert len({*NAMES, *CONTEXT}) == len(NAMES) + len(CONTEXT)


def test_a_page_without_text_has_no_rows() -> None:
    assert features(page_of(""), WEIGHTS).shape == (0, len(NAMES) + len(CONTEXT))


def test_words_are_the_same_in_capitals_and_whatever_the_digits() -> None:
    one, other = page_of("<p>Über Ärzte 12 A–b"), page_of("<p>über ärzte 99 a b")
    assert opening_words(one)[0].tolist() == opening_words(other)[0].tolist()


def test_a_block_after_a_heading_knows_how_far_it_is() -> None:
    assert column("<p>a<h2>b</h2><p>c<p>d", "from_heading") == [99, 99, 1, 2]


def test_the_best_container_is_that_of_the_paragraphs() -> None:
    prose = "<p>A sentence, or rather two, of some length. Here is the other one.</p>"
    html = f"<div><a href=x>Home</a></div><div>{prose * 3}</div><div>Imprint</div>"
    assert column(html, "in_best") == [0, 1, 1, 1, 0]


@pytest.mark.real
def test_kernel_and_reference_agree_on_real_pages(shared_data: Path) -> None:
    files = sorted((shared_data / "html_extraction/trafilatura-eval/html").glob("*.gz"))
    sizes = sorted((file.stat().st_size, file) for file in files)
    for _, file in sizes[:200:10]:
        page = page_of(decode(gzip.decompress(file.read_bytes())).text)
        if len(page.blocks) < 250:
            assert_same(page)
