"""N-grams of words, as decontamination compares them: where they stand, and known ones found again.

What may live here: what a word of an n-gram is, the hashes of n-grams, the table of known ones, the
doors to the kernels, and their plain reference. Whose n-grams are looked for, and what becomes of a
text that has them, is in `curation.filters` and `curation.tokens`.

**Words** are GPT-3's (Brown et al. 2020, arXiv 2005.14165, appendix C): lower case, between white
space, without punctuation. So "Well-known," is "wellknown", "don't" is "dont", and "--" is none.
In detail: a run without white space is one word of its letters, numbers and marks in order, after
Unicode's simple case folding; all else in it (punctuation, symbols, format characters, marks that
follow no letter or number) is passed over. Where a script writes no spaces (Han, Hiragana, Thai,
..: `characters.SINGLE`), each letter with its marks is a word of its own, since else a whole
sentence were one. Nothing is normalised: NFC and NFD differ. These are not the words of the text
view, for which "well-known" is two.

The **hash of an n-gram** is the polynomial of its words' 64-bit hashes in an odd base modulo 2**64,
finalised as in MurmurHash3. Where known n-grams are looked for, words are compared one by one, so
that a shared hash is no match.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curation.text.characters import table, table_version
from curation.text.view import TextView, offsets_of, read_only

#: Bumped when a definition above changes.
NGRAMS_VERSION = 1


def versions() -> dict[str, str]:
    """What decides n-grams: for `depends()` of every stage that looks for some."""
    return {"ngrams": str(NGRAMS_VERSION), "characters": table_version()}


@dataclass(frozen=True)
class GramWords:
    """The words of a batch, in order; those of document `d` are `offsets[d]:offsets[d + 1]`.

    16 bytes a word.
    """

    offsets: NDArray[np.int64]  # documents + 1
    starts: NDArray[np.int32]  # bytes into `TextView.data`
    stops: NDArray[np.int32]  # the same, half-open
    hashes: NDArray[np.uint64]


def gram_words(view: TextView) -> GramWords:
    """Every word of a batch, which must be below 2 GiB."""
    from curation.text.ngrams import kernels

    if len(view.data) > np.iinfo(np.int32).max:
        raise ValueError(f"words of {len(view.data)} bytes at once: a batch must be below 2 GiB")
    # Two words never touch unless one is of a script whose letters take three bytes.
    most = (len(view.data) + len(view)) // 2
    counts, hashes = np.empty(len(view), np.int64), np.empty(most, np.uint64)
    starts, stops = (np.empty(most, np.int32) for _ in range(2))
    texts = (view.data, view.begins, view.ends, table())
    found = kernels.find_gram_words(*texts, counts, starts, stops, hashes)
    for column in (starts, stops, hashes):
        column.resize(found, refcheck=False)  # gives back what was never touched
    return GramWords(offsets_of(counts), starts, stops, hashes)


def ngram_hashes(words: GramWords, size: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The hashes of the n-grams of each document, as `hash_sequences` has them."""
    return hash_sequences(words.offsets, words.hashes, size)


def hash_sequences(
    offsets: NDArray[np.int64], words: NDArray[np.uint64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The hashes of `size` words in a row, in order and as often as they occur.

    `words` are the hashes of words, those of document `d` from `offsets[d]` to `offsets[d + 1]`;
    the same holds for what is returned: words - size + 1, or none.
    """
    from curation.text.ngrams import kernels

    starts = offsets_of(np.maximum(np.diff(offsets) - size + 1, 0))
    hashes = np.empty(starts[-1], np.uint64)
    kernels.hash_ngrams(read_only(offsets), read_only(words), size, starts, hashes)
    return starts, hashes


def _slots(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """An open hash table of distinct hashes, and which of them each slot holds."""
    from curation.text.ngrams import kernels

    slots = np.zeros(2 << len(hashes).bit_length(), np.uint64)
    numbers = np.zeros(len(slots), np.int32)
    kernels.fill_slots(hashes, slots, numbers)
    return slots, numbers


class HashTable:
    """Distinct hashes (uint64), in which others are looked up: 24 to 48 bytes each.

    A hash of 0 is never found.
    """

    def __init__(self, hashes: NDArray[np.uint64]) -> None:
        self._slots, self._numbers = _slots(hashes)

    def places(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Where each of these stands among those of the table; -1 for one that does not."""
        from curation.text.ngrams import kernels

        found = np.empty(len(hashes), np.int32)
        kernels.find_hashes(hashes, self._slots, self._numbers, found)
        return found


@dataclass(frozen=True)
class Known:
    """N-grams of one size, ready to be looked for; each has a number, from 0 on.

    Of different n-grams with the same hash only the first is looked for.
    """

    size: int  # words
    slots: NDArray[np.uint64]  # open hash table of their hashes, 0 where empty
    numbers: NDArray[np.int32]  # per slot: the n-gram
    firsts: NDArray[np.int64]  # per n-gram: its first word among those of all texts
    at: NDArray[np.int64]  # where each of these words begins in `points`; words + 1
    points: NDArray[np.int32]  # the words, spelt: folded code points

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.slots, self.numbers, self.firsts, self.at, self.points)
        return sum(array.nbytes for array in arrays)


def known(
    texts: pa.LargeStringArray, size: int
) -> tuple[Known, NDArray[np.int64], NDArray[np.int64]]:
    """The n-grams of some texts; then of each occurrence, in order, its text and its number."""
    from curation.text.ngrams import kernels

    view = TextView(texts)
    words = gram_words(view)
    offsets, hashes = ngram_hashes(words, size)
    owners = np.repeat(np.arange(len(view)), np.diff(offsets))
    places = np.arange(len(hashes)) - offsets[owners] + words.offsets[owners]
    distinct, first, numbers = np.unique(hashes, return_index=True, return_inverse=True)
    slots, found = _slots(distinct)
    points = np.empty(len(view.data), np.int32)
    at = np.empty(len(words.starts) + 1, np.int64)
    spelt = kernels.spell_words(view.data, words.starts, words.stops, table(), at, points)
    table_of = Known(size, slots, found, places[first], at, points[:spelt].copy())
    return table_of, owners, numbers.astype(np.int64)


@dataclass(frozen=True)
class Hits:
    """Where known n-grams stand in a batch, in order of document and place."""

    documents: NDArray[np.int32]  # place in the batch
    numbers: NDArray[np.int32]  # which n-gram
    starts: NDArray[np.int64]  # bytes into the document, from the first word
    stops: NDArray[np.int64]  # the same, half-open, to the end of the last word


def find(view: TextView, words: GramWords, sought: Known) -> Hits:
    """Every occurrence of known n-grams in a batch."""
    from curation.text.ngrams import kernels

    most = len(words.hashes)
    documents, numbers = np.empty(most, np.int32), np.empty(most, np.int32)
    firsts = np.empty(most, np.int64)
    found = kernels.find_ngrams(
        *(view.data, table(), words.offsets, words.starts, words.stops, words.hashes),
        *(sought.size, sought.slots, sought.numbers, sought.firsts, sought.at, sought.points),
        *(documents, numbers, firsts),
    )
    documents, first = documents[:found].copy(), firsts[:found]
    begins = view.begins[documents]
    return Hits(
        documents,
        numbers[:found].copy(),
        words.starts[first] - begins,
        words.stops[first + sought.size - 1] - begins,
    )
