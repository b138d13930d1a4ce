"""On a real Ray cluster of two machines: what dies there costs time and no document.

What may live here: the one test that kills parts of a cluster. A cluster of one machine is in
test_engine.py; what the driver does about each failure is in test_faults.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kit import STAGES, contents, duplicated, recipe

from curation import run
from curation.engine.plan import open_plan
from curation.inspect import verify

SLOW = """
import os, time
from curation import Filter, Rule

class Slow(Filter):
    '''Notes which process begins a task, then takes its time.'''
    version = 1
    rules = (Rule("never", signal="n", below="least"),)
    least: int = 0
    notes: str

    def score(self, docs):
        if len(docs) > 1:  # not when it is probed
            open(f"{self.notes}/{time.monotonic_ns()}-{os.getpid()}", "x").close()
            time.sleep(3)
        return {"n": [len(t) for t in docs.text.to_pylist()]}
"""


class Cluster:
    """The script beside, as a process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("two_nodes.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout
        self.address = self._process.stdout.readline().strip()

    def kill(self, part: str) -> None:
        """`head`, or the machine with this process number as a parent of workers."""
        assert self._process.stdin and self._process.stdout
        print(part, file=self._process.stdin, flush=True)
        self._process.stdout.readline()

    def close(self) -> None:
        try:
            self._process.communicate(timeout=60)
        finally:
            self._process.kill()


def next_task(notes: Path) -> int:
    """The process that begins the next task: it has seconds to go."""
    known = set(notes.iterdir())
    while not (fresh := set(notes.iterdir()) - known):
        time.sleep(0.02)
    return int(min(fresh).name.partition("-")[2])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.close()


class Driver:
    """The command, with what it says."""

    def __init__(self, arguments: list[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "curation", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "5"},
        )
        self.said = ""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            self.said += line

    def wait_for(self, what: str) -> None:
        """Until the driver has said so."""
        deadline = time.monotonic() + 90
        while what not in self.said:
            assert self._process.poll() is None and time.monotonic() < deadline, self.said
            time.sleep(0.05)

    def end(self) -> tuple[int, str]:
        """Its exit status and standard output."""
        assert self._process.stdout
        out = self._process.stdout.read()
        status = self._process.wait(timeout=90)
        self._listener.join(timeout=10)
        return status, out


@pytest.mark.ray
def test_workers_machines_and_the_head_may_die(cluster: Cluster, tmp_path: Path) -> None:
    """A worker and a machine: the run goes on. The head: it ends with 1 and is resumed."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "in").mkdir()
    inputs = duplicated(tmp_path / "in")
    file = tmp_path / "recipe.yaml"
    notes = tmp_path / "notes"
    notes.mkdir()
    file.write_text(json.dumps(recipe({"slow:Slow": {"notes": str(notes)}}, *STAGES)))
    output = tmp_path / "r"
    arguments = ["run", str(file), "--input", str(inputs), "--output", str(output)]
    driver = Driver([*arguments, "--address", cluster.address])
    psutil.Process(next_task(notes)).kill()
    driver.wait_for("WorkerDied: the worker of the task died; trying again")
    while not list(output.glob("segments/0-*/receipts/*.json")):
        time.sleep(0.05)
    cluster.kill(str(psutil.Process(next_task(notes)).ppid()))
    driver.wait_for("NodeDied: the machine of the task is gone; trying again")
    cluster.kill("head")
    status, out = driver.end()
    assert (status, out) == (1, "")  # and nothing of Ray's on standard output
    assert not (output / "stats.json").exists()
    done = list(output.glob("segments/0-*/receipts/*.json"))
    assert done
    stamps = [path.stat().st_mtime_ns for path in done]

    resumed = run(str(file), inputs=[str(inputs)], output=output, workers=2)
    assert [path.stat().st_mtime_ns for path in done] == stamps
    undisturbed = run(str(file), inputs=[str(inputs)], output=tmp_path / "u", workers=2)
    assert resumed.complete and contents(output) == contents(undisturbed.path)
    assert verify.check(open_plan(output))["holds"]
