"""New thresholds applied to what a base run has stored: the bytes of a run from scratch, always."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judges import STAGES, THRESHOLDS, flags, write_documents
from kit import page, recipe, write_jsonl

from curation import run
from curation.engine.base import Base
from curation.engine.plan import build, freeze, open_plan, reading_tasks
from curation.engine.recipe import load
from curation.engine.unit import run_task
from curation.inspect import verify
from curation.inspect.planview import describe, render
from manifests.records import Receipt


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def finished(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "old"
    return done(STAGES, inputs, path)


def done(stages: tuple[Any, ...], source: Path, path: Path, **more: Any) -> Path:
    """A run; `more` are fields of the recipe or arguments of `run`."""
    arguments = {k: more.pop(k) for k in ("settings", "base", "quiet") if k in more}
    wanted = recipe(*stages, **{"failure_ceiling": 1, **more})
    return run(wanted, inputs=[str(source)], output=path, workers=1, **arguments).path


def outcome(path: Path) -> dict[str, Any]:
    """All that must be equal, wherever its files lie: what every receipt says, with the digests of
    all files, and the bytes of the result."""
    found: dict[str, Any] = {}
    for file in [*path.glob("documents/*"), path / "stats.json"]:
        found[file.name] = file.read_bytes()
    for file in path.glob("segments/*/receipts/*.json"):
        receipt = Receipt.load(file)
        assert receipt is not None
        core = receipt.core()
        for output in core["outputs"].values():
            del output["path"]
        found[str(file.relative_to(path))] = core
    return found


def origins(path: Path) -> list[str]:
    """What each reading task did, in order of its unit."""
    plan = open_plan(path)
    loaded = [Receipt.load(plan.receipt_path(plan.segments[0], u.name)) for u in plan.units]
    assert all(loaded)
    names = {"reapplied": "reapplied", "from": "reused"}
    return [
        next((names[key] for key in names if key in receipt.envelope), "read")
        for receipt in loaded
        if receipt is not None
    ]


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(st.sampled_from(THRESHOLDS), st.none() | st.integers(0, 10), min_size=1),
)
def test_reapplied_thresholds_give_the_bytes_of_a_run_from_scratch(
    finished: Path,
    inputs: Path,
    tmp_path_factory: pytest.TempPathFactory,
    values: dict[str, int | None],
) -> None:
    folder = tmp_path_factory.mktemp("new")
    based = done(STAGES, inputs, folder / "based", settings=flags(values), base=finished)
    scratch = done(STAGES, inputs, folder / "scratch", settings=flags(values))
    assert outcome(based) == outcome(scratch)
    keys = {open_plan(path).segments[0].key for path in (based, finished)}
    assert origins(based) == ["reused" if len(keys) == 1 else "reapplied"] * 3


def test_reapplied_units_can_be_verified_and_based_upon(
    finished: Path, inputs: Path, tmp_path: Path
) -> None:
    """A replay reads the input; a further run takes what this one has stored."""
    once = done(STAGES, inputs, tmp_path / "a", settings=["second.least=5"], base=finished)
    assert verify.check(open_plan(once), replay=6)["holds"]
    back = done(STAGES, inputs, tmp_path / "b", settings=["second.least=2"], base=once)
    assert origins(back) == ["reapplied"] * 3
    assert outcome(back) == outcome(finished)


@pytest.mark.parametrize(
    ("order", "change"),
    [
        (("gopher_quality", "language"), "gopher_quality.min_words=130"),
        (("language", "gopher_quality"), "gopher_quality.min_words=0"),
        (("language", "gopher_quality"), "language.keep=[en, de]"),
    ],
)
def test_an_archive_is_neither_read_nor_extracted_again(
    sample_crawl: Path,
    tmp_path_factory: pytest.TempPathFactory,
    order: tuple[str, str],
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the language is filled after the rule that now drops a document."""
    folder = tmp_path_factory.mktemp("archive")
    stages = ({"extract": {}}, *({name: {}} for name in order), {"exact_dedup": {}})
    more: dict[str, Any] = {"input": {"kind": "warc", "split": 1_000_000}}
    old = done(stages, sample_crawl, folder / "old", **more)
    scratch = done(stages, sample_crawl, folder / "scratch", settings=[change], **more)
    monkeypatch.setattr("curation.engine.unit.read_unit", None)
    based = done(stages, sample_crawl, folder / "based", settings=[change], base=old, **more)
    assert outcome(based) == outcome(scratch)
    assert set(origins(based)) == {"reapplied"} and len(origins(based)) > 1


