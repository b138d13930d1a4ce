"""Labels, folds and metrics of bench/extraction, and trees as LightGBM writes them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.extraction import corpus, metrics
from bench.extraction.corpus import Sample, coverage, segment_labels
from bench.extraction.train import ensemble
from curation.extract.blocks.extract import parse

WORDS = st.lists(st.integers(0, 10**6).map("w{}".format), min_size=4, max_size=12)
BLOCKS = st.lists(WORDS.map(" ".join), min_size=1, max_size=6)


@given(BLOCKS)
def test_blocks_of_the_text_itself_are_covered(blocks: list[str]) -> None:
    assert coverage(blocks, "\n".join(blocks)).tolist() == [1] * len(blocks)


@given(BLOCKS)
def test_nothing_is_covered_by_another_text(blocks: list[str]) -> None:
    assert coverage(blocks, "the quick brown fox jumps").tolist() == [0] * len(blocks)


def test_a_teaser_out_of_order_is_not_covered() -> None:
    body = [f"Sentence {n} is about {n} apples and more" for n in range(9)]
    found = coverage([*body, body[2]], "\n".join(body))
    assert found.tolist() == [1] * 9 + [0]


def test_short_blocks_that_the_text_has_somewhere_are_unknown() -> None:
    found = coverage(["Two apples", "Other things", "-"], "He bought two pears. Two apples he had.")
    assert np.isnan(found).tolist() == [True, False, True]


def test_soft_hyphens_and_composed_letters_make_no_other_words() -> None:
    assert corpus.tokens("Kafe\u0301 auto\u00adnome") == ["Kaf\u00e9", "autonome"]
    found = segment_labels(
        ["Sans auto\u00adnome"], {"with": ["autonome"], "without": []}, np.ones(1)
    )
    assert found.tolist() == [1]


def test_segments_label_the_blocks_that_hold_them() -> None:
    truth = {"with": ["kept  here"], "without": ["- Share this"]}
    found = segment_labels(["It is kept here.", "Share this", "?"], truth, np.zeros(3))
    assert found[:2].tolist() == [1, 0]
    assert np.isnan(found[2])


def test_hosts_of_one_domain_are_one_site_and_in_one_fold() -> None:
    sites = [corpus._site("a", f"https://{h}.example.co.uk/x", "") for h in ("www", "news")]
    assert sites[0] == sites[1] == "example.co.uk"
    html = '<link rel="canonical" href="https://m.example.org/a">'
    assert corpus._site("read:a", "", html) == "example.org"
    assert {corpus.fold(f"{n}.org") for n in range(200)} == set(range(corpus.FOLDS))


def test_the_truth_scores_one() -> None:
    labels = np.zeros(0)
    truth = {"with": ["one two"], "without": ["three"]}
    samples = [
        Sample("aeb:a", "a", "", parse(""), labels, None, "one two three four five"),
        Sample("traf:b", "b", "", parse(""), labels, labels, truth),
    ]
    texts = {"aeb:a": "one two three four five", "traf:b": "One\none  two"}
    assert metrics.article(texts, samples).f1 == 1
    assert metrics.segments(texts, samples).f1 == 1
    worse = {"aeb:a": "nothing of it", "traf:b": "three"}
    assert metrics.article(worse, samples).f1 == metrics.segments(worse, samples).f1 == 0


def test_trees_of_a_lightgbm_file() -> None:
    text = """tree
Tree=0
split_feature=1 0
threshold=0.5 2
left_child=1 -1
right_child=-2 -3
leaf_value=1 20 300

Tree=1
split_feature=
threshold=
left_child=
right_child=
leaf_value=7

end of trees
leaf_value=9
"""
    rows = np.array([[2, 0.5], [3, 0.5], [0, 0.6]], np.float32)
    assert ensemble(text).sums(rows).tolist() == [8, 307, 27]
