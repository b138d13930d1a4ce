"""Packing: nothing is lost, nothing is cut without need, and rows depend on the documents alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.tokens import kernels, reference
from curation.tokens.encoding.runs import DOC
from curation.tokens.packing import (
    ALGORITHMS,
    DOCUMENT,
    Pieces,
    best_fit,
    concat,
    in_window,
    pack,
    window_bits,
)
from manifests.hashing import keys, salt
from manifests.rows import Rows

LENGTHS = st.lists(st.integers(1, 40), max_size=30)
ROW = st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17, 64, 65])
MOST = st.integers(1, 6)
FILL = 65_535
compiling = settings(deadline=None)  # the first call may compile


def longs(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def as_tuples(pieces: Pieces) -> list[tuple[int, ...]]:
    return list(
        zip(*(c.tolist() for c in (pieces.document, pieces.offset, pieces.row)), strict=True)
    )


def split(lengths: list[int], row: int) -> list[tuple[int, int, int]]:
    """(document, first token, length) of pieces of at most a row."""
    return [
        (d, at, min(row, length - at))
        for d, length in enumerate(lengths)
        for at in range(0, length, row)
    ]


@compiling
@given(st.lists(st.integers(0, 12)), st.integers(0, 3))
def test_the_counting_sort_is_its_reference(values: list[int], more: int) -> None:
    order = np.empty(len(values), np.int64)
    kernels.counting_sort(longs(values), max(values, default=0) + more, order)
    assert order.tolist() == reference.counting_sort(values)


@compiling
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(0, 40)), max_size=6))
def test_copying_pieces_is_its_reference(pieces: list[tuple[int, int, int]]) -> None:
    source, target = bytes(range(50)), bytes(50)
    starts, sizes, places = ([piece[i] for piece in pieces] for i in range(3))
    found, read_only = np.frombuffer(target, np.uint8).copy(), np.frombuffer(source, np.uint8)
    kernels.copy_pieces(read_only, longs(starts), longs(sizes), longs(places), found)
    assert found.tobytes() == reference.copy_pieces(source, starts, sizes, places, target)


@compiling
@given(LENGTHS, ROW, MOST)
def test_best_fit_is_its_reference(lengths: list[int], row: int, most: int) -> None:
    pieces = split(lengths, row)
    wanted = reference.best_fit([length for _, _, length in pieces], row, most)
    expected = {(d, at): r for (d, at, _), r in zip(pieces, wanted, strict=True)}
    found = best_fit(longs(lengths), row, most)
    assert {(d, at): r for d, at, r in as_tuples(found)} == expected
    assert found.rows == max(wanted, default=-1) + 1


def test_best_fit_works_in_memory_that_it_holds() -> None:
    """Freed memory is overwritten at once (`MALLOC_PERTURB_`), large blocks of it are unmapped."""
    code = (
        "import numpy as np; from curation.tokens.packing import best_fit; "
        "print(best_fit(np.arange(1, 3000), 1 << 17, 1 << 17).rows)"
    )
    strict = {"MALLOC_PERTURB_": "165", "MALLOC_MMAP_THRESHOLD_": "65536"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **strict}, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (0, "35\n")


@compiling
@given(LENGTHS, ROW, MOST)
def test_concat_is_its_reference(lengths: list[int], row: int, most: int) -> None:
    found = concat(longs(lengths), row, most)
    assert as_tuples(found) == reference.concat(lengths, row, most)
    assert found.rows == len(set(found.row.tolist()))


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
@compiling
@given(LENGTHS, ROW, MOST)
def test_every_token_is_in_one_piece_and_no_row_is_too_full(
    algorithm: str, lengths: list[int], row: int, most: int
) -> None:
    found = ALGORITHMS[algorithm](longs(lengths), row, most)
    tokens = Counter(
        (d, at)
        for d, first, n in zip(found.document, found.offset, found.length, strict=True)
        for at in range(first, first + n)
    )
    assert tokens == Counter((d, at) for d, length in enumerate(lengths) for at in range(length))
    for r in range(found.rows):
        mine = found.length[found.row == r]
        assert 0 < mine.sum() <= row and 0 < len(mine) <= most


@compiling
@given(LENGTHS, ROW, MOST)
def test_best_fit_cuts_only_what_is_longer_than_a_row(
    lengths: list[int], row: int, most: int
) -> None:
    found = best_fit(longs(lengths), row, most)
    pieces = zip(found.document.tolist(), found.offset.tolist(), found.length.tolist(), strict=True)
    assert sorted(pieces) == split(lengths, row)


def fewest_rows(lengths: list[int], row: int) -> int:
    """Of all ways to put pieces into rows, by trying them."""

    def place(i: int, rooms: list[int]) -> int:
        if i == len(lengths):
            return len(rooms)
        best = place(i + 1, [*rooms, row - lengths[i]])
        for r, room in enumerate(rooms):
            if room >= lengths[i]:
                best = min(best, place(i + 1, [*rooms[:r], room - lengths[i], *rooms[r + 1 :]]))
        return best

    return place(0, [])


@compiling
@given(st.lists(st.integers(1, 9), max_size=6), st.integers(9, 17))
def test_best_fit_needs_hardly_more_rows_than_are_possible(lengths: list[int], row: int) -> None:
    fewest = fewest_rows(lengths, row)
    found = best_fit(longs(lengths), row, 99).rows
    # Johnson et al. 1974, Dosa 2007: at most 11/9 of the optimum and 6/9.
    assert -(-sum(lengths) // row) <= fewest <= found <= (11 * fewest + 6) / 9


def test_the_part_of_a_document_beyond_a_row_is_packed() -> None:
    # huggingface/trl#4554: [1,2,3,4], [5,6], [7,8,9], [10] with L = 3 lost the 4.
    docs, tokens = made([4, 2, 3, 1])
    tokens[:] = np.arange(1, 11)
    rows = pack([(docs, tokens)], 3, 9, "best_fit", 0, FILL)
    assert sorted(rows.tokens[rows.tokens != FILL].tolist()) == list(range(1, 11))
    assert len(rows) == 4 and rows.filled().sum() == 10


def made(lengths: list[int], seed: int = 0, dtype: str = "uint16") -> tuple[np.ndarray, np.ndarray]:
    """A run file: documents of these lengths with random ids, every other one a copy of a first."""
    random = np.random.default_rng(seed)
    docs = np.zeros(len(lengths), DOC)
    docs["id"] = random.integers(0, 2**64, (len(lengths), 2), dtype=np.uint64)
    docs["id"][1::2] = docs["id"][: len(lengths) // 2 * 2 : 2]
    docs["copy"][1::2] = 1
    docs["key"] = keys(salt(seed, "packing"), docs["id"], docs["copy"])
    docs["length"] = lengths
    docs = np.sort(docs, order=["key", "id", "copy"])
    docs["start"] = np.cumsum(docs["length"]) - docs["length"]
    return docs, random.integers(0, 60_000, sum(lengths)).astype(dtype)


def split_in_files(
    docs: np.ndarray, tokens: np.ndarray, into: list[int]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same documents as run files: document i lies in number `into[i]`."""
    files = []
    for number in sorted(set(into)):
        mine = docs[np.array(into) == number]
        texts = [tokens[d["start"] : d["start"] + d["length"]] for d in mine]
        mine["start"] = np.cumsum(mine["length"]) - mine["length"]
        files.append((mine, np.concatenate(texts)))
    return files


