"""MinHash signatures: few numbers per document from which the similarity of two is estimated.

What may live here: shingles, signatures, band hashes and what two documents have in common; the
definitions are below, the loops in `kernels.py`, the same in plain Python in `reference.py`.

**Shingles** are the runs of `ngram` words of a text, as a set. Words are those of the text view:
Unicode's, without punctuation and white space, compared after simple case folding (a letter of Han
or Thai is a word of its own). So texts that differ in case, punctuation, white space and line
breaks have the same shingles. Others normalise differently, and their signatures are not comparable
with these: datatrove (FineWeb) also writes every number as 0, drops accents, and splits words by a
tokenizer of the language; RedPajama v2 drops punctuation without leaving a space, so that
"end.Start" is one word; RefinedWeb takes tokens of GPT-2, NeMo Curator characters.

The **hash of a shingle** is the polynomial of its words' 64-bit hashes in an odd base modulo 2**64
(so their order counts), finalised as in MurmurHash3. Two given shingles share a hash with
probability 2**-64.

**Permutations.** The k-th maps the upper 32 bits x of a shingle's hash to (a x + b) mod 2**32, with
a odd: a permutation of the 32-bit numbers, in arithmetic that wraps on purpose. A signature keeps
the low 16 bits of the minimum of each over the shingles of the document. Why the estimate, the
share of equal values, is unbiased: a permutation maps values that are uniform and independent to
such, and the finalised x are that for all a text knows of them, so every shingle of the union of
two documents is equally likely to have the minimum, whatever a and b are; they have it in common if
and only if that shingle is in both. This is exact but for ties: 2**-16 for the bits left out and n
/ 2**32 for sets of n shingles. (Bohman, Cooper and Frieze 2000, "Min-wise independent linear
permutations", bound the error for any fixed set, random a and b.) What the choice of a and b
decides is how independent the K values are, so the spread about the similarity J; measured in
`tests/test_signatures.py` as sqrt(J (1 - J) / K), that of independent ones, for sets up to 10**5.
The multiply-shift (a x + b) >> 32 with a and b of 64 bits spreads no less, and needs products of 64
bits: half as many to a vector register, and dearer. Not (a x + b) mod (2**61 - 1) in 64 bits that
wrap, as datatrove and datasketch had it: that is no permutation.

a and b are the halves of the outputs of splitmix64 (Steele, Lea and Flood 2014) from seed 0 on, the
same for ever; so a shorter signature is the beginning of a longer one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from curation.dedup.reference import permutation
from curation.text.ngrams import hash_sequences
from curation.text.view import TextView, read_only

#: Bumped when a signature or a band hash changes. They rest on `curation.text.view.versions` too.
SIGNATURE_VERSION = 1


def signatures(
    view: TextView, ngram: int, permutations: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """The signature of each document, (documents, permutations), and how many shingles it has.

    Shingles are counted as often as they occur: words - ngram + 1. A document with fewer words than
    `ngram` (1 or more) has none, and a signature of zeros that says nothing. Takes 16 bytes a word
    meanwhile.
    """
    from curation.dedup import kernels

    starts, hashes = hash_sequences(*view.word_hashes(), ngram)
    found = np.zeros((len(view), permutations), np.uint16)
    minima = np.empty(permutations, np.uint32)
    kernels.find_minima(starts, hashes, *_permutations(permutations), minima, found.reshape(-1))
    return found, np.diff(starts)


def band_hashes(
    signatures: NDArray[np.uint16], bands: int, rows: int, salts: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """The hash of each band of each document, (documents, bands).

    Band k is the values k * rows to (k + 1) * rows of a signature; what is beyond the last band
    does not count. The band's number and the document's salt (its scope) are hashed in, so that
    only equal bands of equal scope meet. Documents without shingles have band hashes as well: leave
    them out. Raises ValueError for signatures that are too short.
    """
    from curation.dedup import kernels

    documents, size = signatures.shape
    if bands * rows > size:
        raise ValueError(f"{bands} bands of {rows} rows need more than {size} permutations")
    hashes = np.empty((documents, bands), np.uint64)
    kernels.hash_bands(read_only(signatures), bands, rows, read_only(salts), hashes.reshape(-1))
    return hashes


def shingles(view: TextView, ngram: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The set of shingles of each document: offsets (documents + 1) and hashes, sorted, distinct.

    Those of document `d` are `hashes[offsets[d]:offsets[d + 1]]`.
    """
    from curation.dedup import kernels

    starts, hashes = hash_sequences(*view.word_hashes(), ngram)
    for first, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        hashes[first:stop].sort()
    offsets = np.empty_like(starts)
    kernels.keep_distinct(starts, hashes, offsets)
    return offsets, hashes[: offsets[-1]]


def jaccard(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> float:
    """Exact Jaccard similarity of two sorted, distinct arrays of shingles; 0 of two empty ones."""
    from curation.dedup import kernels

    common = kernels.count_common(read_only(left), read_only(right))
    return float(common / max(left.size + right.size - common, 1))


def similarity(left: NDArray[np.uint16], right: NDArray[np.uint16]) -> float:
    """Estimated Jaccard similarity of two documents: the share of equal values of their signatures.

    Its standard error is sqrt(J (1 - J) / permutations): 0.038 at J = 0.8 with 112.
    """
    from curation.dedup import kernels

    return float(kernels.count_matches(read_only(left), read_only(right)) / left.size)


@lru_cache(maxsize=8)
def _permutations(count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    pairs = np.array([permutation(k) for k in range(count)], np.uint32)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
