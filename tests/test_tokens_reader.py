"""Both ways of reading give the same batches, in any cut, and a damaged file is named."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_tokens import SOURCES, make, same

from manifests.order import WHOLE, Deal
from manifests.reader import Live, Shards, open_reader
from manifests.rows import Rows
from manifests.tokens import Manifest, ManifestError


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return make(tmp_path_factory.mktemp("toy"))


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_shards_and_packed_files_give_the_same_batches(toy: Manifest, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, toy.samples))
    count = data.draw(st.integers(0, min(200, toy.samples - first)))
    assert same(Shards(toy).batch(first, count), Live(toy).batch(first, count))


def test_a_batch_is_its_parts_however_it_is_cut(toy: Manifest) -> None:
    reader = Shards(toy)
    parts = [reader.batch(480, 1), reader.batch(481, 30), reader.batch(511, 549)]
    assert same(Rows.join(parts), reader.batch(480, 580))


def test_threads_may_share_a_reader(toy: Manifest) -> None:
    for reader in (Shards(toy), Live(toy)):
        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(lambda first, r=reader: r.batch(first, 16), range(0, 320, 16)))
        assert same(Rows.join(parts), Shards(toy).batch(0, 320))


def test_another_mixture_is_read_live_from_where_it_begins(toy: Manifest) -> None:
    only_code = Deal(1024, (0, WHOLE, 0))
    changed = Live(toy, [*toy.deals(), only_code])
    assert same(changed.batch(900, 124), Live(toy).batch(900, 124))
    assert set(changed.batch(1024, 300).sources.tolist()) == {1}
    assert len(changed.batch(toy.samples + 5000, 3)) == 3  # live, a run has no end


def test_validation_rows_come_once_in_order(toy: Manifest) -> None:
    whole = Rows.join(list(Shards(toy).validation()))
    assert len(whole) == sum(source.splits["validation"].rows for source in toy.sources)
    assert (np.diff(whole.sources) >= 0).all()
    code = Rows.join(list(Live(toy).validation("code")))
    assert same(code, whole.take(np.flatnonzero(whole.sources == list(SOURCES).index("code"))))
    with pytest.raises(ManifestError, match="no source 'x'; there are web, code, books"):
        list(Shards(toy).validation("x"))


def test_what_the_shards_do_not_have_is_refused(toy: Manifest) -> None:
    with pytest.raises(ManifestError, match=f"row {toy.samples} of {toy.samples}"):
        Shards(toy).batch(toy.samples - 1, 2)


def test_a_damaged_file_is_named(toy: Manifest, tmp_path: Path) -> None:
    shutil.copytree(toy.directory, tmp_path / "copy")
    copy = Manifest.load(tmp_path / "copy")
    place = copy.directory / copy.shards[1].path
    data = bytearray(place.read_bytes())
    data[100:2000] = bytes(1900)
    place.write_bytes(data)
    reader = open_reader(copy)  # the size is the same
    assert len(reader.batch(0, 500)) == 500
    with pytest.raises(ManifestError, match=r"^shards/train/shard-00001.parquet: damaged"):
        reader.batch(500, 64)
    with pytest.raises(ManifestError, match=r"shard-00001.parquet: its bytes are not those"):
        open_reader(copy, digests=True)
    assert same(open_reader(copy, live=True, digests=True).batch(0, 9), Shards(toy).batch(0, 9))
    place.write_bytes(data[:-1])
    with pytest.raises(ManifestError, match=r"shard-00001.parquet: \d+ bytes, the manifest says"):
        open_reader(copy)
    place.unlink()
    with pytest.raises(ManifestError, match=r"shard-00001.parquet: No such file"):
        open_reader(copy)


def test_rows_of_another_length_are_refused(toy: Manifest) -> None:
    with pytest.raises(ManifestError, match=r"shard-00000.parquet: rows of 64 tokens of uint16"):
        Shards(replace(toy, sequence_length=32)).batch(0, 1)
