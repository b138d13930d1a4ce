"""The text view: kernels against their plain Python references, and the definitions by example."""

from __future__ import annotations

import unicodedata
from itertools import accumulate, pairwise
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.text import characters, reference
from curation.text.characters import (
    ALPHABETIC,
    BULLET_LINE,
    CLASS_BITS,
    ELLIPSIS_LINE,
    FOLD_SHIFT,
    PARAGRAPH_LINE,
)
from curation.text.view import Definition, TextView, versions

patient = settings(deadline=None)  # the first call of a kernel may compile it

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
pieces = st.sampled_from(
    [
        *" \n\r\t\v\f\x1c\x85\xa0\u2028\u2029\u3000",
        *("\r\n", "\n\n", "...", "....", ".", "\u2026", "#", "-", "*", "\u2022", "\u2013", "|"),
        *"''\u2019\u00b7\u05f4\u200b\u200c\u200d\u00ad\ufeff\u0301\ufe0f\u20e3",
        *("a", "Z", "don't", "the", "THE", "straße", "İstanbul", "ΣΊΣΥΦΟΣ", "\u212a", "ẞ", "ǅ"),
        *("1", "42", "½", "Ⅷ", "٣", "\U0001d7d8", "é", "e\u0301", "\U0001f600", "\U0001f1e9"),
        *("漢字", "々", "〇", "ひらがな", "カタカナ", "ー", "ｶﾞ"),
        *("ไทย", "ภาษา", "ລາວ", "ខ្មែរ", "မြန်မာ"),
        *(
            ". ",
            "! ",
            '?" ',
            ".) ",
            "。",
            "！」",
            "\u2024",
            "؟",
            "Dr.",
            " a.",
            "Fig.",
            "e.g.",
            "‼\ufe0f",
        ),
        *("हिन्दी", "क्\u200dष", "می\u200cخواهم", "العربية", "עברית", "صه״ل", "한국어", "\U00020000"),
    ]
)
mixed = st.lists(pieces, max_size=60).map("".join)
texts = st.lists(anything | mixed, max_size=8)


def view(*texts: str | None) -> TextView:
    return TextView(pa.array(texts, pa.large_string()))


def words(text: str) -> list[str]:
    found = view(text).words
    data = text.encode()
    return [data[a:b].decode() for a, b in zip(found.starts, found.stops, strict=True)]


def byte_offsets(text: str) -> list[int]:
    """Byte offset of each character of the text, and of its end."""
    return list(accumulate((len(character.encode()) for character in text), initial=0))


@patient
@given(texts)
def test_words_are_those_of_the_reference(batch: list[str]) -> None:
    seen = view(*batch)
    assert seen.words.offsets[-1] == len(seen.words.starts) == len(seen.exact_hashes)
    for d, text in enumerate(batch):
        at, begin = byte_offsets(text), seen.begins[d]
        expected = [
            (
                begin + at[word.start],
                begin + at[word.end],
                len(word.text),
                reference.word_hash(word.text, folded=True),
                reference.word_hash(word.text),
                ALPHABETIC * word.alphabetic,
            )
            for word in reference.words(text)
        ]
        own = slice(seen.words.offsets[d], seen.words.offsets[d + 1])
        found = seen.words
        columns = (found.starts, found.stops, found.lengths, found.hashes)
        columns = (*columns, seen.exact_hashes, found.flags)
        assert list(zip(*(column[own].tolist() for column in columns), strict=True)) == expected
        assert seen.word_totals.code_points[d] == sum(word[2] for word in expected)
    for offsets, hashes in (seen.word_hashes(), view(*batch).word_hashes()):
        assert offsets.tolist() == seen.words.offsets.tolist()
        assert hashes.tolist() == seen.words.hashes.tolist()
    assert (np.diff(seen.words.offsets) == view(*batch).word_counts()).all()
    assert (seen.word_totals.code_points == view(*batch).word_totals.code_points).all()


