"""The scores of the deduplication benchmark: what they call right is right."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from bench.dedup_truth import candidate, found, score
from bench.planted import BLOCK, Corpus
from bench.repeated import Repetitions, english

WORDS = tuple((f"w{chr(97 + i // 26)}{chr(97 + i % 26)}", 700 - i) for i in range(600))
CORPUS = Corpus(BLOCK, WORDS)
TRUTH = CORPUS.truth(np.arange(BLOCK))


def kept_without(*gone: np.ndarray) -> np.ndarray:
    kept = np.ones(BLOCK, dtype=bool)
    for numbers in gone:
        kept[numbers] = False
    return kept


@pytest.mark.parametrize("similarity", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("verify", [0.0, 0.5, 0.75, 1.0])
def test_theory_equals_the_count_of_all_signatures(similarity: float, verify: float) -> None:
    bands, rows, expected = 3, 2, 0.0
    for agree in product((0, 1), repeat=bands * rows):
        chance = float(np.prod([similarity if one else 1 - similarity for one in agree]))
        shared = any(all(agree[i : i + rows]) for i in range(0, len(agree), rows))
        if shared and sum(agree) >= verify * len(agree):
            expected += chance
    assert found(similarity, verify, bands, rows) == pytest.approx(expected)


def test_theory_without_verification_is_the_curve_of_the_bands() -> None:
    for similarity in (0.5, 0.72, 0.8, 0.95):
        assert found(similarity, 0.0) == pytest.approx(candidate(similarity))
    assert candidate(0.8) == pytest.approx(0.924, abs=0.001)  # datatrove's documentation


def test_a_perfect_result_scores_one() -> None:
    copies = TRUTH["jaccard"].to_numpy() >= 0.8
    gone = TRUTH["id"].cast("int64").to_numpy()[copies]
    result = score(CORPUS, TRUTH, kept_without(gone))
    assert result.recall == 1.0
    assert result.lost_groups == result.outsiders == 0
    assert all(band.found == 1.0 for band in result.bands if band.low >= 0.825)
    assert all(band.found == 0.0 for band in result.bands if band.high <= 0.79)


def test_nothing_removed_finds_nothing() -> None:
    result = score(CORPUS, TRUTH, kept_without())
    assert (result.removed, result.recall, result.precision(0.8)) == (0, 0.0, 1.0)


def test_wrong_removals_cost_precision_and_are_named() -> None:
    made = TRUTH["id"].cast("int64").to_numpy()
    in_groups = np.union1d(made, TRUTH["original"].cast("int64").to_numpy())
    alone = np.setdiff1d(np.arange(BLOCK), in_groups)[:3]
    pair = TRUTH.filter(np.asarray(TRUTH["size"]) == 2).slice(0, 1)
    both = [int(pair[name][0].as_py()) for name in ("id", "original")]
    result = score(CORPUS, TRUTH, kept_without(alone, np.array(both)))
    assert (result.removed, result.outsiders, result.lost_groups) == (5, 3, 4)
    assert result.precision(0.8) == 0.0


def test_a_named_survivor_is_what_counts() -> None:
    exact = TRUTH.filter(np.asarray(TRUTH["kind"]) == "exact").slice(0, 2)
    gone = exact["id"].cast("int64").to_numpy()
    survivors = np.full(BLOCK, -1)
    survivors[gone[0]] = int(exact["original"][0].as_py())
    survivors[gone[1]] = 0 if gone[1] > 10 else BLOCK - 1  # some unrelated document
    result = score(CORPUS, TRUTH, kept_without(gone), survivors)
    assert result.precision(0.8) == 0.5


def test_repetitions_have_new_words_in_the_old_shape(tmp_path: Path) -> None:
    words = str.split("the mill, and the RIVER of Oak; is 20 to see: wheel grain stone Elm")
    texts = [" ".join(words[i:] + words[:i]) for i in range(len(words))]
    repeated = Repetitions(texts)
    assert repeated.texts(0).to_pylist() == texts
    others = repeated.texts(1).to_pylist()
    shape = [
        ["".join("Aa"[c.islower()] if c.isalpha() else c for c in text) for text in some]
        for some in (texts, others)
    ]
    assert shape[0] == shape[1]
    assert not any(a == b for a, b in zip(texts, others, strict=True))
    repeated.write(tmp_path / "many", 2, per_file=10)
    assert len(list((tmp_path / "many").glob("*.parquet"))) == 4


def test_english_texts_are_those_with_its_little_words() -> None:
    lines = [json.dumps({"text": text}) for text in ("the of " * 6, "le la les", "to is " * 9)]
    assert list(english(lines, 5)) == ["the of " * 6, "to is " * 9]
    assert list(english(lines, 1)) == ["the of " * 6]
