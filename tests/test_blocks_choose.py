"""Which blocks are chosen: sections of comments, and pages on which nothing is sure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.extract.blocks.choose import choose, covered, frames
from curation.extract.blocks.scan import scan
from curation.extract.engines import blocks
from tests.test_blocks_scan import MARKUP, serialised
from tests.test_extract import article

FIRST = "I have seen that mill, and it was closed when we came there last year."
SECOND = "It opens on Sundays. You should have asked at the inn."


def discussed(section: str = '<div id="comments">') -> str:
    """An article with two comments below it, and what stands around these."""
    posts = "".join(
        f'<li class="comment"><a href=/u>{name}</a> <p>3 May 2024, 10:15:32</p><p>{text}</p>'
        f"<p>{more}</p><span>Reply</span>"
        for name, text, more in (("anna", FIRST, "Pity!"), ("ben", SECOND, "Regards, Ben"))
    )
    form = "<form><p>Your address is not shown. Write something here.</p></form>"
    menu = "<p><a href=/o>Older comments that were written before these ones.</a></p>"
    return article("Watermill").replace(
        "</article>", f"</article>{section}<h2>Two voices</h2><ol>{posts}</ol>{menu}{form}</div>"
    )


@pytest.mark.parametrize(
    "section",
    [
        '<div id="comments">',
        '<div class="commentList">',
        '<div itemprop="comment">',
        '<div itemscope itemtype="https://schema.org/Comment">',
        "<div>",  # the comments say it themselves
    ],
)
def test_comments_are_left_out_or_added_in_order(section: str) -> None:
    html = discussed(section)
    without, added = blocks(html), blocks(html, comments=True)
    assert without == blocks(article("Watermill"))
    assert added.startswith(without)
    told = added[len(without) :]
    assert [told.count(text) for text in (FIRST, "Pity!", SECOND)] == [1, 1, 1]
    assert told.index(FIRST) < told.index("Pity!") < told.index(SECOND)
    for label in ("Reply", "10:15", "Older", "address", "anna"):
        assert label not in told


@pytest.mark.parametrize("posts", [1, 2, 30])
@pytest.mark.parametrize("comments", [False, True])
def test_a_page_of_nothing_but_posts_is_not_empty(posts: int, comments: bool) -> None:
    html = "".join(
        f'<div class="comment"><b>anna</b><p>{i}. {FIRST}</p><p>{i}. {SECOND}</p></div>'
        for i in range(posts)
    )
    found = blocks(f"<title>Mills</title>{html}", comments=comments)
    assert found.count(FIRST) == found.count(SECOND) == posts


def test_a_frame_that_speaks_of_comments_is_none() -> None:
    page = article("Watermill")
    framed = page.replace("<body>", '<body><div class="has-comments">').replace("<nav>", "<div>")
    assert blocks(framed).count("three hundred years") == 15
    assert "Home" not in blocks(framed, comments=True)


def test_code_with_comments_stays() -> None:
    code = '<pre><span class="comment"># The wheel turns.</span>\nturn(wheel)</pre>'
    html = article("Watermill").replace("</article>", f"{code}</article>")
    page = scan(serialised(html))
    assert not page.elements["comments"].any()


@settings(max_examples=150, deadline=None)
@given(MARKUP, st.randoms(use_true_random=False))
def test_what_elements_cover_is_what_a_walk_up_finds(html: str, chance: Any) -> None:
    page = scan(serialised(html))
    some = [chance.random() < 0.2 for _ in page.elements]
    found = covered(page.elements[np.array(some)], len(page.blocks))
    for block, inside in zip(page.blocks, found, strict=True):
        element, wanted = int(block["leaf"]), False
        while element >= 0:
            wanted |= some[element]
            element = int(page.elements["parent"][element])
        assert inside == wanted


def test_text_in_the_midst_of_the_chosen_needs_less() -> None:
    sentence, link = f"<p>{FIRST} {SECOND}</p>", f"<p><a href=/>{FIRST}</a></p>"
    rest = f"<p>Short.</p>{link}{sentence}"
    page = scan(serialised(f"<div>{sentence}</div><main>{sentence}{rest}{sentence}</main>"))
    chances = np.array([0.4, 0.9, 0.4, 0.4, 0.4, 0.9])
    assert choose(page, chances, 0.5).tolist() == [False, True, False, False, True, True]
    chances[4] = 0.3
    assert choose(page, chances, 0.5).tolist() == [False, True, False, False, False, True]


@settings(max_examples=150, deadline=None)
@given(MARKUP, st.randoms(use_true_random=False), st.sampled_from([0.5, 0.75]))
def test_frames_have_more_than_their_share_and_are_nested(
    html: str, chance: Any, share: float
) -> None:
    page = scan(serialised(html))
    chosen = [chance.random() < 0.6 for _ in page.blocks]
    sizes = [
        size if one else 0
        for size, one in zip(page.blocks["characters"].tolist(), chosen, strict=True)
    ]
    found = frames(page, np.array(chosen, bool), share)
    inner = -1
    for index, element in enumerate(page.elements):
        own = sum(sizes[element["first"] : element["stop"]])
        assert found[index] == (own > share * sum(sizes))
        if found[index]:
            around = page.elements["parent"][index]
            while around > inner:
                around = page.elements["parent"][around]
            assert around == inner
            inner = index


def test_where_nothing_is_sure_the_likeliest_are_chosen() -> None:
    page = scan(serialised("<p>a<p>b<p>c<p>d"))
    chances = np.array([0.1, 0.3, 0.4, 0.19])
    assert choose(page, chances, 0.5).tolist() == [False, True, True, False]
    assert choose(page, chances, 0.9).tolist() == [False, False, True, False]
    assert choose(page, chances, 0.35).tolist() == [False, False, True, False]


@settings(max_examples=100, deadline=None)
@given(MARKUP, st.integers(0, 1 << 30), st.sampled_from([0.0, 0.5, 1.0]))
def test_with_comments_there_is_no_less_and_never_nothing(
    html: str, seed: int, threshold: float
) -> None:
    page = scan(serialised(html))
    chances = np.random.default_rng(seed).random(len(page.blocks))
    without, added = (choose(page, chances, threshold, comments) for comments in (False, True))
    assert (added | ~without).all()
    assert without.any() == (len(page.blocks) > 0)
