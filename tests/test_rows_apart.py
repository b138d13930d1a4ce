"""Packed rows taken apart: whole documents again, pieces deleted, Megatron's files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.tokens import megatron
from curation.tokens.deletion import holds, without
from curation.tokens.documents import filled_tokens, whole_documents
from manifests.rows import Rows

EOS, PAD, WIDTH = 0, 60_000, 6

Piece = tuple[int, int, list[int]]  # number of the document, offset, tokens


@st.composite
def packed(draw: st.DrawFn) -> tuple[Rows, list[Piece]]:
    """Documents of 1 to 20 tokens, some twice, each copy cut by itself, in rows in any order."""
    pieces: list[Piece] = []
    for number in range(draw(st.integers(0, 6))):
        text = [10 * number + 1 + i % 9 for i in range(draw(st.integers(0, 19)))]
        text = [*text, EOS]
        for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
            place = 0
            while place < len(text):
                size = draw(st.integers(1, WIDTH))
                pieces.append((number, place, text[place : place + size]))
                place += size
    pieces = draw(st.permutations(pieces))
    rows: list[list[Piece]] = [[]]
    for piece in pieces:
        full = sum(len(p[2]) for p in rows[-1]) + len(piece[2]) > WIDTH
        if full or draw(st.booleans()):
            rows.append([])
        rows[-1].append(piece)
    return _rows(rows), pieces


def _id(number: int) -> tuple[int, int]:
    return number // 2, number % 2  # pairs share their first half


def _rows(rows: list[list[Piece]]) -> Rows:
    tokens = np.full((len(rows), WIDTH), PAD, np.uint16)
    for row, pieces in enumerate(rows):
        flat = [token for _, _, piece in pieces for token in piece]
        tokens[row, : len(flat)] = flat
    pieces = [piece for row in rows for piece in row]
    return Rows(
        tokens,
        np.cumsum([0, *map(len, rows)]),
        np.array([len(tokens) for _, _, tokens in pieces], np.int32),
        np.array([offset for _, offset, _ in pieces], np.int64),
        np.array([_id(number) for number, _, _ in pieces], np.uint64).reshape(-1, 2),
        np.zeros(len(rows), np.int16),
    )


def _pieces(rows: Rows, row: int) -> list[tuple[list[int], int, list[int]]]:
    """The plain reading of a row: piece after piece, from the left."""
    found, place = [], 0
    for piece in range(rows.starts[row], rows.starts[row + 1]):
        length = int(rows.lengths[piece])
        tokens = rows.tokens[row, place : place + length].tolist()
        found.append((rows.ids[piece].tolist(), int(rows.offsets[piece]), tokens))
        place += length
    return found


@settings(deadline=None)  # a kernel is compiled on the first call
@given(packed())
def test_documents_come_back_whole_in_the_order_of_their_beginnings(
    case: tuple[Rows, list[Piece]],
) -> None:
    rows, pieces = case
    tokens, lengths = whole_documents(rows, EOS)
    got = [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1]) if len(part)]
    texts: dict[int, list[int]] = {}
    for number, _, _ in pieces:
        mine = sorted({(o, t) for n, o, ts in pieces if n == number for o, t in enumerate(ts, o)})
        texts[number] = [token for _, token in mine]
    assert got == [texts[number] for number, offset, _ in pieces if offset == 0]


@settings(deadline=None)  # a kernel is compiled on the first call
@given(packed(), st.data())
def test_a_missing_piece_is_named(case: tuple[Rows, list[Piece]], data: st.DataObject) -> None:
    rows, pieces = case
    later = [i for i, (_, offset, _) in enumerate(pieces) if offset]
    if not later:
        return
    gone = np.zeros(len(pieces), bool)
    gone[data.draw(st.sampled_from(later))] = True
    with pytest.raises(ValueError, match=r"document [0-9a-f]{32}: "):
        whole_documents(without(rows, gone, PAD), EOS)


@settings(deadline=None)  # a kernel is compiled on the first call
@given(packed(), st.sets(st.integers(0, 7)))
def test_a_deletion_takes_the_pieces_of_a_document_and_nothing_else(
    case: tuple[Rows, list[Piece]], numbers: set[int]
) -> None:
    rows, _ = case
    ids = np.array([_id(number) for number in sorted(numbers)], np.uint64).reshape(-1, 2)
    left = without(rows, holds(rows, ids), PAD)
    assert left.tokens.shape == rows.tokens.shape and left.tokens.dtype == rows.tokens.dtype
    wanted = {_id(number) for number in numbers}
    for row in range(len(rows)):
        stays = [piece for piece in _pieces(rows, row) if tuple(piece[0]) not in wanted]
        assert _pieces(left, row) == stays
        fill = sum(len(tokens) for _, _, tokens in stays)
        assert (left.tokens[row, fill:] == PAD).all()
    assert np.array_equal(left.sources, rows.sources)


def test_of_rows_without_anything_nothing_is_left() -> None:
    rows = _rows([[]])
    assert len(filled_tokens(rows)) == 0
    tokens, lengths = whole_documents(rows, EOS)
    assert len(tokens) == len(lengths) == 0


def _read_index(prefix: Path) -> tuple[str, list[int], list[int], list[int]]:
    """The index as the format's description reads, independent of the writer."""
    data = Path(f"{prefix}.idx").read_bytes()
    assert data[:9] == b"MMIDIDX\x00\x00"
    assert struct.unpack_from("<Q", data, 9) == (1,)
    kind = {4: "<i4", 8: "<u2"}[data[17]]
    count, bounds = struct.unpack_from("<QQ", data, 18)
    lengths = struct.unpack_from(f"<{count}i", data, 34)
    places = struct.unpack_from(f"<{count}q", data, 34 + 4 * count)
    documents = struct.unpack_from(f"<{bounds}q", data, 34 + 12 * count)
    assert len(data) == 34 + 12 * count + 8 * bounds
    return kind, list(lengths), list(places), list(documents)


@pytest.mark.parametrize(("dtype", "top"), [("uint16", 65_535), ("uint32", 200_000)])
def test_megatron_finds_each_document_where_the_index_says(
    dtype: str, top: int, tmp_path: Path
) -> None:
    given = [
        (np.array(tokens, dtype), np.array(lengths, np.int64))
        for tokens, lengths in [([5, 6, 0, 0], [3, 1]), ([], []), ([top, 0], [2])]
    ]
    megatron.write(tmp_path / "a.b", given, dtype)
    kind, lengths, places, documents = _read_index(tmp_path / "a.b")
    data = (tmp_path / "a.b.bin").read_bytes()
    found = [
        np.frombuffer(data, kind, n, at).tolist() for n, at in zip(lengths, places, strict=True)
    ]
    assert found == [[5, 6, 0], [0], [top, 0]] and documents == [0, 1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.b.bin", "a.b.idx"]


def test_the_index_is_written_in_chunks_as_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = (np.arange(28, dtype="uint16"), np.arange(8))
    megatron.write(tmp_path / "one", [part], "uint16")
    monkeypatch.setattr(megatron, "_CHUNK", 3)
    megatron.write(tmp_path / "chunks", [part], "uint16")
    assert (tmp_path / "one.idx").read_bytes() == (tmp_path / "chunks.idx").read_bytes()
