"""Lines: the kernel against plain Python, the rule by example, and the deletion of spans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup.line_hashes import kernels, line_hashes, reference
from curation.text.spans import delete_spans
from curation.text.view import TextView

patient = settings(deadline=None, max_examples=300)

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
pieces = st.sampled_from(
    [*"\n\n\n\t  aA1½.-'|", "\r\n", "É", "e\u0301", "\u0301", "ss", "ß", "İ", "漢字", "ไทย", "٣"]
    + ["❤\ufe0f", "👩\u200d🌾", "\u00ad", "\u200b", "\x00", "\u2028", "The mill", "12 likes"]
)
texts = st.lists(pieces, max_size=20).map("".join) | anything


def view(*texts: str | None) -> TextView:
    return TextView(pa.array(texts, pa.large_string()))


def hashed(*texts: str | None) -> list[tuple[int, int, int, int]]:
    """Document, hash, start and stop of each line."""
    found = line_hashes(view(*texts))
    columns = (found.documents, found.hashes, found.starts, found.stops)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@patient
@given(st.lists(texts, max_size=5))
def test_the_kernel_hashes_what_the_reference_does(batch: list[str]) -> None:
    plain = [(d, *line) for d, text in enumerate(batch) for line in reference.line_hashes(text)]
    assert hashed(*batch) == plain


@patient
@given(st.lists(texts, max_size=5), st.data())
def test_a_slice_gives_what_it_gives_alone(batch: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(batch)))
    sliced = line_hashes(TextView(pa.array([*batch, None], pa.large_string()).slice(start)))
    alone = line_hashes(view(*batch[start:], ""))
    assert sliced.hashes.tolist() == alone.hashes.tolist()
    assert sliced.starts.tolist() == alone.starts.tolist()


def test_the_kernel_is_compiled_for_one_signature() -> None:
    hashed("a")
    hashed(*["b\nc"] * 9)
    assert len(kernels.hash_lines.signatures) == 1


SAME = [
    ("Read more", "read  MORE..."),
    ("- 12 likes!", "13 Likes"),
    ("2 of 10", "٣ of ९९"),
    ("❤\ufe0f Home", "Home"),
    ("soft\u00adware", "software"),
    ("\tA title\r", "a title"),
]
DIFFERENT = [
    ("well-known", "well known"),
    ("9 likes", "10 likes"),
    ("resume", "résumé"),
    ("é", "e\u0301"),
    ("ab", "ba"),
    ("a b", "ab"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_differs_in_form_is_the_same_line(one: str, other: str) -> None:
    [(_, a, *_)], [(_, b, *_)] = hashed(one), hashed(other)
    assert a == b


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_differs_in_letters_is_another_line(one: str, other: str) -> None:
    [(_, a, *_)], [(_, b, *_)] = hashed(one), hashed(other)
    assert a != b


@pytest.mark.parametrize(
    "text", [None, "", "\n\n", " \t\n", "* * *\n1999\n| 12 |", "❤\ufe0f\n\u0301"]
)
def test_lines_without_a_letter_repeat_nothing(text: str | None) -> None:
    assert hashed(text) == []


def deleted(texts: Sequence[str | None], spans: Sequence[tuple[int, int, int]]) -> list[str]:
    columns = np.array(spans, np.int64).reshape(-1, 3).T
    found = delete_spans(view(*texts), *columns)
    found.validate(full=True)
    return found.to_pylist()  # type: ignore[no-any-return]


@patient
@given(st.lists(anything | st.none(), max_size=4), st.randoms())
def test_deleted_spans_are_gone_and_all_else_stays(batch: list[str | None], chance: object) -> None:
    """Also where spans touch each other and the borders of documents."""
    spans, expected = [], []
    for d, text in enumerate(batch):
        characters = list(text or "")
        goes = [chance.random() < 0.4 for _ in characters]  # type: ignore[attr-defined]
        at = np.cumsum([0, *(len(c.encode()) for c in characters)]).tolist()
        spans += [(d, at[i], at[i + 1]) for i in range(len(characters)) if goes[i]]
        expected.append("".join(c for c, g in zip(characters, goes, strict=True) if not g))
    assert deleted(batch, spans) == expected


@pytest.mark.parametrize("span", [(0, 1, 3), (0, -1, 1), (1, 0, 1)])
def test_no_span_goes_over_the_border_of_its_document(span: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="within its document"):
        deleted(["ab", "", "cd"], [span])
