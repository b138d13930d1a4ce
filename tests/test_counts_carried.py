"""Documents of an earlier run stand for as many as they stood for there, and counts add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit import page, recipe, write_jsonl

from curation import api
from curation.api import Result
from curation.engine.plan import open_plan
from curation.inspect import trace
from curation.inspect.verify import check
from curation.read import Tally, read

DEDUP: dict[str, Any] = {"exact_dedup": {}}


def run(*stages: Any, on: Any, to: Path, **given: Any) -> Result:
    work = recipe(*stages, input={"kind": "parquet", "paths": [str(on)], **given})
    return api.run(work, output=to, workers=1)


def counts(result: Result) -> dict[str, int]:
    rows = pq.read_table(result.documents).to_pylist()
    return {row["text"].partition(".")[0]: row["duplicate_count"] for row in rows}


@pytest.fixture
def first(tmp_path: Path) -> Result:
    """Page 1 three times, page 2 twice, page 3 once, deduplicated."""
    path = write_jsonl(tmp_path / "x.jsonl", [page(n) for n in (1, 1, 1, 2, 2, 3)])
    return api.run(recipe(DEDUP), inputs=path, output=tmp_path / "first", workers=1)


def test_a_run_on_a_run_keeps_what_documents_stand_for(first: Result, tmp_path: Path) -> None:
    again = run({"basic": {}}, on=first.documents, to=tmp_path / "r")
    assert counts(again) == counts(first)
    assert sorted(counts(again).values()) == [1, 2, 3]
    assert check(open_plan(again.path), replay=2)["problems"] == []


@pytest.mark.parametrize("step", ["exact_dedup", "minhash_dedup"])
def test_counts_add_up_over_runs(step: str, first: Result, tmp_path: Path) -> None:
    more = write_jsonl(tmp_path / "y.jsonl", [page(1), page(1), page(3), page(4)])
    inputs = [
        {"kind": "parquet", "paths": [str(first.documents)], "source": "old"},
        {"kind": "jsonl", "paths": [str(more)], "source": "new"},
    ]
    both = api.run(recipe({step: {}}, input=inputs), output=tmp_path / "r", workers=1)
    assert sum(counts(both).values()) == 6 + 4, "every document that was ever read is counted"
    assert sorted(counts(both).values()) == [1, 2, 2, 5]
    third = run({step: {}}, on=both.documents, to=tmp_path / "s")
    assert counts(third) == counts(both)
    assert check(open_plan(both.path), replay=3)["problems"] == []


def test_trace_tells_of_a_count_that_came_with_the_document(first: Result, tmp_path: Path) -> None:
    again = run(DEDUP, on=first.documents, to=tmp_path / "r")
    rows = pq.read_table(again.documents).to_pylist()
    most = max(rows, key=lambda row: row["duplicate_count"])
    found = trace.document(open_plan(again.path), most["id"])
    assert (found[0]["duplicate_count"], found[0]["stands_for"]) == (3, {})
    assert "stands   for 3 documents, itself included\n" in trace.render(found)


def test_scores_of_languages_are_kept(first: Result, tmp_path: Path) -> None:
    table = pq.read_table(first.documents)
    scores = pa.array([0.25, None, 0.75])
    table = table.set_column(table.schema.get_field_index("language_score"), "language_score",
                             scores)  # fmt: skip
    pq.write_table(table, tmp_path / "scored.parquet")
    again = run(on=tmp_path / "scored.parquet", to=tmp_path / "r")
    assert pq.read_table(again.documents)["language_score"].to_pylist() == scores.to_pylist()


@pytest.mark.parametrize("metadata", [None, "{}"])
def test_a_count_that_is_none_is_one(metadata: str | None, first: Result, tmp_path: Path) -> None:
    """Row by row (where one has metadata) as all at once."""
    table = pq.read_table(first.documents)
    for name, values in (
        ("duplicate_count", pa.array([None, 0, 7], pa.int64())),
        ("metadata", pa.array([metadata, None, None], pa.string())),
    ):
        table = table.set_column(table.schema.get_field_index(name), name, values)
    path = tmp_path / "odd.parquet"
    pq.write_table(table, path)
    assert [raw.duplicate_count for raw in read("parquet", str(path), Tally())] == [1, 1, 7]


def test_the_count_of_another_table_is_its_own_affair(tmp_path: Path) -> None:
    path = tmp_path / "theirs.parquet"
    table = pa.table({"text": [page(1)], "duplicate_count": [9], "language_score": [0.5]})
    pq.write_table(table, path)
    [raw] = read("parquet", str(path), Tally())
    assert (raw.duplicate_count, raw.language_score) == (1, None)


def test_what_stood_for_many_before_is_no_collapse(tmp_path: Path) -> None:
    """Half of all documents are one page, of which this run removes one copy in 30."""
    texts = [page(number) for number in range(29)]
    first = write_jsonl(tmp_path / "x.jsonl", texts)
    rows = pq.read_table(
        api.run(recipe(), inputs=first, output=tmp_path / "a", workers=1).documents
    )
    at = rows.schema.get_field_index("duplicate_count")
    carried = [29 if text == page(0) else 1 for text in rows["text"].to_pylist()]
    pq.write_table(
        rows.set_column(at, "duplicate_count", pa.array(carried)), tmp_path / "y.parquet"
    )
    inputs = [
        {"kind": "parquet", "paths": [str(tmp_path / "y.parquet")]},
        {"kind": "jsonl", "paths": [str(write_jsonl(tmp_path / "z.jsonl", [page(0)]))]},
    ]
    work = recipe(DEDUP, "minhash_dedup", input=inputs, collapse={"documents": 20, "source": None})
    result = api.run(work, output=tmp_path / "r", workers=1)
    assert max(counts(result).values()) == 30
