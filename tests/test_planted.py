"""The corpus of planted copies: what is said of its documents is true of the files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bench.planted import BLOCK, GROUPS, Corpus, vocabulary

WORDS = tuple((f"w{chr(97 + i // 26)}{chr(97 + i % 26)}", 700 - i) for i in range(600))


def read(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted((folder / "corpus").glob("*.parquet")):
        table = pq.read_table(path)
        found |= dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return found


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


def jaccard(a: str, b: str) -> float:
    left, right = shingles(a), shingles(b)
    return len(left & right) / len(left | right)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    Corpus(BLOCK, WORDS).write(folder)
    return folder


def test_every_stated_similarity_is_that_of_the_written_texts(planted: Path) -> None:
    texts, truth = read(planted), pq.read_table(planted / "truth.parquet").to_pylist()
    for row in truth:
        assert row["jaccard"] == jaccard(texts[row["id"]], texts[row["original"]])


def test_every_document_is_written_once_and_three_in_ten_are_copies(planted: Path) -> None:
    tables = [pq.read_table(path) for path in (planted / "corpus").glob("*.parquet")]
    ids = [int(name) for table in tables for name in table["id"].to_pylist()]
    assert sorted(ids) == list(range(BLOCK))
    truth = pq.read_table(planted / "truth.parquet").to_pylist()
    assert sum(row["kind"] in ("exact", "near", "chain") for row in truth) == 0.3 * BLOCK


def test_similarities_lie_at_the_levels_that_were_asked_for(planted: Path) -> None:
    truth = pq.read_table(planted / "truth.parquet").to_pylist()
    pairs = np.array([row["jaccard"] for row in truth if (row["kind"], row["size"]) == ("near", 2)])
    for level in (target for kind, size, _, target in GROUPS if (kind, size) == ("near", 2)):
        assert (abs(pairs - level) < 0.025).sum() >= 150  # of 200
    links = np.array([row["jaccard"] for row in truth if row["kind"] == "chain"])
    assert abs(links.mean() - 0.85) < 0.01
    alike = [row["jaccard"] for row in truth if row["kind"] in ("footer", "template")]
    assert max(alike) < 0.7


def test_the_ends_of_a_chain_are_less_alike_than_its_links(planted: Path) -> None:
    texts, truth = read(planted), pq.read_table(planted / "truth.parquet").to_pylist()
    ends = [row for row in truth if row["kind"] == "chain" and int(row["original"]) != row["group"]]
    assert len(ends) == 100
    apart = [jaccard(texts[row["id"]], texts[str(row["group"])]) for row in ends]
    assert sum(similarity < 0.8 for similarity in apart) > 90


def test_footers_are_the_same_and_unrelated_documents_share_nothing(planted: Path) -> None:
    texts, truth = read(planted), pq.read_table(planted / "truth.parquet").to_pylist()
    footers = [texts[row["id"]].split()[-14:] for row in truth if row["kind"] == "footer"]
    assert len(footers) == 499 and all(footer == footers[0] for footer in footers)
    alone = sorted(set(texts) - {row["id"] for row in truth} - {row["original"] for row in truth})
    assert max(jaccard(texts[a], texts[b]) for a, b in pairwise(alone)) < 0.05


def test_a_group_is_spread_over_all_files(planted: Path) -> None:
    truth = pq.read_table(planted / "truth.parquet").to_pylist()
    members = {row["id"] for row in truth if row["size"] == 1_000}
    for path in (planted / "corpus").glob("*.parquet"):
        ids = pq.read_table(path)["id"].to_pylist()
        assert abs(len(members.intersection(ids)) / len(ids) - 0.1) < 0.02


def test_the_same_seed_gives_the_same_bytes_and_another_other_texts(tmp_path: Path) -> None:
    for name, seed in (("a", 20), ("b", 20), ("c", 21)):
        Corpus(500, WORDS, seed).write(tmp_path / name)
    a, b = ({p.name: p.read_bytes() for p in (tmp_path / n).rglob("*.parquet")} for n in "ab")
    assert a == b and len(a) == 5
    assert not set(read(tmp_path / "a").values()) & set(read(tmp_path / "c").values())


@pytest.mark.parametrize("documents", [1, 2, 3, 7, 1_001, 12_345])
def test_any_number_of_documents_is_the_beginning_of_a_larger_corpus(documents: int) -> None:
    small, large = Corpus(documents, WORDS), Corpus(20_000, WORDS)
    numbers = small.number_at(np.arange(documents))
    assert np.array_equal(np.sort(numbers), np.arange(documents))
    assert small.texts(numbers[:50]).equals(large.texts(numbers[:50]))
    truth = small.truth(numbers)
    assert all(int(name) < documents for name in truth["original"].to_pylist())
    assert all(size <= documents for size in truth["size"].to_pylist())


def test_words_come_by_frequency_from_json_lines_and_plain_text() -> None:
    lines = ['{"text": "The oak, the mill; the oak."}', "A mill 2000 x the\n"]
    assert vocabulary(lines) == (("the", 4), ("mill", 2), ("oak", 2))
    assert vocabulary(lines, 1) == (("the", 4),)
