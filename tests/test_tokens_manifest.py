"""A manifest comes back as it was written, and nothing that was changed or is unknown is taken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from make_tokens import make

from manifests.order import BLOCK
from manifests.records import canonical, digest_of
from manifests.tokens import Manifest, ManifestError, json_schema

SCHEMA_FILE = Path(__file__).resolve().parent.parent / "docs" / "manifest.schema.json"


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return make(tmp_path_factory.mktemp("toy"))


def changed(toy: Manifest, path: Path, sign: bool = True, **fields: Any) -> Path:
    record = {**toy.record(), **fields}
    if sign:
        record["digest"] = digest_of({k: v for k, v in record.items() if k != "digest"})
    path.write_bytes(canonical(record))
    return path


def test_what_is_saved_is_what_is_loaded(toy: Manifest, tmp_path: Path) -> None:
    back = Manifest.load(toy.directory)
    assert back == toy and back.digest == toy.digest and back.directory == toy.directory
    back.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (toy.directory / "manifest.json").read_bytes()


def test_the_same_directory_made_twice_has_the_same_digest(toy: Manifest, tmp_path: Path) -> None:
    assert make(tmp_path).digest == toy.digest
    assert replace(toy, seed=21).digest != toy.digest


@pytest.mark.parametrize(
    ("fields", "sign", "says"),
    [
        ({"seed": 21}, False, "says digest"),
        ({"schema": 2}, True, "schema 2; this version reads 1"),
        ({"kind": "documents"}, True, "no manifest of kind tokens"),
        ({"dtype": "int8"}, True, "dtype: 'uint16' or 'uint32' is wanted, not 'int8'"),
        ({"seed": "20"}, True, "seed: a value of type integer is wanted, not '20'"),
        ({"seed": True}, True, "seed: a value of type integer"),
        ({"sources": [{}]}, True, r"sources\[0\].name: missing"),
        ({"extra": 1}, True, "extra: an unknown field"),
        ({"shards": 3}, True, "shards: a list is wanted"),
    ],
)
def test_what_is_not_as_it_was_is_refused_by_name(
    toy: Manifest, tmp_path: Path, fields: dict[str, Any], sign: bool, says: str
) -> None:
    path = changed(toy, tmp_path / "changed.json", sign, **fields)
    with pytest.raises(ManifestError, match=says) as caught:
        Manifest.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_no_manifest_and_damaged_json_are_said(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="No such file"):
        Manifest.load(tmp_path / "none.json")
    (tmp_path / "manifest.json").write_bytes(b'{"kind": "tok')
    with pytest.raises(ManifestError, match="damaged"):
        Manifest.load(tmp_path)


def test_the_published_schema_is_that_of_the_dataclasses_and_holds(toy: Manifest) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assert json.loads(SCHEMA_FILE.read_text()) == json_schema()
    check = jsonschema.Draft202012Validator(json_schema())
    jsonschema.Draft202012Validator.check_schema(json_schema())
    record = json.loads((toy.directory / "manifest.json").read_bytes())
    assert not list(check.iter_errors(record))
    del record["sources"][0]["splits"]["train"]["rows"]
    assert [e.json_path for e in check.iter_errors(record)] == ["$.sources[0].splits.train"]


def test_an_order_of_another_version_is_refused(toy: Manifest) -> None:
    assert toy.order().draws(toy.samples).sum() == toy.samples
    other = replace(toy, dealing=replace(toy.dealing, version=2))
    with pytest.raises(ManifestError, match=f"version 2 of blocks of {BLOCK}; here"):
        other.order()
