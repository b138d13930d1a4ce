"""How far a run is, seen from its files alone."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from curation import run
from curation.engine.lease import Holder
from curation.engine.plan import open_plan
from curation.inspect import status
from manifests.records import Receipt

RECIPE = Path(__file__).resolve().parent.parent / "pipelines" / "crawl-filter.yaml"


@pytest.fixture(scope="module")
def finished(sample_crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over two inputs, one of them cut short."""
    folder = tmp_path_factory.mktemp("status")
    shutil.copy(sample_crawl, folder / "a.warc.gz")
    whole = sample_crawl.read_bytes()
    (folder / "b.warc.gz").write_bytes(whole[: len(whole) // 2])
    result = run(RECIPE, inputs=[folder / "a.warc.gz", folder / "b.warc.gz"], output=folder / "r")
    return result.path


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "r"))


def segments(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {segment["segment"]: segment for segment in found["segments"]}


def test_an_ended_run_agrees_with_its_books(finished: Path) -> None:
    found = status.collect(open_plan(finished))
    stats = json.loads((finished / "stats.json").read_bytes())
    parts = segments(found)
    assert found["state"] == "ended"  # not complete: an input was cut
    assert (parts["read"]["tasks"], parts["read"]["known"], parts["read"]["incomplete"]) == (
        2,
        2,
        1,
    )
    assert parts["read"]["documents"] == stats["reader"]["documents"]
    assert parts["documents"]["kept"] == stats["output"]["documents"]
    assert parts["exact_dedup"]["documents"] is None
    assert "1 incomplete" in status.render(found)


def test_a_run_on_its_way_shows_what_is_done_and_what_runs(copy: Path) -> None:
    plan = open_plan(copy)
    (copy / "stats.json").unlink()
    receipts = plan.receipts(plan.segments[0])
    done, gone = sorted(receipts.glob("*.json"))
    gone.unlink()
    (receipts / f".{gone.stem}.progress").write_text("12 5")
    (receipts / f".{done.stem}.progress").write_text("99 99")  # left behind: the task is done
    old = receipts / ".killed.progress"
    old.write_text("1 1")
    os.utime(old, (time.time() - 2 * status.STALE,) * 2)
    found = status.collect(plan)
    read = segments(found)["read"]
    assert found["state"] == "running"
    assert (read["tasks"], read["known"]) == (1, 2)
    [running] = read["running"]
    assert (running["task"], running["documents"], running["kept"]) == (gone.stem, 12, 5)
    assert f"{gone.stem}: 12 documents" in status.render(found)


def test_nothing_alive_is_a_stopped_run(copy: Path) -> None:
    (copy / "stats.json").unlink()
    assert status.collect(open_plan(copy))["state"] == "stopped"


def test_who_holds_the_run_is_shown(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = [
        Holder("host-a", 7, "ada", "2026-01-02T03:04:05Z", 1.0, "2/8", True),
        Holder("host-b", 8, "bob", "2026-01-02T03:04:05Z", 999.0, "", False),
    ]
    monkeypatch.setattr(status, "holders", lambda run: held)
    found = status.collect(open_plan(copy))
    assert found["state"] == "running" and len(found["holders"]) == 2
    text = status.render(found)
    assert "held by ada on host-a (process 7, shard 2/8)" in text
    assert (
        "held by bob on host-b (process 8) since 2026-01-02T03:04:05Z, not seen for 999 s" in text
    )


def test_damaged_and_quarantined_receipts_are_counted_apart(copy: Path) -> None:
    plan = open_plan(copy)
    first, second = sorted(plan.receipts(plan.segments[0]).glob("*.json"))
    receipt = Receipt.load(first)
    assert receipt is not None
    Receipt("read", receipt.task, receipt.key, "quarantined", {}, {"error": "x"}).save(first)
    second.write_bytes(b"{")
    read = segments(status.collect(plan))["read"]
    assert (read["tasks"], read["quarantined"], read["unreadable"]) == (1, 1, 1)
