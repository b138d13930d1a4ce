"""Models: cards, digests, and what a run records of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from kit import recipe, write_jsonl

from curation import models
from curation.api import run
from curation.engine.attempts import RunFailed
from curation.engine.plan import OtherModel, build, check_models, open_plan
from curation.engine.recipe import load
from curation.inspect import verify
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


def test_what_is_no_model_is_never_replaced_by_one(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "mine.jsonl").write_text("{}")
    for target in (tmp_path / "texts", tmp_path / "texts" / "mine.jsonl", tmp_path):
        with pytest.raises(card.CardError, match="model to be replaced"):
            make(target)
    assert [path.name for path in tmp_path.rglob("*")] == ["texts", "mine.jsonl"]
    (tmp_path / "empty").mkdir()
    make(tmp_path / "empty")


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
        ('{"schema": 1, "kind": "kenlm", "files": ["model.bin"]}', "damaged: files"),
        ('{"schema": 1, "kind": "kenlm", "files": {"a\\u0000": ""}}', "damaged: files"),
        ('{"schema": 1, "kind": "kenlm", "files": {}, "settings": null}', "damaged: settings"),
        ('{"schema": 1, "kind": "kenlm", "files": {}, "language": 5}', "damaged: language"),
        ("[" * 100_000, "damaged"),
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
    plain = load(
        {"kind": "documents", "name": "m", "input": {"kind": "jsonl"}, "stages": stages},
        [str(tmp_path / "one.jsonl")],
    )
    plan = build(plain, tmp_path / "run")
    path = models.find("lid.176.ftz")
    assert plan.record()["models"] == {
        "language": {"lid.176.ftz": {"bytes": path.stat().st_size, "sha256": models.digest(path)}}
    }
    assert json.loads(json.dumps(plan.record()["models"])) == plan.record()["models"]


WEIGHED = """
from curation import models
from curation.stage import Filter, Rule
class Weighed(Filter):
    version = 1
    least: int = 0
    rules = (Rule("light", signal="weight", below="least"),)
    def files(self):
        return {"weights": models.find("weights")}
    def score(self, docs):
        if "Swap!" in docs.text.to_pylist():
            models.find("weights").write_bytes(b"of somebody else")
        return {"weight": [models.size(models.find("weights")) for _ in docs.text]}
"""


def test_a_run_goes_on_only_with_the_models_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRISTMILL_MODELS", str(tmp_path / "models"))
    weights = tmp_path / "models" / "weights"
    weights.parent.mkdir()
    weights.write_bytes(b"weights")
    (tmp_path / "weighed_here.py").write_text(WEIGHED)
    write_jsonl(tmp_path / "one.jsonl", ["One text.", "Another."])
    wanted = recipe({"weighed_here:Weighed": {}})
    monkeypatch.syspath_prepend(str(tmp_path))
    done = run(wanted, inputs=tmp_path / "one.jsonl", output=tmp_path / "run", workers=1)
    plan = open_plan(done.path)
    check_models(plan)
    assert verify.check(plan, 1)["holds"]

    weights.write_bytes(b"another machine's weights")
    with pytest.raises(OtherModel, match=r"Weighed: weights has sha256 \w{64} on .*; the run"):
        check_models(plan)
    found = verify.check(plan, 1)
    assert not found["holds"] and "the run began with" in found["problems"][0]
    weights.unlink()
    with pytest.raises(OtherModel, match=r"stage Weighed: on .*: model weights not found"):
        check_models(plan)

    weights.write_bytes(b"weights")
    write_jsonl(tmp_path / "a.jsonl", ["Swap!"])
    inputs = [tmp_path / "a.jsonl", tmp_path / "one.jsonl"]
    with pytest.raises(RunFailed, match="weights has sha256"):  # found by the second task
        run(wanted, inputs=inputs, output=tmp_path / "other", workers=1)


def test_a_folder_of_lists_is_known_by_its_files_and_their_names(tmp_path: Path) -> None:
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "domains").write_text("a.example\n")
    first = models.digest(tmp_path)
    assert models.size(tmp_path) == len("a.example\n")
    (tmp_path / "adult" / "domains").rename(tmp_path / "adult" / "urls")
    assert models.digest(tmp_path) != first
    (tmp_path / "adult" / "urls").rename(tmp_path / "adult" / "domains")
    assert models.digest(tmp_path) == first
    (tmp_path / "adult" / "domains").write_text("b.example, longer\n")
    assert models.digest(tmp_path) != first


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(models.ModelNotFound, match="neither a file nor a directory"):
        models.find(tmp_path / "pipe")
    target = make(tmp_path / "m")
    (target / "model.bin").unlink()
    os.mkfifo(target / "model.bin")
    with pytest.raises(card.CardError, match="no such file"):
        models.digest(target)


def test_a_model_without_a_name_is_no_directory() -> None:
    with pytest.raises(models.ModelNotFound, match="without a name"):
        models.find("")
