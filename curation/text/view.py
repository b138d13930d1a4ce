"""The text view: what every heuristic, repetition rule and shingle reads of a batch of texts.

What may live here: `TextView`, the arrays that it hands out, and the definitions behind them. All
work is done by compiled kernels over Arrow's buffers, each when first asked for.

**Words** are Unicode's default words (UAX #29), simplified to what counting and hashing need. A
word begins at a letter or number (categories L*, N*) and goes on over letters, numbers and marks
(M*); within it, format characters (Cf: ZWJ, ZWNJ, soft hyphen, ...; not U+200B, which is a space)
are passed over, and one apostrophe (`characters.APOSTROPHES`) may stand between two characters that
would join. So "don't" is one word and so is a Persian compound with ZWNJ; "3.14", "snake_case" and
"well-known" are two; symbols, emoji and stray marks are none. Han, Hiragana and the scripts of
south-east Asia that write no spaces (Thai, Lao, Khmer, Myanmar, Tai) make each letter with its
marks a word, Katakana each run: what UAX #29 gives without a dictionary, finer than readers would
count but the same everywhere. Only `kernels.next_word` and `reference.words` know all this.

**Tokens** are what `str.split` gives: runs without white space, symbols included.

**Lines** are what lies between "\n"s, with the white space at both ends trimmed (a "\r" is white
space, and so is U+2028, which separates nothing); blank lines are not lines. A line begins a
paragraph when it is the first of its document or follows a blank line.

**Sentences** are Unicode's default sentences (UAX #29), simplified, within lines. A sentence has a
letter, and ends with its line, or with a run of terminal marks (`characters.TERMINALS`, in which
closing quotes and brackets may stand) before white space; before anything else if one of the marks
is of a script that needs no space there, that is, neither ASCII nor a full stop. If all marks are
full stops, it goes on when the next letter or number is in lower case; and after one full stop also
when a single letter or one of `reference.ABBREVIATIONS` stands before it ("J. Smith", "Dr. No").
So "e.g. this" and "three...but one" end nothing, while "U.S. The end" is one sentence too few.

**Hashes** are 64 bits, of the code points of the word in order (exact, or after Unicode's simple
case folding), finalised as in MurmurHash3 so that every bit is fit for use; the same for ever.

Words and hashes are those of the text as it is: nothing is normalised (NFC and NFD differ).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curation.text.characters import table, table_version
from curation.text.reference import ABBREVIATIONS, bytes_hash

#: Bumped when a definition above changes.
VIEW_VERSION = 1

#: Whose words: those above, spaCy's as datatrove takes them (`curation.text.datatrove`), or runs
#: without white space, as Dolma has it.
Definition = Literal["unicode", "datatrove", "dolma"]


def versions(definition: Definition = "unicode") -> dict[str, str]:
    """What decides words, lines and hashes: for `depends()` of every stage that reads a view."""
    found = {"text_view": str(VIEW_VERSION), "characters": table_version()}
    if definition == "datatrove":
        from curation.text import datatrove

        found["datatrove_words"] = datatrove.version()
    return found


@dataclass(frozen=True)
class Words:
    """The words of a batch, in order; those of document `d` are `offsets[d]:offsets[d + 1]`.

    21 bytes a word.
    """

    offsets: NDArray[np.int64]  # documents + 1
    starts: NDArray[np.int32]  # bytes into `TextView.data`
    stops: NDArray[np.int32]  # the same, half-open
    lengths: NDArray[np.int32]  # code points
    hashes: NDArray[np.uint64]  # after simple case folding; see `TextView.exact_hashes`
    flags: NDArray[np.uint8]  # characters.ALPHABETIC; more by `datatrove`

    def code_points(self) -> NDArray[np.int64]:
        """Per document: the lengths of its words in sum."""
        sums = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        return np.asarray(np.diff(sums[self.offsets]))


@dataclass(frozen=True)
class Spans:
    """Parts of the documents of a batch, in order; `offsets` as in `Words`."""

    offsets: NDArray[np.int64]  # documents + 1
    starts: NDArray[np.int32]  # bytes into `TextView.data`
    stops: NDArray[np.int32]  # the same, half-open


@dataclass(frozen=True)
class Lines(Spans):
    """The lines of a batch that are not blank, in order and trimmed."""

    flags: NDArray[np.uint8]  # characters.BULLET_LINE | ELLIPSIS_LINE | PARAGRAPH_LINE


@dataclass(frozen=True)
class WordCounts:
    """Per document, int64."""

    words: NDArray[np.int64]
    code_points: NDArray[np.int64]  # of the words: their lengths in sum


@dataclass(frozen=True)
class WordSums(WordCounts):
    """Per document, int64."""

    alphabetic: NDArray[np.int64]  # of all words, those with a letter


@dataclass(frozen=True)
class LineCounts:
    """Per document, int64."""

    lines: NDArray[np.int64]  # not blank
    bullets: NDArray[np.int64]  # of these, begin with a bullet
    ellipses: NDArray[np.int64]  # of these, end with an ellipsis


@dataclass(frozen=True)
class LineEnds:
    """Per document, int64."""

    lines: NDArray[np.int64]  # not blank
    terminal: NDArray[np.int64]  # of these, end with a terminal mark
    short: NDArray[np.int64]  # of these, are short
    newlines: NDArray[np.int64]  # all that there are


@dataclass(frozen=True)
class MarkCounts:
    """Per document, int64."""

    code_points: NDArray[np.int64]
    hashes: NDArray[np.int64]  # '#'
    ellipses: NDArray[np.int64]  # "..." without overlap from the left, and U+2026


@dataclass(frozen=True)
class TokenCounts:
    """Per document, int64."""

    tokens: NDArray[np.int64]
    alphabetic: NDArray[np.int64]  # with a letter (category L*)


class TextView:
    """A batch of texts as words, lines and counts, each computed when first asked for and kept.

    A null counts as an empty text. Counts take a few bytes a document. `words` take 21 bytes a word
    (of prose, four times the text; at most eleven times) and `lines` 9 a line; for these two a
    batch must be below 2 GiB.
    """

    def __init__(self, texts: pa.LargeStringArray) -> None:
        if not isinstance(texts, pa.LargeStringArray):
            raise TypeError(f"a text view needs a large_string array, not {type(texts).__name__}")
        _, offsets, data = texts.buffers()
        ends = np.zeros(1, np.int64)
        if len(texts):
            ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        first, last = int(ends[0]), int(ends[-1])
        ends = ends - first
        #: uint8: the UTF-8 bytes of the texts, without copying.
        self.data: NDArray[np.uint8] = np.frombuffer(data or b"", np.uint8)[first:last]
        self.data.flags.writeable = False  # as Arrow means it, and one type for the kernels
        #: int64, one per document: its bytes are `data[begins[d]:ends[d]]`.
        self.begins: NDArray[np.int64] = ends[:-1]
        self.ends: NDArray[np.int64] = ends[1:]
        if texts.null_count:
            self.ends = np.where(np.asarray(texts.is_valid()), self.ends, self.begins)

    def __len__(self) -> int:
        return len(self.begins)

    def byte_counts(self) -> NDArray[np.int64]:
        """UTF-8 bytes of each document."""
        return self.ends - self.begins

    def content_hashes(self) -> NDArray[np.uint64]:
        """A hash of the bytes of each document."""
        hashes = np.empty(len(self), np.uint64)
        _kernels().hash_texts(self.data, self.begins, self.ends, hashes)
        return hashes

    def word_counts(self, definition: Definition = "unicode") -> NDArray[np.int64]:
        """Words of each document."""
        if definition != "unicode":
            return np.asarray(np.diff(self.words_of(definition).offsets))
        if "word_totals" in self.__dict__:
            return self.word_totals.words
        return np.asarray(np.diff(self.word_hashes()[0]))  # most who count look at words next

    @cached_property
    def word_totals(self) -> WordCounts:
        """Counts of words; without a pass of their own if `words` are there."""
        if "_words_and_totals" in self.__dict__:
            return self._words_and_totals[1]
        return WordCounts(*self._per_document("count_words", 2))

    @cached_property
    def line_totals(self) -> LineCounts:
        """Counts of lines."""
        return LineCounts(*self._per_document("count_lines", 3))

    def line_totals_of(self, definition: Definition) -> LineCounts:
        """Counts of lines and of their forms; what they are is in `curation.filters`."""
        if definition == "unicode":
            return self.line_totals
        from curation.text import datatrove
        from curation.text.datatrove import kernels

        found = LineCounts(*(np.empty(len(self), np.int64) for _ in range(3)))
        columns = (found.lines, found.bullets, found.ellipses)
        if definition == "datatrove":
            texts = (self.data, self.begins, self.ends, datatrove.table())
            kernels.count_lines(*texts, *columns)
        else:
            _kernels().count_line_marks(self.data, self.begins, self.ends, *columns)
        return found

    def sentence_counts(
        self, definition: Literal["unicode", "datatrove"] = "unicode"
    ) -> NDArray[np.int64]:
        """The sentences of each document's lines: by the rule above, or by spaCy's Sentencizer."""
        if definition == "datatrove":
            one = np.arange(len(self) + 1)
            whole = Spans(one, self.begins.astype(np.int32), self.ends.astype(np.int32))
            return self.datatrove_sentences(whole)
        counts = np.empty(len(self), np.int64)
        _kernels().count_sentences(*self._texts(), _vocabulary(ABBREVIATIONS, True), counts)
        return counts

    def datatrove_sentences(self, lines: Spans) -> NDArray[np.int64]:
        """As `sentence_counts("datatrove")`, of these lines alone."""
        from curation.text.datatrove import kernels

        words, counts = self.words_of("datatrove"), np.empty(len(self), np.int64)
        kernels.count_sentences(
            *(self.data, words.offsets, words.starts, words.stops, words.flags),
            *(lines.offsets, lines.starts, lines.stops, counts),
        )
        return counts

    def line_ends(self, short: int, trimmed: bool = True) -> LineEnds:
        """Lines that end with a terminal mark (`datatrove.TERMINAL`), or have at most `short` code
        points: as they are, or `trimmed` first."""
        from curation.text import datatrove
        from curation.text.datatrove import kernels

        found = LineEnds(*(np.empty(len(self), np.int64) for _ in range(4)))
        kernels.count_line_ends(
            *(self.data, self.begins, self.ends, datatrove.table(), short, trimmed),
            *(found.lines, found.terminal, found.short, found.newlines),
        )
        return found

    @cached_property
    def mark_totals(self) -> MarkCounts:
        """Counts of code points, '#' and ellipses."""
        found = MarkCounts(*(np.empty(len(self), np.int64) for _ in range(3)))
        columns = (found.code_points, found.hashes, found.ellipses)
        _kernels().count_marks(self.data, self.begins, self.ends, *columns)
        return found

    def symbol_counts(self) -> NDArray[np.int64]:
        """Code points that are neither letter, mark, number, format character nor white space."""
        [counts] = self._per_document("count_symbols", 1)
        return counts

    @cached_property
    def token_totals(self) -> TokenCounts:
        """Counts of runs without white space."""
        return TokenCounts(*self._per_document("count_tokens", 2))

    @cached_property
    def words(self) -> Words:
        """Every word of the batch."""
        return self._words_and_totals[0]

    @cached_property
    def _words_and_totals(self) -> tuple[Words, WordCounts]:
        """Words in one pass, which counts them as well."""
        self._check_size()
        totals = WordCounts(*(np.empty(len(self), np.int64) for _ in range(2)))
        # Two words never touch unless one is of a script whose letters take three bytes.
        most = (len(self.data) + len(self)) // 2
        starts, stops, lengths = (np.empty(most, np.int32) for _ in range(3))
        hashes, flags = np.empty(most, np.uint64), np.empty(most, np.uint8)
        found = _kernels().find_words(
            *self._texts(),
            totals.words,
            totals.code_points,
            *(starts, stops, lengths, hashes, flags),
        )
        for column in (starts, stops, lengths, hashes, flags):
            column.resize(found, refcheck=False)  # gives back what was never touched
        return Words(offsets_of(totals.words), starts, stops, lengths, hashes, flags), totals

    def word_hashes(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Offsets and hashes of `words` alone: 8 bytes a word. In less time than `words` take,
        unless these are there already."""
        if "_words_and_totals" in self.__dict__:
            return self.words.offsets, self.words.hashes
        return self._word_hashes

    @cached_property
    def _word_hashes(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        counts = np.empty(len(self), np.int64)
        hashes = np.empty((len(self.data) + len(self)) // 2, np.uint64)
        found = _kernels().find_word_hashes(*self._texts(), counts, hashes)
        hashes.resize(found, refcheck=False)  # gives back what was never touched
        return offsets_of(counts), hashes

    def words_of(self, definition: Definition) -> Words:
        """Every word of the batch by this definition; hashes, but for `unicode`, of the bytes."""
        if definition == "unicode":
            return self.words
        return self._datatrove_words if definition == "datatrove" else self._tokens

    def segmented(self, names: tuple[str | None, ...]) -> TextView:
        """The same texts with the words of a segmenter (`curation.text.segmenters`) or None for
        each document; made once for the same names."""
        from curation.text import segmenters

        known: dict[tuple[str | None, ...], TextView] = self.__dict__.setdefault("_segmented", {})
        if names not in known:
            known[names] = segmenters.segmented(self, names)
        return known[names]

    @cached_property
    def _datatrove_words(self) -> Words:
        from curation.text import datatrove
        from curation.text.datatrove import kernels
        from curation.text.datatrove.tables import case_tables

        texts = (self.data, self.begins, self.ends, datatrove.table())
        stack = np.empty(int(self.byte_counts().max(initial=0)), np.int32)
        return self._collect(lambda *out: kernels.find_words(*texts, *case_tables(), stack, *out))

    @cached_property
    def _tokens(self) -> Words:
        """Runs without white space."""
        return self._collect(lambda *out: _kernels().find_tokens(*self._texts(), *out))

    def _collect(self, find: Callable[..., int]) -> Words:
        """The words that a kernel finds: at most one per byte."""
        self._check_size()
        counts = np.empty(len(self), np.int64)
        most = len(self.data)
        starts, stops, lengths = (np.empty(most, np.int32) for _ in range(3))
        hashes, flags = np.empty(most, np.uint64), np.empty(most, np.uint8)
        found = find(counts, starts, stops, lengths, hashes, flags)
        for column in (starts, stops, lengths, hashes, flags):
            column.resize(found, refcheck=False)  # gives back what was never touched
        return Words(offsets_of(counts), starts, stops, lengths, hashes, flags)

    @cached_property
    def lines(self) -> Lines:
        """Every line of the batch that is not blank."""
        self._check_size()
        offsets = offsets_of(self.line_totals.lines)
        starts, stops = (np.empty(offsets[-1], np.int32) for _ in range(2))
        flags = np.empty(offsets[-1], np.uint8)
        _kernels().find_lines(*self._texts(), starts, stops, flags)
        return Lines(offsets, starts, stops, flags)

    @cached_property
    def sentences(self) -> Spans:
        """Every sentence of the batch, without white space at its ends. What has no letter and is
        not between two sentences of its line is in none."""
        self._check_size()
        offsets = offsets_of(self.sentence_counts())
        starts, stops = (np.empty(offsets[-1], np.int32) for _ in range(2))
        slots = _vocabulary(ABBREVIATIONS, True)
        _kernels().find_sentences(*self._texts(), slots, starts, stops)
        return Spans(offsets, starts, stops)

    @cached_property
    def exact_hashes(self) -> NDArray[np.uint64]:
        """The hash of each of `words` as it is written, upper and lower case apart."""
        words = self.words
        hashes = np.empty(len(words.starts), np.uint64)
        _kernels().hash_words(self.data, words.starts, words.stops, table(), False, hashes)
        return hashes

    def vocabulary_counts(
        self,
        vocabulary: Sequence[str],
        definition: Definition = "unicode",
        distinct: bool = True,
        documents: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """How many words of `vocabulary` each document contains: each once, or as often as it is.
        Where `documents` are given (by number), of these alone.

        By `unicode` regardless of case, and each entry must be one word (`reference.words`); by the
        others as it is written.
        """
        slots = _vocabulary(tuple(vocabulary), definition == "unicode")
        seen = np.full(len(slots), -1, np.int64)
        words = self.words_of(definition)
        offsets, hashes = words.offsets, words.hashes
        if documents is not None and len(documents) < len(self):
            hashes = np.concatenate([hashes[offsets[d] : offsets[d + 1]] for d in documents])
            offsets = offsets_of(np.diff(offsets)[documents])
        counts = np.empty(len(offsets) - 1, np.int64)
        _kernels().count_vocabulary(offsets, hashes, slots, distinct, seen, counts)
        return counts

    def word_sums(self, definition: Definition, without: int = 0) -> WordSums:
        """Counts of words that have none of the flags `without`, and of alphabetic ones."""
        words = self.words_of(definition)
        sums = WordSums(*(np.empty(len(self), np.int64) for _ in range(3)))
        _kernels().sum_words(
            *(words.offsets, words.lengths, words.flags, without),
            *(sums.words, sums.code_points, sums.alphabetic),
        )
        return sums

    def median_word_lengths(self, definition: Definition) -> NDArray[np.float64]:
        """The median of the lengths of each document's words, NaN where it has none."""
        words, medians = self.words_of(definition), np.empty(len(self), np.float64)
        _kernels().median_lengths(words.offsets, words.lengths, medians)
        return medians

    def _check_size(self) -> None:
        if len(self.data) > np.iinfo(np.int32).max:
            raise ValueError(
                f"words and lines of {len(self.data)} bytes at once: a batch must be below 2 GiB"
            )

    def _texts(self) -> tuple[Any, ...]:
        """The arguments that every kernel begins with."""
        return self.data, self.begins, self.ends, table()

    def _per_document(self, kernel: str, columns: int) -> list[NDArray[np.int64]]:
        counts = [np.empty(len(self), np.int64) for _ in range(columns)]
        getattr(_kernels(), kernel)(*self._texts(), *counts)
        return counts


def _kernels() -> ModuleType:
    """The kernels; imported only when one is to run, since numba takes its time."""
    from curation.text import kernels

    return kernels


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Flat and read-only, as the kernels were compiled for: whoever made the array, one type."""
    flat = np.ascontiguousarray(array).reshape(-1).view()
    flat.flags.writeable = False
    return flat


def offsets_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """CSR offsets of these counts."""
    return np.concatenate([[0], np.cumsum(counts)])


def share(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    """Quotients, NaN where the whole is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole > 0, part / whole, np.nan)


@lru_cache(maxsize=64)
def _vocabulary(words: tuple[str, ...], folded: bool) -> NDArray[np.uint64]:
    """The open hash table of a vocabulary, as `count_vocabulary` reads it."""
    if folded:
        hashes = np.unique(TextView(pa.array(words, pa.large_string())).words.hashes)
    else:
        hashes = np.array(sorted({bytes_hash(word.encode()) for word in words}), np.uint64)
    slots = np.zeros(4 << len(hashes).bit_length(), np.uint64)
    for value in hashes.tolist():
        slot = value % len(slots)
        while slots[slot]:
            slot = (slot + 1) % len(slots)
        slots[slot] = value
    return slots
