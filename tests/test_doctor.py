"""What the doctor finds, and that every complaint comes with a way out."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from curation import cli
from curation.engine import resources
from curation.inspect import doctor
from curation.inspect.doctor import Finding

ROOT = Path(__file__).resolve().parent.parent
RECIPE = str(ROOT / "pipelines" / "crawl-filter.yaml")


def found(recipe: str | None = None, output: Path = ROOT) -> dict[str, Finding]:
    return {finding.what: finding for finding in doctor.examine(recipe, output)}


def test_here_nothing_that_is_needed_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor", RECIPE, "--output", str(tmp_path / "to" / "be"), "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {"Python", "libraries", "Ray", "memory", "stages"} <= {f["what"] for f in findings}
    assert all(bool(f["fix"]) == (f["state"] != "ok") for f in findings)
    assert os.listdir(tmp_path) == []


def test_a_missing_model_of_the_recipe_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "{kind: documents, name: r, input: {kind: jsonl}, stages: [language: {model: no.bin}]}"
    )
    assert cli.main(["doctor", str(recipe), "--output", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("missing  language") and "no.bin" in line for line in lines)
    recipe.write_text(recipe.read_text().replace("no.bin", "lid/glotlid"))
    finding = found(str(recipe), tmp_path)["language"]
    assert finding.fix == "curation models fetch lid/glotlid"
    assert cli.main(["doctor", str(tmp_path / "none.yaml")]) == 2


def test_libraries_are_held_against_what_the_package_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = ["pyarrow>=9999", "no-such-distribution-anywhere", "numpy>=2", 'torch; extra == "x"']
    monkeypatch.setattr(doctor, "requires", lambda name: wanted)
    findings = found()
    assert findings["pyarrow"].state == "missing" and ">=9999" in findings["pyarrow"].found
    assert findings["no-such-distribution-anywhere"].state == "missing"
    assert findings["libraries"].found.endswith("1 of 3") and "torch" not in findings


def test_a_token_that_is_not_used_and_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert found()["Ray token"].state == "missing"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    assert found()["Ray token"].state == "ok"
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.delenv("RAY_AUTH_MODE")
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("x")
    assert found()["Ray token"].state == "warn"


def test_a_control_group_bounds_cores_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"cpu.max": "50000 100000", "memory.max": "100000000"}
    monkeypatch.setattr(resources, "control_group", files.get)
    findings = found()
    assert findings["cores"].found == "0.5"
    assert findings["memory"].state == "missing" and "0.1 GB" in findings["memory"].found
    monkeypatch.setattr(resources, "control_group", {"cpu/cpu.cfs_quota_us": "-1"}.get)
    assert float(found()["cores"].found) >= 1


def test_few_open_files_and_no_place_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (64, 4096))
    assert found()["open files"].state == "missing"

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    finding = found(output=tmp_path)["atomic files"]
    assert finding.state == "missing" and "Read-only file system" in finding.found
