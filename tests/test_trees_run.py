"""Runs over trees and dumps: every file is accounted for, and a change is seen."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from kit import contents, page
from test_read_mediawiki import dump
from test_read_mediawiki import page as wiki_page
from test_read_trees import tar_of, write_tree

from curation.api import run
from manifests.records import Receipt

ROOT = Path(__file__).resolve().parent.parent


def rows(path: Path) -> list[dict[str, Any]]:
    parts = sorted(path.glob("documents/*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def recipe(kind: str, **more: Any) -> dict[str, Any]:
    given = {"kind": kind, "source": "s", "license": "L", **more}
    return {"kind": "documents", "name": "test", "input": given, "stages": []}


def test_every_tree_is_a_unit_whose_files_are_accounted_for(tmp_path: Path) -> None:
    """A directory, an archive, and a file of each language, in one run."""
    write_tree(tmp_path / "in/one", {"a.py": b"a = 1\n", "b.png": b"\0"})
    source = b"/* SPDX-License-Identifier: MIT */\n"
    (tmp_path / "in/two.tar.gz").write_bytes(gzip.compress(tar_of({"c.c": source})))
    (tmp_path / "in/three.rs").write_bytes(b"fn main() {}\n")
    done = run(recipe("code"), inputs=[str(tmp_path / "in/*")], output=tmp_path / "run", workers=1)
    assert done.complete
    found = {row["text"]: (row["source"], row["license"]) for row in rows(done.path)}
    assert found == {
        "a = 1\n": ("s", "L"),
        source.decode(): ("s", "MIT"),
        "fn main() {}\n": ("s", "L"),
    }
    receipts = [Receipt.load(path) for path in done.path.glob("segments/0-*/receipts/*.json")]
    readers = [receipt.counts["reader"] for receipt in receipts if receipt]
    assert sorted(reader["records"] for reader in readers) == [1, 1, 2]
    assert sum(reader["skipped"].get("no_code", 0) for reader in readers) == 1


def test_the_same_tree_gives_the_same_bytes_wherever_the_run_lies(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "t", {f"{i}.py": page(i).encode() for i in range(30)})
    one, two = (
        run(recipe("code"), inputs=[str(tree)], output=tmp_path / name, workers=workers).path
        for name, workers in (("a", 1), ("b", 2))
    )
    assert contents(one) == contents(two)


def test_a_tree_that_changes_after_the_plan_is_incomplete(tmp_path: Path) -> None:
    from curation.api import plan
    from curation.engine.plan import freeze, reading_tasks
    from curation.engine.unit import run_task

    tree = write_tree(tmp_path / "t", {"a.py": b"a = 1\n"})
    planned = plan(recipe("code"), inputs=[tree], output=tmp_path / "run")
    freeze(planned)
    (tree / "b.py").write_bytes(b"b = 2\n")
    receipt = run_task(planned, reading_tasks(planned)[0])
    assert receipt.status == "incomplete"
    assert receipt.counts["reader"]["problem_counts"] == {"changed": 1}


def test_dumps_books_and_papers_run_with_their_recipes(tmp_path: Path) -> None:
    paper = rf"\documentclass{{a}}\begin{{document}}{page(1)}\end{{document}}"
    given = {
        "wikipedia": ("x.xml", dump(wiki_page("T", page(2)))),
        "papers": ("2301.00001.gz", gzip.compress(paper.encode())),
        "books": ("x.txt", page(3).encode()),
        "code": ("x.py", b"def f(x):\n    return x + 1\n"),
    }
    for name, (file, data) in given.items():
        (tmp_path / file).write_bytes(data)
        done = run(
            ROOT / f"pipelines/{name}.yaml",
            inputs=[str(tmp_path / file)],
            output=tmp_path / name,
            workers=1,
        )
        (row,) = rows(done.path)
        assert row["metadata"], name
        shutil.rmtree(tmp_path / name)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "documents", "share"),
    [
        ("code", "code-cpython", 0.95),
        ("papers", "arxiv-latex", 0.95),
        ("books", "lambada-books", 0.8),
    ],
)
def test_the_recipes_do_not_empty_real_sources(
    tmp_path: Path, shared_data: Path, name: str, documents: str, share: float
) -> None:
    """CPython's library, papers of RedPajama's arXiv, and passages of books (which are short)."""
    raw = yaml.safe_load((ROOT / f"pipelines/{name}.yaml").read_text())
    raw["input"] = {"kind": "jsonl"}
    raw["stages"] = [stage for stage in raw["stages"] if "dedup" not in next(iter(stage))]
    file = shared_data / "mixture" / documents / "docs.jsonl.gz"
    done = run(raw, inputs=[str(file)], output=tmp_path / "run", workers=1)
    read = done.stats["reader"]["documents"]
    assert done.stats["output"]["documents"] >= share * read


def test_the_textbook_mixture_names_six_sources_whose_weights_sum_to_1_35() -> None:
    sources = yaml.safe_load((ROOT / "manifests/sources/textbook.yaml").read_text())["sources"]
    weights = {source["name"]: source["weight"] for source in sources}
    assert sorted(weights.values()) == [0.10, 0.15, 0.15, 0.20, 0.30, 0.45]
    assert sum(weights.values()) == pytest.approx(1.35)
    assert all(source["license"] and source["kind"] == "run" for source in sources)
