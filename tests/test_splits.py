"""Byte ranges of large archives as units: together they are the file, whatever the split size."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kit import contents, recipe, record, response

from curation import run
from curation.engine.plan import open_plan
from curation.engine.recipe import RecipeError
from curation.inspect import verify


def archive(path: Path, compressed: bool) -> Path:
    """Thirty pages; every third record carries a whole archive in its block."""
    nested = b"".join(response(900 + i) for i in range(4))
    if compressed:
        nested = b"".join(gzip.compress(response(900 + i), mtime=0) for i in range(4))
    parts = []
    for number in range(30):
        parts.append(response(number))
        if number % 3 == 0:
            parts.append(record(500 + number, b"--boundary\n" + nested, kind="resource"))
    path.write_bytes(b"".join(gzip.compress(p, mtime=0) if compressed else p for p in parts))
    return path


def work(split: int | None = None) -> dict[str, Any]:
    kind: dict[str, Any] = {"kind": "warc"} | ({"split": split} if split else {})
    return recipe({"extract": {}}, {"exact_dedup": {}}, input=kind)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("split", [700, 5_000, 20_000])
def test_ranges_are_the_file(tmp_path: Path, compressed: bool, split: int) -> None:
    source = archive(tmp_path / "a.warc.gz", compressed)
    whole = run(work(), inputs=[str(source)], output=tmp_path / "whole", workers=1)
    parts = run(work(split), inputs=[str(source)], output=tmp_path / "parts", workers=1)
    units = len(open_plan(parts.path).units)
    assert units == -(-source.stat().st_size // split) > 1
    assert parts.complete and verify.check(open_plan(parts.path))["holds"]
    assert parts.stats["reader"] == whole.stats["reader"]
    assert parts.stats["output"] == whole.stats["output"]
    assert whole.stats["reader"]["documents"] == 30
    rows = [pq.read_table(r.documents).to_pylist() for r in (whole, parts)]
    assert rows[0] == rows[1]


def test_a_range_that_begins_in_a_nested_archive_is_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a plain file a look finds the nested records; the chain of the ranges tells."""
    source = archive(tmp_path / "a.warc", compressed=False)
    result = run(work(700), inputs=[str(source)], output=tmp_path / "r", workers=1, quiet=False)
    said = capsys.readouterr().err
    assert re.search(r"read: \d+ byte ranges began inside a record; read again", said)
    assert said.count("read again") < 3  # all of a file at once, not one after the other
    assert verify.check(open_plan(result.path), replay=1_000)["holds"]
    plan = open_plan(result.path)
    place = 0
    for unit in plan.units:
        receipt = json.loads(plan.receipt_path(plan.segments[0], unit.name).read_bytes())
        reader = receipt["core"]["counts"]["reader"]
        if reader["first"] is not None:
            assert reader["first"][0] == place
            place = reader["next"][0]
    assert place == source.stat().st_size


def test_workers_do_not_change_the_bytes_of_a_split_file(tmp_path: Path) -> None:
    source = archive(tmp_path / "a.warc", compressed=False)
    one = run(work(3_000), inputs=[str(source)], output=tmp_path / "one", workers=1)
    two = run(work(3_000), inputs=[str(source)], output=tmp_path / "two", workers=2)
    assert contents(one.path) == contents(two.path)


def test_a_chopped_file_is_incomplete_in_its_last_range_alone(tmp_path: Path) -> None:
    source = archive(tmp_path / "a.warc.gz", compressed=True)
    source.write_bytes(source.read_bytes()[:-40])
    result = run(work(5_000), inputs=[str(source)], output=tmp_path / "r", workers=1)
    [(name, problem)] = result.unfinished.items()
    assert name.startswith(f"{source}, bytes ") and "truncated at offset" in problem
    assert result.stats["reader"]["documents"] == 29


def test_a_size_that_nobody_can_cut_is_one_line(tmp_path: Path) -> None:
    source = tmp_path / "a.warc"
    source.touch()
    os.truncate(source, 3 << 30)  # a hole: no block of it lies on the disk
    with pytest.raises(RecipeError, match=r"input.split: 100 bytes cut .*a.warc .* at most"):
        run(work(100), inputs=[str(source)], output=tmp_path / "r")
    assert not (tmp_path / "r").exists()


CHANGES = """
from curation import Filter, Rule

class Changes(Filter):
    '''Does something to the input when the first pages pass, in whichever range.'''
    version = 1
    rules = (Rule("never", signal="n", below="least"),)
    least: int = 0
    code: str

    def score(self, docs):
        texts = docs.text.to_pylist()
        if any("Page " in text for text in texts):
            exec(self.code)
        return {"n": [len(text) for text in texts]}
"""


@pytest.mark.parametrize(
    "change",
    ["open({!r}, 'ab').write(b'more')", "os.truncate({!r}, 30_000)", "os.unlink({!r})"],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_changes_is_incomplete_in_the_ranges_that_come_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, compressed: bool
) -> None:
    (tmp_path / "changes.py").write_text(CHANGES)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = archive(tmp_path / "a.warc", compressed)
    code = "import os; " + change.format(str(source))
    stages: list[Any] = [{"extract": {}}, {"changes:Changes": {"code": code}}]
    recipe_ = recipe(*stages, input={"kind": "warc", "split": 5_000})
    result = run(recipe_, inputs=[str(source)], output=tmp_path / "r", workers=1)
    assert result.unfinished
    assert all("changed at offset 0" in why for why in result.unfinished.values())
    assert 0 < result.stats["reader"]["documents"] < 30
    assert verify.check(open_plan(result.path))["holds"]
