"""What is removed from a run, what never is, and that the run holds afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from curation import cli, run
from curation.engine import gc
from curation.engine.lease import Holder
from curation.engine.plan import open_plan
from curation.inspect import documents, trace, verify, whatif

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "pipelines" / "crawl-filter.yaml"


@pytest.fixture(scope="module")
def finished(sample_crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gc")
    shutil.copy(sample_crawl, folder / "a.warc.gz")
    return run(RECIPE, inputs=[folder / "a.warc.gz"], output=folder / "r", workers=1).path


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "r"))


def content(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*") if p.is_file()}


def times(run: Path) -> dict[str, int]:
    """When each receipt was written: a task that is done again writes its own anew."""
    return {p.name: p.stat().st_mtime_ns for p in run.glob("segments/*/receipts/*.json")}


def litter(run: Path) -> dict[str, str]:
    """Puts one piece of every kind of garbage into a run: path -> kind."""
    plan = open_plan(run)
    read, last = plan.segments[0].directory, plan.segments[-1].directory
    placed = {
        f"{read}/text/.x.parquet.0123456789ab.tmp": "temporary",
        f"{read}/receipts/.x.json.0123456789ab.tmp": "temporary",
        f"{read}/receipts/.x.progress": "heartbeat",
        ".stats.json.0123456789ab.tmp": "temporary",
        "documents/.part-00000.parquet.0123456789ab.tmp": "temporary",
        "documents/part-00099.parquet": "orphan",
        f"{last}/signals/part-00099.parquet": "orphan",
        f"{read}/work/x.exact_dedup.text.npy": "orphan",
        f"{read}/pieces/{plan.units[0].name}/0.json": "orphan",
        "segments/0-read-00000000/receipts/x.json": "segment",
        "segments/0-read-00000000/text/x.parquet": "segment",
    }
    for name in placed:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("garbage")
    return placed


def test_a_clean_run_has_no_garbage(copy: Path) -> None:
    assert gc.find(open_plan(copy)) == ([], [])


def test_garbage_goes_and_nothing_else(copy: Path) -> None:
    before, receipts = content(copy), times(copy)
    placed = litter(copy)
    plan = open_plan(copy)
    garbage, notes = gc.find(plan)
    assert {str(g.path.relative_to(copy)): g.why for g in garbage} == placed and notes == []
    assert sum(g.bytes for g in garbage) == 7 * len(placed)
    gc.remove(plan.run, garbage)
    assert content(copy) == before and times(copy) == receipts
    assert not (copy / "segments" / "0-read-00000000").exists()
    assert verify.check(plan)["holds"]


def test_a_resume_after_it_does_nothing_again(sample_crawl: Path, tmp_path: Path) -> None:
    shutil.copy(sample_crawl, tmp_path / "a.warc.gz")
    path = run(RECIPE, inputs=[tmp_path / "a.warc.gz"], output=tmp_path / "r", workers=1).path
    receipts = times(path)
    litter(path)
    plan = open_plan(path)
    gc.remove(plan.run, gc.find(plan)[0])
    run(RECIPE, inputs=[tmp_path / "a.warc.gz"], output=path, workers=1)
    assert times(path) == receipts


def test_pieces_of_a_task_that_is_not_done_stay(copy: Path) -> None:
    plan = open_plan(copy)
    piece = copy / plan.segments[0].directory / "pieces" / "another" / "0.json"
    piece.parent.mkdir(parents=True)
    piece.write_text("{}")
    assert gc.find(plan)[0] == []


def test_what_lies_beside_a_damaged_receipt_stays(copy: Path) -> None:
    plan = open_plan(copy)
    [receipt] = plan.receipts(plan.segments[0]).glob("*.json")
    receipt.write_bytes(receipt.read_bytes()[:-9])
    before = content(copy)
    garbage, notes = gc.find(plan)
    gc.remove(plan.run, garbage)
    assert content(copy) == before
    assert len(notes) == 1 and receipt.name in notes[0]


def test_links_are_not_followed(copy: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "text").mkdir(parents=True)
    (outside / "text" / "mine.parquet").write_text("mine")
    plan = open_plan(copy)
    (copy / "segments" / "9-old-00000000").symlink_to(outside)
    (copy / plan.segments[0].directory / "text" / "sub").symlink_to(outside)
    gc.remove(plan.run, gc.find(plan)[0])
    assert (outside / "text" / "mine.parquet").read_text() == "mine"
    shutil.rmtree(copy / "documents")
    (copy / "documents").symlink_to(outside / "text")
    gc.remove(plan.run, gc.find(plan)[0])
    assert (outside / "text" / "mine.parquet").read_text() == "mine"


def test_what_is_written_anew_meanwhile_stays(copy: Path) -> None:
    litter(copy)
    plan = open_plan(copy)
    garbage, _ = gc.find(plan)
    orphan = copy / "documents" / "part-00099.parquet"
    orphan.write_text("somebody's work")
    gc.remove(plan.run, garbage)
    assert orphan.read_text() == "somebody's work"


def test_a_held_run_is_left_alone(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    litter(copy)
    before = content(copy)
    holder = Holder("host-a", 7, "ada", "2026-01-02T03:04:05Z", 1.0, "", True)
    monkeypatch.setattr(gc, "holders", lambda run: [holder])
    assert cli.main(["gc", str(copy)]) == 1
    assert "held by ada on host-a" in capsys.readouterr().err
    assert content(copy) == before
    monkeypatch.setattr(
        gc, "holders", lambda run: [Holder(*list(vars(holder).values())[:-1], False)]
    )
    assert cli.main(["gc", str(copy)]) == 0


def test_a_dry_run_only_says_it(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    placed = litter(copy)
    before = content(copy)
    assert cli.main(["gc", str(copy), "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {file["path"]: file["why"] for file in found["files"]} == placed
    assert found["bytes"] == 7 * len(placed) and not found["removed"]
    assert content(copy) == before


def test_without_intermediates_the_run_can_still_be_looked_at(copy: Path) -> None:
    plan = open_plan(copy)
    samples = documents.sampled(plan, None, None, near=False, count=3)
    thresholds = ["gopher_quality.min_words=60"]
    simulated = whatif.simulate(plan, thresholds, 3)
    [entry, *_] = trace.document(plan, samples[0]["id"])
    garbage, _ = gc.find(plan, intermediates=True)
    assert garbage and all(g.path.parent.name == "work" for g in garbage)
    gc.remove(plan.run, garbage)
    assert list(copy.glob("segments/*/work")) == []
    assert verify.check(plan, replay=2)["holds"]
    assert documents.sampled(plan, None, None, near=False, count=3) == samples
    assert whatif.simulate(plan, thresholds, 3) == simulated
    assert trace.document(plan, samples[0]["id"])[0] == entry
    text = next(copy.glob("segments/0-*/text/*.parquet"))
    text.unlink()  # missing, and not on purpose
    assert not verify.check(plan)["holds"]


def test_a_resume_without_intermediates_does_nothing_again(
    sample_crawl: Path, tmp_path: Path
) -> None:
    inputs = [tmp_path / f"{number}.warc.gz" for number in range(3)]
    for path in inputs:
        shutil.copy(sample_crawl, path)
    path = run(RECIPE, inputs=inputs, output=tmp_path / "r", workers=1).path
    receipts, result = times(path), content(path / "documents")
    plan = open_plan(path)
    gc.remove(plan.run, gc.find(plan, intermediates=True)[0])
    run(RECIPE, inputs=inputs, output=path, workers=1)
    assert times(path) == receipts
    # What needs them after all has them made again.
    next(path.glob("segments/1-*/receipts/text-*.json")).unlink()
    next(path.glob("documents/*.parquet")).unlink()
    run(RECIPE, inputs=inputs, output=path, workers=1)
    assert content(path / "documents") == result and verify.check(plan)["holds"]
    assert not (path / "released.json").exists()


def test_intermediates_of_an_unfinished_run_stay(copy: Path) -> None:
    (copy / "stats.json").unlink()
    with pytest.raises(gc.Refused, match="not complete"):
        gc.find(open_plan(copy), intermediates=True)


def test_a_removal_that_is_cut_off_leaves_a_run_that_holds(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    litter(copy)
    plan = open_plan(copy)
    garbage, _ = gc.find(plan, intermediates=True)
    unlink, left = Path.unlink, [0]

    def dying(path: Path, missing_ok: bool = False) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    for cut in (0, 3, len(garbage) // 2):
        monkeypatch.setattr(Path, "unlink", dying)
        left[0] = cut
        with pytest.raises(KeyboardInterrupt):
            gc.remove(plan.run, gc.find(plan, intermediates=True)[0])
        monkeypatch.undo()
        problems = verify.check(plan)["problems"]
        assert [p for p in problems if "no receipt names it" not in p] == []
    gc.remove(plan.run, gc.find(plan, intermediates=True)[0])
    assert verify.check(plan)["holds"] and gc.find(plan, intermediates=True)[0] == []


def test_what_a_killed_run_leaves_is_found(sample_crawl: Path, tmp_path: Path) -> None:
    for number in range(2):
        shutil.copy(sample_crawl, tmp_path / f"{number}.warc.gz")
    command = [sys.executable, "-m", "curation", "run", str(RECIPE), "--output", "r", "--quiet",
               "--workers", "1", "--input", "0.warc.gz", "1.warc.gz"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("r/segments/0-*/text/.*.tmp")) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # the child of the extraction ends with its parent
    plan = open_plan(tmp_path / "r")
    gc.remove(plan.run, gc.find(plan)[0])
    assert [p for p in (tmp_path / "r").rglob(".*") if p.is_file()] == []
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0 and verify.check(plan)["holds"]
