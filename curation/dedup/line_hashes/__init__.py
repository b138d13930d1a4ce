"""Lines as they are compared: the hash of each line of a batch, and where it is.

What may live here: what makes two lines the same, the kernel that hashes them, and its plain
reference. Which lines go is decided in `curation.dedup.lines`.

A line is what lies between "\\n"s: what CCNet calls a paragraph. Two lines are the same when their
**keys** are: the letters, numbers and marks of the line in order, after Unicode's simple case
folding, every number (categories N*) as "0", and one space wherever white space stood between two
of them. All else (punctuation, symbols, emoji, control and format characters, marks that belong to
no letter or number) is passed over, so that "- 12 likes!" and "13 Likes" are the same, "well-known"
and "well known" are not. CCNet (Wenzek et al. 2020) lowers the case and makes digits 0, too; of
punctuation its code removes a list of marks outside of ASCII, of white space what stands at the
ends, so that fewer lines are the same to it. Accents stay, as in its code (the paper drops them).

A line without a letter (blank, "* * *", "1999") has no key: it repeats nothing. Keys are compared
by their 64-bit hashes: of 10^9 different lines two share one with a probability of 3 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curation.text.characters import table
from curation.text.view import TextView

#: Bumped when a key or its hash changes.
KEY_VERSION = 1


@dataclass(frozen=True)
class LineHashes:
    """The lines of a batch that have a key, in order.

    To delete a line is to delete its bytes [start, stop) of its document: they hold the newline
    after it, or, of the last line, the one before it.
    """

    documents: NDArray[np.int32]  # place in the batch
    hashes: NDArray[np.uint64]
    starts: NDArray[np.int32]  # bytes into the document
    stops: NDArray[np.int32]  # the same, half-open


def line_hashes(view: TextView) -> LineHashes:
    """The hash and place of every line of a batch, 20 bytes a line. A batch is below 2 GiB."""
    from curation.dedup.line_hashes import kernels

    most = int(np.count_nonzero(view.data == ord("\n"))) + len(view)
    documents, starts, stops = (np.empty(most, np.int32) for _ in range(3))
    found = LineHashes(documents, np.empty(most, np.uint64), starts, stops)
    columns = (found.documents, found.hashes, found.starts, found.stops)
    size = kernels.hash_lines(view.data, view.begins, view.ends, table(), *columns)
    return LineHashes(*(column[:size] for column in columns))  # type: ignore[arg-type]
