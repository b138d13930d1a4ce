"""Presets: every shipped recipe loads and plans, and says what it follows and leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from curation.api import plan
from curation.engine.recipe import load
from curation.filters import thresholds
from curation.stages import STAGES

ROOT = Path(__file__).resolve().parent.parent
PIPELINES = sorted((ROOT / "pipelines").glob("*.yaml"))
PRESETS = [path for path in PIPELINES if path.stem != "crawl-filter"]


def ready(path: Path) -> Path:
    missing = {kind for e in yaml.safe_load(path.read_text())["stages"] for kind in e} - set(STAGES)
    if missing:
        pytest.skip(f"no stage {', '.join(sorted(missing))}")
    return path


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_every_shipped_recipe_plans_without_a_warning(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.warc").write_bytes(b"")
    found = plan(ready(path), inputs=[tmp_path / "x.warc"], output=tmp_path / "run")
    assert found.recipe.settings.name == path.stem
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_says_what_it_follows_and_what_it_leaves_out(path: Path) -> None:
    lines = path.read_text().splitlines()
    head = "\n".join(lines[: lines.index("kind: documents")])
    assert all(line.startswith("#") for line in head.splitlines())
    assert "# Follows: " in head
    assert "# Left out: " in head
    assert max(map(len, lines)) <= 100


def test_fineweb2_takes_the_numbers_of_its_table_but_for_scripts_without_spaces() -> None:
    found = load(ready(ROOT / "pipelines" / "fineweb2.yaml"))
    table = thresholds.read("fineweb2").stages
    stages = {spec.name: spec.stage for spec in found.stages}
    unspaced = {"ja", "th", "zh"}
    for name, parameter, default in (
        ("gopher_repetition", "max_top_2_gram", 0.20),
        ("gopher_quality", "min_alphabetic_words", 0.8),
        ("fineweb", "max_newline_ratio", 0.3),
    ):
        rows = table[name][parameter]
        spaced = {language: rows[language] for language in set(rows) - unspaced}
        expected = {"other": default, **spaced, **dict.fromkeys(unspaced)}
        assert getattr(stages[name], parameter) == expected
    lines = table["gopher_repetition"]["max_dup_line_fraction"]
    assert stages["gopher_repetition"].max_dup_line_fraction == {"other": 0.30, **lines}  # type: ignore[attr-defined]
    assert stages["language"].min_score == 0.5  # type: ignore[attr-defined]
