"""A takedown takes listed documents out of a manifest's files, and changes nothing else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_tokens import PAD, SOURCES, make

from curation.engine.listed import Listed
from curation.tokens.claim import NotOurs
from curation.tokens.takedown import takedown
from manifests.files import AtomicFile
from manifests.tokens import Corpus, File, Manifest, ManifestError
from manifests.verify import check


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return make(tmp_path_factory.mktemp("tokens"))


def _name(source: str, number: int) -> str:
    """The id of a toy document; every tenth is packed twice."""
    return hashlib.blake2b(f"{source} {number}".encode(), digest_size=16).hexdigest()


def _files(manifest: Manifest) -> Iterator[File]:
    for source in manifest.sources:
        for held in source.splits.values():
            yield from held.files
    yield from manifest.shards


def _provenance(manifest: Manifest) -> Iterator[File]:
    for source in manifest.sources:
        for held in source.splits.values():
            yield from held.provenance


def _without(row: dict[str, Any], gone: set[str]) -> dict[str, Any]:
    """The plain deletion: piece after piece, then padding; nothing changes in an untouched row."""
    columns = ("doc_ids", "doc_offsets", "doc_lengths")
    pieces, place = [], 0
    for name, offset, length in zip(*(row[column] for column in columns), strict=True):
        pieces.append((name, offset, length, row["tokens"][place : place + length]))
        place += length
    stay = [piece for piece in pieces if piece[0].hex() not in gone]
    if stay == pieces:
        return row
    tokens = [token for *_, piece in stay for token in piece]
    fill = [PAD] * (len(row["tokens"]) - len(tokens))
    lists = zip(columns, ([piece[i] for piece in stay] for i in range(3)), strict=True)
    return {**row, "tokens": tokens + fill, **dict(lists)}


def _holds_together(manifest: Manifest) -> None:
    """Every count of a manifest against its files, counted plainly."""
    for file in [*_files(manifest), *_provenance(manifest)]:
        data = (manifest.directory / file.path).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.bytes, file.sha256)
    for source in manifest.sources:
        for held in source.splits.values():
            rows = [
                row
                for file in held.files
                for row in pq.read_table(manifest.directory / file.path).to_pylist()
            ]
            lengths = [length for row in rows for length in row["doc_lengths"]]
            offsets = [offset for row in rows for offset in row["doc_offsets"]]
            names = {name for row in rows for name in row["doc_ids"]}
            assert (held.rows, held.pieces, held.tokens) == (len(rows), len(lengths), sum(lengths))
            assert (held.documents, held.copies) == (len(names), offsets.count(0))
            assert held.fill == held.tokens / (held.rows * manifest.sequence_length)
    tokens = dict.fromkeys(manifest.names, 0)
    for file in manifest.shards:
        for row in pq.read_table(manifest.directory / file.path).to_pylist():
            tokens[row["source"]] += sum(row["doc_lengths"])
    for source in manifest.sources:
        assert source.realised == pytest.approx(tokens[source.name] / sum(tokens.values()))


documents = st.one_of(
    *(st.tuples(st.just(name), st.integers(0, count - 1)) for name, count in SOURCES.items())
)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(chosen=st.sets(documents, min_size=1, max_size=4), by_url=st.booleans())
def test_pieces_of_listed_documents_go_and_nothing_else_changes(
    chosen: set[tuple[str, int]],
    by_url: bool,
    manifest: Manifest,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    output = tmp_path_factory.mktemp("out") / "new"
    urls = {f"https://{source}.example/{number}" for source, number in chosen}
    gone = {_name(*one) for one in chosen}
    listed = Listed(urls=frozenset(urls)) if by_url else Listed(ids=frozenset(gone))
    found = takedown(manifest, listed, output)
    made = Manifest.load(output)
    for before, after in zip(_files(manifest), _files(made), strict=True):
        old = pq.read_table(manifest.directory / before.path)
        new = pq.read_table(made.directory / after.path)
        assert new.schema.equals(old.schema, check_metadata=True)
        assert new.to_pylist() == [_without(row, gone) for row in old.to_pylist()]
        if new.equals(old):
            assert os.path.samefile(manifest.directory / before.path, output / after.path)
    for before, after in zip(_provenance(manifest), _provenance(made), strict=True):
        rows = pq.read_table(manifest.directory / before.path).to_pylist()
        left = [row for row in rows if row["id"] not in gone]
        assert pq.read_table(made.directory / after.path).to_pylist() == left
    _holds_together(made)
    assert check(made).problems == []
    assert (made.dealing, made.tokenizer) == (manifest.dealing, manifest.tokenizer)
    assert made.takedown is not None and made.takedown["previous"] == manifest.digest
    assert found["documents"] == made.takedown["documents"] == len(gone)
    assert not found["not_found"]


def test_the_samples_that_held_a_document_are_told_for_all_epochs(
    manifest: Manifest, tmp_path: Path
) -> None:
    gone = _name("web", 20)
    found = takedown(manifest, Listed(frozenset([gone])), tmp_path / "new")
    rows = [
        row
        for file in manifest.shards
        for row in pq.read_table(manifest.directory / file.path).to_pylist()
    ]
    held = [n for n, row in enumerate(rows) if gone in {name.hex() for name in row["doc_ids"]}]
    assert found["samples"] == held and len(held) > 4


def test_what_is_not_there_is_named_and_the_rest_goes(manifest: Manifest, tmp_path: Path) -> None:
    there, strange = _name("code", 3), "0" * 32
    address = "https://nowhere.example/"
    listed = Listed(frozenset([there, strange]), frozenset([address]))
    found = takedown(manifest, listed, tmp_path / "new")
    assert found["not_found"] == [strange, address] and found["documents"] == 1


def test_an_id_is_looked_for_in_its_windows_alone(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from curation.tokens import takedown as room

    read: list[str] = []
    plain = room.read_table

    def noted(manifest: Manifest, file: File, *columns: Any) -> Any:
        read.append(file.path)
        return plain(manifest, file, *columns)

    monkeypatch.setattr(room, "read_table", noted)
    once = next(n for n in range(1, 10) if _split(manifest, _name("web", n)) == "train")
    takedown(manifest, Listed(frozenset([_name("web", once)])), tmp_path / "new")
    windows = {Path(path).stem for path in read}
    assert len(windows) == 1  # of two


def _split(manifest: Manifest, name: str) -> str:
    for split in ("train", "validation"):
        for file in manifest.source("web").splits[split].provenance:
            if name in pq.read_table(manifest.directory / file.path)["id"].to_pylist():
                return split
    raise AssertionError(name)


class Killed(BaseException):
    pass


def test_a_takedown_that_was_killed_goes_on_to_the_same_bytes(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Listed(frozenset([_name("web", 20), _name("books", 1)]))
    one, again = tmp_path / "one", tmp_path / "again"
    takedown(manifest, listed, one)
    commit = AtomicFile.commit
    for kill in (0, 1, 4, 9):  # commits
        left = iter(range(kill))

        def killed(file: AtomicFile, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Killed
            commit(file)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(AtomicFile, "commit", killed)
            takedown(manifest, listed, again)
    takedown(manifest, listed, again)
    kept = {path.relative_to(one) for path in one.rglob("*")}
    assert {path.relative_to(again) for path in again.rglob("*")} == kept
    for path in kept:
        if (one / path).is_file():
            assert (one / path).read_bytes() == (again / path).read_bytes()


def test_another_directory_or_another_list_is_refused(manifest: Manifest, tmp_path: Path) -> None:
    takedown(manifest, Listed(frozenset(["0" * 32])), tmp_path / "new")
    with pytest.raises(NotOurs, match="new"):
        takedown(manifest, Listed(frozenset(["1" * 32])), tmp_path / "new")
    with pytest.raises(NotOurs, match="another"):
        takedown(manifest, Listed(frozenset(["0" * 32])), manifest.directory)


def test_a_shard_that_is_not_the_samples_of_the_order_is_named(tmp_path: Path) -> None:
    from dataclasses import replace

    manifest = make(tmp_path / "tokens")
    other = replace(manifest, shards=manifest.shards[1:] + manifest.shards[:1])
    with pytest.raises(ManifestError, match="shard-"):
        takedown(other, Listed(frozenset([_name("web", 20)])), tmp_path / "new")


def test_the_old_manifest_stays_byte_for_byte(tmp_path: Path) -> None:
    manifest = make(tmp_path / "tokens", samples=600)
    before = {p: p.read_bytes() for p in manifest.directory.rglob("*") if p.is_file()}
    takedown(manifest, Listed(frozenset([_name("web", 20)])), tmp_path / "new")
    assert {p: p.read_bytes() for p in manifest.directory.rglob("*") if p.is_file()} == before


def test_nothing_is_written_into_the_old_run(manifest: Manifest) -> None:
    with pytest.raises(NotOurs, match="lies in the run"):
        takedown(manifest, Listed(frozenset([_name("web", 20)])), manifest.directory / "new")
    assert not (manifest.directory / "new").exists()


def test_a_list_by_address_finds_what_leads_to_the_same_page(
    manifest: Manifest, tmp_path: Path
) -> None:
    listed = Listed(urls=frozenset(["http://www.web.example/7/?utm_source=x#y"]))
    found = takedown(manifest, listed, tmp_path / "new")
    assert found["documents"] == 1 and not found["not_found"]
    names = np.concatenate(
        [pq.read_table(tmp_path / "new" / f.path)["id"].to_numpy() for f in _provenance(manifest)]
    )
    assert _name("web", 7) not in names


def test_provenance_says_where_the_texts_lie_in_the_new_corpus(
    manifest: Manifest, tmp_path: Path
) -> None:
    gone = {_name("web", 7), _name("web", 20), _name("code", 0)}

    def remake(place: Path) -> Corpus:
        for path in (manifest.directory / "corpus" / "documents").iterdir():
            table = pq.read_table(path)
            rows = [row for row in table.to_pylist() if row["id"] not in gone]
            (place / "documents").mkdir(parents=True, exist_ok=True)
            made = pa.Table.from_pylist(rows, schema=table.schema)
            pq.write_table(made, place / "documents" / path.name)
        return Corpus("corpus", "1" * 32, {})

    takedown(manifest, Listed(frozenset(gone)), tmp_path / "new", remake)
    made = Manifest.load(tmp_path / "new")
    assert made.corpus == Corpus("corpus", "1" * 32, {})
    count = 0
    for file in _provenance(made):
        for row in pq.read_table(made.directory / file.path).to_pylist():
            text = pq.read_table(made.directory / row["file"]).slice(row["row"], 1)
            assert text["id"].to_pylist() == [row["id"]]
            count += 1
    assert count > 80
    _holds_together(made)
