"""A recipe with a list of inputs: what each unit is read as, and what the list decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from kit import contents, page, recipe, response, write_jsonl

from curation import api
from curation.api import Result, plan
from curation.cli import main
from curation.engine.base import Base
from curation.engine.plan import open_plan, reading_tasks
from curation.engine.recipe import RecipeError, load
from curation.inspect.verify import check
from curation.submit import prepare
from manifests.records import digest_of

STAGES = ({"gopher_quality": {}}, {"exact_dedup": {}})


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """Inputs of two kinds: three files of rows, one of which is a copy of one in another."""
    written = write_jsonl(tmp_path / "b.jsonl", [page(10), page(11)])
    lines = [json.dumps({"text": page(number), "id": str(number)}) for number in (30, 31)]
    (tmp_path / "d.jsonl").write_text("\n".join(lines))
    pq.write_table(pa.table({"text": [page(10), page(20)]}), tmp_path / "c.parquet")
    return [
        {"kind": "jsonl", "paths": [str(written)], "source": "books", "license": "CC0-1.0"},
        {"kind": "datatrove", "paths": [str(tmp_path / "d.jsonl")], "source": "forum"},
        {"kind": "parquet", "paths": [str(tmp_path / "c.parquet")], "source": "notes"},
    ]


@pytest.fixture
def kinds(rows: list[dict[str, Any]], tmp_path: Path) -> list[dict[str, Any]]:
    """An archive of two pages (in two ranges), rows, and a text file: what needs `extract`."""
    warc = tmp_path / "a.warc"
    warc.write_bytes(b"".join(response(i) for i in range(2)))
    (tmp_path / "c.txt").write_text(page(20))
    half = warc.stat().st_size // 2 + 1
    return [
        {"kind": "warc", "paths": [str(warc)], "source": "web", "crawl": "C", "split": half},
        rows[0],
        {"kind": "text", "paths": [str(tmp_path / "c.txt")], "source": "notes"},
    ]


def run(work: dict[str, Any], **more: Any) -> Result:
    return api.run(work, workers=1, **more)


def documents(path: Path) -> list[list[dict[str, Any]]]:
    """The rows of each file of documents/, in order of the files."""
    return [pq.read_table(file).to_pylist() for file in sorted(path.glob("documents/*"))]


def test_each_input_is_read_as_its_kind_and_has_its_own_columns(
    kinds: list[dict[str, Any]], tmp_path: Path
) -> None:
    result = run(recipe("extract", *STAGES, input=kinds), output=tmp_path / "r")
    assert result.complete
    found = documents(result.path)
    said = [[(d["source"], d["crawl"], d["license"]) for d in file] for file in found]
    assert said == [
        [("web", "C", None)] * 2,
        [("books", None, "CC0-1.0")] * 2,
        [("notes", None, None)],
    ]
    work = open_plan(result.path)
    assert [unit.member for unit in work.units] == [0, 0, 1, 2]
    assert check(work, replay=4)["problems"] == []


def test_the_order_of_the_list_decides_the_order_of_the_files_alone(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    there, back = (
        run(recipe(*STAGES, input=given), output=tmp_path / name)
        for name, given in (("r", rows), ("s", rows[::-1]))
    )
    assert documents(there.path) == documents(back.path)[::-1]
    assert there.stats["output"] == back.stats["output"]


def test_a_list_gives_the_documents_of_runs_on_each_of_its_inputs(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    listed = run(recipe(STAGES[0], input=rows), output=tmp_path / "r")
    alone = [
        documents(run(recipe(STAGES[0], input=one), output=tmp_path / one["kind"]).path)
        for one in rows
    ]
    assert documents(listed.path) == [file for files in alone for file in files]


def test_a_run_on_a_list_goes_on_where_it_was_stopped(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    work = recipe(*STAGES, input=rows)
    whole = run(work, output=tmp_path / "r")
    run(work, output=tmp_path / "s", shard="2/3")  # one unit is read, and no more is done
    assert contents(run(work, output=tmp_path / "s").path) == contents(whole.path)


def test_one_more_input_leaves_the_receipts_of_the_others_as_they_are(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    run(recipe(*STAGES, input=rows[1:]), output=tmp_path / "old")
    work = plan(recipe(*STAGES, input=rows), output=tmp_path / "r")
    outlook = Base.of(work, tmp_path / "old").outlook(reading_tasks(work))
    assert (outlook["reused"], outlook["reapplied"], outlook["read"]) == (2, 0, 1)
    more = run(recipe(*STAGES, input=rows), output=tmp_path / "r", base=tmp_path / "old")
    fresh = run(recipe(*STAGES, input=rows), output=tmp_path / "s")
    assert documents(more.path) == documents(fresh.path)


def test_new_thresholds_are_applied_to_what_is_stored_of_a_list(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    run(recipe(*STAGES, input=rows), output=tmp_path / "old")
    stages = ({"gopher_quality": {"min_words": 130}}, {"exact_dedup": {}})
    again = run(recipe(*stages, input=rows), output=tmp_path / "r", base=tmp_path / "old")
    assert contents(again.path) == contents(
        run(recipe(*stages, input=rows), output=tmp_path / "s").path
    )
    rows[1]["source"] = "novels"
    other = recipe(*stages, input=rows)
    assert Base.of(plan(other, output=tmp_path / "t"), tmp_path / "old").units == {
        unit.name for unit in plan(other).units if unit.member != 1
    }


def test_the_source_that_an_input_of_a_list_names_is_stronger_than_its_documents(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"text": page(1), "id": "1", "source": "own"}) + "\n")
    given = {"kind": "jsonl", "paths": [str(path)], "source": "named"}
    alone = documents(run(recipe(input=given), output=tmp_path / "a").path)[0][0]
    listed = documents(run(recipe(input=[given]), output=tmp_path / "l").path)[0][0]
    assert (alone["source"], listed["source"]) == ("own", "named")
    assert alone["id"] == listed["id"]
    table = run(recipe(input=given), output=tmp_path / "p").documents
    given = {"kind": "parquet", "paths": [str(table)], "source": "named"}
    alone = documents(run(recipe(input=given), output=tmp_path / "b").path)[0][0]
    listed = documents(run(recipe(input=[given]), output=tmp_path / "m").path)[0][0]
    assert (alone["source"], listed["source"]) == ("own", "named")
    assert alone["id"] == listed["id"]


def test_two_inputs_of_one_source_have_files_of_their_own(tmp_path: Path) -> None:
    given = [
        {"kind": "jsonl", "paths": [str(write_jsonl(tmp_path / f"{i}.jsonl", [page(i)]))],
         "source": "same", "id": name}
        for i, name in enumerate(("id", "other"))
    ]  # fmt: skip
    found = documents(run(recipe(input=given), output=tmp_path / "r").path)
    assert [[d["source"] for d in file] for file in found] == [["same"], ["same"]]


def test_a_single_input_keeps_its_form_and_its_keys(rows: list[dict[str, Any]]) -> None:
    work = plan(recipe(*STAGES, input=rows[1]))
    record = work.record()
    assert "paths" not in record["recipe"]["input"]
    assert [sorted(entry) for entry in record["inputs"]] == [["path", "size", "version"]]
    [task] = reading_tasks(work)
    [file] = record["inputs"]
    consumed = digest_of([file["path"], file["size"], file["version"]])
    assert task.key == digest_of([work.segments[0].key, task.name, consumed])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": []}, "^input: .*at least 1"),
        ({"input": ["x.warc"]}, "^input.0: "),
        ({"input": [{"kind": "warx"}]}, "^input.0.kind: 'warx' is none of"),
        ({"input": [{"paths": []}]}, "^input.0.kind: this key is missing"),
        ({"input": [{"kind": "text"}, {"kind": "jsonl", "pat": []}]}, "^input.1.pat: .*'paths'"),
        ({"input": [{"kind": "jsonl"}, {"kind": "warc"}]}, "kind warc needs the stage `extract`"),
        ({"input": [{"kind": "jsonl"}]}, "no input given"),
    ],
)
def test_a_wrong_list_is_named(change: dict[str, Any], message: str) -> None:
    stages = [] if "extract" in message else ["extract"]
    with pytest.raises(RecipeError, match=message):
        plan({**recipe(*stages), **change})


def test_a_file_of_two_inputs_is_refused(
    rows: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows.append({**rows[1], "paths": [f"{tmp_path}/*.jsonl"]})
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe(*STAGES, input=rows)))
    assert main(["plan", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.strip().endswith("b.jsonl is a file of input.0 as well")
    assert error.count("\n") == 1


def test_settings_reach_into_a_list_and_input_does_not(rows: list[dict[str, Any]]) -> None:
    work = recipe(*STAGES, input=rows)
    assert load(work, settings=["input.2.source=x"]).settings.inputs[2].source == "x"
    for wrong in ("input.3.source=x", "input.kind=jsonl", "input.-1.source=x"):
        with pytest.raises(RecipeError, match="is no place in a list of 3"):
            load(work, settings=[wrong])
    with pytest.raises(RecipeError, match=r"^--input: the recipe has a list of inputs"):
        load(work, inputs=["x.warc"])


def test_a_plan_and_a_submission_show_the_whole_list(
    rows: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows[2]["paths"] = ["c.parquet"]
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe(*STAGES, input=rows)))
    sent = yaml.safe_load(prepare(path, output="out").document())
    assert sent["input"][2]["paths"] == [str(Path("c.parquet").absolute())]
    assert [one["source"] for one in sent["input"]] == ["books", "forum", "notes"]
    paths = f"input.2.paths=[{tmp_path}/c.parquet]"
    assert main(["plan", str(path), "--set", paths, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in shown["recipe"]["input"]] == ["jsonl", "datatrove", "parquet"]
    assert len(shown["units"]) == 3
