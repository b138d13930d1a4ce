"""Which blocks of a page are its main content.

What may live here: the choice by a threshold, what is chosen where that leaves nothing, and what
becomes of readers' comments.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curation.extract.blocks.page import ANCESTORS, Page

Blocks = NDArray[np.bool_]

#: Characters from which a block is text rather than a label, if no sentence ends there.
TEXT = 25
#: What part of the threshold is enough for text in the midst of what is chosen: in the smallest
#: element with more than this share of it.
ENOUGH, MIDST = 0.7, 0.8
#: Ancestors of what readers are to use, in sections of comments.
CONTROLS = 1 << ANCESTORS.index("nav") | 1 << ANCESTORS.index("form")


def choose(
    page: Page, chances: NDArray[np.float64], threshold: float, comments: bool = False
) -> Blocks:
    """Per block: whether it is chosen, its probability being at least the threshold; for text of at
    most half links, in the midst of these, ENOUGH of the threshold will do.

    A page on which none is (a forum, a product, a list of links) must not come out empty: then
    those are chosen whose probability is at least the threshold times the greatest.

    What is chosen in sections of comments is left out; if that is more than half of all, the page
    is made of posts, and they stay. With `comments` the rest of their text is added.
    """
    greatest = chances.max(initial=0.0)
    chosen = chances >= (threshold if greatest >= threshold else threshold * greatest)
    innermost = np.flatnonzero(frames(page, chosen, MIDST))[-1:]
    midst = covered(page.elements[innermost], len(page.blocks))
    own = page.blocks["characters"] - page.blocks["link_characters"]
    text = (page.blocks["characters"] >= TEXT) & (own * 2 >= page.blocks["characters"])
    chosen |= midst & text & (chances >= ENOUGH * threshold)
    says = page.elements["comments"] != 0
    if not says.any():
        return chosen
    if comments:
        posted = covered(page.elements[says & ~frames(page, chosen)], len(page.blocks))
        return chosen | (posted & _told(page, posted))
    posted = covered(page.elements[says], len(page.blocks))
    sizes = np.where(chosen, page.blocks["characters"], 0)
    return chosen & ~posted if sizes[posted].sum() * 2 <= sizes.sum() else chosen


def frames(page: Page, chosen: Blocks, share: float = 0.5) -> NDArray[np.bool_]:
    """Per element: whether it has more than this share of what is chosen, in characters. From a
    half on, each is inside those before it."""
    sizes = np.where(chosen, page.blocks["characters"], 0)
    before = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    shares = before[page.elements["stop"]] - before[page.elements["first"]]
    found: NDArray[np.bool_] = shares > share * before[-1]
    return found


def covered(elements: NDArray[Any], blocks: int) -> Blocks:
    """Per block of so many: whether it begins inside one of the elements."""
    edges = np.zeros(blocks + 1, np.int64)
    np.add.at(edges, elements["first"], 1)
    np.add.at(edges, elements["stop"], -1)
    inside: Blocks = edges.cumsum()[:-1] > 0
    return inside


def _told(page: Page, posted: Blocks) -> Blocks:
    """Per block: whether it is what readers wrote, of those in comments: outside of menus and
    forms, not mostly links or numbers, a sentence or as long as one, and not repeated there as
    labels are."""
    blocks = page.blocks
    own = blocks["characters"] - blocks["link_characters"]
    text: Blocks = ((blocks["ends"] != 0) | (own >= TEXT)) & (blocks["digits"] * 4 <= own)
    text &= blocks["link_characters"] * 2 <= blocks["characters"]
    text &= page.elements["ancestors"][blocks["element"]] & CONTROLS == 0
    data = page.text.tobytes()
    at = np.flatnonzero(posted)
    bounds = zip(blocks["start"][at].tolist(), blocks["stop"][at].tolist(), strict=True)
    texts = [data[start:stop] for start, stop in bounds]
    found = Counter(texts)
    text[at] &= np.array([found[each] == 1 for each in texts], bool)
    return text
