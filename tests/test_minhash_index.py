"""Crawl after crawl against an index of what was kept: the same as all of them at once.

What may live here: what `minhash_dedup` with an `index` decides, and what becomes of the index.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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
    many,
    stages,
    words,
    write,
)
from zygote import Zygote

from curation import run
from curation.engine.recipe import RecipeError


def crawl(chance: random.Random, name: str, texts: list[str], count: int) -> Files:
    """A file of pages that are edits of the texts."""
    pages = []
    for number in range(count):
        text = edited(chance.choice(texts), chance, chance.randint(0, 2))
        language = chance.choice(["en", "de"])
        pages.append(Page(text, f"{name}{number}", crawl=name, language=language))
    return {f"{name}.jsonl": pages}


def some_crawls(seed: int, count: int = 2, texts: int = 6) -> list[Files]:
    chance = random.Random(seed)
    common = list(many(chance, texts, 40))
    return [crawl(chance, f"crawl{number}", common, 10) for number in range(count)]


def survivors(decisions: Decisions) -> dict[tuple[str, int], str | None]:
    return {at: d.survivor if isinstance(d, Removed) else None for at, d in decisions.items()}


def tree(folder: Path) -> dict[str, bytes]:
    """The files of a folder, but for what a kill has left unfinished: no reader sees it."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: data for name, data in found.items() if "/." not in f"/{name}"}


