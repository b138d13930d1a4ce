"""The data card tells of sources, documents, runs above and limits; one manifest has one card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from make_tokens import SOURCES, make

from manifests.card import card
from manifests.tokens import Corpus, Manifest, ManifestError

AMOUNT = {"documents": 0, "words": 0, "bytes": 0}


def stage(name: str, kept: int, **dropped: int) -> dict[str, Any]:
    reasons = {reason: {**AMOUNT, "documents": count} for reason, count in dropped.items()}
    amounts = {**AMOUNT, "documents": kept}
    return {"name": name, "kept": amounts, "dropped": reasons, "failures": {}}


STATS = {
    "complete": True,
    "reader": {"records": 1234, "documents": 1000, "skipped": {"request": 234}},
    "stages": [stage("language", 900, other_language=100), stage("exact_dedup", 877, text=23)],
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return make(tmp_path_factory.mktemp("toy"))


def with_runs(toy: Manifest) -> Manifest:
    web = replace(toy.sources[0], upstream={"kind": "run", "name": "crawl", "stats": STATS})
    corpus = Corpus("corpus", "0" * 32, STATS)
    return replace(toy, sources=(web, *toy.sources[1:]), corpus=corpus)


def cells(text: str, first: str) -> list[str]:
    """The cells of the first row of a table that begins with this one."""
    line = next(line for line in text.split("\n") if line.startswith(f"| {first} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_card_says_what_the_manifest_is_made_of(toy: Manifest) -> None:
    text = card(toy)
    assert card(Manifest.load(toy.directory)) == text
    for source in toy.sources:
        row = cells(text, source.name)
        assert row[1:4] == ["CC0-1.0", f"{source.train.documents:,}", f"{source.train.tokens:,}"]
    assert cells(text, "en")[1] == str(sum(SOURCES.values()))
    assert toy.digest in text and toy.tokenizer.sha256 in text and "20.00% of the documents" in text
    assert "Read more than four times over: web (9.3)" in text
    assert "shares with validation was not measured" in text


def test_the_card_tells_the_funnel_of_each_run_above(toy: Manifest) -> None:
    text = card(with_runs(toy))
    assert text.count("| other_language") == 2 and "## How web was made: the run crawl" in text
    assert text.count("Documents removed as duplicates: 23.") == 2
    assert "skipped: request" in text and "1,234" in text


def test_tables_are_aligned(toy: Manifest) -> None:
    table: list[int] = []
    for line in card(with_runs(toy)).split("\n"):
        if line.startswith("|"):
            table.append(len(line))
        else:
            assert len(set(table)) <= 1
            table = []


def test_provenance_that_is_not_there_is_named(tmp_path: Path) -> None:
    toy = make(tmp_path)
    path = toy.sources[0].train.provenance[0].path
    (tmp_path / path).unlink()
    with pytest.raises(ManifestError, match=f"{path}: No such file"):
        card(toy)
