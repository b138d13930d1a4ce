"""Which blocks of a page are its main content.

What may live here: the choice by a threshold, and what is chosen where that leaves nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from curation.extract.blocks.model import package_model
from curation.extract.blocks.page import ANCESTORS, Page

#: Ancestors of what lies around the content: menus, side columns, page headers and footers, forms.
_AROUND = sum(1 << ANCESTORS.index(name) for name in ("nav", "aside", "header", "footer", "form"))


def choose(page: Page, threshold: float) -> NDArray[np.bool_]:
    """Per block: whether it is chosen, its probability being at least the threshold.

    A page on which none is (a forum, a product, a list of links) must not come out empty: then all
    blocks are chosen that are outside of menus, side columns, page headers and footers and forms,
    and at most half links; where there are none of these either, all blocks.
    """
    chosen: NDArray[np.bool_] = package_model().probabilities(page) >= threshold
    if not chosen.any():
        linked = page.blocks["link_characters"] * 2 > page.blocks["characters"]
        around = page.elements["ancestors"][page.blocks["element"]] & _AROUND != 0
        chosen = ~(linked | around)
    return chosen if chosen.any() else np.ones(len(page.blocks), bool)
