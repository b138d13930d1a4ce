"""Personal data as others have labelled it: spans, published cases and outputs, clean text.

What may live here: the scores of `bench/scores_pii.py` that must not get worse, and the arithmetic
of its scorer against BigCode's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.scores_pii import (
    RECOGNISERS,
    cases,
    clean,
    is_global,
    rates,
    research,
    score,
    total,
)
from curation.document import Documents
from curation.redact import fakes
from curation.redact.pii import Pii
from curation.redact.spans import Span

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def labelled(shared_data: Path) -> Path:
    return shared_data / "pii"


def test_the_scorer_counts_as_bigcode(labelled: Path) -> None:
    case: dict[str, Any] = json.loads((labelled / "bigcode-metric" / "case.json").read_text())
    gold, found = (
        [Span(span["start"], span["end"], span["tag"]) for span in case[name]]
        for name in ("secrets", "pii")
    )
    scores = score(gold, found, case["alpha"], case["beta"])
    for tag, wanted in case["by_tag"].items():
        one = scores.get(tag, total([]))
        assert {"recall": one.recall, "precision": one.precision} == wanted
    overall = total(scores.values())
    assert round(overall.recall, 2) == case["overall"]["recall"]
    assert round(overall.precision, 2) == case["overall"]["precision"]


@pytest.mark.parametrize("name", ["synth_v2", "generated_large"])
def test_spans_of_presidio_research_are_found_as_datatrove_finds_them_or_better(
    labelled: Path, name: str
) -> None:
    folder = labelled / "presidio-research"
    peer = json.loads((folder / "reference_scores.json").read_text())
    theirs = peer["datatrove PIIFormatter"][name]
    ours = research(folder / f"{name}.jsonl.gz", Pii())
    for kind in ("email", "ip"):
        assert ours[kind].gold == theirs[f"{kind}_total"]
        assert ours[kind].recalled >= theirs[f"{kind}_masked"]
    assert ours["email"].recall == ours["ssn"].recall == 1
    assert ours["card"].recall > 0.95
    assert ours.get("iban", total([])).recall == 1
    assert all(one.precision == 1 for one in ours.values())


def test_cases_of_presidio_are_met(labelled: Path) -> None:
    found = cases(labelled / "presidio-cases" / "cases.jsonl.gz")
    assert set(found) == set(RECOGNISERS)
    false = {
        name: [r for r in wrong if not r["expected_len"]] for name, (wrong, _) in found.items()
    }
    assert not any(false.values())
    whole = ("email", "crypto", "mac", "es_nif", "es_nie")
    assert not any(found[f"{name}_recognizer"][0] for name in whole)
    missed = [row["text"] for row in found["ip_recognizer"][0] if is_global(row)]
    # Never given out, or made of a private IPv4 address.
    assert all(text.startswith(("A099::", "64:ff9b::", "::")) for text in missed)


@pytest.mark.parametrize("kind", ["email", "ip"])
def test_fineweb_replaces_what_datatrove_has_published(labelled: Path, kind: str) -> None:
    case: dict[str, Any] = json.loads((labelled / "datatrove-pii" / "cases.json").read_text())
    docs = Documents({"text": pa.array([case[kind]["input"]], pa.large_string())})
    text = Pii(replace="fineweb").edit(docs).text[0].as_py()
    for value in fakes.FINEWEB[kind]:
        text = text.replace(value, case[f"{kind}_replacement"])
    assert text == case[kind]["output"]


def test_hardly_anything_is_found_in_clean_text(shared_data: Path) -> None:
    for name, texts in clean(shared_data):
        found = rates(texts, Pii())
        assert found.pop("words") > 10_000
        if name == "enterprise-pii":  # addresses and a number of customer support
            assert found.pop("email") < 30 and found.pop("phone") < 10
        assert not any(found.values()), name
