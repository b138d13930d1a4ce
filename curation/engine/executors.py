"""Executors: who carries out tasks. In this process, in worker processes, or on a Ray cluster.

What may live here: the one thin interface `Executor` and its implementations. They move a task out
and a receipt back; they decide nothing: no retries, no order of their own, no state.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol

from curation.engine import resources
from curation.engine.plan import Task
from curation.engine.ray_auth import ray_environment
from curation.engine.retry import TaskFailed
from curation.engine.work import carry_out, open_work
from curation.stage import RAISED
from manifests.records import Receipt

LOOK = 5.0  # seconds between looks at the size of a cluster

Finished = tuple[Task, Receipt | TaskFailed]


class Executor(Protocol):
    """Carries out tasks of the run at `run`, in any order, and yields each as it ends.

    Tasks are taken from the front of `queue` as there is room for them; who iterates may add to it
    between two results. The iterator ends when the queue is empty and nothing runs. Raises
    ExecutorLost where no task can be carried out any more.
    """

    workers: int

    def run(self, run: Path, queue: deque[Task]) -> Generator[Finished, None, None]: ...

    def close(self) -> None: ...


class ExecutorLost(RuntimeError):
    """What carries out the tasks is gone (the head of a cluster, say)."""


def execute(run: str, task: dict[str, Any]) -> str:
    """What a worker does: opens the plan, runs the task, returns where its receipt lies."""
    work, wanted = open_work(run), Task.of(task)
    carry_out(work, wanted)
    return str(work.receipt_of(wanted))


def _receipt(path: str, task: Task) -> Receipt | TaskFailed:
    """The receipt of a task, from where its worker says that it lies."""
    receipt = Receipt.load(Path(path))
    if receipt is None or receipt.key != task.key:
        return TaskFailed(f"receipt {path} cannot be read back")
    return receipt


class InProcess:
    """One task after the other in this process."""

    workers = 1

    def run(self, run: Path, queue: deque[Task]) -> Generator[Finished, None, None]:
        work = open_work(run)
        while queue:
            task = queue.popleft()
            try:
                yield task, carry_out(work, task)
            except RAISED as error:
                yield task, TaskFailed.of(error)

    def close(self) -> None:
        """Nothing is held."""


class _Worker:
    """A child process that runs tasks given as lines of JSON (see `worker.py`).

    What a user's stage starts belongs to the worker's process group and ends with it.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "curation.engine.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            start_new_session=True,  # Ctrl-C is for the driver, which then ends its workers
        )

    def ask(self, run: Path, task: Task) -> Receipt | TaskFailed:
        """What became of a task. A worker in which one has failed is ended: a stage may have spoilt
        the process, and what is tried next shall not suffer from it."""
        assert self._process.stdin
        request = json.dumps({"run": str(run), "task": task.plain()}).encode() + b"\n"
        kills = resources.kills()
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(request)
            self._process.stdin.flush()
        answer = self._answer()
        if not answer:
            status = self.kill()
            if status == -signal.SIGKILL and resources.kills() > kills:
                return TaskFailed("OutOfMemory: the kernel killed the worker", "memory")
            return TaskFailed(f"WorkerDied: exit status {status}", "worker")
        try:
            reply = json.loads(answer)
            outcome = (
                _receipt(reply["receipt"], task)
                if "receipt" in reply
                else TaskFailed(**reply["failed"])
            )
        except (ValueError, KeyError, TypeError):  # a stage has written to what is not its own
            outcome = TaskFailed("WorkerDied: it answered with what is no answer", "worker")
        if isinstance(outcome, TaskFailed):
            self.kill()
        return outcome

    def _answer(self) -> bytes:
        """A line of the worker; empty once it has ended, even where what it has started lives on
        and keeps the pipe open."""
        assert self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not selector.select(timeout=1):
                if self._ended() and not selector.select(timeout=0):
                    return b""
        return self._process.stdout.readline()

    def _ended(self) -> bool:
        """Whether the process has ended; it is not reaped, so that its number stays its own."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    @property
    def alive(self) -> bool:
        return self._process.returncode is None and not self._ended()

    def kill(self) -> int:
        """Ends the worker with all that it has started; its exit status."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()


