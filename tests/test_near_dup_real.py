"""Deduplication of real documents: against all pairs by brute force, and what others keep.

What may live here: tests over the near-duplicate data beside the checkout (see its PROVENANCE.md).
"""

from __future__ import annotations

import gzip
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from kit import recipe
from near_duplicates import (
    Files,
    Kept,
    Page,
    Removed,
    ask,
    decide,
    decided,
    jaccard,
    rounded,
    signatures,
)

from curation import run

pytestmark = pytest.mark.real

BANDS, ROWS = 14, 8
#: Sets of 14 x 8 permutations that the recall is averaged over.
SETS = 25


@pytest.fixture(scope="module")
def web(shared_data: Path) -> list[dict[str, Any]]:
    """114 pages of real archives, of which many were captured more than once."""
    path = shared_data / "near_dup" / "web-bruteforce" / "docs.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def pages(web: list[dict[str, Any]]) -> list[Page]:
    return [Page(row["text"], row["id"]) for row in web]


@pytest.fixture(scope="module")
def pairs(pages: list[Page]) -> dict[tuple[int, int], float]:
    """The exact Jaccard of every pair that has any shingle in common."""
    every = combinations(range(len(pages)), 2)
    found = {(i, j): jaccard(pages[i].text, pages[j].text, 5) for i, j in every}
    return {pair: value for pair, value in found.items() if value}


def test_shingles_are_nearly_those_of_others(
    shared_data: Path, web: list[dict[str, Any]], pairs: dict[tuple[int, int], float]
) -> None:
    """Words by a regular expression there, by the text view here: the pairs at 0.5 and above are
    the same, with nearly the same Jaccard."""
    path = shared_data / "near_dup" / "web-bruteforce" / "pairs_jaccard_ge_0.1.jsonl.gz"
    number = {row["id"]: i for i, row in enumerate(web)}
    with gzip.open(path, "rt") as lines:
        theirs = {
            tuple(sorted((number[pair["a"]], number[pair["b"]]))): pair["jaccard_w5"]
            for pair in map(json.loads, lines)
        }
    assert len(theirs) == 652
    differences = [abs(pairs.get(pair, 0.0) - value) for pair, value in theirs.items()]
    assert max(differences) < 0.1
    assert np.mean(differences) < 0.01


@pytest.fixture(scope="module")
def cut(pages: list[Page]) -> list[Page]:
    """Every page again, without its last words: of half of them up to one of twenty."""
    found = []
    for number, page in enumerate(pages):
        parts = page.text.split()
        left = len(parts) * (50 + number * 47 % 46) // 100
        found.append(Page(" ".join(parts[:left]), page.native))
    return found


def recall(pages: list[Page], pairs: dict[tuple[int, int], float]) -> tuple[float, float, float]:
    """The share of pairs that have a band in common, averaged over sets of permutations; what the
    bands promise, 1 - (1 - s^8)^14; and the standard error of the first, taken from the sets, as
    pairs share documents."""
    first, second = np.array(list(pairs)).T
    values = signatures(pages, 5, SETS * BANDS * ROWS).reshape(len(pages), SETS, BANDS, ROWS)
    share = (values[first] == values[second]).all(axis=3).any(axis=2).mean(axis=0)
    promised = np.mean([1 - (1 - s**ROWS) ** BANDS for s in pairs.values()])
    binomial = promised * (1 - promised) / len(pairs)  # if they did not: at least that
    error = (max(share.var(ddof=1), binomial) / SETS) ** 0.5
    return float(share.mean()), float(promised), float(error)


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.3), (0.3, 0.5), (0.5, 0.9), (0.9, 1.01)])
def test_recall_by_jaccard_is_what_the_bands_promise(
    pages: list[Page], pairs: dict[tuple[int, int], float], low: float, high: float
) -> None:
    chosen = {pair: s for pair, s in pairs.items() if low <= s < high}
    assert len(chosen) > 10
    found, promised, error = recall(pages, chosen)
    assert abs(found - promised) <= 4 * error


@pytest.mark.parametrize("low", [0.5, 0.6, 0.7, 0.8, 0.9])
def test_recall_of_shortened_pages_is_what_the_bands_promise(
    pages: list[Page], cut: list[Page], low: float
) -> None:
    """Real pairs at 0.5 to 0.9 are few: here are a hundred more."""
    number = len(pages)
    found = {(i, i + number): jaccard(pages[i].text, cut[i].text, 5) for i in range(number)}
    chosen = {pair: s for pair, s in found.items() if low <= s < low + 0.1}
    assert len(chosen) > 8
    share, promised, error = recall(pages + cut, chosen)
    assert abs(share - promised) <= 4 * error


@pytest.mark.parametrize("verify_by", [0.8, "text", "text(0.6)"])
def test_survivors_are_those_of_the_brute_force(
    pages: list[Page], tmp_path: Path, verify_by: float | str
) -> None:
    files: Files = {"a.jsonl": pages[:50], "b.jsonl": pages[50:]}
    result = ask(tmp_path, files, verify=verify_by)
    found = decided(result.path)
    assert rounded(found) == rounded(decide(files, verify=verify_by))
    by_id = {page.id: page.text for page in pages}
    removed = {at: d for at, d in found.items() if isinstance(d, Removed)}
    assert len(removed) > 10
    for (file, row), decision in removed.items():
        exact = jaccard(files[file][row].text, by_id[decision.survivor], 5)
        assert exact >= 0.5
        if decision.jaccard is not None:
            assert decision.jaccard == pytest.approx(exact, abs=1e-6)
    assert sum(d.duplicate_count for d in found.values() if isinstance(d, Kept)) == len(pages)


def test_exact_survivors_are_those_of_data_prep_kit(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "near_dup" / "dpk-ededup"
    result = run(
        recipe(
            {"basic": {"min_chars": 0, "min_words": 0}},
            {"exact_dedup": {"by": ["text"]}},
            input={"kind": "parquet", "text": "contents", "id": "document_id"},
        ),
        inputs=[folder / "input" / "sample1.parquet"],
        output=tmp_path / "r",
        workers=1,
    )
    theirs = pq.read_table(folder / "expected" / "sample1.parquet")["contents"].to_pylist()
    ours = pq.read_table(result.documents)["text"].to_pylist()
    assert sorted(ours) == sorted(theirs)


def test_survivors_of_the_data_juicer_demo(shared_data: Path, tmp_path: Path) -> None:
    """By reading the 14 texts: one is there twice, letter by letter; three more pairs differ in a
    few words (two of them English articles, whole and cut in half, and one Chinese one). The
    greetings differ in a word of nine, and the half of an article is not the article."""
    path = shared_data / "near_dup" / "datajuicer-dedup-demo" / "docs.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    pages = [Page(row["text"], str(i)) for i, row in enumerate(rows)]
    assert len(pages) == 14
    exact = run(
        recipe({"basic": {"min_chars": 0, "min_words": 0, "max_symbols": None}},
               {"exact_dedup": {}}),
        inputs=[path], output=tmp_path / "exact", workers=1,
    )  # fmt: skip
    assert exact.stats["output"]["documents"] == 13
    near = ask(tmp_path / "near", {"a.jsonl": pages})
    assert near.stats["output"]["documents"] == 10
    pairs = {
        frozenset([row, [page.id for page in pages].index(d.survivor)])
        for (_, row), d in decided(near.path).items()
        if isinstance(d, Removed)
    }
    assert pairs == {frozenset(pair) for pair in ((6, 11), (7, 8), (9, 10), (12, 13))}
