"""Golden outputs: what each version of a stage makes of the sample crawl.

A stage whose output changes must have another version, or old receipts would be taken for new ones.
These digests are no statement that the output is right (other tests are): only that it is the same.
A new version, or a library named in the stage's `depends`, brings a new line to golden.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation import run
from curation.engine.plan import Plan, open_plan
from manifests.records import digest_of

ROOT = Path(__file__).resolve().parent
GOLDEN = json.loads((ROOT / "golden.json").read_text())


@pytest.fixture(scope="module")
def plan(sample_crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    recipe = ROOT.parent / "pipelines" / "crawl-filter.yaml"
    output = tmp_path_factory.mktemp("golden") / "r"
    return open_plan(run(recipe, inputs=[sample_crawl], output=output, workers=1).path)


def rows(table: pa.Table, prefix: str) -> list[list[object]]:
    """What a stage said of each document, by id; floats to six digits."""
    names = ["id", *sorted(name for name in table.column_names if name.startswith(prefix))]
    return sorted(
        [
            [f"{value:.6g}" if isinstance(value, float) else value for value in row.values()]
            for row in table.select(names).to_pylist()
        ],
        key=str,
    )


@pytest.mark.parametrize("name", ["extract", "language", "gopher_quality", "exact_dedup"])
def test_the_output_of_a_stage_changes_with_its_version_only(plan: Plan, name: str) -> None:
    spec = next(spec for spec in plan.recipe.stages if spec.name == name)
    segment = next(segment for segment in plan.maps if name in segment.accounts)
    table = pq.read_table(plan.run / segment.directory / "signals")
    found: list[object] = [rows(table, f"{name}.")]
    if name == "extract":
        texts = pq.read_table(plan.run / segment.directory / "text", columns=["id", "text"])
        found.append(rows(texts, "text"))
    depends = spec.stage.depends()
    depends.pop("unicode", None)
    label = " ".join([name, str(spec.stage.version), *(f"{k}={v}" for k, v in depends.items())])
    digest = digest_of(found)
    assert label in GOLDEN, f"new: add {json.dumps(label)}: {json.dumps(digest)} to golden.json"
    assert GOLDEN[label] == digest, f"{label}: another output ({digest}); bump the version"
