"""A user's own stages: ten lines in a file beside the recipe, and everything the built-ins get."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parent.parent

SHOUTING = '''
from curation import Documents, Filter, Rule, Signals


class Shouting(Filter):
    """Drop documents of which too large a share is in capital letters."""

    version = 1
    max_upper: float = 0.5  # share of characters
    rules = (Rule("shouting", signal="upper", above="max_upper"),)

    def score(self, docs: Documents) -> Signals:
        texts = docs.text.to_pylist()
        return {"upper": [sum(c.isupper() for c in t) / len(t) for t in texts]}
'''

TRIM = """
import pyarrow.compute as pc
from curation import Edited, Editor

class FirstLine(Editor):
    version = 1
    def edit(self, docs):
        return Edited(pc.list_element(pc.split_pattern(docs.text, chr(10)), 0))
"""


def run_recipe(folder: Path, stages: list[object], texts: list[str], output: str) -> dict:
    (folder / "x.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    recipe = {"kind": "documents", "name": "mine", "stages": stages,
              "input": {"kind": "jsonl", "paths": ["x.jsonl"]}}  # fmt: skip
    (folder / "r.yaml").write_text(json.dumps(recipe))
    command = [
        sys.executable,
        "-m",
        "curation",
        "run",
        "r.yaml",
        "--output",
        output,
        "--json",
        "--quiet",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_filter_of_ten_lines_is_counted_and_sampled(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SHOUTING)
    stats = run_recipe(tmp_path, [{"mine:Shouting": {}}], ["A QUIET PLACE", "a quiet place"], "r")
    [stage] = stats["stages"]
    assert stage["name"] == "Shouting"
    assert stage["dropped"] == {"shouting": {"documents": 1, "words": 3, "bytes": 13}}
    what = [sys.executable, "-m", "curation"]
    found = subprocess.run(
        [*what, "whatif", "r", "--set", "Shouting.max_upper=0.99", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(found.stdout)["after"]["kept"]["documents"] == 2
    verified = subprocess.run([*what, "verify", "r", "--replay", "2"], cwd=tmp_path, check=False)
    assert verified.returncode == 0


def test_an_edited_filter_is_another_filter(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SHOUTING)
    run_recipe(tmp_path, [{"mine:Shouting": {}}], ["A", "b"], "r")
    (tmp_path / "mine.py").write_text(SHOUTING.replace("isupper", "islower"))
    command = [sys.executable, "-m", "curation", "run", "r.yaml", "--output", "r"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "holds another run" in done.stderr


def test_an_editor_is_booked_by_what_it_removed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TRIM)
    texts = ["one two\nthree", "four", "\nfive"]
    stats = run_recipe(tmp_path, [{"mine:FirstLine": {}}], texts, "r")
    [stage] = stats["stages"]
    assert stage["dropped"] == {"empty": {"documents": 1, "words": 1, "bytes": 5}}
    assert stage["removed"] == {"words": 1, "bytes": 6} and stage["inserted"] == {
        "words": 0,
        "bytes": 0,
    }
    assert stage["edited"] == {"documents": 1, "words": 2, "bytes": 7}
    assert pq.read_table(tmp_path / "r" / "documents")["text"].to_pylist() == ["one two", "four"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (SHOUTING.replace('"upper": [', '"lower": ['), "no signal is called 'upper'"),
        (SHOUTING.replace('above="max_upper"', 'above="max_uper"'), "no parameter 'max_uper'"),
        (SHOUTING.replace("len(t) for", "0 for"), "ZeroDivisionError"),
        (SHOUTING.replace("    version = 1\n", ""), "has no `version`"),
        ("def", "SyntaxError"),
    ],
    ids=["signal", "parameter", "raises", "version", "syntax"],
)
def test_a_broken_filter_is_said_before_any_work(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n')
    recipe = {"kind": "documents", "name": "mine", "stages": [{"mine:Shouting": {}}],
              "input": {"kind": "jsonl", "paths": ["x.jsonl"]}}  # fmt: skip
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    command = [sys.executable, "-m", "curation", "run", "r.yaml", "--output", "r"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and message in done.stderr
    assert not (tmp_path / "r").exists()


def test_the_filter_in_the_readme_is_this_one_and_works() -> None:
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert SHOUTING.strip() in [block.strip() for block in blocks]
    five_lines = next(block for block in blocks if "from curation import run" in block)
    assert len(five_lines.strip().splitlines()) <= 5
