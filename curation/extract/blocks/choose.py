"""Which blocks of a page are its main content.

What may live here: the score of each block, the choice by a threshold, and what is chosen where
that leaves nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from curation.extract.blocks.page import ANCESTORS, HEADING, ITEM, Page

#: Ancestors of what lies around the content: menus, side columns, page headers and footers, forms.
_AROUND = sum(1 << ANCESTORS.index(name) for name in ("nav", "aside", "header", "footer", "form"))


def choose(page: Page, threshold: float) -> NDArray[np.bool_]:
    """Per block: whether it is chosen, its probability being at least the threshold.

    A page on which none is (a forum, a product, a list of links) must not come out empty: then all
    blocks are chosen that are outside of menus, side columns, page headers and footers and forms,
    and at most half links; where there are none of these either, all blocks.
    """
    chosen: NDArray[np.bool_] = probabilities(page) >= threshold
    if not chosen.any():
        linked = page.blocks["link_characters"] * 2 > page.blocks["characters"]
        around = page.elements["ancestors"][page.blocks["element"]] & _AROUND != 0
        chosen = ~(linked | around)
    return chosen if chosen.any() else np.ones(len(page.blocks), bool)


def probabilities(page: Page) -> NDArray[np.float64]:
    """Per block: how probably it is of the main content.

    For now a rule of thumb in place of a model: sentences outside of links and menus, and what is
    near to them.
    """
    blocks = page.blocks
    if not len(blocks):
        return np.zeros(0)
    places = page.elements[blocks["element"]]
    free = (blocks["characters"] - blocks["link_characters"]) / blocks["characters"]
    prose = free * np.minimum(blocks["characters"] / 100, 1) * (0.5 + 0.5 * blocks["ends"])
    prose *= places["ancestors"] & _AROUND == 0
    near = np.convolve(prose, [0.25, 0.5, 1, 1, 1, 0.5, 0.25])[3:-3]
    brief = np.isin(places["kind"], (HEADING, ITEM)) & (prose > 0)
    score: NDArray[np.float64] = np.minimum(prose * 0.7 + near * (0.15 + 0.15 * brief), 1)
    return score
