"""A user's own stages: ten lines in a file beside the recipe, and everything the built-ins get."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from zygote import curation

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
    done = curation("run", "r.yaml", "--output", output, "--json", "--quiet", cwd=folder)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_filter_of_ten_lines_is_counted_and_sampled(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SHOUTING)
    stats = run_recipe(tmp_path, [{"mine:Shouting": {}}], ["A QUIET PLACE", "a quiet place"], "r")
    [stage] = stats["stages"]
    assert stage["name"] == "Shouting"
    assert stage["dropped"] == {"shouting": {"documents": 1, "words": 3, "bytes": 13}}
    found = curation("whatif", "r", "--set", "Shouting.max_upper=0.99", "--json", cwd=tmp_path)
    assert json.loads(found.stdout)["after"]["kept"]["documents"] == 2
    assert curation("verify", "r", "--replay", "2", cwd=tmp_path).returncode == 0


def test_an_edited_filter_is_another_filter(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SHOUTING)
    run_recipe(tmp_path, [{"mine:Shouting": {}}], ["A", "b"], "r")
    (tmp_path / "mine.py").write_text(SHOUTING.replace("isupper", "islower"))
    done = curation("run", "r.yaml", "--output", "r", cwd=tmp_path)
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
        ("raise SystemExit(0)", "SystemExit"),
        (SHOUTING.replace("texts = ", "raise SystemExit(0) or "), "SystemExit"),
        (re.sub(r"    rules = .*", "", SHOUTING), "has no `rules`"),
        (SHOUTING.replace("sum(", "None and sum("), "is null for one document"),
        (SHOUTING.replace("sum(", "[1] or sum("), "is list<"),
        (SHOUTING.replace("),)", "), Rule('shouting', signal='upper'))"), "two are called"),
        (SHOUTING + "    def depends(self): return 1 / 0\n", "depends: ZeroDivisionError"),
        (SHOUTING.replace("for t in texts]", "for t in texts] * 2"), "2 values for one document"),
    ],
)
def test_a_broken_filter_is_said_before_any_work(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n')
    recipe = {"kind": "documents", "name": "mine", "stages": [{"mine:Shouting": {}}],
              "input": {"kind": "jsonl", "paths": ["x.jsonl"]}}  # fmt: skip
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    done = curation("run", "r.yaml", "--output", "r", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and message in done.stderr
    assert not (tmp_path / "r").exists()


def test_the_filter_in_the_readme_is_this_one_and_works() -> None:
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert SHOUTING.strip() in [block.strip() for block in blocks]
    five_lines = next(block for block in blocks if "from curation import run" in block)
    assert len(five_lines.strip().splitlines()) <= 5


def test_a_document_that_cannot_be_scored_is_failed_wherever_it_stands(tmp_path: Path) -> None:
    """Also as the only one of its batch: 257 documents, the last of them bad."""
    (tmp_path / "mine.py").write_text(SHOUTING.replace("/ len(t)", "/ (len(t) - 3)"))
    for bad in (0, 255, 256):
        texts = [f"text {i}" if i != bad else "bad" for i in range(257)]
        stats = run_recipe(tmp_path, [{"mine:Shouting": {}}], texts, f"r{bad}")
        assert stats["stages"][0]["failures"] == {"ZeroDivisionError": 1}
        assert stats["output"]["documents"] == 256


def test_a_signal_of_another_type_later_is_one_clear_error(tmp_path: Path) -> None:
    """The type of the first document holds; where it does not tell, the filter says it."""
    turning = SHOUTING.replace("sum(", "0 if 'quick' in t else sum(")
    (tmp_path / "mine.py").write_text(turning)
    (tmp_path / "x.jsonl").write_text(json.dumps({"text": "Half capitalS here"}) + "\n")
    recipe = {"kind": "documents", "name": "mine", "stages": [{"mine:Shouting": {}}],
              "input": {"kind": "jsonl", "paths": ["x.jsonl"]}}  # fmt: skip
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))

    def ends(output: str) -> subprocess.CompletedProcess[str]:
        return curation("run", "r.yaml", "--quiet", "--output", output, cwd=tmp_path)

    done = ends("a")
    assert done.returncode == 1
    assert "was int64 for one document and is double now; name its type in `types`" in done.stderr
    (tmp_path / "mine.py").write_text(
        turning.replace("    version = 1\n", "    version = 1\n    types = {'upper': 'double'}\n")
    )
    assert ends("b").returncode == 0


def test_integers_are_compared_exactly_also_beside_nulls() -> None:
    import pyarrow as pa

    from curation import Rule

    rule = Rule("big", signal="n", above="most")
    values = pa.array([2**53 + 1, None, 2**53])
    assert rule.violated(values, 2**53).tolist() == [True, False, False]


def test_a_run_can_be_looked_at_after_its_filter_has_changed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SHOUTING)
    before = run_recipe(tmp_path, [{"mine:Shouting": {}}], ["A QUIET PLACE", "b"], "r")
    (tmp_path / "mine.py").write_text(SHOUTING + "# a remark\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = curation("stats", "../r", "--json", cwd=elsewhere)
    found = json.loads(done.stdout)
    assert found["stages"] == before["stages"] and found["output"] == before["output"]


def test_an_editor_may_give_plain_strings(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import pyarrow as pa\n"
        "from curation import Edited, Editor\n"
        "class Upper(Editor):\n"
        "    version = 1\n"
        "    def edit(self, docs):\n"
        "        texts = docs.text.to_pylist()\n"
        "        assert 'bad' not in texts\n"
        "        print('noise')\n"
        "        return Edited(pa.array([t.upper() for t in texts]))\n"
    )
    stats = run_recipe(tmp_path, [{"mine:Upper": {}}], ["a", "bad", "b"], "r")
    assert stats["stages"][0]["failures"] == {"AssertionError": 1}
    assert pq.read_table(tmp_path / "r" / "documents")["text"].to_pylist() == ["A", "B"]


def test_a_small_run_in_which_too_much_fails_says_so(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SHOUTING.replace("/ len(t)", "/ (len(t) - 3)"))
    (tmp_path / "x.jsonl").write_text('{"text": "abc"}\n{"text": "abcd"}\n')
    recipe = {"kind": "documents", "name": "mine", "stages": [{"mine:Shouting": {}}],
              "input": {"kind": "jsonl", "paths": ["x.jsonl"]}}  # fmt: skip
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    done = curation("run", "r.yaml", "--output", "r", "--quiet", cwd=tmp_path)
    assert done.stderr == "curation: 1 of 2 documents failed: ZeroDivisionError\n"
