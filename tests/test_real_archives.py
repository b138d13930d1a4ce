"""Whole runs over archives of other projects, sound and damaged, against their MANIFEST.tsv."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from zygote import curation

from curation import Result, run
from curation.engine.plan import open_plan
from curation.inspect import verify
from manifests.records import Receipt

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "pipelines" / "crawl-filter.yaml"


@pytest.fixture(scope="module")
def manifest(shared_data: Path) -> dict[str, dict[str, str]]:
    """Absolute path -> row."""
    folder = shared_data / "warc"
    with (folder / "MANIFEST.tsv").open(newline="") as lines:
        return {str(folder / row["file"]): row for row in csv.DictReader(lines, delimiter="\t")}


@pytest.fixture(scope="module")
def finished(
    manifest: dict[str, dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Result:
    return run(
        RECIPE, inputs=list(manifest), output=tmp_path_factory.mktemp("real") / "r", workers=2
    )


def test_records_and_html_pages_are_those_that_others_count(
    finished: Result, manifest: dict[str, dict[str, str]]
) -> None:
    plan = open_plan(finished.path)
    assert {unit.input.path for unit in plan.units} == set(manifest)
    for unit in plan.units:
        receipt = Receipt.load(plan.receipt_path(plan.segments[0], unit.name))
        assert receipt is not None
        row, reader = manifest[unit.input.path], receipt.counts["reader"]
        if row["warcio_error"] == row["fastwarc_error"] == "-":
            assert receipt.status == "done", unit.input.path
            assert reader["records"] == int(row["warcio_records"]), unit.input.path
            assert reader["documents"] == int(row["warcio_200_html"]), unit.input.path


def test_what_cannot_be_read_is_named_and_the_books_balance(
    finished: Result, manifest: dict[str, dict[str, str]]
) -> None:
    unfinished = {Path(path).name: problem for path, problem in finished.unfinished.items()}
    assert {name: problem.split(" at ")[0] for name, problem in unfinished.items()} == {
        "abcd.gz": "incomplete: not_warc",
        "hi.gz": "incomplete: not_warc",
        "hi-2.gz": "incomplete: not_warc",
        "double-single-inflate-error.gz": "incomplete: bad_member",
        "example-space-in-url.arc": "incomplete: truncated",
    }
    assert verify.check(open_plan(finished.path), replay=5)["holds"]


def test_the_command_ends_with_3_and_says_which(shared_data: Path, tmp_path: Path) -> None:
    archive = shared_data / "warc" / "aut-archiveit" / "example.warc.gz"
    whole = archive.read_bytes()
    (tmp_path / "cut.warc.gz").write_bytes(whole[:-1000])
    done = curation(
        "run", RECIPE, "--input", "cut.warc.gz", "--output", "r", "--quiet", cwd=tmp_path
    )
    assert done.returncode == 3
    assert "1 of 1 inputs incomplete" in done.stdout
    [line] = done.stderr.splitlines()
    assert "cut.warc.gz: incomplete: truncated at offset " in line
    offset = int(line.partition(" at offset ")[2].split()[0])
    assert whole[offset : offset + 2] == b"\x1f\x8b", "the offset is that of a record"
