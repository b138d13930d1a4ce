"""The engine end to end: conservation, identity of bytes, resume, base runs, global steps."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kit import STAGES, contents, duplicated, page, recipe, write_jsonl

from curation import run
from curation.engine.attempts import RunFailed
from curation.engine.driver import drive
from curation.engine.executors import InProcess
from curation.engine.plan import Plan, Task, build, open_plan
from curation.engine.progress import Progress
from curation.engine.recipe import RecipeError, load
from curation.engine.unit import run_task
from curation.inspect import verify
from manifests.records import Receipt


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five files with duplicates within and across them."""
    return duplicated(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def finished(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "a"
    return run(recipe(*STAGES), inputs=[str(inputs)], output=path, workers=1).path


def test_every_document_is_accounted_for(finished: Path) -> None:
    stats = json.loads((finished / "stats.json").read_bytes())
    assert stats["complete"]
    assert stats["reader"]["records"] == stats["reader"]["documents"] == 5 * 22
    left = stats["reader"]["documents"]
    for stage in stats["stages"]:
        assert stage["in"]["documents"] == left
        dropped = sum(amount["documents"] for amount in stage["dropped"].values())
        left = stage["kept"]["documents"]
        assert stage["in"]["documents"] == left + dropped + stage["failed"]["documents"]
        for unit in ("words", "bytes"):
            gone = sum(amount[unit] for amount in stage["dropped"].values())
            assert stage["in"][unit] == stage["kept"][unit] + gone + stage["failed"][unit]
    table = pq.read_table(finished / "documents")
    assert len(table) == stats["output"]["documents"] == left
    assert sum(len(t.encode()) for t in table["text"].to_pylist()) == stats["output"]["bytes"]


def test_duplicates_are_removed_once_and_counted(finished: Path, inputs: Path) -> None:
    """The survivors are those that a plain pass over all documents in order of id finds."""
    plan = open_plan(finished)
    rows = pq.read_table(finished / plan.segments[0].directory / "text").to_pylist()
    kept_before = sorted((r for r in rows if r["kept"]), key=lambda r: r["id"])
    urls: dict[str, str] = {}
    count: dict[str, int] = {}
    texts: dict[str, str] = {}
    first_pass = []
    for row in kept_before:
        url = "front" if "/front" in row["url"] else row["url"]
        if url in urls:
            count[urls[url]] += 1
        else:
            urls[url], count[row["id"]] = row["id"], 1
            first_pass.append(row)
    expected = {}
    for row in first_pass:
        survivor = texts.setdefault(" ".join(row["text"].lower().split()), row["id"])
        expected[survivor] = expected.get(survivor, 0) + count[row["id"]]
    found = pq.read_table(finished / "documents").to_pylist()
    assert {r["id"]: r["duplicate_count"] for r in found} == expected
    assert sum(expected.values()) == len(kept_before)


def test_a_removal_names_a_survivor_that_was_kept(finished: Path) -> None:
    plan = open_plan(finished)
    signals = pq.read_table(finished / plan.segments[-1].directory / "signals")
    kept = set(pq.read_table(finished / "documents")["id"].to_pylist())
    removed = [r for r in signals.to_pylist() if r["decision"] == "dropped"]
    assert removed
    assert all(row["exact_dedup.survivor"] in kept for row in removed)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_do_not_change_the_bytes(
    finished: Path, inputs: Path, tmp_path: Path, workers: int
) -> None:
    files = [str(path) for path in sorted(inputs.iterdir(), reverse=True)]
    other = run(recipe(*STAGES), inputs=files, output=tmp_path / "b", workers=workers)
    assert contents(other.path) == contents(finished)


@pytest.mark.ray
@pytest.mark.parametrize("workers", [1, 2])
def test_ray_does_not_change_the_bytes(
    finished: Path, inputs: Path, tmp_path: Path, ray_cluster: None, workers: int
) -> None:
    other = run(
        recipe(*STAGES),
        inputs=[str(inputs)],
        output=tmp_path / "b",
        executor="ray",
        workers=workers,
    )
    assert contents(other.path) == contents(finished)


@pytest.mark.parametrize("batch", [1, 7])
def test_batches_do_not_change_the_bytes(
    finished: Path, inputs: Path, tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curation.engine.unit.BATCH_DOCUMENTS", batch)
    other = run(recipe(*STAGES), inputs=[str(inputs)], output=tmp_path / "b", workers=1)
    assert contents(other.path) == contents(finished)


def test_the_same_command_resumes(finished: Path, inputs: Path, tmp_path: Path) -> None:
    """Whatever is missing or damaged is done again, nothing else, and the bytes are the same."""
    path = tmp_path / "b"
    shutil.copytree(finished, path)
    plan = open_plan(path)
    units = sorted((path / plan.segments[0].directory / "receipts").iterdir())
    untouched = units[3].stat().st_mtime_ns
    units[0].unlink()
    units[1].write_bytes(units[1].read_bytes()[:-20])
    next((path / plan.segments[0].directory / "text").glob("part2*")).write_bytes(b"cut")
    shutil.rmtree(path / "documents")
    run(recipe(*STAGES), inputs=[str(inputs)], output=path, workers=1)
    assert contents(path) == contents(finished)
    assert units[3].stat().st_mtime_ns == untouched
    assert verify.check(open_plan(path))["holds"]


def test_a_killed_run_resumes_to_the_same_bytes(
    finished: Path, inputs: Path, tmp_path: Path
) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(json.dumps(recipe(*STAGES)))
    path = tmp_path / "b"
    command = [
        sys.executable,
        "-m",
        "curation",
        "run",
        str(file),
        "--input",
        str(inputs),
        "--output",
        str(path),
        "--quiet",
        "--workers",
        "2",
    ]
    for receipts in (1, 3, 6, 9):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while (
            process.poll() is None and len(list(path.glob("segments/*/receipts/*.json"))) < receipts
        ):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert contents(path) == contents(finished)


def test_a_base_run_is_reused_where_keys_are_the_same(
    finished: Path, inputs: Path, tmp_path: Path
) -> None:
    """A changed last step leaves the reading untouched: its receipts point to the base."""
    changed = recipe({"gopher_quality": {}}, {"exact_dedup": {"by": ["text"]}})
    result = run(changed, inputs=[str(inputs)], output=tmp_path / "b", base=finished, workers=1)
    plan = open_plan(result.path)
    # The run files depend on `by`, so the first segment is another; the same recipe reuses all.
    assert result.stats["stages"][1]["dropped"].keys() == {"text"}
    same = run(
        recipe(*STAGES), inputs=[str(inputs)], output=tmp_path / "c", base=finished, workers=1
    )
    plan = open_plan(same.path)
    for segment in plan.segments:
        for receipt in (same.path / segment.directory / "receipts").iterdir():
            loaded = Receipt.load(receipt)
            assert loaded and loaded.envelope["from"] == str(finished)
    fresh = {k: v for k, v in contents(finished).items() if k.startswith(("documents/", "stats"))}
    assert {
        k: v for k, v in contents(same.path).items() if k.startswith(("documents/", "stats"))
    } == fresh
    assert verify.check(plan, replay=1)["holds"]


def test_more_input_reuses_the_units_of_the_base(
    finished: Path, inputs: Path, tmp_path: Path
) -> None:
    extra = write_jsonl(tmp_path / "extra.jsonl", [page(900)])
    result = run(
        recipe(*STAGES),
        inputs=[str(inputs), str(extra)],
        output=tmp_path / "b",
        base=finished,
        workers=1,
    )
    plan = open_plan(result.path)
    receipts = [
        Receipt.load(p) for p in (result.path / plan.segments[0].directory / "receipts").iterdir()
    ]
    assert sorted("from" in r.envelope for r in receipts if r) == [False] + [True] * 5


def test_files_of_the_wished_size(inputs: Path, finished: Path, tmp_path: Path) -> None:
    """Adjacent units are grouped; the documents and their order do not depend on it."""
    small = run(
        recipe(*STAGES, output={"file_size": 1}),
        inputs=[str(inputs)],
        output=tmp_path / "b",
        workers=1,
    )
    assert len(list(small.documents.iterdir())) == 5
    assert pq.read_table(small.documents).equals(pq.read_table(finished / "documents"))


def test_two_global_steps_and_a_filter_between(inputs: Path, tmp_path: Path) -> None:
    """Three passes over the documents give what one combined step gives."""
    stages = (
        {"exact_dedup": {"by": ["url"], "as": "by_url"}},
        {"gopher_quality": {"as": "again"}},
        {"exact_dedup": {"by": ["text"], "as": "by_text"}},
    )
    result = run(
        recipe({"gopher_quality": {}}, *stages),
        inputs=[str(inputs)],
        output=tmp_path / "b",
        workers=1,
    )
    names = [stage["name"] for stage in result.stats["stages"]]
    assert names == ["gopher_quality", "by_url", "again", "by_text"]
    assert result.stats["stages"][1]["dropped"] == {
        "url": result.stats["stages"][1]["dropped"]["url"]
    }
    table = pq.read_table(result.documents)
    plain = run(recipe(*STAGES), inputs=[str(inputs)], output=tmp_path / "c", workers=1)
    assert table.to_pylist() == pq.read_table(plain.documents).to_pylist()
    assert verify.check(open_plan(result.path), replay=3)["holds"]


def test_store_kept_leaves_out_the_text_of_the_dropped(inputs: Path, tmp_path: Path) -> None:
    result = run(
        recipe(*STAGES, store="kept"), inputs=[str(inputs)], output=tmp_path / "b", workers=1
    )
    plan = open_plan(result.path)
    texts = pq.read_table(result.path / plan.segments[0].directory / "text")
    assert all(texts["kept"].to_pylist())
    assert len(texts) == result.stats["stages"][0]["kept"]["documents"]


def test_verify_finds_what_was_tampered_with(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "b"
    shutil.copytree(finished, path)
    assert verify.check(open_plan(path), replay=7)["holds"]
    part = path / "documents" / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    (path / "documents" / "part-00001.parquet").write_bytes(data)
    stats = json.loads((path / "stats.json").read_bytes())
    stats["output"]["documents"] += 1
    (path / "stats.json").write_text(json.dumps(stats))
    problems = " ".join(verify.check(open_plan(path))["problems"])
    assert "part-00000.parquet: its bytes are not those of the receipt" in problems
    assert "part-00001.parquet: no receipt names it" in problems
    assert "stats.json" in problems


def test_an_output_of_another_recipe_is_refused(finished: Path, inputs: Path) -> None:
    before = contents(finished)
    with pytest.raises(
        RecipeError, match=r"holds another run: .*min_words is 50 there and 40 here"
    ):
        run(
            recipe({"gopher_quality": {"min_words": 40}}, {"exact_dedup": {}}),
            inputs=[str(inputs)],
            output=finished,
        )
    assert contents(finished) == before


def test_a_directory_that_is_no_run_is_left_alone(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(RecipeError, match="not empty"):
        run(recipe(*STAGES), inputs=[str(inputs)], output=tmp_path)
    assert os.listdir(tmp_path) == ["precious"]


def test_a_unit_that_fails_twice_is_quarantined_and_comes_back(
    inputs: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the run is partial and true; afterwards it is as if nothing had been."""
    from curation.engine import executors

    def moody(plan: Plan, task: Task) -> Receipt:
        if task.name.startswith("part2"):
            raise RuntimeError("a bad day")
        return run_task(plan, task)

    files: dict[str, Any] = {"inputs": [str(inputs)], "workers": 1, "output": tmp_path / "r"}
    with monkeypatch.context() as patched:
        patched.setattr(executors, "carry_out", moody)
        partial = run(recipe(*STAGES), **files)
    [(path, problem)] = partial.unfinished.items()
    assert path.endswith("part2.jsonl") and problem == "quarantined: RuntimeError: a bad day"
    assert partial.stats["units"]["quarantined"] == 1 and not partial.stats["complete"]
    assert partial.stats["reader"]["documents"] == 4 * 22
    assert verify.check(open_plan(partial.path), replay=2)["holds"]
    again = run(recipe(*STAGES), **files)
    assert again.complete
    assert contents(again.path) == contents(finished)
    assert verify.check(open_plan(again.path))["holds"]


def test_a_damaged_file_of_the_run_is_made_again(
    inputs: Path, finished: Path, tmp_path: Path
) -> None:
    """A flipped byte in what a later task reads is found by its digest, named and repaired."""
    patterns = ("0-*/text/part1*", "0-*/work/part1*records*", "1-*/removals/*")
    for number, pattern in enumerate(patterns):
        path = tmp_path / str(number)
        shutil.copytree(finished, path)
        segments = path / "segments"
        damaged = sorted(segments.glob(pattern))[0]
        data = bytearray(damaged.read_bytes())
        data[-1] ^= 1
        damaged.write_bytes(data)
        for gone in ("1-*/receipts/url*", "2-*/receipts/*"):
            for receipt in segments.glob(gone):
                receipt.unlink()
        run(recipe(*STAGES), inputs=[str(inputs)], output=path, workers=1)
        assert contents(path) == contents(finished), pattern


def test_an_input_that_changes_is_not_passed_off_as_whole(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "x.jsonl"
    before = source.write_text((inputs / "part0.jsonl").read_text())
    plan = build(load(recipe(*STAGES), [str(source)]), tmp_path / "r")
    with source.open("a") as file:
        file.write(json.dumps({"text": page(77)}) + "\n")
    engine = InProcess()
    stats = drive(plan, engine, Progress(quiet=True)).stats
    assert before and not stats["complete"] and stats["reader"]["problems"] == {"changed": 1}
    assert stats["output"]["documents"] == 0


def test_neighbouring_global_steps_work_one_after_the_other(tmp_path: Path) -> None:
    """What the first removed removes nothing in the second; counts go through chains."""
    texts = [page(1), page(2), page(2), page(3)]
    urls = ["https://x.example/a", "https://x.example/a", "https://x.example/b", None]
    rows = [
        {"text": text, "id": str(number), "url": url}
        for number, (text, url) in enumerate(zip(texts, urls, strict=True))
    ]
    source = tmp_path / "x.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows * 2))
    steps = ({"exact_dedup": {"by": ["url"]}}, {"exact_dedup": {"by": ["text"], "as": "again"}})
    files: dict[str, Any] = {"inputs": [str(source)], "workers": 1}
    first = {"gopher_quality": {}}
    between = {"gopher_quality": {"as": "between"}}
    adjacent = run(recipe(first, *steps), output=tmp_path / "adjacent", **files)
    apart = run(recipe(first, steps[0], between, steps[1]), output=tmp_path / "apart", **files)
    one = run(recipe(first, {"exact_dedup": {}}), output=tmp_path / "one", **files)
    expected = pq.read_table(one.documents).to_pylist()
    assert sum(row["duplicate_count"] for row in expected) == 8
    for result in (adjacent, apart):
        assert pq.read_table(result.documents).to_pylist() == expected
        assert verify.check(open_plan(result.path), replay=3)["holds"]


def test_more_units_than_open_files(tmp_path: Path) -> None:
    import resource

    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(150):
        write_jsonl(folder / f"{number}.jsonl", [page(number % 60)])
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (120, old[1]))
    try:
        result = run(recipe(*STAGES), inputs=[str(folder)], output=tmp_path / "r", workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)
    assert result.complete
    assert sum(pq.read_table(result.documents)["duplicate_count"].to_pylist()) == 150


def test_the_output_may_lie_in_the_input_folder(inputs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    shutil.copytree(inputs, folder)
    (folder / ".hidden.jsonl").write_text("x")
    os.mkfifo(folder / "pipe.jsonl")
    for _ in range(2):
        result = run(recipe(*STAGES), inputs=[str(folder)], output=folder / "out", workers=1)
        assert result.stats["units"]["all"] == 5


def test_an_output_that_cannot_be_written_stops_the_run(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from curation.engine import tables

    write = tables.AtomicFile.write

    def full(file: tables.AtomicFile, data: Any) -> int:
        if file.path.suffix == ".parquet":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    with monkeypatch.context() as patched:
        patched.setattr(tables.AtomicFile, "write", full)
        with pytest.raises(RunFailed, match="No space left on device"):
            run(recipe(*STAGES), inputs=[str(inputs)], output=tmp_path / "r", workers=1)
    assert not list((tmp_path / "r").glob("segments/*/receipts/*"))
    assert run(recipe(*STAGES), inputs=[str(inputs)], output=tmp_path / "r", workers=1).complete


def test_the_failure_ceiling_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "brittle.py").write_text(
        "from curation import Filter, Rule\n"
        "class Brittle(Filter):\n"
        "    version = 1\n"
        "    rules = (Rule('never', signal='n', below='least'),)\n"
        "    least: int = 0\n"
        "    def score(self, docs):\n"
        "        texts = docs.text.to_pylist()\n"
        "        if any('poison' in t for t in texts):\n"
        "            raise ValueError('poison')\n"
        "        return {'n': [len(t) for t in texts]}\n"
    )
    texts = [f"text {i}" + (" poison" if i % 20 == 0 else "") for i in range(1000)]
    source = write_jsonl(tmp_path / "x.jsonl", texts)
    stages = ({"brittle:Brittle": {}},)
    with pytest.raises(RunFailed, match=r"50 of 1000 documents failed, above .* 0\.02"):
        run(recipe(*stages), inputs=[str(source)], output=tmp_path / "a", workers=1)
    result = run(
        recipe(*stages, failure_ceiling=0.5), inputs=[str(source)], output=tmp_path / "b", workers=1
    )
    [stage] = result.stats["stages"]
    assert stage["failures"] == {"ValueError": 50}
    assert stage["failed"]["documents"] == 50 and stage["kept"]["documents"] == 950
    assert pq.read_table(result.documents).num_rows == 950
    # Found receipts count as new ones do.
    with pytest.raises(RunFailed, match="above failure_ceiling"):
        run(recipe(*stages), inputs=[str(source)], output=tmp_path / "a", workers=1)