CHOICES = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(["run", "language"]),
        "policy": st.sampled_from(["first_id", "longest"]),
        "verify": st.sampled_from([0.4, 0.8, "text(0.4)"]),
    }
)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), CHOICES)
def test_crawl_after_crawl_equals_all_at_once(
    tmp_path_factory: pytest.TempPathFactory, seed: int, chosen: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    crawls = some_crawls(seed, 3)
    index = str(folder / "index")
    found: Decisions = {}
    for number, files in enumerate(crawls):
        found |= decided(ask(folder / str(number), files, index=index, **chosen).path)
    shutil.rmtree(folder)
    every = {name: pages for files in crawls for name, pages in files.items()}
    names = [name.removesuffix(".jsonl") for name in every]
    expected = decide(every, crawls=names, **chosen)
    assert survivors(found) == survivors(expected)
    for at, decision in found.items():
        if at[0] == f"{names[-1]}.jsonl" and isinstance(decision, Kept):
            assert decision == expected[at]


def test_an_earlier_crawl_is_read_and_never_written(tmp_path: Path) -> None:
    """And the survivor that a removal names is the earlier crawl's."""
    first, second = some_crawls(1, texts=2)
    index = tmp_path / "index"
    a = ask(tmp_path / "a", first, index=str(index), verify=0.4).path
    files, made = tree(a), tree(index)
    b = ask(tmp_path / "b", second, index=str(index), verify=0.4).path
    assert tree(a) == files
    assert made.items() <= tree(index).items()
    earlier = {page.id for page in first["crawl0.jsonl"]}
    named = {d.survivor for d in decided(b).values() if isinstance(d, Removed)}
    assert named & earlier


def test_the_same_run_again_changes_nothing(tmp_path: Path) -> None:
    """Neither run finds its own documents in the index, resumed or begun anew."""
    index = tmp_path / "index"
    work = stages(index=str(index), verify=0.4)
    inputs = [
        write(tmp_path / name, files) for name, files in zip("ab", some_crawls(2), strict=True)
    ]
    done = [run(work, inputs=[folder], output=folder / "run", workers=1).path for folder in inputs]
    made, files = tree(index), [tree(path / "documents") for path in done]
    for number in (1, 0):
        shutil.rmtree(done[number] / "documents")
        for output in (done[number], tmp_path / f"anew{number}"):
            again = run(work, inputs=[inputs[number]], output=output, workers=1)
            assert tree(again.documents) == files[number]
    assert tree(index) == made


def test_an_earlier_copy_counts_for_its_own_language_alone(tmp_path: Path) -> None:
    [text] = many(random.Random(3), 1, 40)
    page = Page(text, "p", language="en")
    index = str(tmp_path / "index")
    ask(tmp_path / "a", {"a.jsonl": [page]}, index=index, scope="language")
    later = [replace(page, native="q"), replace(page, native="r", language="de")]
    found = decided(ask(tmp_path / "b", {"b.jsonl": later}, index=index, scope="language").path)
    assert survivors(found) == {("b.jsonl", 0): page.id, ("b.jsonl", 1): None}


# From the command line


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    server = Zygote()
    yield server
    server.close()


def command(folder: Path, files: Files, name: str, **parameters: Any) -> list[str]:
    work = stages(verify=0.4, **parameters)
    work["stages"][0] = {"basic": {"min_chars": 0, "min_words": 0}}
    (folder / f"{name}.yaml").write_text(json.dumps(work))
    inputs = str(write(folder / f"in-{name}", files))
    return ["run", str(folder / f"{name}.yaml"), "--input", inputs, "--workers", "1", "--quiet"]


@pytest.mark.parametrize(
    "other", [{"rows": 4}, {"bands": 10}, {"ngram": 3}, {"scope": "language"}], ids=str
)
def test_an_index_of_other_signatures_is_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    first, second = some_crawls(4)
    index = tmp_path / "index"
    ask(tmp_path / "a", first, index=str(index))
    made = tree(index)
    with pytest.raises(RecipeError, match=next(iter(other))) as error:
        ask(tmp_path / "b", second, index=str(index), **other)
    assert str(index) in str(error.value)
    assert "\n" not in str(error.value)
    assert tree(index) == made


def test_the_command_says_in_one_line_why_an_index_is_refused(
    tmp_path: Path, zygote: Zygote
) -> None:
    first, second = some_crawls(4)
    where = ["--index", str(tmp_path / "index")]
    a = [*command(tmp_path, first, "a"), "--output", str(tmp_path / "a"), *where]
    b = [*command(tmp_path, second, "b", ngram=3), "--output", str(tmp_path / "b"), *where]
    assert zygote.run(a) == 0
    done = subprocess.run(
        [sys.executable, "-m", "curation", *b], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "ngram" in line and str(tmp_path / "index") in line


def test_a_run_killed_around_its_index_ends_with_the_same_index(
    tmp_path: Path, zygote: Zygote
) -> None:
    first, second = some_crawls(5)
    start, work = command(tmp_path, first, "a"), command(tmp_path, second, "b")
    assert zygote.run([*start, "--output", str(tmp_path / "a"),
                       "--index", str(tmp_path / "start")]) == 0  # fmt: skip

    def attempt(name: str) -> list[str]:
        return [*work, "--output", str(tmp_path / name), "--index", str(tmp_path / f"i-{name}")]

    shutil.copytree(tmp_path / "start", tmp_path / "i-whole")
    points = zygote.points(attempt("whole"))
    inside = [n for n, point in enumerate(points, 1) if "/i-whole/" in point.split()[1]]
    assert inside
    for number in sorted({*inside, inside[0] - 1, inside[-1] + 1} & {*range(1, len(points) + 1)}):
        shutil.copytree(tmp_path / "start", tmp_path / "i-killed")
        assert zygote.run(attempt("killed"), die_at=number) == -signal.SIGKILL
        assert zygote.run(attempt("killed")) == 0
        assert tree(tmp_path / "i-killed") == tree(tmp_path / "i-whole")
        killed, whole = tmp_path / "killed" / "documents", tmp_path / "whole" / "documents"
        assert tree(killed) == tree(whole)
        shutil.rmtree(tmp_path / "killed")
        shutil.rmtree(tmp_path / "i-killed")


def test_two_crawls_in_one_run_against_an_index(tmp_path: Path) -> None:
    """The index is earlier than the first crawl of the list."""
    [text] = many(random.Random(6), 1, 40)
    index = str(tmp_path / "index")
    oldest = Page(text, "oldest", crawl="zero")
    ask(tmp_path / "a", {"a.jsonl": [oldest]}, index=index, crawls=["nobody"])
    pages = [Page(text, "x", crawl="two"), Page(text, "y", crawl="one")]
    work = stages(index=index, crawls=["one", "two"])
    inputs = write(tmp_path / "in", {"b.jsonl": pages})
    found = decided(run(work, inputs=[inputs], output=tmp_path / "b", workers=1).path)
    assert set(survivors(found).values()) == {oldest.id}


def test_what_the_index_has_stays_kept_under_another_threshold(tmp_path: Path) -> None:
    """a ~ b ~ c, a not like c: a and b were kept when only equal texts were duplicates, so that b
    now keeps c out."""
    parts = words(random.Random(7), 140)
    a, b, c = (Page(" ".join(parts[start : start + 100]), f"p{start}") for start in (0, 20, 40))
    index = str(tmp_path / "index")
    work = {"index": index, "bands": 60, "rows": 2, "policy": "first_id"}
    ask(tmp_path / "a", {"a.jsonl": [a]}, verify="text(1.0)", **work)
    ask(tmp_path / "b", {"b.jsonl": [b]}, verify="text(1.0)", **work)
    found = decided(ask(tmp_path / "c", {"c.jsonl": [c]}, verify="text(0.5)", **work).path)
    assert survivors(found) == {("c.jsonl", 0): b.id}
