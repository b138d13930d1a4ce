"""Local workers: started, watched, started again, and never left behind.

What may live here: the processes of one machine, what they say on stderr, their heartbeats, and the
command that tells somebody. Nothing of training, and no torch.
"""

from __future__ import annotations

import ctypes
import os
import pty
import selectors
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import tty
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from training.config import Config
from training.stop import HEARTBEAT, HOPELESS, INTERRUPTED, asked

#: The environment variable with the process id of a worker's launcher.
LAUNCHER = "GRISTMILL_LAUNCHER"

_COMMAND = [sys.executable, "-m", "training.launch"]  # a worker; its configuration comes after
_ENDED = (0, INTERRUPTED)  # exit codes of workers that did what they should
_FINAL = {2: 2, HOPELESS: 1}  # exit codes that end the run, and the launcher's own for them
_BEFORE = 10.0  # times launch.stall that may go by while no step is being done
_TAIL = 8192  # bytes of stderr that are kept
_TICK = 0.05  # seconds
_ALERT = 60.0  # seconds that an alert's command may take
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class End:
    """How workers have ended: the exit code, or None and a reason where they can start again."""

    code: int | None
    reason: str = ""


@dataclass
class Worker:
    """A rank's process, the ends of its pipes here, and what is known of it."""

    rank: int
    process: subprocess.Popen[bytes]
    errors: int  # its stderr
    beats: int  # its heartbeats
    shown: bool  # its stderr is passed on
    tail: bytes = b""  # of its stderr
    torn: bytes = b""  # a heartbeat that has not come whole
    step: int = 0  # the last that it has finished since it was started
    since: float = field(default_factory=time.monotonic)  # its last heartbeat
    working: bool = False  # on a step, and on nothing that may take longer
    listening: bool = False  # to signals
    told: bool = False  # to stop

    def read_errors(self) -> bool:
        """Takes what there is of its stderr; whether more may come."""
        while data := _read(self.errors):
            self.tail = (self.tail + data)[-_TAIL:]
            if self.shown:
                _write(data)
        return data is None

    def read_beats(self) -> bool:
        """Takes its heartbeats; whether more may come."""
        while data := _read(self.beats):
            *words, self.torn = (self.torn + data).split(b"\n")
            self.since = time.monotonic()
            for word in words:
                self.listening, self.working = True, word != b"-"
                self.step = int(word) if self.working else self.step
        return data is None

    def limit(self, stall: float) -> float:
        """Seconds that it may be silent now."""
        return stall if self.working else stall * _BEFORE

    def died(self) -> str:
        """How it has ended, in words."""
        code = self.process.returncode
        after = f" after step {self.step}" if self.step else " before its first step"
        if code < 0:
            return f"rank {self.rank} was killed by {signal.Signals(-code).name}{after}"
        lines = [line for line in self.tail.decode(errors="replace").splitlines() if line.strip()]
        said = f": {lines[-1].strip()}" if lines else ""
        return f"rank {self.rank} exited with {code}{after}{said}"

    def show(self) -> None:
        """Its last lines, where they were not seen yet."""
        if not self.shown and self.tail:
            lines = self.tail.decode(errors="replace").splitlines()[-40:]
            _write("".join(f"[rank {self.rank}] {line}\n" for line in lines).encode())
            self.shown = True

    def kill(self) -> None:
        """Ends it and all that it started in its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.errors)
        os.close(self.beats)


def supervise(config: Config, workers: int, held: IO[bytes], quiet: bool) -> int:
    """Runs the workers of a checked configuration, which is in RUN/config.yaml, to the end; gives
    the exit code. `held`: the lock, which they inherit; `quiet`: rank 0 is not shown either."""
    left = config.launch.restarts
    while True:
        end = _once(config, workers, held, quiet)
        if end.code in _ENDED:
            return end.code
        if end.code is not None:  # its worker has said why
            alert(config, f"the run has failed: {end.reason}")
            return end.code
        if not left or asked():
            why = f"launch.restarts={config.launch.restarts} are used up"
            why = "it had been asked to stop and had not saved" if asked() else why
            alert(config, f"the run has failed: {end.reason}; {why}")
            _say(f"{end.reason}; {why}")
            return 1
        alert(config, end.reason)
        _say(f"{end.reason}; starting again from the last complete checkpoint ({left} left)")
        left -= 1


def alert(config: Config, reason: str) -> None:
    """Starts `launch.on_alert`, if there is one, and does not wait for it: whatever becomes of it,
    the run goes on. After a minute it is killed."""
    if config.launch.on_alert is None:
        return
    environment = {"GRISTMILL_ALERT": reason, "GRISTMILL_RUN": str(Path(config.run).resolve())}
    try:
        process = subprocess.Popen(
            config.launch.on_alert,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **environment},
        )
    except OSError as error:
        return _say(f"launch.on_alert: {error}")
    threading.Thread(target=_wait, args=(process,), daemon=True).start()


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Sees an alert's command to its end."""
    try:
        code = process.wait(_ALERT)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    if code:
        _say(f"launch.on_alert: its command ended with {code}")