@patient
@given(texts)
def test_lines_are_those_of_the_reference(batch: list[str]) -> None:
    seen = view(*batch)
    totals = seen.line_totals
    for d, text in enumerate(batch):
        at, begin = byte_offsets(text), seen.begins[d]
        lines = list(reference.lines(text))
        expected = [
            (
                begin + at[line.start],
                begin + at[line.end],
                BULLET_LINE * line.bullet
                | ELLIPSIS_LINE * line.ellipsis
                | PARAGRAPH_LINE * line.paragraph,
            )
            for line in lines
        ]
        own = slice(seen.lines.offsets[d], seen.lines.offsets[d + 1])
        columns = (seen.lines.starts, seen.lines.stops, seen.lines.flags)
        assert list(zip(*(column[own].tolist() for column in columns), strict=True)) == expected
        assert totals.lines[d] == len(lines)
        assert totals.bullets[d] == sum(line.bullet for line in lines)
        assert totals.ellipses[d] == sum(line.ellipsis for line in lines)


@patient
@given(texts)
def test_symbols_are_those_of_the_reference(batch: list[str]) -> None:
    marks, tokens = view(*batch).mark_totals, view(*batch).token_totals
    columns = (
        *(marks.code_points, tokens.tokens, tokens.alphabetic),
        *(marks.hashes, marks.ellipses),
    )
    found = list(zip(*(column.tolist() for column in columns), strict=True))
    assert found == [reference.symbols(text) for text in batch]


@patient
@given(texts)
def test_symbol_characters_are_those_of_the_reference(batch: list[str]) -> None:
    found = view(*batch).symbol_counts()
    assert found.tolist() == [reference.symbol_characters(text) for text in batch]


@patient
@given(texts, st.sets(st.sampled_from(["the", "a", "Straße", "σίσυφος", "k", "漢", "カタカナ"])))
def test_distinct_words_are_those_of_the_reference(batch: list[str], vocabulary: set[str]) -> None:
    counts = view(*batch).vocabulary_counts(sorted(vocabulary))
    assert counts.tolist() == [reference.distinct(text, sorted(vocabulary)) for text in batch]


def sentences(*batch: str) -> list[list[str]]:
    seen = view(*batch)
    found = seen.sentences
    spans = list(zip(found.starts.tolist(), found.stops.tolist(), strict=True))
    return [
        [seen.data[start:stop].tobytes().decode() for start, stop in spans[first:last]]
        for first, last in pairwise(found.offsets.tolist())
    ]


def test_sentences_have_their_marks_and_no_white_space_at_their_ends() -> None:
    text = "  One, (two.) \n*** \n - \u201cThree!\u201d She said. 4. Five  *\n 6. "
    assert sentences(text) == [["One, (two.)", "- \u201cThree!\u201d", "She said.", "4. Five  *"]]