def test_changed_and_new_inputs_are_read(finished: Path, inputs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "inputs"
    shutil.copytree(inputs, folder)
    old = done(STAGES, folder, tmp_path / "old")
    write_jsonl(folder / "a.jsonl", ["a=5 b=5 c=5 word word"])  # first: the others move
    os.utime(folder / "y.jsonl", (1, 1))
    changes = ["second.least=5"]
    plan = build(load(recipe(*STAGES), [str(folder)], changes), tmp_path / "p")
    found = describe(plan, Base.of(plan, old))
    assert found["base"] == {
        "run": str(old), "reused": 0, "reapplied": 2, "read": 2, "obstacle": None
    }  # fmt: skip
    assert f"--base {old}: 0 reused, 2 reapplied, 2 read" in render(found)
    based = done(STAGES, folder, tmp_path / "based", settings=changes, base=old)
    assert origins(based) == ["read", "reapplied", "read", "reapplied"]
    assert outcome(based) == outcome(done(STAGES, folder, tmp_path / "scratch", settings=changes))


def test_what_failed_stays_failed(
    finished: Path, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not tried again, whatever has got better since."""
    changes = ["second.least=3"]
    scratch = done(STAGES, inputs, tmp_path / "scratch", settings=changes)
    monkeypatch.setattr("judges.numbers", lambda docs, letter: pa.nulls(len(docs), pa.int64()))
    based = done(STAGES, inputs, tmp_path / "based", settings=changes, base=finished)
    first = [json.loads((path / "stats.json").read_bytes())["stages"] for path in (based, scratch)]
    assert first[0][1] == first[1][1] and first[0][1]["failures"]["ValueError"] > 0


def test_another_dedup_needs_no_reading(finished: Path, inputs: Path, tmp_path: Path) -> None:
    """What a global step notes of documents is noted anew, from the stored text."""
    stages = (*STAGES[:4], {"exact_dedup": {"by": ["text"]}}, STAGES[5])
    based = done(stages, inputs, tmp_path / "based", base=finished)
    assert origins(based) == ["reapplied"] * 3
    assert outcome(based) == outcome(done(stages, inputs, tmp_path / "scratch"))


@pytest.mark.parametrize("kind", ["text", "signals", "samples", "originals"])
def test_a_damaged_file_of_the_base_costs_its_unit(
    finished: Path, inputs: Path, tmp_path: Path, kind: str
) -> None:
    old = tmp_path / "old"
    shutil.copytree(finished, old)
    [path] = (old / "segments").glob(f"0-*/{kind}/y*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    changes = ["second.least=5"]
    based = done(STAGES, inputs, tmp_path / "based", settings=changes, base=old)
    assert origins(based) == ["reapplied", "read", "reapplied"]
    assert outcome(based) == outcome(done(STAGES, inputs, tmp_path / "b", settings=changes))


OBSTACLES: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "has not stored the text": (STAGES, {"store": "kept"}, ["second.least=5"]),
    "more than thresholds": (STAGES, {}, ["cutter.word=word"]),
    "seed or input settings differ": (STAGES, {}, ["seed=7"]),
    "fills language": ((STAGES[0], {"judges:Tagger": {"as": "tag"}}), {}, ["first.least=5"]),
}


@pytest.mark.parametrize("reason", OBSTACLES)
def test_what_cannot_be_reapplied_is_read_and_said_once(
    inputs: Path, tmp_path: Path, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stages, more, changes = OBSTACLES[reason]
    old = done(stages, inputs, tmp_path / "old", **more)
    files: dict[str, Any] = {"settings": changes, **more}
    scratch = done(stages, inputs, tmp_path / "scratch", **files)
    capsys.readouterr()
    based = done(stages, inputs, tmp_path / "based", base=old, quiet=False, **files)
    said = capsys.readouterr().err
    assert said.count(reason) == 1 and "0 units re-applied, 3 read" in said
    assert origins(based) == ["read"] * 3
    assert outcome(based) == outcome(scratch)


def test_other_versions_are_an_obstacle(
    finished: Path, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import judges

    monkeypatch.setattr(judges.Alone, "version", 2)
    plan = build(load(recipe(*STAGES), [str(inputs)]), tmp_path / "p")
    found = Base.of(plan, finished)
    assert "other versions" in found.obstacle and not found.units


def test_text_before_an_edit_survives_the_division_of_a_task(
    finished: Path, inputs: Path, tmp_path: Path
) -> None:
    plan = build(load(recipe(*STAGES, failure_ceiling=1), [str(inputs)]), tmp_path / "r")
    freeze(plan)
    whole = open_plan(finished)
    for task in reading_tasks(plan):
        for piece in range(4):  # the last one joins
            receipt = run_task(plan, replace(task, piece=piece, pieces=3))
        old = Receipt.load(whole.receipt_path(whole.segments[0], task.name))
        assert old is not None and old.core() == receipt.core()
        assert old.outputs["originals"].rows > 0


def test_texts_before_edits_are_stored_only_where_they_can_be_needed(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "x.jsonl", [page(1)])
    for stages, more in ((STAGES[:2], {}), (STAGES, {"store": "kept"})):
        path = done(stages, source, tmp_path / str(len(stages)), **more)
        assert not list(path.glob("segments/*/originals"))
