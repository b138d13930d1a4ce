"""Lines: the kernel against plain Python, the rule by example, which lines go against counting."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from exchange import _Sources, decide
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup import lines
from curation.dedup.line_hashes import kernels, line_hashes, reference
from curation.dedup.lines import LineDedup
from curation.document import Documents
from curation.text.spans import delete_spans
from curation.text.view import TextView

patient = settings(deadline=None, max_examples=200)

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
pieces = st.sampled_from(
    [
        *"\n\n\n\t  aA1½.-'|É\u0301ßİ٣\u00ad\u200b\x00\u2028",
        *("\r\n", "e\u0301", "ss", "漢字", "ไทย", "❤\ufe0f", "👩\u200d🌾", "The mill", "12 likes"),
    ]
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


# Which lines go


Doc = tuple[int, str]  # the first half of the id, text


def plain(units: Sequence[Sequence[Doc]], above: int, keep: str, windows: int) -> list[list[str]]:
    """The texts that are left: all lines in order, counted one by one."""
    order = sorted((doc[0], u, r) for u, unit in enumerate(units) for r, doc in enumerate(unit))
    seen: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
    for name, u, r in order:
        for n, line in enumerate(units[u][r][1].split("\n")):
            if (key := reference.key(line)) is not None:
                seen.setdefault(((name >> 32) * windows >> 32, key), []).append((u, r, n))
    gone = set()
    for places in seen.values():
        if len(places) > above:
            gone.update(places[keep == "first" :])
    return [
        [
            "\n".join(line for n, line in enumerate(text.split("\n")) if (u, r, n) not in gone)
            for r, (_, text) in enumerate(unit)
        ]
        for u, unit in enumerate(units)
    ]


def batch(unit: Sequence[Doc]) -> Documents:
    return Documents(
        {
            "row": pa.array(range(len(unit)), pa.int64()),
            "id": pa.array([f"{name:016x}{0:016x}" for name, _ in unit], pa.string()),
            "text": pa.array([text for _, text in unit], pa.large_string()),
        }
    )


def left(step: LineDedup, units: Sequence[Sequence[Doc]], parts: int, group: int) -> list[Any]:
    """The texts that the exchange leaves."""
    batches = [batch(unit) for unit in units]
    return [
        delete_spans(docs.view, edits.rows, edits.starts, edits.stops).to_pylist()
        for docs, edits in zip(batches, decide(step, batches, parts, group), strict=True)
    ]


some_lines = st.sampled_from(["", "a", "a", "A.", "b", "b 1", "b 2", "c", "--", "d\u0301", "漢"])
documents = st.tuples(
    st.sampled_from([1, 2, 2**62, 2**63, 2**63 + 1, 2**64 - 1]),
    st.lists(some_lines, max_size=6).map("\n".join),
)


@patient
@given(
    st.lists(st.lists(documents, max_size=5), min_size=1, max_size=4),
    st.sampled_from([1, 2, 3, 6]),
    st.sampled_from(["first", "none"]),
    st.sampled_from([None, 1, 2, 5]),
    st.sampled_from([1, 2, 16]),
    st.sampled_from([1, 2, 3]),
)
def test_any_division_of_the_work_deletes_what_counting_does(
    units: list[list[Doc]], above: int, keep: Any, window: int | None, parts: int, group: int
) -> None:
    step = LineDedup(above=above, keep=keep, window=window)
    keyed = sum(any(map(reference.key, text.split("\n"))) for unit in units for _, text in unit)
    windows = max(1, math.ceil(keyed / window)) if window else 1
    assert left(step, units, parts, group) == plain(units, above, keep, windows)


@pytest.mark.parametrize("different", [1, 5_000, 100_000])
def test_a_task_takes_no_more_memory_than_its_phase_says(different: int) -> None:
    """Also where every line is repeated, as a multiple of the bytes that it is measured by."""
    step = LineDedup(window=5_000)
    chance = np.random.default_rng(20)
    records = np.zeros(100_000, lines.RECORD)
    records["hash"] = chance.integers(0, different, len(records)) * 2**40
    records["id"] = chance.integers(0, 2**63, len(records))
    records["row"], records["stop"] = np.arange(len(records)) // 10, 1
    found, taken = {}, {}
    for phase in step.phases():
        sources = _Sources([0], [records], [], {name: [found[name]] for name in found}, Path())
        tracemalloc.start()
        found[phase.name] = step.exchange(phase.name, 0, 1, sources)
        taken[phase.name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    units, ranges = step.phases()
    assert taken["lines"] <= units.memory * records.nbytes
    assert taken["repeated"] <= ranges.memory * found["lines"]["lines"].nbytes


def test_documents_without_a_line_do_not_shift_those_after_them() -> None:
    units = [[(1, "The mill\nThe weir"), (2, ""), (3, "* *"), (4, "The mill\nThe wheel"), (5, "")]]
    assert left(LineDedup(), units, 1, 1) == [["The mill\nThe weir", "", "* *", "The wheel", ""]]


def test_a_line_over_the_border_of_two_documents_is_none() -> None:
    units = [[(1, "one The"), (2, "mill two"), (3, "The mill"), (4, "The\nmill")]]
    assert left(LineDedup(), units, 1, 1) == [[text for _, text in units[0]]]
