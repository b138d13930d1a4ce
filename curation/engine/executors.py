"""Executors: who carries out tasks. In this process, in worker processes, or on a Ray cluster.

What may live here: the one thin interface `Executor` and its implementations. They move a task out
and a receipt back; they decide nothing: no retries, no order of their own, no state.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from curation.engine.chain import StageFault
from curation.engine.exchange import DamagedFile
from curation.engine.plan import Task, open_plan
from curation.engine.unit import run_task
from curation.stage import RAISED
from manifests.records import Receipt


class TaskFailed(RuntimeError):
    """A task raised, or its worker died. The message says which error, in one line.

    `hopeless`: no task can succeed (a full disk, an output that cannot be written, a stage that
    breaks its contract), so that trying again or going on with other tasks is no use. `damaged`:
    the file of the run that could not be read, as its receipt names it.
    """

    def __init__(self, message: str, hopeless: bool = False, damaged: str = "") -> None:
        super().__init__(message)
        self.hopeless = hopeless
        self.damaged = damaged

    @staticmethod
    def of(error: BaseException) -> TaskFailed:
        """What an error of a task means for the run."""
        lines = str(error).strip().splitlines()
        message = f"{type(error).__name__}: {lines[-1] if lines else ''}"[:500]
        full = isinstance(error, OSError) and error.errno in _HOPELESS
        damaged = error.path if isinstance(error, DamagedFile) else ""
        return TaskFailed(message, full or isinstance(error, StageFault), damaged)

    def plain(self) -> dict[str, Any]:
        return {"message": str(self), "hopeless": self.hopeless, "damaged": self.damaged}


#: What makes an output hopeless. Inputs that cannot be read are the reader's business.
_HOPELESS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)

Finished = tuple[Task, Receipt | TaskFailed]


class Executor(Protocol):
    """Carries out tasks of the run at `run`, in any order, and yields each as it ends."""

    workers: int

    def run(self, run: Path, tasks: Sequence[Task]) -> Iterator[Finished]: ...

    def close(self) -> None: ...


def execute(run: str, task: dict[str, Any]) -> str:
    """What a worker does: opens the plan, runs the task, returns where its receipt lies."""
    plan, work = open_plan(run), Task.of(task)
    run_task(plan, work)
    return str(plan.receipt_path(plan.segments[work.segment], work.name))


def _receipt(path: str) -> Receipt | TaskFailed:
    receipt = Receipt.load(Path(path))
    return receipt if receipt is not None else TaskFailed(f"receipt {path} cannot be read back")


class InProcess:
    """One task after the other in this process."""

    workers = 1

    def run(self, run: Path, tasks: Sequence[Task]) -> Iterator[Finished]:
        plan = open_plan(run)
        for task in tasks:
            try:
                yield task, run_task(plan, task)
            except RAISED as error:
                yield task, TaskFailed.of(error)

    def close(self) -> None:
        """Nothing is held."""


class _Worker:
    """A child process that runs tasks given as lines of JSON (see `worker.py`)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "curation.engine.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            start_new_session=True,  # Ctrl-C is for the driver, which then ends its workers
        )

    def ask(self, run: Path, task: Task) -> Receipt | TaskFailed:
        assert self._process.stdin and self._process.stdout
        request = json.dumps({"run": str(run), "task": task.plain()}).encode() + b"\n"
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except (OSError, ValueError):
            answer = b""
        if not answer:
            return TaskFailed(f"WorkerDied: exit status {self._process.wait()}")
        reply = json.loads(answer)
        if "receipt" in reply:
            return _receipt(reply["receipt"])
        return TaskFailed(**reply["failed"])

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Processes:
    """Worker processes on this machine, one task each at a time; a dead one is replaced."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._threads = ThreadPoolExecutor(workers)
        self._local = threading.local()
        self._all: list[_Worker] = []

    def _ask(self, run: Path, task: Task) -> Receipt | TaskFailed:
        worker: _Worker | None = getattr(self._local, "worker", None)
        if worker is None or not worker.alive:
            worker = self._local.worker = _Worker()
            self._all.append(worker)
        return worker.ask(run, task)

    def run(self, run: Path, tasks: Sequence[Task]) -> Iterator[Finished]:
        waiting = iter(tasks)
        running: dict[Future[Receipt | TaskFailed], Task] = {}
        for task in waiting:
            running[self._threads.submit(self._ask, run, task)] = task
            if len(running) == self.workers:
                break
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
                for task in waiting:
                    running[self._threads.submit(self._ask, run, task)] = task
                    break

    def close(self) -> None:
        for worker in self._all:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Sends file descriptor 1 to 2 for a while: Ray writes to it behind Python's back."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


class RayTasks:
    """Ray Core tasks: at most `window` per worker in flight, no retries by Ray, no object store.

    With `address` None a local cluster is started and ended here.
    """

    window = 2

    def __init__(self, workers: int, address: str | None = None) -> None:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self._ray, self._own = ray, not ray.is_initialized()
        if self._own:
            with stdout_to_stderr():
                ray.init(
                    address=address or "local",
                    num_cpus=None if address else workers,
                    include_dashboard=None if address else False,
                    log_to_driver=False,
                    logging_level=logging.WARNING,
                )
        resources: Any = ray
        cpus = int(resources.cluster_resources().get("CPU", workers))
        self.workers = min(workers, cpus) if address is None else cpus
        self._remote = ray.remote(num_cpus=1, max_retries=0)(execute)

    def run(self, run: Path, tasks: Sequence[Task]) -> Iterator[Finished]:
        waiting = iter(tasks)
        running: dict[Any, Task] = {}
        bound = self.window * self.workers
        with stdout_to_stderr():
            for task in waiting:
                running[self._remote.remote(str(run), task.plain())] = task
                if len(running) == bound:
                    break
        while running:
            ready, _ = self._ray.wait(list(running), num_returns=1)
            for reference in ready:
                task = running.pop(reference)
                try:
                    yield task, _receipt(self._ray.get(reference))
                except self._ray.exceptions.RayError as error:
                    yield task, TaskFailed.of(getattr(error, "cause", None) or error)
                for following in waiting:
                    running[self._remote.remote(str(run), following.plain())] = following
                    break

    def close(self) -> None:
        if self._own:
            with stdout_to_stderr():
                self._ray.shutdown()


def make(kind: str, workers: int, address: str | None = None) -> Executor:
    """The executor of a name: `inline` (this machine, without Ray) or `ray`."""
    if kind == "ray":
        return RayTasks(workers, address)
    return InProcess() if workers == 1 else Processes(workers)
