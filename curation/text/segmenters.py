"""Word segmenters for scripts that write no spaces between words: an extra (`gristmill[segment]`).

What may live here: the segmenters known by name, how a user's own is found, and how their words
take the place of single letters in a text view.

A segmenter is a function from a run of letters of such scripts (Han, Hiragana, Thai, Lao, Khmer,
Myanmar, Tai; see `curation.text.view`) to its words in order, which joined are the run. All other
words stay what they are. Segmenters take more than twice the time for twice the run, so that one of
more than `LONGEST_RUN` letters is handed over in parts.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from curation.text.characters import ALPHABETIC, table
from curation.text.view import TextView, WordCounts, Words, offsets_of

Segmenter = Callable[[str], Iterable[str]]

LONGEST_RUN = 1_000  # letters; sentences are shorter


def _jieba() -> Segmenter:
    import jieba

    jieba.setLogLevel(60)  # it tells of its dictionary otherwise
    return jieba.cut  # type: ignore[no-any-return]


def _janome() -> Segmenter:
    from janome.tokenizer import Tokenizer

    tokenizer = Tokenizer(wakati=True)
    return lambda run: (str(word) for word in tokenizer.tokenize(run))


def _pythainlp() -> Segmenter:
    from pythainlp.tokenize import word_tokenize

    return lambda run: word_tokenize(run, engine="newmm-safe")


#: Packages of that name: jieba for Chinese, janome for Japanese, pythainlp for Thai.
KNOWN: Mapping[str, Callable[[], Segmenter]] = {
    "jieba": _jieba,
    "janome": _janome,
    "pythainlp": _pythainlp,
}


def check(name: str) -> str:
    """The name of a segmenter that is there: a known one, or `module:function`. ValueError else."""
    if name in KNOWN:
        if find_spec(name) is None:
            raise ValueError(f"{name} is not installed: pip install 'gristmill[segment]'")
        return name
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"{name!r} is none of {', '.join(KNOWN)}, and no module:function")
    try:
        found = getattr(import_module(module), function)
        inspect.getsourcefile(found)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from None
    if not inspect.isfunction(found):
        raise ValueError(f"{name} is no function")
    return name


@cache
def load(name: str) -> Segmenter:
    """The segmenter, with its dictionary read; once per process."""
    if name in KNOWN:
        return KNOWN[name]()
    module, _, function = name.partition(":")
    found: Segmenter = getattr(import_module(module), function)
    return found


def version(name: str) -> str:
    """What decides the words of a segmenter: the package's version, or the user's source."""
    if name in KNOWN:
        return metadata.version(name)
    source = Path(inspect.getfile(import_module(name.partition(":")[0]))).read_bytes()
    return hashlib.blake2b(source, digest_size=8).hexdigest()


def segmented(view: TextView, names: Sequence[str | None]) -> TextView:
    """The same texts with the words of a segmenter: `names` has one for each document, or None.

    Raises ValueError where a segmenter's words are not the run that it was given.
    """
    from curation.text.kernels import begins_single, hash_words

    words = view.words
    single = np.empty(len(words.starts), bool)
    begins_single(view.data, words.starts, table(), single)
    counts = np.diff(words.offsets)
    document = np.repeat(np.arange(len(view)), counts)
    single &= np.array([name is not None for name in names], bool)[document]
    inside = np.zeros(len(single), bool)  # a single letter right after another one
    inside[1:] = (
        single[1:]
        & single[:-1]
        & (words.starts[1:] == words.stops[:-1])
        & (document[1:] == document[:-1])
    )
    firsts = np.flatnonzero(single & ~inside)
    if not len(firsts):
        return view
    # The last word of each run: the one before the next word that is not inside.
    bounds = np.flatnonzero(~inside)
    lasts = np.append(bounds, len(inside))[np.searchsorted(bounds, firsts) + 1] - 1

    starts: list[int] = []
    stops: list[int] = []
    owners: list[int] = []
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        begin, end = int(words.starts[first]), int(words.stops[last])
        name = names[document[first]]
        assert name is not None
        for start, stop in _spans(name, bytes(view.data[begin:end]).decode()):
            starts.append(begin + start)
            stops.append(begin + stop)
        owners += [int(document[first])] * (len(starts) - len(owners))

    new = (np.array(starts, np.int32), np.array(stops, np.int32))
    hashes = np.empty(len(starts), np.uint64)
    hash_words(view.data, *new, table(), True, hashes)
    points = np.cumsum(view.data & 0xC0 != 0x80)  # that begin up to each byte
    lengths = (points[new[1] - 1] - points[new[0]] + 1).astype(np.int32)
    flags = np.full(len(starts), ALPHABETIC, np.uint8)
    added = Words(words.offsets, *new, lengths, hashes, flags)
    return _with_words(view, _merge(words, ~single, document, added, np.array(owners)))


def _spans(name: str, run: str) -> Iterable[tuple[int, int]]:
    """The bytes [start, stop) of the words of a run."""
    parts = [run[i : i + LONGEST_RUN] for i in range(0, len(run), LONGEST_RUN)]
    found = [word for part in parts for word in load(name)(part) if word]
    if "".join(found) != run:
        raise ValueError(f"{name}: its words do not add up to what it was given")
    end = 0
    for word in found:
        start, end = end, end + len(word.encode())
        yield start, end


def _merge(
    old: Words, stay: np.ndarray, document: np.ndarray, added: Words, owners: np.ndarray
) -> Words:
    """The old words that stay and those that were added, in order."""
    columns = {
        name: np.concatenate([getattr(old, name)[stay], getattr(added, name)])
        for name in ("starts", "stops", "lengths", "hashes", "flags")
    }
    owner = np.concatenate([document[stay], owners])
    order = np.argsort(columns["starts"], kind="stable")
    counts = np.bincount(owner, minlength=len(old.offsets) - 1)
    return Words(offsets_of(counts), **{name: c[order] for name, c in columns.items()})


def _with_words(view: TextView, words: Words) -> TextView:
    """The view with other words; what does not depend on them is kept."""
    other = copy.copy(view)
    for name in ("word_totals", "exact_hashes", "_word_hashes"):
        other.__dict__.pop(name, None)
    totals = WordCounts(np.diff(words.offsets), words.code_points())
    other.__dict__["_words_and_totals"] = (words, totals)
    other.__dict__["words"] = words
    return other
