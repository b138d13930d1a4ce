"""Whatever is not as the manifest says is found and named; what is, holds."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from make_tokens import make, same

from manifests.diff import Difference, diff, render
from manifests.reader import open_reader
from manifests.records import origin_of
from manifests.rows import Rows, from_table, to_table
from manifests.tokens import File, Manifest
from manifests.trace import document, sequence
from manifests.verify import check, row_hashes


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return make(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def copy(toy: Manifest, tmp_path: Path) -> Manifest:
    shutil.copytree(toy.directory, tmp_path / "copy")
    return Manifest.load(tmp_path / "copy")


def test_a_manifest_and_its_files_hold(toy: Manifest) -> None:
    report = check(toy)
    assert report.problems == [] and report.holds
    assert report.samples == toy.samples
    packed = sum(split.rows for source in toy.sources for split in source.splits.values())
    assert report.rows == packed + toy.samples
    assert report.files == 1 + len(list(toy.directory.glob("[dps]*/**/*.parquet")))


def rewritten(manifest: Manifest, file: File, change: Callable[[Rows], Rows]) -> Manifest:
    """The manifest after a file of packed rows was changed; its new size and digest are right."""
    place = manifest.directory / file.path
    rows = change(from_table(pq.read_table(place), manifest.names))
    pq.write_table(to_table(rows, manifest.names), place)
    data = place.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    fresh = replace(file, bytes=len(data), sha256=digest, rows=len(rows))

    def put(value: Any) -> Any:
        return tuple(fresh if one == file else one for one in value)

    sources = tuple(
        replace(
            source,
            splits={
                name: replace(split, files=put(split.files))
                for name, split in source.splits.items()
            },
        )
        for source in manifest.sources
    )
    return replace(manifest, sources=sources, shards=put(manifest.shards))


def other_token(rows: Rows) -> Rows:
    tokens = rows.tokens.copy()
    tokens[3, 0] ^= 1
    return replace(rows, tokens=tokens)


def swapped(rows: Rows) -> Rows:
    return rows.take(np.array([1, 0, *range(2, len(rows))]))


def no_eos(rows: Rows) -> Rows:
    tokens = rows.tokens.copy()
    tokens[0, rows.lengths[0] - 1] = 5
    return replace(rows, tokens=tokens)


def longer(rows: Rows) -> Rows:
    lengths = rows.lengths.copy()
    lengths[0] = 500
    return replace(rows, lengths=lengths)


def renamed(rows: Rows) -> Rows:
    ids = rows.ids.copy()
    ids[0] ^= np.uint64(1)
    return replace(rows, ids=ids)


def one_less(rows: Rows) -> Rows:
    return rows.take(np.arange(len(rows) - 1))


@pytest.mark.parametrize(
    ("where", "change", "says"),
    [
        ("shard", other_token, "shard-00000.parquet: not the row that the order says: sample 3"),
        ("shard", swapped, "not the row that the order says: sample 0, 1"),
        ("shard", one_less, "manifest.json: the shards do not have"),
        ("packed", swapped, "not the row that the order says: sample"),
        ("packed", no_eos, "part-00000.parquet: not whole: document"),
        ("packed", longer, "part-00000.parquet: more tokens than the row has: row 0"),
        ("packed", renamed, "part-00000.parquet: no provenance of document"),
        ("packed", one_less, "manifest.json: web train: its files do not have"),
    ],
)
def test_changed_rows_are_found(
    copy: Manifest, where: str, change: Callable[[Rows], Rows], says: str
) -> None:
    file = copy.shards[0] if where == "shard" else copy.source("web").train.files[0]
    report = check(rewritten(copy, file, change))
    assert [line for line in report.problems if says in line], report.problems


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"recipe": {"name": "other"}}, "recipe_digest is not that of the recipe"),
        ({"max_docs_per_row": 2}, "more than 2 pieces: row"),
        ({"seed": 21}, "not whole: document"),
    ],
)
def test_a_manifest_that_says_otherwise_is_found(
    toy: Manifest, fields: dict[str, Any], says: str
) -> None:
    report = check(replace(toy, **fields))
    assert [line for line in report.problems if says in line], report.problems


def test_shares_and_epochs_are_counted_again(toy: Manifest) -> None:
    web = replace(toy.sources[0], realised=0.4, epochs=1.5)
    books = replace(toy.sources[2], max_epochs=2)
    problems = check(replace(toy, sources=(web, toy.sources[1], books))).problems
    assert len(problems) == 3
    assert "web: 1.5 epochs, the order makes" in problems[0]
    assert "books" in problems[1] and "epochs of at most 2" in problems[1]
    assert "web: realised 0.4, the shards have" in problems[2]


def test_runs_below_are_held_against_the_manifest_where_they_still_are(copy: Manifest) -> None:
    above = copy.directory / "crawl"
    record = {"segments": [{"key": "k"}], "inputs": []}
    read = {
        "segments": [{"key": "c"}],
        "inputs": [{"path": str(above / "documents" / "part-00000.parquet")}],
    }
    (copy.directory / "corpus" / "run.json").write_text(json.dumps(read))
    assert copy.corpus is not None
    corpus = replace(copy.corpus, digest=origin_of(read))
    web = replace(copy.sources[0], upstream={"kind": "run", "digest": origin_of(record)})
    made = replace(copy, corpus=corpus, sources=(web, *copy.sources[1:]))
    assert check(made).problems == []  # the crawl is gone
    above.mkdir()
    (above / "run.json").write_text(json.dumps(record))
    assert check(made).problems == []
    (above / "run.json").write_text(json.dumps({**record, "inputs": ["other"]}))
    assert check(made).problems == ["crawl/run.json: not the run that the manifest was made of"]
    (above / "run.json").write_text("{")
    assert check(made).problems == ["crawl/run.json: damaged"]
    assert check(copy).problems == ["corpus/run.json: not the run that the manifest was made of"]


def test_a_manifest_without_shards_is_read_live(toy: Manifest, copy: Manifest) -> None:
    shutil.rmtree(copy.directory / "shards")
    live = replace(copy, shards=())
    assert check(live).problems == []
    assert same(open_reader(live).batch(5, 9), open_reader(toy).batch(5, 9))
    found = sequence(live, 77)
    assert found.shard is None and found.pieces == sequence(toy, 77).pieces
    places = document(live, found.pieces[0].id)[0].places
    assert (77, found.epoch, None, None) in [one for place in places for one in place.samples]


def test_missing_damaged_and_strange_files_are_named(copy: Manifest) -> None:
    (copy.directory / copy.tokenizer.path).unlink()
    shard = copy.directory / copy.shards[0].path
    shard.write_bytes(shard.read_bytes()[:-7] + b"\0" * 7)
    provenance = copy.sources[0].train.provenance[0].path
    pq.write_table(pa.table({"id": ["x"]}), copy.directory / provenance)
    shutil.copy(copy.directory / copy.shards[1].path, shard.with_name("shard-99999.parquet"))
    lines = "\n".join(check(copy).problems)
    assert "tokenizer/tokenizer.json: No such file" in lines
    assert f"{copy.shards[0].path}: its bytes are not those of the manifest" in lines
    assert f"{provenance}: " in lines
    assert "shards/train/shard-99999.parquet: the manifest does not name it" in lines


def test_hashes_of_rows_see_what_a_row_is(toy: Manifest) -> None:
    rows = from_table(pq.read_table(toy.directory / toy.shards[0].path), toy.names)
    hashes = row_hashes(rows)
    assert np.array_equal(row_hashes(rows.take(np.arange(9, 20))), hashes[9:20])
    several = int(np.flatnonzero(np.diff(rows.starts) > 1)[0])
    ids = rows.ids.copy()
    ids[rows.starts[several] : rows.starts[several + 1]] = ids[
        rows.starts[several] : rows.starts[several + 1]
    ][::-1]
    assert np.flatnonzero(row_hashes(replace(rows, ids=ids)) != hashes).tolist() == [several]


def test_a_diff_names_what_differs(toy: Manifest, tmp_path: Path) -> None:
    assert diff(toy, toy) == [] and render([]) == "no difference"
    other = make(tmp_path, weights={"web": 0.5, "code": 0.25, "books": 0.25})
    found = {difference.path: difference for difference in diff(toy, other)}
    assert found["sources.books.weight"] == Difference("sources.books.weight", 0.2, 0.25)
    assert found["order.mixture.0.weights.code"].b == 0.25
    shard = "shards.shards/train/shard-00000.parquet"
    assert found[shard].a == toy.shards[0].sha256[:16]
    assert not [path for path in found if path.startswith(("tokenizer", "sources.web.splits"))]
    lines = render(list(found.values())).split("\n")
    assert len({line.index("0.2 ") for line in lines if "books.weight" in line}) == 1
