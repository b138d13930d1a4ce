"""Models: cards, digests, and what a run records of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curation import models
from curation.engine.plan import build
from curation.engine.recipe import load
from curation.models import card


def make(target: Path, weights: bytes = b"weights", **said: object) -> Path:
    with card.new(target, **{"kind": "kenlm", **said}) as (place, settings):
        (place / "model.bin").write_bytes(weights)
        (place / "deep").mkdir()
        (place / "deep" / "tokenizer").write_bytes(b"pieces")
        settings["normaliser"] = "ccnet"
    return target


def test_a_card_names_what_belongs_to_a_model(tmp_path: Path) -> None:
    found = card.read(make(tmp_path / "kenlm" / "en", language="en", demonstration=True))
    assert set(found.files) == {"model.bin", "deep/tokenizer"}
    assert found.settings == {"normaliser": "ccnet"}
    assert (found.kind, found.language, found.demonstration) == ("kenlm", "en", True)
    assert models.size(tmp_path / "kenlm" / "en") == len(b"weights") + len(b"pieces")


def test_a_new_model_takes_the_place_of_the_old_one_whole(tmp_path: Path) -> None:
    target = make(tmp_path / "m")
    before = models.digest(target)
    with pytest.raises(RuntimeError), card.new(target, kind="kenlm") as (place, _):
        (place / "half").write_bytes(b"h")
        raise RuntimeError
    assert models.digest(target) == before
    make(target, b"better")
    assert models.digest(target) != before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_files_that_are_not_those_of_the_card_are_refused(tmp_path: Path) -> None:
    target = make(tmp_path / "m")
    (target / "model.bin").write_bytes(b"WEIGHTS")
    with pytest.raises(card.CardError, match=r"model\.bin: not the file that card\.json names"):
        models.digest(target)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no model lies here"),
        ("{", "damaged"),
        ("[]", "not a card"),
        ('{"schema": 1, "kind": "kenlm"}', "kind and files are wanted"),
        ('{"schema": 2, "kind": "kenlm", "files": {}}', "not a card of schema 1"),
        ('{"schema": 1, "kind": "kenlm", "files": {}, "colour": 1}', "not a card of schema 1"),
        ('{"schema": 1, "kind": "classifier", "files": {}}', "not 'kenlm'"),
    ],
)
def test_a_directory_without_its_card_is_refused(
    tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / card.NAME).write_text(text)
    with pytest.raises(card.CardError, match=message):
        card.read(tmp_path, "kenlm")


def test_a_run_records_the_models_that_it_used(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"text": "One text."}\n')
    stages = [{"language": {}}, {"basic": {}}]
    recipe = load(
        {"kind": "documents", "name": "m", "input": {"kind": "jsonl"}, "stages": stages},
        [str(tmp_path / "one.jsonl")],
    )
    plan = build(recipe, tmp_path / "run")
    path = models.find("lid.176.ftz")
    assert plan.record()["models"] == {
        "language": {"lid.176.ftz": {"bytes": path.stat().st_size, "sha256": models.digest(path)}}
    }
    assert json.loads(json.dumps(plan.record()["models"])) == plan.record()["models"]
