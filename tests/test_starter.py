"""The starter: it runs, it explains everything, and it overwrites nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from curation import cli, starter
from curation.engine.recipe import INPUTS, RecipeError, load
from curation.stages import STAGES

ROOT = Path(__file__).resolve().parent.parent


def test_the_starter_runs_as_its_printed_command_says(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    made = subprocess.run(
        [sys.executable, "-m", "curation", "init", "my corpus"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    doctor, command = made.stdout.splitlines()
    assert doctor.endswith("doctor recipe.yaml")
    directory, _, typed = command.partition(" && ")
    words = shlex.split(typed)[1:]  # without the name of the program, which may not be installed
    done = subprocess.run(
        [sys.executable, "-m", "curation", *words, "--json", "--quiet"],
        cwd=tmp_path / shlex.split(directory)[1], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stats = json.loads(done.stdout)
    assert stats["output"]["documents"] > 100
    assert "Shouting" in [stage["name"] for stage in stats["stages"]]


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_filter.py").write_text("mine")
    assert cli.main(["init", str(tmp_path)]) == 2
    assert "my_filter.py is there already" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["my_filter.py"]


def test_every_input_and_every_stage_with_every_parameter_is_shown() -> None:
    text = starter.recipe()
    for name, model in STAGES.items():
        assert re.search(rf"^  (# )?- {name}:$", text, re.MULTILINE)
        for parameter in model.model_fields:
            assert re.search(rf"^[ #]+{parameter}: ", text, re.MULTILINE), (name, parameter)
    for kind in INPUTS:
        assert f"# kind {kind.model_fields['kind'].annotation.__args__[0]}: " in text  # type: ignore[union-attr]
    assert max(map(len, text.splitlines())) <= 100


def test_what_the_comments_show_are_the_defaults(tmp_path: Path) -> None:
    """Every commented parameter of the starter's own stages, switched on, changes nothing."""
    starter.write(tmp_path)
    path = tmp_path / "recipe.yaml"
    text = path.read_text()
    head, _, stages = text.partition("\nstages:\n")
    stages, _, output = stages.partition("\noutput:\n")
    switched = re.sub(r"^(      )# ([a-z_]+: )", r"\1\2", stages, flags=re.MULTILINE)
    head = re.sub(r"^# (seed|store|failure_ceiling): ", r"\1: ", head, flags=re.MULTILINE)
    output = output.replace("# file_size", "file_size")
    explicit = f"{head}\nstages:\n{switched}\noutput:\n{output}"
    raw = yaml.safe_load(explicit)
    assert len(raw["stages"][0]["extract"]) == len(STAGES["extract"].model_fields)
    plain = load(path, ["x"]).resolved()
    path.write_text(explicit)
    assert load(path, ["x"]).resolved() == plain


def test_a_refused_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((RecipeError, OSError)):
        starter.write(tmp_path / "file")
