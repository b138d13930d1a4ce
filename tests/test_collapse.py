"""A run stops where deduplication removes nearly all of a source, a language or a domain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit import page

from curation import run
from curation.cli import main
from curation.engine import collapse
from curation.engine.driver import Collapsed
from curation.engine.plan import open_plan
from curation.engine.recipe import RecipeError

LIMITS = {"documents": 10, "source": 0.1, "language": 0.1, "domain": 0.01, "group": 0.5}


def table(*rows: tuple[str, str | None, int, int]) -> pa.Table:
    names = ["kind", "value", "documents", "removed"]
    plain = [dict(zip(names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist(plain, schema=collapse.RETENTION_SCHEMA)


def groups(*sizes: int) -> pa.Table:
    rows = [
        {"documents": size, "id": f"{i:032x}", "url": None, "unit": 0, "row": i}
        for i, size in enumerate(sizes)
    ]
    return pa.Table.from_pylist(rows, schema=collapse.GROUPS_SCHEMA)


@pytest.mark.parametrize(
    ("row", "stops"),
    [
        (("source", "a", 100, 90), False),  # exactly the tenth that is wanted
        (("source", "a", 100, 91), True),
        (("source", "a", 9, 9), False),  # too few to say
        (("language", None, 10, 10), True),
        (("domain", "a.example", 100, 99), False),
        (("domain", "a.example", 1000, 991), True),
    ],
)
def test_what_is_kept_is_held_against_the_limit(
    row: tuple[str, str | None, int, int], stops: bool
) -> None:
    lines, _ = collapse.broken(table(row), groups(), LIMITS, 1000)
    assert bool(lines) == stops
    off = {**LIMITS, row[0]: None}
    assert collapse.broken(table(row), groups(), off, 1000) == ([], [])
    if stops:
        assert (row[1] or "(unknown)") in lines[0] and f"collapse.{row[0]}" in lines[0]


def test_a_group_of_half_of_all_is_allowed_and_no_more() -> None:
    assert collapse.broken(table(), groups(50), LIMITS, 100) == ([], [])
    lines, shown = collapse.broken(table(), groups(51, 3), LIMITS, 100)
    assert len(lines) == 1 and "51 of 100" in lines[0] and len(shown) == 2
    assert collapse.broken(table(), groups(9), LIMITS, 9) == ([], [])


def test_parts_of_a_run_add_up() -> None:
    one = table(("source", "a", 3, 1), ("source", None, 1, 0))
    other = table(("source", "a", 4, 2), ("domain", "a", 1, 1))
    assert sorted(collapse.merged([one, other]).to_pylist(), key=str) == sorted(
        table(("source", "a", 7, 3), ("source", None, 1, 0), ("domain", "a", 1, 1)).to_pylist(),
        key=str,
    )


def test_the_host_of_an_address() -> None:
    urls = ["https://www.Example.org:8080/a?b", "http://u@a.example#x", "a.example/b", None, "//"]
    wanted = ["example.org", "a.example", None, None, None]
    assert collapse.hosts(pa.chunked_array([urls])).to_pylist() == wanted


@pytest.fixture
def one_sided(tmp_path: Path) -> list[Path]:
    """Two sources: one of a single page, 30 times; one of 12 different ones."""
    found = []
    for name, texts in (("bad", [page(1)] * 30), ("good", [page(i) for i in range(2, 14)])):
        path = tmp_path / f"{name}.jsonl"
        with path.open("w") as file:
            for i, text in enumerate(texts):
                url = f"https://www.{name}.example/{i}"
                file.write(json.dumps({"id": f"{name}{i}", "text": text, "url": url}) + "\n")
        found.append(path)
    return found


def recipe(folder: Path, *stages: Any) -> Path:
    path = folder / "r.yaml"
    path.write_text(
        json.dumps(
            {
                "kind": "documents",
                "name": "collapse",
                "collapse": {"documents": 20, "group": None, "source": None, "language": None,
                             "domain": 0.1},
                "input": {"kind": "jsonl"},
                "stages": list(stages),
            }
        )
    )  # fmt: skip
    return path


def test_a_run_stops_with_the_evidence_and_goes_on_when_told(
    one_sided: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recipe(tmp_path, {"exact_dedup": {"by": ["text"]}})
    command = ["run", str(path), "--input", *map(str, one_sided), "--workers", "1", "--quiet"]
    command += ["--output", str(tmp_path / "out")]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "domain bad.example: 1 of 30 documents kept (3.33%; collapse.domain wants" in said
    assert "good.example" not in said
    assert "30 documents" in said and page(1)[:25] in said  # the largest group, and what it is
    assert said.splitlines()[-1].startswith("curation: exact_dedup has removed more than")
    assert "--accept-collapse" in said.splitlines()[-1]
    assert not (tmp_path / "out" / "stats.json").exists()
    assert main(command) == 1  # nothing has changed
    assert main([*command, "--accept-collapse"]) == 0
    assert main(command) == 0  # it has been accepted
    found = pq.read_table(tmp_path / "out" / "documents")
    assert found.num_rows == 13


def test_a_step_after_another_counts_only_what_comes_to_it(
    one_sided: list[Path], tmp_path: Path
) -> None:
    """exact_dedup has left one of the 30, so minhash_dedup removes none of 1."""
    path = recipe(tmp_path, {"exact_dedup": {"by": ["text"]}}, "minhash_dedup")
    with pytest.raises(Collapsed):
        run(path, inputs=one_sided, output=tmp_path / "out", workers=1)
    run(path, inputs=one_sided, output=tmp_path / "out", workers=1, accept_collapse=True)
    plan = open_plan(tmp_path / "out")
    found = {}
    for segment in plan.segments:
        if segment.kind == "exchange":
            rows = pq.read_table(plan.run / segment.directory / "retention.parquet").to_pylist()
            found[segment.name] = {
                row["value"]: (row["documents"], row["removed"])
                for row in rows
                if row["kind"] == "domain"
            }
    assert found == {
        "exact_dedup": {"bad.example": (30, 29), "good.example": (12, 0)},
        "minhash_dedup": {"bad.example": (1, 0), "good.example": (12, 0)},
    }


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([{"minhash_dedup": {"policy": "highest(basic.wrods)"}}], "none has 'basic.wrods'"),
        (
            ["basic", {"minhash_dedup": {"policy": "highest(basic.wrods)"}}],
            "none has 'basic.wrods'; did you mean 'basic.words'?",
        ),
        (
            ["basic", "exact_dedup", "mc4", {"minhash_dedup": {"policy": "highest(basic.words)"}}],
            "none has 'basic.words'",
        ),
        (
            [{"language": {}}, {"minhash_dedup": {"policy": "highest(language.label)"}}],
            "'language.label' is string: a number is wanted",
        ),
        ([{"minhash_dedup": {"policy": "shortest"}}], "highest(stage.signal) is wanted"),
        ([{"minhash_dedup": {"verify": "texts"}}], "text or text(0.9) is wanted"),
        ([{"minhash_dedup": {"verify": "text(1.5)"}}], "between 0 and 1"),
    ],
)
def test_a_wrong_policy_is_one_line(stages: list[Any], said: str, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"text": page(1)}) + "\n")
    with pytest.raises(RecipeError) as caught:
        run(recipe(tmp_path, *stages), inputs=source, output=tmp_path / "out")
    assert said in str(caught.value) and "\n" not in str(caught.value)