class Processes:
    """Worker processes on this machine, one task each at a time; a dead one is replaced.

    No more tasks run at a time than their memory allows; one always does.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._memory = resources.memory_of_machine()
        self._threads = ThreadPoolExecutor(workers)
        self._local = threading.local()
        self._all: list[_Worker] = []

    def _ask(self, run: Path, task: Task) -> Receipt | TaskFailed:
        worker: _Worker | None = getattr(self._local, "worker", None)
        if worker is None or not worker.alive:
            worker = self._local.worker = _Worker()
            self._all.append(worker)
        return worker.ask(run, task)

    def run(self, run: Path, queue: deque[Task]) -> Generator[Finished, None, None]:
        running: dict[Future[Receipt | TaskFailed], Task] = {}
        while queue or running:
            while queue and self._room(queue[0], list(running.values())):
                task = queue.popleft()
                running[self._threads.submit(self._ask, run, task)] = task
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()

    def _room(self, task: Task, running: list[Task]) -> bool:
        taken = sum(other.memory for other in running)
        fits = taken + task.memory <= self._memory
        return len(running) < self.workers and (fits or not running)

    def close(self) -> None:
        for worker in self._all:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
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
    """Ray Core tasks: at most `window` per processor in flight, no retries by Ray, no object store.

    With `address` None a local cluster is started and ended here. The window follows the size of
    the cluster, so that tasks wait for machines that join, and an autoscaler sees them wait.
    """

    window = 2

    def __init__(self, workers: int, address: str | None = None) -> None:
        ray_environment()
        import ray

        self._ray, self._own = ray, not ray.is_initialized()
        if self._own:
            _knock(address)
            handlers = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)}
            try:
                with stdout_to_stderr():
                    ray.init(
                        address=address or "local",
                        num_cpus=None if address else workers,
                        include_dashboard=None if address else False,
                        log_to_driver=False,
                        logging_level=logging.WARNING,
                    )
            except (OSError, RuntimeError, ValueError) as error:
                raise ExecutorLost(f"no Ray cluster: {_first_line(error)}") from None
            for number, handler in handlers.items():  # Ray puts its own in their place
                signal.signal(number, handler)
        self._limit = None if address else workers
        self._looked = 0.0
        self._look()
        self._remote = ray.remote(num_cpus=1, max_retries=0)(execute)

    def _look(self) -> None:
        """Notes how large the cluster is, and how much memory its largest machine has for tasks."""
        if self._looked and time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        nodes: Any = self._ray.nodes
        alive = [node["Resources"] for node in nodes() if node["Alive"]]
        cpus = int(sum(has.get("CPU", 0) for has in alive))
        self.workers = max(1, min(cpus, self._limit or cpus))
        self._memory = int(max([has.get("memory", 0) for has in alive], default=0))

    def run(self, run: Path, queue: deque[Task]) -> Generator[Finished, None, None]:
        running: dict[Any, Task] = {}
        try:
            while queue or running:
                while queue and len(running) < self.window * self.workers:
                    task = queue.popleft()
                    running[self._submit(run, task)] = task
                ready, _ = self._ray.wait(list(running), num_returns=1, timeout=LOOK)
                for reference in ready:
                    task = running.pop(reference)
                    yield task, self._outcome(reference, task)
                self._look()
        finally:
            for reference in running:  # of a driver that stops: nobody waits for them
                self._ray.cancel(reference, force=True)

    def _submit(self, run: Path, task: Task) -> Any:
        # What no machine has would be waited for without end.
        wanted = min(task.memory, self._memory)
        try:
            return self._remote.options(memory=wanted).remote(str(run), task.plain())
        except self._ray.exceptions.RayError as error:
            raise ExecutorLost(f"the Ray cluster cannot be reached: {error}") from None

    def _outcome(self, reference: Any, task: Task) -> Receipt | TaskFailed:
        errors = self._ray.exceptions
        try:
            return _receipt(self._ray.get(reference), task)
        except errors.RayTaskError as error:
            return TaskFailed.of(error.cause)
        except errors.OutOfMemoryError:
            return TaskFailed("OutOfMemory: Ray killed the worker", "memory")
        except (errors.NodeDiedError, errors.LocalRayletDiedError):
            return TaskFailed("NodeDied: the machine of the task is gone", "node")
        except errors.WorkerCrashedError:
            return TaskFailed("WorkerDied: the worker of the task died", "worker")
        except errors.RayError as error:
            return TaskFailed(f"{type(error).__name__}: {_first_line(error)}", "node")

    def close(self) -> None:
        if self._own:
            with stdout_to_stderr():
                self._ray.shutdown()


def _knock(address: str | None) -> None:
    """Raises ExecutorLost where nothing listens at `HOST:PORT`: Ray would try for minutes."""
    host, _, port = (address or "").rpartition(":")
    if not port.isdecimal() or "/" in host:
        return  # `auto`, or a form that Ray understands
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise ExecutorLost(f"no Ray cluster answers at {address}: {error}") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


def make(kind: str, workers: int, address: str | None = None) -> Executor:
    """The executor of a name: `inline` (this machine, without Ray) or `ray`."""
    if kind == "ray":
        return RayTasks(workers, address)
    return InProcess() if workers == 1 else Processes(workers)