@patient
@given(texts)
def test_sentences_are_those_of_the_reference(batch: list[str]) -> None:
    expected = [[text[a:b] for a, b in reference.sentences(text)] for text in batch]
    assert view(*batch).sentence_counts().tolist() == [len(found) for found in expected]
    assert sentences(*batch) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", 4),
        ("She said \u201cWait.\u201d Then (at last.) He left.\r\nA heading\n\n", 4),
        ("It looks like three sentences...but it is one.", 1),
        ("Well... that is one. Well... That is two more", 3),
        ("See e.g. this, etc. and more, p.5 of 3.14 by Dr. J. R. Smith vs. Mr. Jones.", 1),
        ("Mr. Fox came in 1999. He left in 2001.", 2),
        ("1. First point. 2. Second point.", 2),
        ("Really?! Yes!!! No way!?", 3),
        ("他来了。她走了！真的吗？", 3),
        ("「行くの？」と聞いた。はい。", 3),
        ("आप कैसे हैं? मैं ठीक हूँ। धन्यवाद।", 3),
        ("ერთი. ორი. სამი.", 3),
        ("*** \n!!! ...\n42.\n", 0),
    ],
)
def test_sentences_by_example(text: str, expected: int) -> None:
    assert view(text).sentence_counts().tolist() == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world!", ["Hello", "world"]),
        ("don't 'quoted' rock'n'roll 90's", ["don't", "quoted", "rock'n'roll", "90's"]),
        ("it''s dogs' l\u2019homme", ["it", "s", "dogs", "l\u2019homme"]),
        ("3.14 snake_case well-known", ["3", "14", "snake", "case", "well", "known"]),
        ("| -- *** \u2026 #", []),
        ("\u2764\ufe0f \U0001f600 1\ufe0f\u20e3", ["1\ufe0f\u20e3"]),
        ("soft\u00adhyphen zero\u200bwidth", ["soft\u00adhyphen", "zero", "width"]),
        ("می\u200cخواهم क्\u200dष क्\u200d", ["می\u200cخواهم", "क्\u200dष", "क्"]),
        ("col·lecció צה״ל", ["col·lecció", "צה״ל"]),
        ("日本語の3章", ["日", "本", "語", "の", "3", "章"]),
        ("テスト・データ ｶﾞｽ", ["テスト", "データ", "ｶﾞｽ"]),
        ("ไทย", ["ไ", "ท", "ย"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("한국어 텍스트", ["한국어", "텍스트"]),
    ],
)
def test_words_by_example(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_lines_by_example() -> None:
    text = "\n - one\r\n\r\ntwo\u2028still two ...\n\u2022\n"
    seen = view(text).lines
    data = text.encode()
    lines = [data[a:b].decode() for a, b in zip(seen.starts, seen.stops, strict=True)]
    assert lines == ["- one", "two\u2028still two ...", "\u2022"]
    assert seen.flags.tolist() == [
        BULLET_LINE | PARAGRAPH_LINE,
        ELLIPSIS_LINE | PARAGRAPH_LINE,
        BULLET_LINE,
    ]


def test_a_null_is_an_empty_text() -> None:
    seen = view("a b", None, "", "c")
    assert seen.word_counts().tolist() == [2, 0, 0, 1]
    assert seen.byte_counts().tolist() == [3, 0, 0, 1]
    assert np.diff(seen.words.offsets).tolist() == [2, 0, 0, 1]


def test_the_bytes_under_a_null_are_not_read() -> None:
    offsets = np.array([0, 3, 6, 7], np.int64)
    buffers = [pa.py_buffer(bytes([0b101])), pa.py_buffer(offsets), pa.py_buffer(b"a bc dZ")]
    texts = pa.Array.from_buffers(pa.large_string(), 3, buffers)
    assert texts.to_pylist() == ["a b", None, "Z"]
    assert TextView(texts).word_counts().tolist() == [2, 0, 1]
    assert TextView(texts).byte_counts().tolist() == [3, 0, 1]


@pytest.mark.parametrize("batch", [[], [None], [""], [None, ""]])
def test_batches_without_text(batch: list[str | None]) -> None:
    seen = view(*batch)
    assert len(seen) == len(batch)
    assert seen.word_counts().tolist() == seen.byte_counts().tolist() == [0] * len(batch)
    assert len(seen.words.starts) == len(seen.lines.starts) == len(seen.exact_hashes) == 0
    assert seen.vocabulary_counts(["the"]).tolist() == [0] * len(batch)


@patient
@given(texts, st.data())
def test_a_slice_is_seen_as_if_alone(batch: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(batch)))
    length = data.draw(st.integers(0, len(batch) - start))
    sliced = TextView(pa.array(batch, pa.large_string()).slice(start, length))
    alone = view(*batch[start : start + length])
    assert bytes(sliced.data) == bytes(alone.data)
    for name in ("offsets", "starts", "stops", "lengths", "hashes", "flags"):
        assert (getattr(sliced.words, name) == getattr(alone.words, name)).all()
    assert (sliced.lines.starts == alone.lines.starts).all()


@patient
@given(texts, st.randoms(use_true_random=False))
def test_a_document_does_not_depend_on_its_neighbours(batch: list[str], random: object) -> None:
    order = list(range(len(batch)))
    random.shuffle(order)  # type: ignore[attr-defined]
    straight, shuffled = view(*batch), view(*(batch[i] for i in order))
    assert straight.word_counts()[order].tolist() == shuffled.word_counts().tolist()
    for total in ("lines", "bullets", "ellipses"):
        one, other = getattr(straight.line_totals, total), getattr(shuffled.line_totals, total)
        assert one[order].tolist() == other.tolist()


@patient
@given(st.binary(max_size=40), st.binary(min_size=4, max_size=4), st.binary(min_size=4, max_size=4))
def test_no_byte_behind_a_text_is_read(text: bytes, one: bytes, other: bytes) -> None:
    """Not even if the text is not UTF-8 or ends within a character, as no Arrow string does."""
    results = []
    for behind in (one, other):
        buffers = [None, pa.py_buffer(np.array([0, len(text)], np.int64))]
        seen = TextView(
            pa.Array.from_buffers(pa.large_string(), 1, [*buffers, pa.py_buffer(text + behind)])
        )
        assert len(seen.data) == len(text)
        words, lines = seen.words, seen.lines
        columns = (words.starts, words.stops, words.hashes, seen.exact_hashes)
        columns = (*columns, lines.starts, lines.stops, lines.flags)
        results.append([column.tolist() for column in columns])
        results[-1].append([int(n[0]) for n in vars(seen.mark_totals).values()])
        results[-1].append(seen.sentence_counts().tolist())
        assert (seen.words.stops <= len(text)).all() and (seen.lines.stops <= len(text)).all()
    assert results[0] == results[1]


