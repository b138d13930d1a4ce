"""Features of blocks: what the model sees of each block of a page.

What may live here: the names of the features, the tables of weights that they need, and `features`.
`kernels` computes them, `reference` says the same in plain Python.

*Prose* is a block's characters outside of links, if at most half of them are links and it ends like
a sentence (from 25 characters on) or has three marks of punctuation. *Hints* are the words of
elements' attributes, each with a learned weight; so are a block's first words, and their pairs.
*Containers* are the elements around a block that each hold more blocks than the one before;
`best` is the one with most votes of prose (as Readability's scoring of parents and grandparents,
https://github.com/mozilla/readability), `half` the smallest element with more than half of it.
*Groups* are the blocks whose elements look the same (tag, first three hints): `page` with parents
that do, too, `parent` in one parent. Shares are of characters; distances are in blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curation.extract.blocks.features import kernels
from curation.extract.blocks.page import Page


def _names() -> tuple[str, ...]:
    own = (
        "characters words links links_per_word commas_per_word terminals ends digits capitals "
        "short_words word_length letters singles terminal_share breaks first_byte"
    )
    place = "tag leaf parent kind level depth lists article marginal table figure section"
    hints = "path greatest least nearest own near"
    words = "score title heading_score heading_hints heading_level from_heading"
    container = "blocks characters links prose prose_share tag alike position"
    group = "size characters links prose ends"
    best = (
        "in_best best_position from_best to_best_end climb above best_prose best_hints in_half "
        "half_size half_position"
    )
    page = (
        "blocks characters links prose longest position characters_before prose_before prose_after "
        "from_headline from_title since_prose until_prose prose_here"
    )
    neighbour = "characters links ends tag hints score same_container"
    return (
        *own.split(),
        *place.split(),
        *(f"hints_{name}" for name in hints.split()),
        *words.split(),
        *(f"container{i + 1}_{x}" for i in range(kernels.LEVELS) for x in container.split()),
        "alike",
        *(f"{which}_group_{name}" for which in ("page", "parent") for name in group.split()),
        *best.split(),
        *(f"page_{name}" for name in page.split()),
        *(f"window{w}_{name}" for w in kernels.WINDOWS for name in ("prose", "links")),
        *(f"neighbour{at:+d}_{name}" for at in kernels.NEIGHBOURS for name in neighbour.split()),
    )


#: Names of the columns, in order.
NAMES = _names()

#: Names of the columns that only a second look sees: the probabilities of the block and its
#: neighbours; means around it and in its parent, weighted by the square root of characters; the
#: share of all that lies before it; the highest on the page, up to the block and from it on.
CONTEXT = (
    *(f"chance{at:+d}" for at in range(-kernels.NEAR, kernels.NEAR + 1)),
    *(f"chances_around{width}" for width in kernels.AROUND),
    *("chances_parent", "chances_before", "highest", "highest_before", "highest_after"),
)


class Weights(NamedTuple):
    """Learned weights of words by the slot of their hash (float32, lengths powers of two)."""

    hints: NDArray[np.float32]
    words: NDArray[np.float32]


def opening_words(page: Page) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Hashes of each block's first words (the title's in the last row), and how many there are."""
    rows = len(page.blocks) + 1
    words = np.zeros((rows, kernels.TITLE_WORDS), np.uint32)
    counts = np.zeros(rows, np.int32)
    kernels.opening_words(page.text, _matrix(page.blocks), page.title, words, counts)
    return words, counts


def features(page: Page, weights: Weights) -> NDArray[np.float32]:
    """The matrix of a row a block, in time linear in the page's records: columns NAMES, then those
    of CONTEXT, 0 until `add_context` fills them."""
    matrix = np.zeros((len(page.blocks), len(NAMES) + len(CONTEXT)), np.float32)
    if len(matrix):
        records = _matrix(page.elements), _matrix(page.blocks)
        kernels.features(*records, page.hints, page.text, *opening_words(page), *weights, matrix)
    return matrix


def add_context(page: Page, matrix: NDArray[np.float32], chances: NDArray[np.float64]) -> None:
    """Fills what only a second look sees, from the probabilities that a first look gave."""
    if len(matrix):
        records = _matrix(page.elements), _matrix(page.blocks)
        kernels.context(*records, chances, len(NAMES), matrix)


def _matrix(records: NDArray[np.void]) -> NDArray[np.int32]:
    return records.view(np.int32).reshape(len(records), len(records.dtype.names or ()))