def same(one: Rows, other: Rows) -> bool:
    fields = ("tokens", "starts", "lengths", "offsets", "ids", "sources")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in fields)


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
@compiling
@given(st.data())
def test_rows_do_not_depend_on_the_files_or_their_order(algorithm: str, data: Any) -> None:
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=20))
    row = data.draw(ROW)
    docs, tokens = made(lengths)
    whole = pack([(docs, tokens)], row, 4, algorithm, 5, FILL)
    n = len(docs)
    into = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    files = data.draw(st.permutations(split_in_files(docs, tokens, into)))
    assert same(pack(files, row, 4, algorithm, 5, FILL), whole)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_each_piece_is_the_tokens_of_its_document_and_the_tail_is_padding(
    algorithm: str, dtype: str
) -> None:
    docs, tokens = made([1, 30, 8, 9, 5, 64, 3, 3, 17], dtype=dtype)
    rows = pack([(docs, tokens)], 16, 3, algorithm, 1, FILL, source=2)
    assert rows.tokens.dtype == dtype and set(rows.sources.tolist()) == {2}
    known: dict[bytes, list[bytes]] = {}  # by id: the tokens of its copies
    for d in docs:
        text = tokens[d["start"] : d["start"] + d["length"]]
        known.setdefault(d["id"].tobytes(), []).append(text.tobytes())
    for r in range(len(rows)):
        at = 0
        for p in range(rows.starts[r], rows.starts[r + 1]):
            n = int(rows.lengths[p])
            piece = rows.tokens[r, at : at + n].tobytes()
            begin, size = int(rows.offsets[p]), tokens.itemsize
            texts = known[rows.ids[p].tobytes()]
            assert any(text[begin * size :][: n * size] == piece for text in texts)
            at += n
        assert (rows.tokens[r, at:] == FILL).all()
    assert rows.filled().sum() == docs["length"].sum()


def test_rows_are_shuffled_by_the_seed() -> None:
    docs, tokens = made([16] * 64)
    one, other = (pack([(docs, tokens)], 16, 3, "best_fit", seed, FILL) for seed in (1, 2))
    assert not np.array_equal(one.tokens, other.tokens)
    assert sorted(one.tokens.tolist()) == sorted(other.tokens.tolist())
    assert not np.array_equal(one.tokens.reshape(-1), tokens)


def test_an_empty_window_has_no_rows() -> None:
    docs, tokens = made([3, 4])
    assert len(pack([(docs[:0], tokens)], 16, 3, "best_fit", 1, FILL)) == 0


def test_documents_beyond_the_tokens_of_their_file_are_an_error() -> None:
    docs, tokens = made([3, 4])
    with pytest.raises(ValueError, match="not those of its tokens"):
        pack([(docs, tokens[:-1])], 16, 3, "best_fit", 1, FILL)


@pytest.mark.parametrize("bits", [0, 1, 3])
def test_windows_are_the_top_bits_of_the_keys(bits: int) -> None:
    docs, _ = made([1] * 50)
    parts = [in_window(docs, bits, window) for window in range(2**bits)]
    assert np.array_equal(np.concatenate(parts), docs)
    for window, part in enumerate(parts):
        assert all(int(key) * 2**bits >> 64 == window for key in part["key"])


def test_windows_are_as_many_as_memory_wants() -> None:
    assert [window_bits(n, target=100) for n in (0, 1, 100, 101, 200, 201)] == [0, 0, 0, 1, 1, 2]
    assert window_bits(100, documents=1, target=100 + DOCUMENT) == 0
    assert window_bits(101, documents=1, target=100 + DOCUMENT) == 1