def test_every_kernel_is_compiled_for_one_signature() -> None:
    """Whatever the batch looks like: the cache relies on it."""
    from curation.text import kernels
    from curation.text.datatrove import kernels as others

    text = pa.array(["a b\n", None, "c"], pa.large_string())
    writable = [pa.py_buffer(bytearray(8)), pa.py_buffer(bytearray(b"a"))]
    odd = pa.Array.from_buffers(pa.large_string(), 0, [None, *writable])
    for batch in (text, text.slice(1), text.slice(2), text.slice(3), text[:0], odd):
        seen = TextView(batch)
        _ = (
            seen.word_hashes(),
            seen.word_counts(),
            seen.words,
            seen.lines,
            seen.mark_totals,
            seen.token_totals,
            seen.exact_hashes,
            seen.sentences,
        )
        seen.vocabulary_counts(["a"])
        for definition in get_args(Definition):
            seen.line_totals_of(definition)
            seen.word_sums(definition)
            seen.median_word_lengths(definition)
        _ = seen.line_ends(30), seen.sentence_counts(), seen.sentence_counts("datatrove")
    everything = [*vars(kernels).values(), *vars(others).values()]
    functions = [f for f in everything if hasattr(f, "signatures")]
    outer = {f.py_func: len(f.signatures) for f in functions if f.targetoptions.get("nogil")}
    assert set(outer.values()) <= {0, 1}
    assert list(outer.values()).count(1) >= 16


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="large_string"):
        TextView(pa.array(["a"]))


def test_places_in_two_gib_or_more_are_refused() -> None:
    data = pa.py_buffer(np.zeros(2**31, np.uint8))  # never touched
    offsets = pa.py_buffer(np.array([0, 2**31], np.int64))
    seen = TextView(pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, data]))
    assert seen.byte_counts().tolist() == [2**31]
    for name in ("words", "lines"):
        with pytest.raises(ValueError, match="below 2 GiB"):
            getattr(seen, name)


def test_hashes_are_the_same_for_ever() -> None:
    assert view("the The 漢").exact_hashes.tolist() == [
        reference.word_hash("the"),
        reference.word_hash("The"),
        reference.word_hash("漢"),
    ]
    assert reference.word_hash("the") == 0xF7B59AFE4EAEBCAC
    assert view("The THE the").words.hashes.tolist() == [reference.word_hash("the")] * 3


def test_hashes_are_well_mixed() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    text = " ".join(a + b + c for a in letters for b in letters for c in letters)
    hashes = view(text).exact_hashes
    assert len(np.unique(hashes)) == 26**3  # order matters, and nothing collides
    for shift in range(64):  # every bit is set in half of them, within five standard deviations
        share = ((hashes >> np.uint64(shift)) & np.uint64(1)).mean()
        assert abs(share - 0.5) < 5 * 0.5 / 26**1.5
    # One changed letter changes half of the bits.
    flipped = np.bitwise_count(hashes[:-1] ^ hashes[1:]).mean()
    assert abs(flipped - 32) < 0.5


same_unicode = pytest.mark.skipif(
    f"unicode {unicodedata.unidata_version}" not in characters.table_version(),
    reason="the table is of another version of Unicode than this Python's",
)


@same_unicode
def test_the_character_table_is_what_the_reference_says() -> None:
    table = characters.table()
    every = [chr(c) for c in range(len(table))]
    assert (table & 15 == [reference.character_class(c) for c in every]).all()
    assert (table >> CLASS_BITS & 15 == [reference.character_flags(c) for c in every]).all()
    folded = np.arange(len(table)) ^ (table >> FOLD_SHIFT)
    assert (folded == [ord(reference.fold(c)) for c in every]).all()


def test_versions_name_the_definitions_and_the_table() -> None:
    assert versions()["text_view"] == "1"
    assert versions()["characters"].startswith("unicode 14.0.0, ")
