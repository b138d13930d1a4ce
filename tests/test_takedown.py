"""A run without the listed documents: nothing of them is left, the rest is as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judges import STAGES, write_documents
from kit import recipe

from curation import run
from curation.engine.plan import open_plan
from curation.inspect import verify
from curation.inspect.signals import batches
from curation.takedown import Listed, takedown_run
from manifests.records import Receipt


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def finished(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return done(inputs, tmp_path_factory.mktemp("run") / "old")


def done(source: Path, path: Path, *stages: Any, **more: Any) -> Path:
    wanted = recipe(*(stages or STAGES), **{"failure_ceiling": 1, **more})
    return run(wanted, inputs=[str(source)], output=path, workers=1).path


def rows(path: Path, segment: int = 0) -> list[dict[str, Any]]:
    plan = open_plan(path)
    return [row for t in batches(plan, plan.segments[segment]) for row in t.to_pylist()]


def documents(path: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(p) for p in sorted(path.glob("documents/*.parquet")))


def receipts(path: Path) -> dict[str, Receipt]:
    plan = open_plan(path)
    found = {p.stem: Receipt.load(p) for p in plan.receipts(plan.segments[0]).glob("*.json")}
    return {name: receipt for name, receipt in found.items() if receipt is not None}


def tree(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_was_read_is_what_a_run_with_the_list_reads(
    finished: Path, inputs: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Documents that failed, were emptied, edited, dropped, kept: each count, each byte."""
    folder = tmp_path_factory.mktemp("new")
    known = rows(finished)
    gone = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=8))
    urls = data.draw(st.lists(st.sampled_from(known), max_size=2))
    listed = Listed(frozenset(r["id"] for r in gone), frozenset(r["url"] for r in urls))
    new = folder / "new"
    found = takedown_run(finished, listed, new)
    assert not found["not_found"]
    left = [row for row in known if not listed.holds(row["id"], row["url"])]
    assert found["documents"] == len(known) - len(left)
    assert rows(new) == left
    before = documents(finished)
    stay = [not listed.holds(r["id"], r["url"]) for r in before.to_pylist()]
    assert documents(new).to_pylist() == before.filter(pa.array(stay)).to_pylist()
    assert verify.check(open_plan(new), replay=4)["problems"] == []

    path = folder / "list"
    path.write_text("\n".join([*listed.ids, *listed.urls]))
    scratch = receipts(done(inputs, folder / "scratch", takedown=str(path)))
    for name, receipt in receipts(new).items():
        other = scratch[name]
        assert receipt.counts == other.counts
        same = [k for k in other.outputs if receipt.outputs[k] == other.outputs[k]]
        assert set(other.outputs) - set(same) <= {"samples"}
        if receipt.key == other.key:  # a run with the list can be based on it
            assert len(same) == len(other.outputs)