def die_with_launcher() -> None:
    """Called by a worker before all else: the kernel kills it when its launcher dies (Linux)."""
    if launcher := os.environ.get(LAUNCHER):
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(launcher):  # it has died already
            os._exit(1)


# ---------------------------------------------------------------- one start


def _once(config: Config, workers: int, held: IO[bytes], quiet: bool) -> End:
    """One start of all workers, and how it ends. None of them is alive afterwards."""
    team: list[Worker] = []
    try:
        port = _port()
        for rank in range(workers):
            team.append(_start(config, rank, workers, port, held, rank == 0 and not quiet))
        return _watch(team, config.launch.stall)
    finally:
        for worker in team:
            worker.kill()


def _watch(team: list[Worker], stall: float) -> End:
    with selectors.DefaultSelector() as selector:
        for worker in team:
            selector.register(worker.errors, selectors.EVENT_READ, worker.read_errors)
            selector.register(worker.beats, selectors.EVENT_READ, worker.read_beats)
        while True:
            for key, _ in selector.select(_TICK):
                if not key.data():
                    selector.unregister(key.fileobj)
            if (number := asked()) is not None:
                _forward(team, number)
            if (end := _judge(team, stall)) is not None:
                return end


def _forward(team: list[Worker], number: int) -> None:
    """Asks the workers to stop, each once, as soon as it would take it for a wish."""
    for worker in team:
        if worker.listening and not worker.told and worker.process.poll() is None:
            worker.process.send_signal(number)
            worker.told = True


def _judge(team: list[Worker], stall: float) -> End | None:
    """How it has ended, if it has."""
    codes = [worker.process.poll() for worker in team]
    bad = [w for w, code in zip(team, codes, strict=True) if code not in (None, *_ENDED)]
    if bad or None not in codes:
        for worker in team:  # what they said last
            worker.read_errors()
            worker.read_beats()
    if bad:  # one that was killed comes first: the others may only have lost it
        worker = min(bad, key=lambda worker: worker.process.returncode > 0)
        worker.show()
        return End(_FINAL.get(worker.process.returncode), worker.died())
    if None not in codes:
        return End(INTERRUPTED if INTERRUPTED in codes else 0)
    now = time.monotonic()
    late = [w for w in team if w.process.poll() is None and now - w.since > w.limit(stall)]
    if late:
        worker = min(late, key=lambda worker: worker.since)
        worker.show()
        silent = f"has finished nothing for {now - worker.since:.0f} s"
        return End(None, f"rank {worker.rank} {silent}, after step {worker.step}")
    return None


def _start(
    config: Config, rank: int, workers: int, port: int, held: IO[bytes], shown: bool
) -> Worker:
    """A worker in a session of its own, so that a terminal's Ctrl-C reaches the launcher alone."""
    errors, says = _pipe(shown and sys.stderr.isatty())
    beats, beat = os.pipe()
    for end in (errors, beats, beat):
        os.set_blocking(end, False)
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": workers, "LOCAL_WORLD_SIZE": workers}
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    own = {**ranks, **store, LAUNCHER: os.getpid(), HEARTBEAT: beat}
    environment = os.environ | {name: str(value) for name, value in own.items()}
    if workers > 1:
        threads = max(1, len(os.sched_getaffinity(0)) // workers)
        environment.setdefault("OMP_NUM_THREADS", str(threads))
    try:
        process = subprocess.Popen(
            [*_COMMAND, str(Path(config.run) / "config.yaml")],
            stdin=subprocess.DEVNULL,
            stderr=says,
            env=environment,
            pass_fds=(beat, held.fileno()),
            start_new_session=True,
        )
    finally:
        os.close(says)
        os.close(beat)
    return Worker(rank, process, errors, beats, shown)


def _pipe(terminal: bool) -> tuple[int, int]:
    """The reading and the writing end of a pipe; of a terminal like our own where that is asked, so
    that the progress line is live."""
    if not terminal:
        return os.pipe()
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    with suppress(termios.error):
        termios.tcsetwinsize(theirs, termios.tcgetwinsize(sys.stderr))
    return ours, theirs


def _port() -> int:
    """A free port of this machine. One that is taken before rank 0 listens costs a restart."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _read(end: int) -> bytes | None:
    """What is there; None where there is nothing now, b"" where nothing will come."""
    try:
        return os.read(end, 1 << 16)
    except BlockingIOError:
        return None
    except OSError:  # how a terminal says it
        return b""


def _write(data: bytes) -> None:
    with suppress(OSError):  # nobody reads any more; the run goes on
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()


def _say(line: str) -> None:
    _write(f"training.launch: {line}\n".encode())
