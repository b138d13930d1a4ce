"""Two passes put every row where the order of samples wants it, as one big table would."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.tokens import sharding
from curation.tokens.sharding import ShardError, gather, read_rows, scatter, write_rows
from manifests.files import file_digest
from manifests.order import BLOCK, Deal, Order, parts_of
from manifests.rows import ROW_GROUP, Rows
from manifests.tokens import File

NAMES = ["web", "code", "books"]


def made(rows: int, source: int, dtype: str = "uint16", length: int = 6) -> Rows:
    random = np.random.default_rng(rows + source)
    counts = random.integers(1, 4, rows)
    starts = np.concatenate([[0], np.cumsum(counts)])
    pieces = int(starts[-1])
    return Rows(
        random.integers(0, 60_000, (rows, length)).astype(dtype),
        starts,
        random.integers(1, 3, pieces).astype(np.int32),
        random.integers(0, 99, pieces),
        random.integers(0, 2**64, (pieces, 2), dtype=np.uint64),
        np.full(rows, source, np.int16),
    )


def same(one: Rows, other: Rows) -> bool:
    fields = ("tokens", "starts", "lengths", "offsets", "ids", "sources")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in fields)


def dealt(rows: list[int], *weights: list[float]) -> Order:
    """An order over sources of so many rows; each BLOCK samples the next weights."""
    deals = []
    for number, wanted in enumerate(weights or [[1.0] * len(rows)]):
        parts = parts_of(
            [w if n else 0 for w, n in zip(wanted, rows, strict=True)], [1] * len(rows)
        )
        deals.append(Deal(number * BLOCK, parts))
    return Order(7, NAMES[: len(rows)], rows, deals)


def packed(folder: Path, rows: Rows, cuts: list[int], source: int) -> list[tuple[int, Path]]:
    """Rows as packed files that end at these rows."""
    files, first = [], 0
    for number, stop in enumerate([*sorted(cuts), len(rows)]):
        path = folder / f"{source}-{number}.parquet"
        write_rows(path, [rows.take(np.arange(first, stop))], NAMES, folder)
        files.append((first, path))
        first = stop
    return files


@settings(deadline=None, max_examples=12)
@given(st.data())
def test_shards_are_the_samples_in_order_whatever_the_groups(data: Any) -> None:
    counts = data.draw(st.tuples(*[st.integers(0, 99)] * 2, st.integers(1, 99)))
    samples = data.draw(st.integers(1, 60) | st.integers(BLOCK - 1, BLOCK + 60))
    order = dealt(list(counts), [0.7, 0.2, 0.1], [0, 0.5, 0.5])
    sources = [made(count, source) for source, count in enumerate(counts)]
    stems = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        for source, rows in enumerate(sources):
            cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3))
            files = packed(folder, rows, cuts, source)
            half = data.draw(st.integers(0, len(files)))
            for group in filter(None, (files[:half], files[half:])):
                stems.append(folder / f"run-{len(stems)}")
                scatter(order, source, group, samples, NAMES, stems[-1], folder)
        shard_rows = data.draw(st.integers(samples // 5 + 1, samples))
        shards = [
            gather(data.draw(st.permutations(stems)), first, min(first + shard_rows, samples))
            for first in range(0, samples, shard_rows)
        ]
    whole = Rows.join(sources)
    firsts = np.concatenate([[0], np.cumsum(counts)])
    source, _, row = order.locate(np.arange(samples))
    wanted = whole.take(firsts[source] + row)
    assert same(Rows.join(shards), wanted)


def test_a_sample_that_is_missing_or_there_twice_is_named(tmp_path: Path) -> None:
    rows, order = made(8, 0), dealt([8])
    files = packed(tmp_path, rows, [5], 0)
    one, other = tmp_path / "one", tmp_path / "other"
    scatter(order, 0, files[:1], 8, NAMES, one, tmp_path)
    scatter(order, 0, files[1:], 8, NAMES, other, tmp_path)
    gone = int(np.argmax(order.locate(np.arange(8))[2] >= 5))
    with pytest.raises(ShardError, match=f"sample {gone} is 0 times"):
        gather([one], 0, 8)
    with pytest.raises(ShardError, match=f"sample {gone} is 2 times"):
        gather([one, other, other], 0, 8)


def test_a_run_file_is_written_in_chunks_and_its_facts_are_those_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, order = made(20, 1, "uint32"), dealt([0, 20])
    files = packed(tmp_path, rows, [], 1)
    whole = scatter(order, 1, files, 50, NAMES, tmp_path / "whole", tmp_path)
    monkeypatch.setattr(sharding, "CHUNK", 7 * 6 * 4)
    parts = scatter(order, 1, files, 50, NAMES, tmp_path / "parts", tmp_path)
    for name, output in parts.items():
        assert file_digest(tmp_path / output.path) == (output.digest, output.bytes)
        assert (output.digest, output.rows) == (whole[name].digest, whole[name].rows)
    assert parts["tokens"].rows == 50


def test_the_bytes_of_a_file_do_not_depend_on_the_parts_in_which_rows_come(tmp_path: Path) -> None:
    rows = Rows.join([made(100, 0), made(60, 2)])
    written = write_rows(tmp_path / "whole.parquet", [rows], NAMES, tmp_path)
    cuts = [0, 0, 1, 63, 64, 130, 160]
    pieces = [rows.take(np.arange(a, b)) for a, b in pairwise(cuts)]
    output, file = write_rows(tmp_path / "parts.parquet", pieces, NAMES, tmp_path)
    data = (tmp_path / "parts.parquet").read_bytes()
    assert data == (tmp_path / "whole.parquet").read_bytes()
    assert (output.digest, file.sha256) == (written[0].digest, written[1].sha256)
    assert (output.digest, output.bytes) == file_digest(tmp_path / output.path)
    filled = rows.filled()
    tokens = {"web": filled[:100].sum(), "books": filled[100:].sum()}
    sha256 = hashlib.sha256(data).hexdigest()
    assert file == File("parts.parquet", output.rows, len(data), sha256, tokens)
    assert same(Rows.join(list(read_rows(tmp_path / "parts.parquet", NAMES))), rows)
    groups = pq.read_metadata(tmp_path / "whole.parquet")
    sizes = [groups.row_group(g).num_rows for g in range(groups.num_row_groups)]
    assert sum(sizes) == 160 and set(sizes[:-1]) == {ROW_GROUP}


def test_a_file_without_rows_has_the_form_of_the_others(tmp_path: Path) -> None:
    none = made(3, 0).take(np.arange(0))
    _, file = write_rows(tmp_path / "none.parquet", [none], NAMES, tmp_path)
    assert (file.rows, file.tokens) == (0, {})
    assert pq.read_schema(tmp_path / "none.parquet").field("tokens").type.list_size == 6


@pytest.mark.parametrize("damage", [b"", b"PAR1 but not really PAR1"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "part-00003.parquet"
    path.write_bytes(damage)
    with pytest.raises(ValueError, match="part-00003"):
        list(read_rows(path, NAMES))
