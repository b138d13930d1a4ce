"""The stage split, and deduplication that takes what it holds out as earlier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit import page, recipe, write_jsonl
from pydantic import ValidationError

from curation import run
from curation.dedup.exact import ExactDedup
from curation.document import Documents
from curation.engine.recipe import load
from curation.filters.split import Split
from manifests.hashing import mix64, salt

IDS = [f"{number * 2654435761 % 2**32:08x}" * 4 for number in range(4000)]


def held_out(stage: Split, ids: list[str], **columns: pa.Array) -> list[float]:
    docs = Documents({"id": pa.array(ids), **columns})
    return np.asarray(stage.score(docs)["validation"]).tolist()


def test_a_share_of_the_documents_is_held_out() -> None:
    found = held_out(Split(share=0.25), IDS)
    assert set(found) == {0.0, 1.0}
    assert sum(found) == pytest.approx(1000, abs=4 * (4000 * 0.25 * 0.75) ** 0.5)


def test_whether_a_document_is_held_out_depends_on_seed_and_id_alone() -> None:
    stage = Split(share=0.25)
    found = held_out(stage, IDS)
    assert held_out(stage, IDS[::-1]) == found[::-1]
    assert [held_out(stage, [name])[0] for name in IDS[:50]] == found[:50]
    assert held_out(Split(share=0.25, seed=21), IDS) != found
    larger = held_out(Split(share=0.5), IDS)
    assert all(more >= less for more, less in zip(larger, found, strict=True))


def test_the_choice_is_that_of_the_keys_of_the_manifest() -> None:
    high, low = (np.array([int(name[at : at + 16], 16) for name in IDS], np.uint64)
                 for at in (0, 16))  # fmt: skip
    with np.errstate(over="ignore"):
        places = mix64(mix64(high + np.uint64(salt(20, "validation"))) ^ low)
    assert held_out(Split(share=0.125), IDS) == (places >> np.uint64(61) == 0).tolist()


def test_a_source_is_held_out_by_name() -> None:
    sources = pa.array(["books", None, "web", "books"])
    assert held_out(Split(source="books"), IDS[:4], source=sources) == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("parameters", [{}, {"share": 0.1, "source": "x"}, {"share": 1.0}])
def test_impossible_parameters_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Split(**parameters)


@pytest.mark.parametrize("step", ["exact_dedup", "minhash_dedup"])
def test_what_is_held_out_survives_its_copies(step: str, tmp_path: Path) -> None:
    """Each text four times: where one of the copies is held out, one that is held out stays."""
    texts = [page(i) for i in range(12)]
    for name in ("a", "b", "c", "d"):
        write_jsonl(tmp_path / f"{name}.jsonl", texts)
    policy = {"policy": "highest(split.validation)"}
    work = recipe({"split": {"share": 0.3}}, {step: policy})
    result = run(
        work, inputs=[tmp_path / f"{n}.jsonl" for n in "abcd"], output=tmp_path / "r", workers=1
    )
    [read] = result.path.glob("segments/0-*/signals")
    every = {row["id"]: row for row in pq.read_table(read).to_pylist()}
    [text] = result.path.glob("segments/0-*/text")
    copies: dict[str, set[str]] = {}
    for row in pq.read_table(text).to_pylist():
        copies.setdefault(row["text"], set()).add(row["id"])
    chosen = {name for name, row in every.items() if row["split.validation"] == 1.0}
    kept = {row["id"] for row in pq.read_table(result.documents).to_pylist()}
    assert len(kept) == 12 and {len(ids) for ids in copies.values()} == {4}
    for ids in copies.values():
        [stays] = kept & ids
        assert stays == min(ids & chosen or ids)
    assert any(min(ids) not in chosen and ids & chosen for ids in copies.values())


def test_exact_deduplication_keeps_the_longest_of_one_address(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    rows = [{"text": page(1, n), "id": str(n), "url": "https://a.example/x"} for n in (40, 90, 60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run(
        recipe({"exact_dedup": {"policy": "longest"}}),
        inputs=path,
        output=tmp_path / "r",
        workers=1,
    )
    [kept] = pq.read_table(result.documents).to_pylist()
    assert (kept["text"], kept["duplicate_count"]) == (page(1, 90), 3)
    with pytest.raises(ValidationError, match="first_id, longest"):
        ExactDedup(policy="shortest")


def test_a_policy_that_no_stage_before_it_serves_is_named(tmp_path: Path) -> None:
    from curation.api import plan

    work = recipe({"exact_dedup": {"policy": "highest(split.validation)"}})
    with pytest.raises(ValueError, match=r"none has 'split.validation'"):
        plan(work, inputs=write_jsonl(tmp_path / "x.jsonl", ["x"]))
    assert load(work).stages[0].stage.signals() == ("split.validation",)  # type: ignore[attr-defined]
