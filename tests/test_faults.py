"""Faults: each ends with the bytes of the undisturbed run, and nothing is counted twice.

What may live here: what machines do to a run, made to happen at a chosen place. Ray's own faults
are in test_ray.py, pages that are poison in test_sandbox.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from kit import STAGES, contents, duplicated, page, recipe, response, write_jsonl
from test_sandbox import POISON
from zygote import Zygote

from curation import run
from curation.engine import driver as driver_module
from curation.engine.attempts import RunFailed
from curation.engine.driver import drive
from curation.engine.executors import LOOK, Finished, InProcess, RayTasks
from curation.engine.plan import Task, build, open_plan
from curation.engine.progress import Progress
from curation.engine.recipe import load
from curation.engine.retry import PIECES, Retries, TaskFailed
from curation.extract import stage as extract_stage
from curation.inspect import verify
from manifests.records import Receipt

#: A filter between two global steps, so that there is a segment of every kind.
LONG = (
    {"gopher_quality": {}},
    {"exact_dedup": {"by": ["url"], "as": "urls"}},
    {"gopher_quality": {"min_words": 60, "as": "again"}},
    {"exact_dedup": {"by": ["text"], "as": "texts"}},
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return duplicated(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def finished(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed run."""
    path = tmp_path_factory.mktemp("run") / "a"
    return run(recipe(*LONG), inputs=[str(inputs)], output=path, workers=1).path


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    server = Zygote()
    yield server
    server.close()


@pytest.fixture
def command(inputs: Path, tmp_path: Path) -> list[str]:
    """The arguments of the run in `tmp_path/r`, in one process."""
    file = tmp_path / "r.yaml"
    file.write_text(json.dumps(recipe(*LONG)))
    arguments = ["run", str(file), "--input", str(inputs), "--output", str(tmp_path / "r")]
    return [*arguments, "--workers", "1", "--quiet"]


def same(path: Path, finished: Path) -> bool:
    return contents(path) == contents(finished) and verify.check(open_plan(path))["holds"]


# The driver dies


def kind_of(point: str) -> str:
    """What sort of file a point is about: `after 0-read/receipts`."""
    when, path = point.split()
    parts = Path(path).parts
    if "segments" in parts:
        segment, kind = parts[parts.index("segments") + 1 :][:2]
        return f"{when} {segment.rpartition('-')[0]}/{kind}"
    return f"{when} {Path(path).parent.name if 'documents' in parts else Path(path).name}"


def test_a_driver_killed_at_any_kind_of_moment_loses_nothing(
    finished: Path, command: list[str], zygote: Zygote, tmp_path: Path
) -> None:
    """One death before and one after every kind of file, each in a run of its own."""
    points = zygote.points(command)
    kinds = {kind_of(point) for point in points}
    for kind in ("0-read/receipts", "1-urls/work", "2-filter2/text", "3-texts/removals"):
        assert {f"before {kind}", f"after {kind}"} <= kinds
    assert {"before documents", "after run.json", "before stats.json"} <= kinds
    chance = random.Random(20)
    for kind in sorted(kinds):
        shutil.rmtree(tmp_path / "r")
        places = [i for i, point in enumerate(points, 1) if kind_of(point) == kind]
        assert zygote.run(command, die_at=chance.choice(places)) == -signal.SIGKILL, kind
        assert zygote.run(command) == 0, kind
        assert contents(tmp_path / "r") == contents(finished), kind
    assert same(tmp_path / "r", finished)


