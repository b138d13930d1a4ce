"""Near-duplicate removal against a decision by brute force, and against cases worked out by hand.

What may live here: what the stage `minhash_dedup` decides, seen from outside a run: not how.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit import contents
from near_duplicates import (
    Decisions,
    Files,
    Kept,
    Page,
    Removed,
    ask,
    decide,
    decided,
    edited,
    in_memory,
    jaccard,
    many,
    rounded,
    signatures,
    stages,
    words,
    write,
)
from zygote import Zygote

from curation import run
from curation.api import plan
from curation.engine.plan import open_plan
from curation.engine.recipe import RecipeError
from curation.inspect import verify

# The brute force itself, on signatures made by hand: 2 bands of 2 values


def by_hand(*rows: Sequence[int]) -> np.ndarray:
    return np.array(rows, dtype=np.uint16)


def one_file(*pages: Page) -> Files:
    return {"a.jsonl": pages}


def outcome(decisions: Decisions, pages: Sequence[Page]) -> list[str]:
    """For each page of the only file: itself where kept, else its survivor, by native id."""
    names = {page.id: page.native for page in pages}
    found = [decisions["a.jsonl", row] for row in range(len(pages))]
    return [
        names[d.survivor] if isinstance(d, Removed) else page.native
        for d, page in zip(found, pages, strict=True)
    ]


def ranked(*ranks: float | None, **more: Any) -> list[Page]:
    """Pages p0, p1, ... of one text, whose order under `highest(rank.rank)` is that of ranks."""
    return [Page("one two", f"p{i}", rank=rank, **more) for i, rank in enumerate(ranks)]


HAND = {"bands": 2, "rows": 2, "ngram": 1, "policy": "highest(rank.rank)"}


def test_a_chain_is_cut_where_the_kept_one_is_not_alike() -> None:
    """p0 ~ p1 ~ p2 and p0 not like p2: p1 falls to p0 and so cannot remove p2."""
    pages = ranked(3, 2, 1)
    found = by_hand([1, 1, 2, 2], [1, 1, 3, 3], [4, 4, 3, 3])
    decisions = decide(one_file(*pages), found, verify=0.5, **HAND)
    assert outcome(decisions, pages) == ["p0", "p0", "p2"]
    assert decisions["a.jsonl", 0] == Kept(2)
    assert decisions["a.jsonl", 1] == Removed(pages[0].id, 0.5, None, 2)
    assert decisions["a.jsonl", 2] == Kept(1)


def test_of_a_chain_whose_middle_is_first_the_middle_stays() -> None:
    pages = ranked(1, 3, 2)
    found = by_hand([1, 1, 2, 2], [1, 1, 3, 3], [4, 4, 3, 3])
    decisions = decide(one_file(*pages), found, verify=0.5, **HAND)
    assert outcome(decisions, pages) == ["p1", "p1", "p1"]
    assert decisions["a.jsonl", 1] == Kept(3)


def test_the_first_of_two_kept_ones_is_named() -> None:
    """p2 is like p0 by its first band and like p1 by its second."""
    pages = ranked(3, 2, 1)
    found = by_hand([1, 1, 5, 5], [6, 6, 2, 2], [1, 1, 2, 2])
    assert outcome(decide(one_file(*pages), found, verify=0.5, **HAND), pages) == ["p0", "p1", "p0"]


def test_equal_values_without_an_equal_band_are_no_candidates() -> None:
    pages = ranked(2, 1)
    found = by_hand([1, 2, 3, 4], [1, 9, 3, 9])
    assert outcome(decide(one_file(*pages), found, verify=0.5, **HAND), pages) == ["p0", "p1"]


def test_the_threshold_itself_removes() -> None:
    pages = ranked(2, 1)
    found = by_hand([1, 2, 3, 4], [1, 2, 3, 9])
    for verify_at, expected in ((0.75, "p0"), (0.76, "p1")):
        decisions = decide(one_file(*pages), found, verify=verify_at, **HAND)
        assert outcome(decisions, pages) == ["p0", expected]


def test_text_verifies_by_the_sets_of_shingles() -> None:
    """{a b, b c, c d} and {a b, b c, c e}: 2 of 4, whatever the signatures say."""
    pages = [Page("A b c d", "p0", rank=2), Page("a b, c E", "p1", rank=1)]
    found = by_hand([1, 1, 1, 1], [1, 1, 1, 1])
    for verify_by, expected in (("text", "p1"), ("text(0.5)", "p0"), ("text(0.51)", "p1")):
        hand = {**HAND, "ngram": 2, "verify": verify_by}
        assert outcome(decide(one_file(*pages), found, **hand), pages) == ["p0", expected]


def test_other_scopes_are_apart_and_short_pages_alone() -> None:
    pages = [*ranked(3, None, language="en"), Page("one two", "p2", rank=2, language="de")]
    short = [Page("", "p3", rank=9), Page(" . ", "p4", rank=8)]
    found = by_hand(*[[7, 7, 7, 7]] * 5)
    decisions = decide(one_file(*pages, *short), found, scope="language", **HAND)
    assert outcome(decisions, [*pages, *short]) == ["p0", "p0", "p2", "p3", "p4"]


def test_crawls_come_before_sources_and_sources_before_the_policy() -> None:
    def winner(*pages: Page) -> str:
        order = {"crawls": ["old", "new"], "sources": ["good", "poor"]}
        found = by_hand(*[[7, 7, 7, 7]] * len(pages))
        [only] = set(outcome(decide(one_file(*pages), found, **HAND, **order), pages))
        return only

    text = "one two"
    assert winner(
        Page(text, "p0", crawl="new", source="good", rank=9),
        Page(text, "p1", crawl="old", source="poor", rank=1),
        Page(text, "p2", source="good", rank=9),
    ) == ("p1")
    assert winner(
        Page(text, "p0", source="poor", rank=9),
        Page(text, "p1", source="good", rank=1),
        Page(text, "p2", source="unnamed", rank=9),
    ) == ("p1")
    assert winner(*ranked(None, 1, 2)) == "p2"


# The step equals it

DATES = (
    *("2026-01-03T00:00:00Z", "2026-01-03", "2026-01-03T01:00:00+01:00"),  # one moment
    *("2026-01-03T00:00:00.5Z", "1960-05-05", "2026-01-02T23:00:00-02:00", "Saturday", ""),
)
RANKS = (-1.0, -0.5, -0.0, 0.0, 0.5, 2.0, math.inf, -math.inf)


@st.composite
def corpora(draw: st.DrawFn) -> Files:
    """Pages of few words, many of them edits of others, and some that are there twice, spread over
    files in any order. All words are of one length: which measure "longest" takes is not the
    question here."""
    chance = random.Random(draw(st.integers(0, 2**32)))  # quicker than hypothesis, shrinks less
    vocabulary = [f"w{i:02}" for i in range(draw(st.sampled_from([4, 30])))]
    pages: list[Page] = []
    for number in range(draw(st.integers(2, 24))):
        kind = chance.random()
        if pages and kind < 0.1:
            pages.append(chance.choice(pages))  # an id that repeats, with its text
            continue
        if pages and kind < 0.75:
            parts = chance.choice(pages).text.split()
            for _ in range(chance.randint(0, 3)):
                at = chance.randint(0, len(parts))
                parts[at : at + chance.randint(0, 2)] = chance.choices(vocabulary, k=1)
        else:
            parts = chance.choices(vocabulary, k=chance.randint(0, 30))
        day = chance.choice([None, *DATES])
        names = {name: chance.choice([None, "a", "b", "c"]) for name in ("source", "crawl")}
        rank = chance.choice([None, *RANKS])
        language = chance.choice(["en", "de", None])
        more = {**names, "language": language, "rank": rank, "weight": chance.choice([1, 1, 3])}
        pages.append(Page(" ".join(parts), str(number), day, **more))
    chance.shuffle(pages)
    cuts = sorted(chance.randint(0, len(pages)) for _ in range(draw(st.integers(0, 3))))
    bounds = [0, *cuts, len(pages)]
    return {
        f"{name}.jsonl": pages[start:stop]
        for name, start, stop in zip("dacb", bounds[:-1], bounds[1:], strict=False)
    }


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    names = st.lists(st.sampled_from(["a", "b", "c", "nobody"]), unique=True, max_size=3)
    bands, rows = draw(st.sampled_from([(14, 8), (2, 3), (1, 1), (40, 1), (6, 2)]))
    policies = ["first_id", "longest", "newest", "highest(rank.rank)"]
    return {
        "bands": bands,
        "rows": rows,
        "ngram": draw(st.sampled_from([1, 2, 3, 5])),
        "verify": draw(st.sampled_from([0, 0.3, 0.5, 0.8, 1, "text", "text(0.3)", "text(1.0)"])),
        "scope": draw(st.sampled_from(["run", "crawl", "language", "source"])),
        "policy": draw(st.sampled_from(policies)),
        "sources": draw(names),
        "crawls": draw(names),
    }


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    *(corpora(), parameters(), st.sampled_from([1, 2, 16]), st.sampled_from([1, 2, 9])),
    st.sampled_from([1, 2000, 1 << 28]),
)
def test_the_step_equals_the_brute_force(
    files: Files, chosen: dict[str, Any], parts: int, group: int, size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        divided(patch, size)
        found = in_memory(files, parts, group, **chosen)
    assert rounded(found) == rounded(decide(files, **chosen))


def divided(patch: pytest.MonkeyPatch, size: int) -> None:
    """Tasks of an exchange take no more than so many bytes, and keep no more in memory."""
    for name in (
        "engine.driver.EXCHANGE_BYTES",
        "engine.driver.GROUP_BYTES",
        "dedup.minhash.PART_BYTES",
        "dedup.minhash.SPILL_BYTES",
        "dedup.minhash.EDGES",
    ):
        patch.setattr(f"curation.{name}", size)  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(corpora(), parameters(), st.sampled_from([100, 1000, 1 << 28]))
def test_a_run_equals_the_brute_force(
    tmp_path_factory: pytest.TempPathFactory, files: Files, chosen: dict[str, Any], size: int
) -> None:
    files = {name: [replace(page, weight=1) for page in pages] for name, pages in files.items()}
    folder = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as patch:
        divided(patch, size)
        found = decided(ask(folder, files, **chosen).path)
    shutil.rmtree(folder)
    assert rounded(found) == rounded(decide(files, **chosen))


# Named cases


def test_three_equal_documents_leave_one_that_stands_for_three(tmp_path: Path) -> None:
    text = " ".join(words(random.Random(1), 30))
    pages = [Page(text, f"p{i}") for i in range(3)]
    found = decided(ask(tmp_path, {"a.jsonl": pages[:1], "b.jsonl": pages[1:]}).path)
    first = min(page.id for page in pages)
    assert sorted(map(repr, found.values())) == sorted(
        map(repr, [Kept(3), *[Removed(first, 1.0, None, 3)] * 2])
    )


def test_counts_add_through_exact_dedup(tmp_path: Path) -> None:
    """Three and two exact copies of two near-duplicates: one stands for all five, and for two of
    those that came to the step."""
    chance = random.Random(2)
    one = " ".join(words(chance, 200))
    other = edited(one, chance, 1)
    pages = [Page(one, f"p{i}") for i in range(3)] + [Page(other, f"q{i}") for i in range(2)]
    result = ask(tmp_path, one_file(*pages), {"exact_dedup": {"by": ["text"]}})
    found = decided(result.path)
    removed = [d for d in found.values() if isinstance(d, Removed)]
    assert [d.group_size for d in removed] == [2]
    assert [d for d in found.values() if isinstance(d, Kept)] == [Kept(5)]
    dropped = [stage["dropped"] for stage in result.stats["stages"]]
    assert dropped[-2]["text"]["documents"] == 3
    assert dropped[-1]["near_duplicate"]["documents"] == 1


def test_a_copy_that_exact_dedup_removed_keeps_nobody_out(tmp_path: Path) -> None:
    """The exact step keeps the smallest id, this one the newest: the newest copy is gone before."""
    text = " ".join(words(random.Random(3), 200))
    first, second = sorted([Page(text, "x"), Page(text, "y")], key=lambda page: page.id)
    near = Page(edited(text, random.Random(4), 1), "z", date="2025-05-01")
    pages = [Page(text, first.native, "2020-01-01"), Page(text, second.native, "2026-01-01"), near]
    result = ask(
        tmp_path, one_file(*pages), {"exact_dedup": {"by": ["text"]}}, policy="newest", verify=0.5
    )
    found = decided(result.path)
    [removed] = [d for d in found.values() if isinstance(d, Removed)]
    assert removed.survivor == near.id
    assert found["a.jsonl", 2] == Kept(3)


def test_empty_and_short_documents_are_unique(tmp_path: Path) -> None:
    """Four words have no shingle of five; five have one."""
    four, five = "to be or not", "to be or not to"
    pages = [Page(text, f"{text}{i}") for text in (".", four, five) for i in range(3)]
    found = decided(ask(tmp_path, one_file(*pages)).path)
    assert [isinstance(found["a.jsonl", row], Kept) for row in range(6)] == [True] * 6
    assert sum(isinstance(found["a.jsonl", row], Kept) for row in range(6, 9)) == 1


def test_ids_that_repeat_are_still_two_documents(tmp_path: Path) -> None:
    """One id with one text twice leaves one; the same id with another text is untouched; and of
    two near texts under one id the same stays, in whatever file it comes."""
    chance = random.Random(5)
    text, other, third = many(chance, 3, 200)
    near = edited(third, chance, 1)
    same = [Page(text, "p"), Page(text, "p"), Page(other, "p")]
    found = decided(ask(tmp_path / "same", one_file(*same)).path)
    assert found == {
        ("a.jsonl", 0): Kept(2),
        ("a.jsonl", 1): Removed(same[0].id, 1.0, None, 2),
        ("a.jsonl", 2): Kept(1),
    }
    survivors = set()
    for i, (left, right) in enumerate([(third, near), (near, third)]):
        files = {"a.jsonl": [Page(left, "q")], "b.jsonl": [Page(right, "q")]}
        path = ask(tmp_path / str(i), files, verify=0.5).path
        survivors.update(pq.read_table(path / "documents")["text"].to_pylist())
    assert len(survivors) == 1


def test_a_common_footer_makes_no_duplicates(tmp_path: Path) -> None:
    chance = random.Random(6)
    footer = " ".join(words(chance, 30))
    pages = [Page(f"{text} {footer}", str(i)) for i, text in enumerate(many(chance, 1000, 70))]
    found = decided(ask(tmp_path, one_file(*pages)).path)
    assert set(found.values()) == {Kept(1)}


@pytest.mark.parametrize(("verify_by", "most"), [("text", 0), (0.8, 10)])
def test_pages_of_one_template_do_not_collapse(
    tmp_path: Path, verify_by: float | str, most: int
) -> None:
    """150 words in common and 50 of their own: 146 of the 246 shingles of two pages are common, a
    Jaccard of 0.59. One pair in five shares a band, so that all are in one cluster; yet no pair is
    alike by its text, and by 112 values 0.8 is 4.4 standard errors away."""
    chance = random.Random(7)
    template = " ".join(words(chance, 150))
    pages = [Page(f"{template} {text}", str(i)) for i, text in enumerate(many(chance, 1000, 50))]
    assert 0.59 < jaccard(pages[0].text, pages[1].text, 5) < 0.6
    result = ask(tmp_path, one_file(*pages), verify=verify_by)
    assert 1000 - most <= result.stats["output"]["documents"] <= 1000


def test_two_groups_in_one_cluster_keep_two_survivors(tmp_path: Path) -> None:
    """All four share bands of one row; only p0 with p2 and p1 with p3 are alike."""
    chance = random.Random(8)
    common = " ".join(words(chance, 60))
    one, other = (f"{common} {text}" for text in many(chance, 2, 100))
    texts = [one, other, edited(one, chance, 1), edited(other, chance, 1)]
    pages = [Page(text, f"p{i}", rank=-i) for i, text in enumerate(texts)]
    values = signatures(pages, 5, 128)
    assert all((values[i] == values[j]).any() for i in range(4) for j in range(i))
    order = {"policy": "highest(rank.rank)"}
    found = decided(ask(tmp_path, one_file(*pages), bands=128, rows=1, **order).path)
    assert outcome(found, pages) == ["p0", "p1", "p0", "p1"]


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [((3, 2, 1), ["a", "a", "c"]), ((1, 3, 2), ["b", "b", "b"]), ((1, 2, 3), ["a", "c", "c"])],
)
def test_a_chain_ends_as_the_order_says(
    tmp_path: Path, ranks: Sequence[float], expected: list[str]
) -> None:
    """a ~ b ~ c, a not like c: b keeps either out, and is kept out by either."""
    parts = words(random.Random(9), 140)
    texts = [" ".join(parts[start : start + 100]) for start in (0, 20, 40)]
    pages = [Page(t, n, rank=r) for t, n, r in zip(texts, "abc", ranks, strict=True)]
    near, far = jaccard(texts[0], texts[1], 5), jaccard(texts[0], texts[2], 5)
    assert near == jaccard(texts[1], texts[2], 5) > 0.5 > far
    chosen = {"bands": 60, "rows": 2, "verify": "text(0.5)", "policy": "highest(rank.rank)"}
    assert outcome(decided(ask(tmp_path, one_file(*pages), **chosen).path), pages) == expected


def test_a_text_in_two_languages_stays_in_both(tmp_path: Path) -> None:
    text = " ".join(words(random.Random(10), 30))
    labels = ("en", "de", "en", None, None)
    pages = [Page(text, f"p{i}", language=label) for i, label in enumerate(labels)]
    found = decided(ask(tmp_path, one_file(*pages), scope="language").path)
    assert found == decide(one_file(*pages), scope="language")
    assert sorted(d.duplicate_count for d in found.values() if isinstance(d, Kept)) == [1, 2, 2]


@pytest.mark.parametrize(
    ("policy", "fields"),
    [
        ("newest", [{}, {"date": "2026-02-01T00:00:00Z"}, {"date": "2026-01-31T23:59:59Z"}]),
        ("newest", [{}, {"date": "2026-02-01"}, {"date": "2026-01-31"}]),
        ("newest", [{}, {"date": "2026-02-01T01:00:00"}, {"date": "2026-02-01T00:30:00Z"}]),
        ("newest", [{"date": "last week"}, {"date": "2026-02-01"}, {"date": ""}]),
        ("highest(rank.rank)", [{}, {"rank": -1.0}, {"rank": -2.0}]),
        ("longest", [{}, {"text": " and something more"}, {"text": " and"}]),
    ],
)
def test_the_policy_keeps_the_best_and_what_is_missing_comes_last(
    tmp_path: Path, policy: str, fields: list[dict[str, Any]]
) -> None:
    """The second is the best, whatever the ids say."""
    text = " ".join(words(random.Random(11), 60))
    pages = [
        Page(text + f.get("text", ""), f"p{i}", f.get("date"), rank=f.get("rank"))
        for i, f in enumerate(fields)
    ]
    found = decided(ask(tmp_path, one_file(*pages), policy=policy).path)
    assert outcome(found, pages) == ["p1", "p1", "p1"]


def test_both_zeros_are_one_rank() -> None:
    """The smaller id stays, whichever of the two has the minus."""
    [text] = many(random.Random(17), 1, 30)
    for ranks in ((0.0, -0.0), (-0.0, 0.0)):
        pages = [Page(text, f"p{i}", rank=rank) for i, rank in enumerate(ranks)]
        found = in_memory(one_file(*pages), 1, 1, policy="highest(rank.rank)")
        first = min(pages, key=lambda page: page.id).native
        assert outcome(found, pages) == [first, first]


def test_an_estimate_at_the_threshold_removes_and_one_below_does_not(tmp_path: Path) -> None:
    chance = random.Random(12)
    text = " ".join(words(chance, 100))
    pages = [Page(text, "p0"), Page(edited(text, chance, 3), "p1")]
    equal = int((signatures(pages, 5, 112)[0] == signatures(pages, 5, 112)[1]).sum())
    assert 60 < equal < 112
    at = ask(tmp_path / "at", one_file(*pages), verify=equal / 112)
    [removed] = [d for d in decided(at.path).values() if isinstance(d, Removed)]
    assert removed.similarity == pytest.approx(equal / 112, abs=1e-6)
    above = ask(tmp_path / "above", one_file(*pages), verify=(equal + 0.01) / 112)
    assert set(decided(above.path).values()) == {Kept(1)}


def test_kept_documents_stand_for_all_that_came(tmp_path: Path) -> None:
    chance = random.Random(13)
    texts = list(many(chance, 10, 60))
    pages = [Page(edited(chance.choice(texts), chance, 1), str(i)) for i in range(60)]
    result = ask(tmp_path, one_file(*pages), verify=0.6)
    counts = pq.read_table(result.documents)["duplicate_count"].to_pylist()
    assert len(counts) < 60 == sum(counts)
    ids = set(pq.read_table(result.documents)["id"].to_pylist())
    removed = [d for d in decided(result.path).values() if isinstance(d, Removed)]
    assert {d.survivor for d in removed} <= ids


@pytest.mark.parametrize(
    "wrong",
    [
        {"verify": 1.5}, {"verify": -0.1}, {"verify": "texts"}, {"verify": "text(80)"},
        {"verify": "text()"}, {"bands": 0}, {"rows": 0}, {"ngram": 0}, {"scope": "page"},
        {"policy": "best"}, {"policy": "highest()"}, {"policy": "highest(rank)"},
        {"sources": "a"}, {"sources": ["a", "a"]}, {"crawls": ["a", "a"]}, {"treshold": 0.8},
    ],
    ids=str,
)  # fmt: skip
def test_impossible_parameters_are_one_line_that_names_them(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    inputs = write(tmp_path, one_file(Page("a", "a")))
    with pytest.raises(RecipeError) as error:
        plan(stages(**wrong), inputs=inputs, output=tmp_path / "r")
    assert next(iter(wrong)) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("signal", "between"),
    [
        ("rank.nothing", ()),
        ("nobody.rank", ()),
        ("language.label", ({"language": {}},)),
        ("rank.rank", ({"exact_dedup": {}}, {"basic": {"min_chars": 0, "min_words": 0}})),
    ],
)
def test_a_policy_by_a_signal_that_is_not_there_is_said_before_any_work(
    tmp_path: Path, signal: str, between: Sequence[dict[str, Any]]
) -> None:
    """No such signal, one that is no number, one of a segment that is over."""
    inputs = write(tmp_path, one_file(Page("a", "a")))
    work = stages(*between, policy=f"highest({signal})")
    with pytest.raises(RecipeError, match=signal):
        plan(work, inputs=inputs, output=tmp_path / "r")


# The same whoever does the work, and when


@pytest.fixture(scope="module")
def planted() -> Files:
    """Sixty pages in five files, half of them edits of others."""
    chance = random.Random(14)
    texts = list(many(chance, 30, 60))
    texts += [edited(chance.choice(texts), chance, chance.randint(0, 2)) for _ in range(30)]
    chance.shuffle(texts)
    pages = [Page(text, str(i), language=chance.choice("ab")) for i, text in enumerate(texts)]
    return {f"{i}.jsonl": pages[i * 12 : i * 12 + 12] for i in range(5)}


@pytest.fixture(scope="module")
def finished(planted: Files, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed run; the inputs lie beside it."""
    folder = tmp_path_factory.mktemp("planted")
    path = ask(folder, planted, verify=0.6).path
    assert any(isinstance(d, Removed) for d in decided(path).values())
    return path


