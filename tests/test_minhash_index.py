"""Crawl after crawl against an index of what was kept: the same as all of them at once.

What may live here: what `minhash_dedup` with an `index` decides, and what becomes of the index.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
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
from curation.api import plan
from curation.engine.attempts import RunFailed
from curation.engine.driver import drive
from curation.engine.executors import InProcess
from curation.engine.progress import Progress
from curation.engine.recipe import RecipeError
from curation.takedown import Listed, takedown_run


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


def test_a_document_that_was_taken_down_is_no_earlier_one_any_more(tmp_path: Path) -> None:
    """Its batch stays as it was; runs planned before go on as they were planned."""
    texts = list(many(random.Random(3), 2, 40))
    pages = [Page(text, name) for text, name in zip(texts, "pq", strict=True)]
    index = tmp_path / "index"
    a = ask(tmp_path / "a", {"a.jsonl": pages}, index=str(index)).path
    made = tree(index)
    later = {"b.jsonl": [replace(page, native=page.native + "2") for page in pages]}
    for _ in range(2):  # once more adds nothing
        takedown_run(a, Listed(frozenset([pages[0].id])), tmp_path / "new")
        shutil.rmtree(tmp_path / "new")
    assert made.items() <= tree(index).items()
    assert len(list(index.glob("batches/*"))) == 2
    found = survivors(decided(ask(tmp_path / "b", later, index=str(index)).path))
    assert found == {("b.jsonl", 0): None, ("b.jsonl", 1): pages[1].id}


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
    done = zygote.done(b, tmp_path)
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


def test_a_run_killed_while_it_makes_an_index_goes_on(tmp_path: Path, zygote: Zygote) -> None:
    [first] = some_crawls(5, 1)
    work = command(tmp_path, first, "a")

    def attempt(name: str) -> list[str]:
        return [*work, "--output", str(tmp_path / name), "--index", str(tmp_path / f"i-{name}")]

    points = zygote.points(attempt("whole"))
    inside = [n for n, point in enumerate(points, 1) if "/i-whole/" in point.split()[1]]
    for number in inside:
        assert zygote.run(attempt("killed"), die_at=number) == -signal.SIGKILL
        assert zygote.run(attempt("killed")) == 0
        assert tree(tmp_path / "i-killed") == tree(tmp_path / "i-whole")
        shutil.rmtree(tmp_path / "killed")
        shutil.rmtree(tmp_path / "i-killed")


@pytest.mark.parametrize("left", ["index.json", ".index.json.0123456789ab.tmp"])
def test_an_index_that_was_hardly_begun_is_an_empty_one(tmp_path: Path, left: str) -> None:
    [first] = some_crawls(5, 1)
    inputs = write(tmp_path / "in", first)

    def attempt(name: str) -> Path:
        index = tmp_path / name
        run(stages(index=str(index)), inputs=[inputs], output=tmp_path / f"run-{name}", workers=1)
        return index

    whole = attempt("whole")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / left).write_bytes((whole / "index.json").read_bytes())
    assert tree(attempt("begun")) == tree(whole)


def test_a_place_that_can_be_no_index_is_refused_before_any_work(tmp_path: Path) -> None:
    [first] = some_crawls(4, 1)
    (tmp_path / "file").write_text("no directory")
    for place in (tmp_path / "file", tmp_path / "file" / "index", tmp_path / "a" / "run"):
        with pytest.raises(RecipeError, match="index: "):
            ask(tmp_path / "a", first, index=str(place))
        assert not (tmp_path / "a" / "run" / "segments").exists()


@pytest.mark.parametrize("place", ["", "s3://bucket/index"])
def test_an_index_is_a_directory(tmp_path: Path, place: str) -> None:
    [first] = some_crawls(4, 1)
    inputs = write(tmp_path / "in", first)
    with pytest.raises(RecipeError, match="a directory that all workers see is wanted"):
        run(stages(), inputs=[inputs], output=tmp_path / "run", index=place, workers=1)


def test_two_steps_cannot_share_an_index(tmp_path: Path) -> None:
    [first] = some_crawls(4, 1)
    inputs = write(tmp_path / "in", first)
    work = stages()
    work["stages"].append({"minhash_dedup": {"as": "again", "verify": 0.5}})
    with pytest.raises(RecipeError, match=r"again: index: .* that of minhash_dedup"):
        run(work, inputs=[inputs], output=tmp_path / "run", index=tmp_path / "index", workers=1)
    assert not (tmp_path / "index").exists()


def test_runs_at_the_same_time_read_the_same_when_they_are_made_again(tmp_path: Path) -> None:
    """Neither saw the other, whichever came to an end first."""
    inputs = [write(tmp_path / n, f) for n, f in zip("ab", some_crawls(2, texts=2), strict=True)]
    work = stages(index=str(tmp_path / "index"), verify=0.4)
    plans = [plan(work, inputs=[folder], output=folder / "run") for folder in inputs]
    made = []
    for work_of in plans:  # planned together
        drive(work_of, InProcess(), Progress(True))
        made.append(tree(work_of.run / "documents"))
    index = tree(tmp_path / "index")
    for folder, documents in zip(inputs, made, strict=True):
        again = run(work, inputs=[folder], output=folder / "again", workers=1)
        assert tree(again.documents) == documents
    assert tree(tmp_path / "index") == index


def test_a_damaged_index_stops_the_run_that_reads_it(tmp_path: Path) -> None:
    first, second = some_crawls(2, texts=2)
    index = tmp_path / "index"
    ask(tmp_path / "a", first, index=str(index))
    [batch] = (index / "batches").iterdir()
    for path in sorted(batch.glob("*.npy")):
        data = path.read_bytes()
        path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        with pytest.raises(RunFailed, match=f"{path.name}: its bytes are not what they were"):
            ask(tmp_path / path.stem, second, index=str(index))
        path.write_bytes(data)
    (batch / "batch.json").write_text('{"origin": "a", "inputs": [], "reads": [], "files": []}')
    with pytest.raises(RecipeError, match="damaged"):
        ask(tmp_path / "b", second, index=str(index))


def test_a_run_whose_index_is_gone_says_so(tmp_path: Path) -> None:
    index = tmp_path / "index"
    inputs = [write(tmp_path / n, f) for n, f in zip("ab", some_crawls(2), strict=True)]
    work = stages(index=str(index))
    for folder in inputs:
        run(work, inputs=[folder], output=folder / "run", workers=1)
    shutil.rmtree(index)
    with pytest.raises(RunFailed, match=r"minhash_dedup: index: .*damaged"):
        run(work, inputs=[inputs[1]], output=inputs[1] / "run", workers=1)


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
