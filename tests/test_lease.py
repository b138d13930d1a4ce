"""The lease: a second driver is told who holds the run, and takes over from one that is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from curation.engine.lease import BEAT, STALE, Lease, LeaseHeld, holders


def elsewhere(run: Path, seen: float, shard: str = "") -> Path:
    """The lease of a driver on another machine, renewed `seen` seconds ago."""
    path = run / (f"lease-{shard.replace('/', '-of-')}.json" if shard else "lease.json")
    record = {
        "host": "another-host",
        "pid": 7,
        "process": "another-boot 7 1",
        "user": "ada",
        "since": "2026-01-02T03:04:05+00:00",
        "shard": shard,
        "token": "t",
        "beat": 1,
    }
    path.write_text(json.dumps(record))
    stamp = time.time() - seen
    os.utime(path, (stamp, stamp))
    return path


def no_wait(seconds: float) -> None:
    raise AssertionError("nothing to wait for")


def test_a_second_driver_is_told_who_and_since_when(tmp_path: Path) -> None:
    elsewhere(tmp_path, seen=1)
    with pytest.raises(LeaseHeld, match=r"ada@another-host \(process 7\) since 2026-01-02T03:04"):
        Lease(tmp_path, wait=no_wait)


def test_a_lease_given_back_is_free(tmp_path: Path) -> None:
    first = Lease(tmp_path)
    with pytest.raises(LeaseHeld):
        Lease(tmp_path)
    first.close()
    assert not holders(tmp_path)
    Lease(tmp_path).close()


def test_a_lease_that_is_not_renewed_is_taken_over(tmp_path: Path) -> None:
    elsewhere(tmp_path, seen=STALE + 1)
    Lease(tmp_path, wait=no_wait).close()


def test_a_dead_process_of_this_machine_holds_nothing(tmp_path: Path) -> None:
    """However fresh its lease is."""
    script = (
        "import os, sys; from pathlib import Path; from curation.engine.lease import Lease\n"
        "Lease(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)])
    assert [holder.alive for holder in holders(tmp_path)] == [False]
    Lease(tmp_path, wait=no_wait).close()


def test_a_clock_that_went_back_does_not_hold_a_run_for_ever(tmp_path: Path) -> None:
    """A lease from the future is watched: it is held if it is renewed, else it is free."""
    path = elsewhere(tmp_path, seen=-3600)
    waited: list[float] = []

    def renewed(seconds: float) -> None:
        waited.append(seconds)
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "beat": record["beat"] + 1}))
        os.utime(path, (time.time() + 3600,) * 2)

    with pytest.raises(LeaseHeld):
        Lease(tmp_path, wait=renewed)
    assert waited == [3 * BEAT]
    Lease(tmp_path, wait=waited.append).close()


def test_who_was_taken_over_notices(tmp_path: Path) -> None:
    """A driver that slept too long must not go on beside its successor."""
    sleeper = Lease(tmp_path)
    record = json.loads((tmp_path / "lease.json").read_text())
    (tmp_path / "lease.json").write_text(json.dumps({**record, "token": "other", "user": "bob"}))
    sleeper.renew()
    assert sleeper.taken_over.startswith("bob@")
    sleeper.close()
    assert (tmp_path / "lease.json").exists()  # it is bob's


def test_shards_of_one_division_do_not_disturb_each_other(tmp_path: Path) -> None:
    elsewhere(tmp_path, seen=1, shard="1/4")
    Lease(tmp_path, "2/4").close()
    for conflicting in ("1/4", "1/2", ""):
        with pytest.raises(LeaseHeld, match="shard 1/4 of this run"):
            Lease(tmp_path, conflicting)


def test_a_damaged_lease_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "lease.json").write_text("{")
    Lease(tmp_path, wait=no_wait).close()
