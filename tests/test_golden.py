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
from exchange import decide

from curation import models, run
from curation.document import Documents
from curation.engine.chain import as_column
from curation.engine.plan import Plan, open_plan
from curation.extract.corpus import pages
from curation.extract.stage import Extract
from curation.filters.decontaminate import Decontaminate
from curation.read.tally import Tally
from curation.stage import Editor, Edits, Filter, Stage
from curation.stages import STAGES
from manifests.records import digest_of

ROOT = Path(__file__).resolve().parent
GOLDEN = json.loads((ROOT / "golden.json").read_text())


RECIPE = {
    "kind": "documents",
    "name": "golden",
    "input": {"kind": "warc"},
    "stages": [
        {"extract": {"engine": "resiliparse"}},  # the judges' texts change with no other model
        {"language": {"keep": ["en"]}},
        "gopher_quality",
        "exact_dedup",
        "minhash_dedup",
        "line_dedup",
    ],
}
#: Of these, the ones with an output of their own.
RUN = ("extract", "language", "gopher_quality", "exact_dedup", "minhash_dedup", "line_dedup")
#: Stages that are asked directly, about what `extract` gives.
DIRECT = (
    *("gopher_repetition", "fineweb", "basic", "mc4"),
    *("c4", "refinedweb_lines", "normalise", "toxicity"),
    *("pii", "perplexity", "url_filter"),
)
#: Evaluation items that pages of the sample contain.
ITEMS = (
    "You set the arm with two fingers, and it stays where you left it.",
    "Give every row one observation and every column one kind of fact.",
    "BOTH joints are turned from pear wood -- and held by friction alone",
)
PARAMETERS = {"perplexity": {"model": "kenlm/sample"}}


@pytest.fixture(scope="module")
def plan(sample_crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    output = tmp_path_factory.mktemp("golden") / "r"
    return open_plan(run(RECIPE, inputs=[sample_crawl], output=output, workers=1).path)


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


@pytest.mark.parametrize("name", RUN)
def test_the_output_of_a_stage_changes_with_its_version_only(plan: Plan, name: str) -> None:
    spec = next(spec for spec in plan.recipe.stages if spec.name == name)
    segment = next(segment for segment in plan.maps if name in segment.accounts)
    table = pq.read_table(plan.run / segment.directory / "signals")
    found: list[object] = [rows(table, f"{name}.")]
    if name == "extract":
        texts = pq.read_table(plan.run / segment.directory / "text", columns=["id", "text"])
        found.append(rows(texts, "text"))
    if name == "line_dedup":
        texts = pq.read_table(plan.run / "documents", columns=["id", "text"])
        found.append(rows(texts, "text"))
    hold(name, spec.stage, found)


@pytest.mark.parametrize("name", DIRECT)
def test_the_output_of_a_heuristic_changes_with_its_version_only(plan: Plan, name: str) -> None:
    texts = pq.read_table(plan.run / plan.segments[0].directory / "text").sort_by("id")
    docs = Documents({n: texts[n].combine_chunks() for n in ("id", "text", "url", "language")})
    stage = STAGES[name](**PARAMETERS.get(name, {}))
    if isinstance(stage, Editor):
        edited = stage.edit(docs)
        signals = {**edited.signals, "text": edited.text}
    else:
        assert isinstance(stage, Filter)
        signals = dict(stage.score(docs))
    columns = {f"{name}.{signal}": as_column(values) for signal, values in signals.items()}
    hold(name, stage, [rows(pa.table({"id": docs["id"], **columns}), f"{name}.")])


def test_the_output_of_the_default_engine_changes_with_its_version_only(
    sample_crawl: Path,
) -> None:
    bodies = [page for page in pages([str(sample_crawl)], Tally()) if page.content is not None]
    docs = Documents(
        {
            "content": pa.array([page.content for page in bodies], pa.large_binary()),
            "text": pa.nulls(len(bodies), pa.large_string()),
            "charset": pa.array([page.charset for page in bodies], pa.string()),
            "media_type": pa.array([page.media_type for page in bodies], pa.string()),
        }
    )
    edited = Extract(metadata=True).edit(docs)
    told = [edited.signals[name].to_pylist() for name in ("title", "date")]
    hold("extract", Extract(), [edited.text.to_pylist(), told, edited.failures])


def test_what_decontamination_finds_changes_with_its_version_only(
    plan: Plan, tmp_path: Path
) -> None:
    texts = pq.read_table(plan.run / plan.segments[0].directory / "text").sort_by("id")
    docs = Documents(
        {"row": pa.array(range(len(texts)), pa.int64()), "text": texts["text"].combine_chunks()}
    )
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps({"q": item}) + "\n" for item in ITEMS))
    stage = Decontaminate(sets=(str(path),), max_documents=None)
    [edits] = decide(stage, [docs])
    assert isinstance(edits, Edits)
    spans = [column.tolist() for column in (edits.rows, edits.starts, edits.stops, edits.noted)]
    said = [as_column(edits.evidence[name]).to_pylist() for name in sorted(edits.evidence)]
    assert edits.noted.size
    hold("decontaminate", stage, [spans, said])


def hold(name: str, stage: Stage, found: list[object]) -> None:
    depends = stage.depends() | {n: models.digest(p) for n, p in stage.files().items()}
    for python in ("unicode", "python"):
        depends.pop(python, None)
    label = " ".join([name, str(stage.version), *(f"{k}={v}" for k, v in depends.items())])
    digest = digest_of(found)
    assert label in GOLDEN, f"new: add {json.dumps(label)}: {json.dumps(digest)} to golden.json"
    assert GOLDEN[label] == digest, f"{label}: another output ({digest}); bump the version"
