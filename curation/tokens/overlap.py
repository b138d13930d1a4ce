"""What validation and train still have in common: n-grams of words, counted.

What may live here: the count, in steps that tasks may divide among them. Words and n-grams are
those of decontamination (`curation.text.ngrams`).

The direction is that of the question a validation loss raises: which share of the validation
documents, and of their n-grams, occurs in train. Three steps, of which each takes arrays and gives
arrays: `collect` the n-grams of validation (those of several tasks together: `merged`), mark which
of them `found` in train (of several tasks: `|`), and `report` on validation again. N-grams are
compared by their 64-bit hashes: of 10^8 known ones and 10^10 looked for, 0.05 are expected to be
taken for another.

`share` bounds memory and time: only n-grams whose hash lies below this share of all hashes count,
the same ones everywhere. The share of n-grams in common is then an estimate; documents in common
are only those with such an n-gram in the sample, so that theirs is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curation.text.ngrams import HashTable, gram_words, ngram_hashes
from curation.text.view import TextView
from manifests.hashing import below

#: Words of an n-gram, as for decontamination (GPT-3).
NGRAM = 13

Texts = Iterable[pa.LargeStringArray]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Overlap:
    """What of validation is in train. Parts add up."""

    documents: int  # of validation
    searchable: int  # of these, have an n-gram in the sample
    overlapping: int  # of these, have one that train has
    ngrams: int  # of validation, as often as they occur, in the sample
    known: int  # of these, are in train

    def __add__(self, other: Overlap) -> Overlap:
        names = self.__dataclass_fields__
        return Overlap(*(getattr(self, name) + getattr(other, name) for name in names))


def collect(texts: Texts, ngram: int = NGRAM, share: float = 1.0) -> Hashes:
    """The n-grams of validation texts: sorted, distinct hashes, 8 bytes each."""
    found = np.empty(0, np.uint64)
    for batch in texts:
        found = merged([found, _sampled(batch, ngram, share)[1]])
    return found


def merged(parts: Iterable[Hashes]) -> Hashes:
    """What several tasks have collected, as one."""
    return np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))


def found(texts: Texts, known: Hashes, ngram: int = NGRAM, share: float = 1.0) -> NDArray[np.bool_]:
    """Which of the known n-grams, collected with the same `ngram` and `share`, these texts have."""
    mask, table = np.zeros(len(known), bool), HashTable(known)
    for batch in texts:
        places = table.places(_sampled(batch, ngram, share)[1])
        mask[places[places >= 0]] = True
    return mask


def report(texts: Texts, shared: Hashes, ngram: int = NGRAM, share: float = 1.0) -> Overlap:
    """The overlap of validation texts, given the n-grams that train has (`known[mask]`)."""
    total, table = Overlap(0, 0, 0, 0, 0), HashTable(shared)
    for batch in texts:
        documents, hashes = _sampled(batch, ngram, share)
        hit = table.places(hashes) >= 0
        searchable, overlapping = len(np.unique(documents)), len(np.unique(documents[hit]))
        total += Overlap(len(batch), searchable, overlapping, len(hashes), int(hit.sum()))
    return total


def _sampled(
    texts: pa.LargeStringArray, ngram: int, share: float
) -> tuple[NDArray[np.int64], Hashes]:
    """The document and hash of each n-gram in the sample."""
    offsets, hashes = ngram_hashes(gram_words(TextView(texts)), ngram)
    documents = np.repeat(np.arange(len(texts)), np.diff(offsets))
    bound = below(share)
    if bound >= 1 << 64:
        return documents, hashes
    chosen = hashes < np.uint64(bound)
    return documents[chosen], hashes[chosen]
