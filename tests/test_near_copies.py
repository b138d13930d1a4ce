"""What a run knows to be copies of a document, by its removals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit import page, recipe

from curation import run
from curation.engine.plan import Plan, open_plan
from curation.inspect.near_copies import near_copies, render
from curation.inspect.signals import batches

URLS = (
    "https://a.example/",
    "https://a.example/?utm_source=1",
    "https://b.example/",
    "http://c.de/",
)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """The first two have one address; of these the one that stays has the text of the third."""
    folder = tmp_path_factory.mktemp("copies")
    texts = [page(1), page(1), page(1), page(2)]
    rows = [
        {"id": str(i), "text": text, "url": url}
        for i, (text, url) in enumerate(zip(texts, URLS, strict=True))
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stages = recipe({"exact_dedup": {}})
    inputs = [folder / "in.jsonl"]
    return open_plan(run(stages, inputs=inputs, output=folder / "r", workers=1, quiet=True).path)


def _ids(plan: Plan) -> dict[str, str]:
    tables = batches(plan, plan.segments[0], ["id", "url"])
    return {row["url"]: row["id"] for table in tables for row in table.to_pylist()}


@pytest.mark.parametrize("start", range(3))
def test_all_copies_are_found_from_any_of_them(start: int, plan: Plan) -> None:
    ids = _ids(plan)
    found = near_copies(plan, [ids[URLS[start]]])
    assert {entry["url"] for entry in found} == {*URLS[:3]} - {URLS[start]}
    for entry in found:
        assert entry["step"] == "exact_dedup" and entry["survivor"] in (entry["id"], entry["of"])
    kept = [e for e in near_copies(plan, [ids[URLS[start]]]) if e["outcome"] == "kept"]
    assert len(kept) <= 1 and render(found).count("exact_dedup of ") == 2


def test_a_document_without_copies_has_none(plan: Plan) -> None:
    assert near_copies(plan, [_ids(plan)[URLS[3]]]) == []
