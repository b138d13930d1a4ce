"""What `curation export` writes of a manifest is what independent readers find in it."""

from __future__ import annotations

import gzip
import json
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from make_tokens import EOS, make

from curation import cli
from curation.tokens.claim import NotOurs
from curation.tokens.export import export
from manifests.files import AtomicFile
from manifests.tokens import Manifest, ManifestError


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return make(tmp_path_factory.mktemp("tokens"))


def _pieces(manifest: Manifest, path: str) -> list[tuple[str, int, list[int], str]]:
    """Id, offset, tokens and source of each piece of a file of rows, in order, read plainly."""
    found = []
    for row in pq.read_table(manifest.directory / path).to_pylist():
        place = 0
        columns = (row["doc_ids"], row["doc_offsets"], row["doc_lengths"])
        for name, offset, length in zip(*columns, strict=True):
            tokens = row["tokens"][place : place + length]
            found.append((name.hex(), offset, tokens, row["source"]))
            place += length
    return found


def _documents(manifest: Manifest) -> dict[str, list[int]]:
    """The tokens of each document, from its text in the corpus: bytes are the tokens of the toy."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(manifest.directory / manifest.tokenizer.path))
    found = {}
    for path in (manifest.directory / "corpus" / "documents").glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            found[row["id"]] = [*tokenizer.encode(row["text"]).ids, EOS]
    return found


def _read_megatron(prefix: str) -> list[list[int]]:
    """The sequences of a pair, as the format's description reads."""
    index, data = Path(f"{prefix}.idx").read_bytes(), Path(f"{prefix}.bin").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00" and struct.unpack_from("<Q", index, 9) == (1,)
    assert index[17] == 8  # uint16
    count, _ = struct.unpack_from("<QQ", index, 18)
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    places = struct.unpack_from(f"<{count}q", index, 34 + 4 * count)
    return [
        np.frombuffer(data, "<u2", n, at).tolist() for n, at in zip(lengths, places, strict=True)
    ]


def test_megatron_gets_every_copy_of_every_document_whole(
    manifest: Manifest, tmp_path: Path
) -> None:
    found = export(manifest, "megatron", tmp_path / "out")
    texts = _documents(manifest)
    for source in manifest.sources:
        for split, held in source.splits.items():
            wanted: Counter[tuple[int, ...]] = Counter()
            for file in held.files:
                names = [name for name, at, *_ in _pieces(manifest, file.path) if at == 0]
                wanted.update(tuple(texts[name]) for name in names)
            got = _read_megatron(f"{tmp_path}/out/{split}/{source.name}")
            assert Counter(map(tuple, got)) == wanted and len(got) == held.copies
    longest = max(map(len, _read_megatron(f"{tmp_path}/out/train/web")))
    assert longest > manifest.sequence_length  # some lay in several rows
    line = found["arguments"]["--train-data-path"]
    assert line[::2] == ["0.5", "0.3", "0.2"] and Path(line[1] + ".idx").exists()
    assert sum(file["tokens"] for file in found["files"]) == sum(
        held.tokens for source in manifest.sources for held in source.splits.values()
    )


def test_npy_is_the_tokens_of_the_samples_in_order_with_their_pieces_beside(
    manifest: Manifest, tmp_path: Path
) -> None:
    export(manifest, "npy", tmp_path / "out")
    for shard in manifest.shards:
        path = tmp_path / "out" / "train" / f"{Path(shard.path).stem}.npy"
        pieces = _pieces(manifest, shard.path)
        flat = np.memmap(path, dtype=np.uint16, mode="r")
        assert flat.tolist() == [token for _, _, tokens, _ in pieces for token in tokens]
        with gzip.open(path.with_suffix(".csv.gz"), "rt") as lines:
            beside = [line.rstrip("\n").split(",") for line in lines]
        at = 0
        for (name, offset, tokens, source), line in zip(pieces, beside, strict=True):
            assert line == [str(at), str(at + len(tokens)), name, source, str(offset)]
            at += len(tokens)
    held = manifest.source("web").splits["validation"]
    flat = np.memmap(tmp_path / "out" / "validation" / "web.npy", dtype=np.uint16, mode="r")
    assert len(flat) == held.tokens


def test_a_run_without_shards_is_exported_by_the_order(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curation.tokens.export.LIVE", 500)  # as the shards of the toy
    export(manifest, "npy", tmp_path / "shards")
    export(replace(manifest, shards=()), "npy", tmp_path / "live")
    paths = sorted(path.relative_to(tmp_path / "shards") for path in tmp_path.glob("shards/*/*"))
    assert len(paths) == 2 * (len(manifest.shards) + len(manifest.sources))
    for path in paths:
        assert (tmp_path / "live" / path).read_bytes() == (tmp_path / "shards" / path).read_bytes()


class Killed(BaseException):
    pass


@pytest.mark.parametrize("form", ["megatron", "npy"])
def test_an_export_that_was_killed_goes_on_to_the_same_bytes(
    form: Any, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def content(root: Path) -> dict[str, bytes]:
        files = (path for path in root.rglob("*") if path.is_file())
        return {str(path.relative_to(root)): path.read_bytes() for path in files}

    export(manifest, form, tmp_path / "one")
    whole = content(tmp_path / "one")
    commit = AtomicFile.commit
    for kill in (1, 2, 5):  # commits, that of the mark included
        left = iter(range(kill))

        def killed(file: AtomicFile, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Killed  # the file stays under its temporary name
            commit(file)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(AtomicFile, "commit", killed)
            export(manifest, form, tmp_path / "again")
    export(manifest, form, tmp_path / "again")
    assert content(tmp_path / "again") == whole
    assert json.loads(whole["export.json"])["manifest"] == manifest.digest


def test_a_directory_of_something_else_is_refused(manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine.txt").write_text("mine")
    export(manifest, "npy", tmp_path / "y")
    for directory in (tmp_path / "x", tmp_path / "y", tmp_path / "x" / "mine.txt"):
        with pytest.raises(NotOurs, match=str(directory)):
            export(manifest, "megatron", directory)
    assert (tmp_path / "x" / "mine.txt").read_text() == "mine"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    manifest = make(tmp_path / "tokens", samples=10)
    path = manifest.directory / manifest.source("code").train.files[0].path
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    with pytest.raises(ManifestError, match=str(path)):
        export(manifest, "megatron", tmp_path / "out")
    assert not (tmp_path / "out" / "train" / "code.idx").exists()


def test_the_command_line_exports_a_manifest(
    manifest: Manifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, out = str(manifest.directory), str(tmp_path / "out")
    assert cli.main(["export", place, "--format", "megatron", out]) == 0
    assert f"--train-data-path 0.5 {out}/train/web 0.3 " in capsys.readouterr().out
    assert cli.main(["export", f"{place}/manifest.json", "--format", "npy", out, "--json"]) == 2
    assert "choose another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "where", "code", "said"),
    [
        ("datatrove", "", 2, "--format datatrove wants a run"),
        ("npy", "nowhere", 2, "nowhere: no run lies here"),
        ("npy", "tokenizer/tokenizer.json", 1, "no manifest of kind tokens"),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_line(
    form: str,
    where: str,
    code: int,
    said: str,
    manifest: Manifest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = str(manifest.directory / where)
    assert cli.main(["export", place, "--format", form, str(tmp_path / "out")]) == code
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
