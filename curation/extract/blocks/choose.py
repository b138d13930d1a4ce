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

#: Characters outside of links from which a block of a comment is text, if no sentence ends there.
COMMENT = 25


def _bits(names: str) -> int:
    return sum(1 << ANCESTORS.index(name) for name in names.split())


#: Ancestors of what lies around the content: menus, side columns, page headers and footers, forms.
_AROUND = _bits("nav aside header footer form")
#: Ancestors of what readers are to use, in sections of comments.
_CONTROLS = _bits("nav form")


def choose(
    page: Page, chances: NDArray[np.float64], threshold: float, comments: bool = False
) -> Blocks:
    """Per block: whether it is chosen, its probability being at least the threshold.

    A page on which none is (a forum, a product, a list of links) must not come out empty: then all
    blocks are chosen that are outside of menus, side columns, page headers and footers and forms,
    and at most half links; where there are none of these either, all blocks.

    What is chosen in sections of comments is left out; if that is more than half of all, the page
    is made of posts, and they stay. With `comments` the rest of their text is added.
    """
    chosen = chances >= threshold
    if not chosen.any():
        chosen = ~(_linked(page) | _inside(page, _AROUND))
    if not chosen.any():
        chosen = np.ones(len(page.blocks), bool)
    sections = page.elements[page.elements["comments"] != 0]
    sizes = np.where(chosen, page.blocks["characters"], 0)
    before = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    if comments:  # what has more than half of the page is its frame
        shares = before[sections["stop"]] - before[sections["first"]]
        posted = covered(sections[shares * 2 <= before[-1]], len(page.blocks))
        return chosen | (posted & _told(page, posted))
    posted = covered(sections, len(page.blocks))
    return chosen & ~posted if sizes[posted].sum() * 2 <= before[-1] else chosen


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
    text = ((blocks["ends"] != 0) | (own >= COMMENT)) & (blocks["digits"] * 4 <= own)
    told: Blocks = text & ~_linked(page) & ~_inside(page, _CONTROLS) & posted
    data = page.text.tobytes()
    at = np.flatnonzero(posted)
    bounds = zip(blocks["start"][at].tolist(), blocks["stop"][at].tolist(), strict=True)
    texts = [data[start:stop] for start, stop in bounds]
    found = Counter(texts)
    told[at] &= np.array([found[each] == 1 for each in texts], bool)
    return told


def _linked(page: Page) -> Blocks:
    linked: Blocks = page.blocks["link_characters"] * 2 > page.blocks["characters"]
    return linked


def _inside(page: Page, ancestors: int) -> Blocks:
    inside: Blocks = page.elements["ancestors"][page.blocks["element"]] & ancestors != 0
    return inside
