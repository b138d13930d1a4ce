"""Packed rows go through Arrow and Parquet unchanged; hashes are the same everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manifests.hashing import below, keys, mix64, salt
from manifests.rows import PARQUET, ROW_GROUP, Rows, from_table, to_table

NAMES = ["web", "code"]


def made(rows: int, length: int, seed: int, dtype: str = "uint16") -> Rows:
    random = np.random.default_rng(seed)
    counts = random.integers(0, 5, rows)
    starts = np.concatenate([[0], np.cumsum(counts)])
    pieces = int(starts[-1])
    return Rows(
        random.integers(0, 60_000, (rows, length)).astype(dtype),
        starts,
        random.integers(1, 9, pieces).astype(np.int32),
        random.integers(0, 99, pieces),
        random.integers(0, 2**64, (pieces, 2), dtype=np.uint64),
        random.integers(0, 2, rows).astype(np.int16),
    )


def same(one: Rows, other: Rows) -> bool:
    fields = ("tokens", "starts", "lengths", "offsets", "ids", "sources")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in fields)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_table_holds_rows_and_gives_them_back(rows: int, dtype: str, tmp_path: Path) -> None:
    whole = made(rows, 33, rows, dtype)
    pq.write_table(to_table(whole, NAMES), tmp_path / "x.parquet", row_group_size=3)
    back = from_table(pq.read_table(tmp_path / "x.parquet"), NAMES)
    assert same(back, whole) and back.tokens.dtype == dtype


def test_files_as_they_are_written_are_read_by_others_and_always_have_the_same_bytes(
    tmp_path: Path,
) -> None:
    duckdb = pytest.importorskip("duckdb")
    whole = made(200, 64, 5)
    for name in ("x", "y"):
        table = to_table(whole, NAMES)
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=ROW_GROUP, **PARQUET)
    assert (tmp_path / "x.parquet").read_bytes() == (tmp_path / "y.parquet").read_bytes()
    assert same(from_table(pq.read_table(tmp_path / "x.parquet"), NAMES), whole)
    column = pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(0).column(0)
    assert "BYTE_STREAM_SPLIT" in column.encodings and column.compression == "ZSTD"
    query = f"select sum(list_sum(tokens::integer[])) from '{tmp_path / 'x.parquet'}'"
    assert duckdb.sql(query).fetchall() == [(int(whole.tokens.sum()),)]


def test_a_slice_of_a_table_is_those_rows_alone() -> None:
    whole = made(9, 5, 3)
    part = from_table(to_table(whole, NAMES).slice(2, 4), NAMES)
    assert same(part, whole.take(np.arange(2, 6)))


def test_rows_that_are_joined_are_what_they_were() -> None:
    whole = made(9, 5, 4)
    parts = [whole.take(np.arange(0, 2)), whole.take(np.arange(2, 2)), whole.take(np.arange(2, 9))]
    assert same(Rows.join(parts), whole)


def test_ids_lie_in_the_file_as_their_hex_digits() -> None:
    row = Rows(
        np.zeros((1, 4), np.uint16),
        np.array([0, 1]),
        np.array([3], np.int32),
        np.array([0]),
        np.array([[0x0011223344556677, 0x8899AABBCCDDEEFF]], dtype=np.uint64),
        np.array([0], np.int16),
    )
    table = to_table(row, NAMES)
    assert table["doc_ids"][0].as_py()[0].hex() == "00112233445566778899aabbccddeeff"
    assert list(row.filled()) == [3]


def test_other_tables_and_other_sources_are_refused() -> None:
    with pytest.raises(ValueError, match="rows/1"):
        from_table(pa.table({"tokens": [1]}), NAMES)
    with pytest.raises(ValueError, match="'code'"):
        from_table(to_table(made(9, 5, 4), NAMES), ["web"])


def test_mix64_is_the_finaliser_of_murmurhash3() -> None:
    """fmix64 in its 128-bit x64 form: 0 stays 0; 1 by hand of its five steps."""
    x = 1
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, 1)):
        x = ((x ^ (x >> shift)) * factor) % 2**64
    assert mix64(np.array([0, 1], np.uint64)).tolist() == [0, x]


def test_keys_tell_copies_words_and_purposes_apart() -> None:
    ids = np.array([[1, 2], [2, 1], [1, 3]], dtype=np.uint64)
    found = [
        *keys(salt(20, "packing"), ids).tolist(),
        *keys(salt(20, "packing"), ids, 1).tolist(),
        *keys(salt(20, "validation"), ids, np.array([0, 1, 2])).tolist(),
    ]
    assert len(set(found)) == 9


def test_a_share_of_keys_lies_below_its_bound() -> None:
    ids = np.stack([np.arange(20_000), np.zeros(20_000)], axis=1).astype(np.uint64)
    found = keys(salt(1, "validation"), ids)
    share = np.mean([key < below(0.1) for key in found.tolist()])
    assert abs(share - 0.1) < 4 * (0.1 * 0.9 / 20_000) ** 0.5
    assert below(1.0) == 2**64 and below(0.0) == 0
