"""Words and phrases of a list, found in texts: how often, and how many different ones.

What may live here: the form in which a list is looked for, the door to the kernel that looks, and
its plain reference. Where lists come from, and which is a document's, is in
`curation.filters.bad_words`.

A phrase is found regardless of case (Unicode's simple case folding), as it is written otherwise:
one space is one space. `bounded`: neither the character before it nor the one after it is of a
word, that is, a letter, a number or "_" (`\\w` of regular expressions); else wherever it occurs.
What is found does not overlap: from the left, of those that begin at one place the longest. So all
is as `re.finditer(r"(?<!\\w)(?:longest|shorter)(?!\\w)", text)` has it, in time that does not
depend on the number of phrases. These are not the words of the text view: "don_t" is one here, and
the marks of Indic scripts divide words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curation.text.characters import NUMBER, table, table_version
from curation.text.reference import character_class, fold, word_hash
from curation.text.view import TextView

#: Bumped when a definition above changes.
PHRASES_VERSION = 1


def versions() -> dict[str, str]:
    """What decides counts: for `depends()` of every stage that has some."""
    return {"phrases": str(PHRASES_VERSION), "characters": table_version()}


@dataclass(frozen=True)
class Phrases:
    """A list, ready to be looked for.

    A phrase is looked for where its key is: of bounded ones the characters of words with which it
    begins, or its first character if that is of none; of others the first character.
    """

    bounded: bool
    slots: NDArray[np.uint64]  # open hash table of the keys' hashes, 0 where empty
    firsts: NDArray[np.int32]  # per slot: its first phrase; the others follow, the longest first
    points: NDArray[np.int32]  # folded code points of all phrases
    at: NDArray[np.int64]  # where each phrase begins in `points`; phrases + 1
    lasts: NDArray[np.bool_]  # whether the next phrase has another key


def is_word(character: str) -> bool:
    r"""Whether a character is `\w`."""
    return character == "_" or character_class(character) >= NUMBER


def key(phrase: str, bounded: bool) -> str:
    """Of a folded phrase (see `Phrases`)."""
    size = 1
    while bounded and is_word(phrase[0]) and size < len(phrase) and is_word(phrase[size]):
        size += 1
    return phrase[:size]


def prepare(phrases: Iterable[str], bounded: bool) -> Phrases:
    """A list of phrases, none of them empty, in the form of the kernel."""
    folded = {"".join(map(fold, phrase)) for phrase in phrases}
    keyed = sorted((word_hash(key(p, bounded)), -len(p), p) for p in folded)
    hashes = np.array([value for value, *_ in keyed], np.uint64)
    lasts = np.ones(len(keyed), bool)
    lasts[:-1] = hashes[1:] != hashes[:-1]
    slots = np.zeros(4 << len(keyed).bit_length(), np.uint64)
    firsts = np.zeros(len(slots), np.int32)
    for first in np.flatnonzero(np.roll(lasts, 1)).tolist():
        slot = int(hashes[first]) % len(slots)
        while slots[slot]:
            slot = (slot + 1) % len(slots)
        slots[slot], firsts[slot] = hashes[first], first
    points = np.array([ord(character) for *_, p in keyed for character in p], np.int32)
    at = np.cumsum([0, *(-size for _, size, _ in keyed)], dtype=np.int64)
    return Phrases(bounded, slots, firsts, points, at, lasts)


def count(
    view: TextView, phrases: Phrases, documents: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often phrases occur in each of these documents (by number), and how many of them."""
    from curation.text.phrases import kernels

    hits, distinct = (np.empty(len(documents), np.int64) for _ in range(2))
    kernels.count_phrases(
        *(view.data, view.begins[documents], view.ends[documents], table()),
        *(phrases.bounded, phrases.slots, phrases.firsts),
        *(phrases.points, phrases.at, phrases.lasts),
        *(np.full(len(phrases.lasts), -1, np.int64), hits, distinct),
    )
    return hits, distinct