@pytest.mark.parametrize("seed", range(3))
def test_a_driver_killed_again_and_again_gets_there(
    finished: Path, command: list[str], zygote: Zygote, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    deaths = 0
    while zygote.run(command, die_at=chance.randint(2, 30)) != 0:
        deaths += 1
        assert deaths < 200
    assert deaths > 2
    assert same(tmp_path / "r", finished)


def test_leftovers_of_a_killed_run_are_never_read(
    finished: Path, command: list[str], zygote: Zygote, tmp_path: Path
) -> None:
    """Every unfinished file begins with a dot and ends with .tmp."""
    points = zygote.points(command)
    shutil.rmtree(tmp_path / "r")
    zygote.run(command, die_at=len(points) // 2 | 1)  # before a rename
    left = [p for p in (tmp_path / "r").rglob("*.tmp") if "lease" not in p.name]
    assert left and all(p.name.startswith(".") for p in left)


# Workers die


DIES = """
import os, signal
from curation import Filter, Rule

class Dies(Filter):
    '''Kills its process, once, at the page that says so.'''
    version = 1
    rules = (Rule("never", signal="n", below="least"),)
    least: int = 0
    marker: str

    def score(self, docs):
        texts = docs.text.to_pylist()
        if any("number 17" in t for t in texts) and not os.path.exists(self.marker):
            open(self.marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"n": [len(t) for t in texts]}
"""


@pytest.fixture
def dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "dies.py").write_text(DIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "dies:Dies"


def test_a_killed_worker_costs_its_task_and_nothing_else(
    inputs: Path, tmp_path: Path, dies: str, capfd: pytest.CaptureFixture[str]
) -> None:
    marker = tmp_path / "marker"
    work = recipe({dies: {"marker": str(marker)}}, *STAGES)
    files: dict[str, Any] = {"inputs": [str(inputs)], "workers": 2}
    result = run(work, output=tmp_path / "a", **files, quiet=False)
    assert result.complete and marker.exists()
    assert "WorkerDied: exit status -9; trying again" in capfd.readouterr().err
    undisturbed = run(work, output=tmp_path / "b", **files)
    assert same(result.path, undisturbed.path)


SPOILS = """
import contextlib, os, signal, time
from curation import Filter, Rule

def hold_the_pipe_and_die():
    if os.fork() == 0:
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGKILL)

def write_to_all_files():
    for number in range(3, 30):
        with contextlib.suppress(OSError):
            os.write(number, b"nonsense\\n")

def cancel():
    raise BaseException("two\\nlines")

DEEDS = {
    "number 7.": os.fork,
    "number 17.": hold_the_pipe_and_die,
    "number 27.": write_to_all_files,
    "number 37.": lambda: os.closerange(0, 3),
    "number 47.": cancel,
}

class Spoils(Filter):
    '''Does to its process, at five pages, what no filter should; each deed once.'''
    version = 1
    rules = (Rule("never", signal="n", below="least"),)
    least: int = 0
    marks: str

    def score(self, docs):
        texts = docs.text.to_pylist()
        for page, deed in DEEDS.items():
            mark = os.path.join(self.marks, page)
            if any(page in text for text in texts) and not os.path.exists(mark):
                open(mark, "w").close()
                deed()
        return {"n": [len(t) for t in texts]}
"""


def test_a_filter_that_spoils_its_process_hangs_nothing_and_doubles_nothing(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spoils.py").write_text(SPOILS)
    monkeypatch.syspath_prepend(str(tmp_path))
    marks = tmp_path / "marks"
    marks.mkdir()
    work = recipe({"spoils:Spoils": {"marks": str(marks)}}, *STAGES)
    files: dict[str, Any] = {"inputs": [str(inputs)], "workers": 2}
    result = run(work, output=tmp_path / "a", **files)
    assert result.complete and len(list(marks.iterdir())) == 5
    undisturbed = run(work, output=tmp_path / "b", **files)
    assert same(result.path, undisturbed.path)


class Failing:
    """An executor in which chosen tasks end with a failure instead."""

    workers = 1

    def __init__(self, fails: Any) -> None:
        self._inner = InProcess()
        self._fails = fails
        self.seen: list[Task] = []

    def run(self, run: Path, queue: deque[Task]) -> Generator[Finished, None, None]:
        while queue:
            task = queue.popleft()
            self.seen.append(task)
            failure = self._fails(task)
            if failure is not None:
                yield task, failure
            else:
                yield from self._inner.run(run, deque([task]))

    def close(self) -> None:
        """Nothing is held."""


def drive_with(fails: Any, work: dict[str, Any], inputs: Path, output: Path) -> Failing:
    engine = Failing(fails)
    drive(build(load(work, [str(inputs)]), output), engine, Progress(quiet=True))
    return engine


def lacks_memory(task: Task) -> TaskFailed | None:
    """Every unit whose name says 2, every file of documents, while they are whole."""
    chosen = task.name.startswith(("part2", "part-"))
    return TaskFailed("OutOfMemory", "memory") if chosen and not task.pieces else None


def test_lack_of_memory_is_met_with_more_then_with_pieces_that_rejoin(
    inputs: Path, finished: Path, tmp_path: Path
) -> None:
    engine = drive_with(lacks_memory, recipe(*LONG), inputs, tmp_path / "r")
    assert same(tmp_path / "r", finished)
    for index in (0, 2, 4):  # read, filter, documents
        mine = [
            t for t in engine.seen if t.segment == index and t.name.startswith(("part2", "part-"))
        ]
        whole = [t for t in mine if not t.pieces]
        assert [t.memory // whole[0].memory for t in whole] == [1, 2, 4]
        assert [t.piece for t in mine if t.pieces] == [*range(PIECES), PIECES]
    assert not [p for p in (tmp_path / "r").glob("segments/*/pieces/*")]


def test_pieces_of_an_archive_rejoin(sample_crawl: Path, tmp_path: Path) -> None:
    """With the reader's books, failures, edits and removals of a real recipe."""
    work = str(Path(__file__).parent.parent / "pipelines/crawl-filter.yaml")
    run(work, inputs=[str(sample_crawl)], output=tmp_path / "a", workers=1)

    def fails(task: Task) -> TaskFailed | None:
        return None if task.pieces or task.phase else TaskFailed("OutOfMemory", "memory")

    drive_with(fails, work, sample_crawl, tmp_path / "b")  # type: ignore[arg-type]
    assert same(tmp_path / "b", tmp_path / "a")


def test_a_piece_that_cannot_be_done_quarantines_its_unit(inputs: Path, tmp_path: Path) -> None:
    def fails(task: Task) -> TaskFailed | None:
        if task.piece == 3 and task.pieces:
            return TaskFailed("OutOfMemory", "memory")
        return lacks_memory(task) if task.segment == 0 else None

    drive_with(fails, recipe(*STAGES), inputs, tmp_path / "r")
    stats = json.loads((tmp_path / "r/stats.json").read_bytes())
    assert stats["units"] == {"all": 5, "done": 4, "incomplete": 0, "quarantined": 1}
    assert stats["reader"]["documents"] == 4 * 22
    assert verify.check(open_plan(tmp_path / "r"))["holds"]


def test_a_machine_that_dies_is_no_fault_of_the_task() -> None:
    """Workers and exceptions have few chances; the second death of a worker asks for memory."""
    task = Task(0, "a", "k", memory=100)
    for cause, chances in (("error", 1), ("worker", 2), ("node", 20)):
        retries = Retries()
        memory = []
        for _ in range(chances):
            [task_again], end = retries.after(task, TaskFailed("x", cause))  # type: ignore[arg-type]
            assert end is None
            memory.append(task_again.memory)
        assert memory == {"error": [100], "worker": [100, 200], "node": [100] * 20}[cause]
        failure = TaskFailed("x", cause)  # type: ignore[arg-type]
        assert retries.after(task, failure) == ([], failure)


def test_a_global_step_is_not_divided() -> None:
    task = Task(1, "url-00000", "k", phase="url", memory=100)
    retries = Retries()
    for _ in range(2):
        retries.after(task, TaskFailed("x", "memory"))
    failure = TaskFailed("x", "memory")
    assert retries.after(task, failure) == ([], failure)


def test_late_pieces_of_a_task_that_was_given_up_are_not_counted() -> None:
    task = Task(0, "a", "k", memory=1)
    retries = Retries()
    for _ in range(2):
        retries.after(task, TaskFailed("x", "memory"))
    pieces, _ = retries.after(task, TaskFailed("x", "memory"))
    for _ in range(3):
        _, end = retries.after(pieces[0], TaskFailed("x", "worker"))
    assert isinstance(end, TaskFailed)
    assert retries.after(pieces[1], Receipt("read", "a", "k", "done")) == ([], None)


# Files of the run are damaged


@pytest.mark.parametrize("fault", ["cut", "flipped", "gone", "receipt cut", "receipt flipped"])
def test_a_damaged_run_is_repaired(
    finished: Path, inputs: Path, tmp_path: Path, fault: str
) -> None:
    """Any file that a later task reads, found by its size or digest; and any receipt."""
    chance = random.Random(fault)
    path = tmp_path / "r"
    shutil.copytree(finished, path)
    kinds = ("receipts",) if "receipt" in fault else ("text", "work", "removals")
    files = sorted(p for kind in kinds for p in path.glob(f"segments/*/{kind}/*"))
    for file in chance.sample(files, 4):
        data = bytearray(file.read_bytes())
        if "flipped" in fault:
            data[chance.randrange(len(data))] ^= 1
        file.write_bytes(data[: len(data) // 2] if "cut" in fault else data)
        if fault == "gone":
            file.unlink()
    for receipt in path.glob("segments/[1-9]-*/receipts/*"):
        receipt.unlink()  # so that everything is read again
    run(recipe(*LONG), inputs=[str(inputs)], output=path, workers=1)
    assert same(path, finished)


# Two drivers


def test_a_second_driver_ends_with_1_and_says_who_drives(
    inputs: Path, finished: Path, tmp_path: Path, command: list[str]
) -> None:
    line = [sys.executable, "-m", "curation", *command]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, **quiet) as first:
        while not (tmp_path / "r" / "lease.json").exists():
            assert first.poll() is None
            time.sleep(0.005)
        first.send_signal(signal.SIGSTOP)  # lest it be done before the other has started
        second = subprocess.run(line, **quiet, timeout=120)
        first.send_signal(signal.SIGCONT)
        first.communicate(timeout=120)
    assert (first.returncode, second.returncode) == (0, 1)
    message = second.stderr.decode()
    assert f"(process {first.pid}) since 2" in message and message.count("\n") == 1
    assert same(tmp_path / "r", finished)


class NoLease:
    taken_over = ""

    def __init__(self, *arguments: object) -> None:
        """Whoever else drives."""

    def close(self) -> None:
        """Nothing is held."""


def test_two_drivers_at_once_harm_nothing(
    inputs: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should a lease err: the second starts at every kind of moment of the first."""
    monkeypatch.setattr(driver_module, "Lease", NoLease)
    work: dict[str, Any] = {"inputs": [str(inputs)], "output": tmp_path / "r", "workers": 1}
    moments = {"0-read/receipts": 2, "1-urls/removals": 3, "2-filter2/text": 1, "documents": 1}
    real = os.replace

    def replace_file(source: Any, target: Any) -> None:
        real(source, target)
        kind = kind_of(f"after {target}").removeprefix("after ")
        if moments.get(kind):
            moments[kind] -= 1
            if not moments[kind]:
                run(recipe(*LONG), **work)

    monkeypatch.setattr(os, "replace", replace_file)
    run(recipe(*LONG), **work)
    assert not any(moments.values())
    assert same(tmp_path / "r", finished)


def test_a_driver_that_was_taken_over_stops(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Taken(NoLease):
        taken_over = "bob@elsewhere (process 7)"

    monkeypatch.setattr(driver_module, "Lease", Taken)
    with pytest.raises(RunFailed, match="taken over by bob@elsewhere"):
        run(recipe(*STAGES), inputs=[str(inputs)], output=tmp_path / "r", workers=1)


# The machine


def test_a_clock_that_jumps_changes_nothing(
    inputs: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(4)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + chance.uniform(-1e8, 1e8))
    result = run(recipe(*LONG), inputs=[str(inputs)], output=tmp_path / "r", workers=1)
    assert same(result.path, finished)
    timings = json.loads((tmp_path / "r/timings.json").read_bytes())
    assert all(0 <= segment["task_seconds"] < 300 for segment in timings["segments"])


def test_a_full_disk_stops_the_run_and_room_lets_it_go_on(
    finished: Path, command: list[str], tmp_path: Path
) -> None:
    """On a real file system of a few kilobytes, in a mount name space of its own."""
    disk = tmp_path / "r"
    disk.mkdir()
    curation = f"{sys.executable} -m curation {' '.join(command)}"
    script = f"""
        mount -t tmpfs -o size=100k none {disk} || exit 99
        {curation}; first=$?
        mount -o remount,size=100m none {disk}
        {curation} || exit 98
        cp -r {disk} {tmp_path}/copy
        exit $first
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare: a mount name space is needed")
    done = subprocess.run(
        [unshare, "--mount", "--map-root-user", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode == 99 or "unshare:" in done.stderr:
        pytest.skip("this user may not mount a file system of its own")
    assert done.returncode == 1, done.stderr
    assert "No space left on device" in done.stderr and "Traceback" not in done.stderr
    assert same_copy(tmp_path / "copy", finished)


def same_copy(path: Path, finished: Path) -> bool:
    return contents(path) == contents(finished)


def test_shards_together_are_the_run(inputs: Path, finished: Path, tmp_path: Path) -> None:
    """In any order, one of them killed half-way; then a run without a shard does the rest."""
    work: dict[str, Any] = {"inputs": [str(inputs)], "output": tmp_path / "r", "workers": 1}
    third = run(recipe(*LONG), **work, shard="3/3")
    assert not third.unfinished and not third.stats["complete"]
    first = run(recipe(*LONG), **work, shard="1/3")
    plan = open_plan(tmp_path / "r")
    receipts = {p.name for p in plan.receipts(plan.segments[0]).glob("*.json")}
    assert receipts == {f"{plan.units[i].name}.json" for i in (0, 2, 3)}
    assert first.stats["units"]["done"] == 3
    result = run(recipe(*LONG), **work)
    assert result.complete and same(result.path, finished)


def test_what_could_not_be_read_is_read_again_when_asked(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from curation.engine import unit as unit_module

    source = write_jsonl(tmp_path / "x.jsonl", [page(i) for i in range(30)])
    work: dict[str, Any] = {"inputs": [str(source), str(inputs)], "workers": 1}
    real = unit_module.read_raw

    def broken(kind: str, path: str, *rest: Any) -> Iterator[Any]:
        for number, document in enumerate(real(kind, path, *rest), 1):
            yield document
            if path == str(source) and number == 10:
                raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(unit_module, "read_raw", broken)
        partial = run(recipe(*STAGES), output=tmp_path / "r", **work)
    assert list(partial.unfinished) == [str(source)]
    assert partial.stats["reader"]["documents"] == 10 + 5 * 22
    again = run(recipe(*STAGES), output=tmp_path / "r", **work)
    assert again.unfinished == partial.unfinished  # resuming does not touch it
    whole = run(recipe(*STAGES), output=tmp_path / "r", **work, retry="incomplete")
    assert whole.complete
    fresh = run(recipe(*STAGES), output=tmp_path / "fresh", **work)
    assert same(whole.path, fresh.path)


def test_memory_is_a_part_of_every_task(inputs: Path, tmp_path: Path) -> None:
    engine = drive_with(lambda task: None, recipe(*STAGES), inputs, tmp_path / "r")
    assert all(task.memory > 100 << 20 for task in engine.seen)
    plan = open_plan(tmp_path / "r")
    receipt = Receipt.load(plan.receipt_of(replace(engine.seen[0])))
    assert receipt is not None
    peaks = receipt.envelope
    assert peaks["tree_peak_bytes"] == peaks["peak_bytes"] + peaks["child_peak_bytes"]
    assert 10 << 20 < peaks["peak_bytes"] < 4 << 30


def test_poison_pages_cost_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that kills the parser, one that hangs, one that eats memory: the rest of the run is what
    it would be, in any division of the file, and a replay honours what the machine decided."""
    (tmp_path / "poison_engine.py").write_text(POISON)
    monkeypatch.syspath_prepend(str(tmp_path))
    real = extract_stage.sandbox
    monkeypatch.setattr(
        extract_stage,
        "sandbox",
        lambda settings: real(settings._replace(engine="poison_engine:engine", options=())),
    )
    poison = {4: b"segfault", 11: b"spin", 17: b"eat"}
    records = [response(i, poison.get(i, b"page %d" % i)) for i in range(24)]
    source = tmp_path / "a.warc"
    source.write_bytes(b"".join(records))
    limits = {"cpu_seconds": 0.5, "memory_mib": 256}
    work = recipe({"extract": limits}, {"exact_dedup": {}}, input={"kind": "warc"})
    whole = run(work, inputs=[str(source)], output=tmp_path / "whole", workers=1)
    [extract, _] = whole.stats["stages"]
    assert extract["failures"] == {"crash": 1, "memory": 1, "timeout": 1}
    assert extract["kept"]["documents"] == 21 == whole.stats["output"]["documents"]
    assert verify.check(open_plan(whole.path), replay=1)["holds"]
    again = run(work, inputs=[str(source)], output=tmp_path / "again", workers=1)
    assert contents(again.path) == contents(whole.path)
    work["input"]["split"] = source.stat().st_size // 3
    parts = run(work, inputs=[str(source)], output=tmp_path / "parts", workers=1)
    assert parts.stats["stages"] == whole.stats["stages"]
    rows = [pq.read_table(result.documents).to_pylist() for result in (whole, parts)]
    assert rows[0] == rows[1]


def test_the_window_follows_a_cluster_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no task asks for more memory than the largest machine has, or it would wait for ever."""
    nodes = [{"Alive": True, "Resources": {"CPU": 2.0, "memory": 4e9}}]
    engine = RayTasks.__new__(RayTasks)
    asked: list[int] = []
    remote = SimpleNamespace(
        options=lambda memory: (asked.append(memory), SimpleNamespace(remote=lambda *_: "ref"))[1]
    )
    engine.__dict__.update(
        _ray=SimpleNamespace(nodes=lambda: nodes), _remote=remote, _limit=None, _looked=0.0
    )
    clock = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    engine._look()
    assert engine.workers == 2
    engine._submit(Path("r"), Task(0, "a", "k", memory=8 * 10**9))
    nodes.append({"Alive": True, "Resources": {"CPU": 30.0, "memory": 64e9}})
    nodes.append({"Alive": False, "Resources": {"CPU": 64.0, "memory": 256e9}})
    engine._look()
    assert engine.workers == 2  # it does not look all the time
    clock += LOOK
    engine._look()
    assert engine.workers == 32
    engine._submit(Path("r"), Task(0, "a", "k", memory=8 * 10**9))
    assert asked == [4 * 10**9, 8 * 10**9]


@pytest.mark.parametrize("address", ["127.0.0.1:9", "nowhere.invalid:6379", "127.0.0.1:99999"])
def test_a_cluster_that_is_not_there_is_said_at_once(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # another test may have a cluster
    with pytest.raises(RunFailed, match=f"no Ray cluster answers at {address}"):
        run(recipe(), inputs=[str(inputs)], output=tmp_path / "r", address=address, executor="ray")