def documents(path: Path) -> dict[str, bytes]:
    """What leaves a run: documents, evidence and statistics, not the files between."""
    found = contents(path)
    wanted = ("documents/", "stats.json", "removals/", "signals/")
    return {name: data for name, data in found.items() if any(w in name for w in wanted)}


@pytest.mark.parametrize(("size", "workers"), [(1 << 28, 1), (1 << 28, 2), (500, 1)])
def test_workers_partitions_and_order_of_files_do_not_change_the_result(
    finished: Path,
    tmp_path: Path,
    size: int,
    workers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    divided(monkeypatch, size)
    files = sorted((finished.parent / "in").iterdir(), reverse=True)
    other = run(stages(verify=0.6), inputs=files, output=tmp_path / "b", workers=workers)
    assert documents(other.path) == documents(finished)


def test_other_files_of_the_same_documents_have_the_same_survivors(
    planted: Files, finished: Path, tmp_path: Path
) -> None:
    pages = [page for pages in planted.values() for page in pages]
    random.Random(15).shuffle(pages)
    other = ask(tmp_path, {"x.jsonl": pages[:50], "y.jsonl": pages[50:]}, verify=0.6).path

    def survivors(path: Path) -> set[tuple[str, int]]:
        table = pq.read_table(path / "documents", columns=["id", "duplicate_count"])
        return set(zip(*table.to_pydict().values(), strict=True))

    assert survivors(other) == survivors(finished)


def test_a_cut_or_altered_work_file_is_made_again(finished: Path, tmp_path: Path) -> None:
    """Whatever lies between the texts and the removals: cut short, or of other bytes."""
    path = tmp_path / "b"
    shutil.copytree(finished, path)
    work = [p for p in sorted(path.glob("segments/*/work/*")) if p.stat().st_size > 200]
    assert len(work) > 5
    for number, file in enumerate(work):
        data = file.read_bytes()
        file.write_bytes(data[:-20] if number % 2 else data[:-1] + bytes([data[-1] ^ 1]))
    for segment in open_plan(path).segments[1:]:
        shutil.rmtree(path / segment.directory / "receipts")
    run(stages(verify=0.6), inputs=[finished.parent / "in"], output=path, workers=1)
    assert contents(path) == contents(finished)
    assert verify.check(open_plan(path))["holds"]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    server = Zygote()
    yield server
    server.close()


def test_a_run_killed_at_any_step_ends_with_the_same_bytes(
    planted: Files, tmp_path: Path, zygote: Zygote
) -> None:
    """Deaths every few files, all through the exchange."""
    work = stages(verify="text(0.6)")
    work["stages"][0] = {"basic": {"min_chars": 0, "min_words": 0}}
    (tmp_path / "r.yaml").write_text(json.dumps(work))
    inputs = str(write(tmp_path / "in", planted))
    command = ["run", str(tmp_path / "r.yaml"), "--input", inputs, "--workers", "1", "--quiet"]
    points = zygote.points([*command, "--output", str(tmp_path / "a")])
    start = next(n for n, point in enumerate(points, 1) if "/1-minhash_dedup" in point)
    inside = sum("/1-minhash_dedup" in point for point in points)
    assert inside > 20
    again = [*command, "--output", str(tmp_path / "b")]
    chance = random.Random(16)
    assert zygote.run(again, die_at=start) == -signal.SIGKILL
    deaths = 1
    while zygote.run(again, die_at=chance.randint(5, 16)) != 0:
        deaths += 1
        assert deaths < 100
    assert deaths > 5
    assert contents(tmp_path / "b") == contents(tmp_path / "a")
    assert verify.check(open_plan(tmp_path / "b"))["holds"]
