"""A process that has imported everything and runs commands in forks, with planned deaths.

What may live here: `Zygote`, for tests that need many runs of the command line in processes of
their own, `curation`, which is one of them, and the one place where such a run is made to die. What
a test says of the start and the end of the process itself wants a process from scratch instead. Run
as a script, it is the server.

A run dies by SIGKILL at its n-th *point*: just before or just after a file of the run gets its
name. Those are all the moments that matter: nothing else that a task does can be seen by another.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class Zygote:
    """Runs `curation` commands, each in a fork of one warm process."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )

    def run(self, arguments: Sequence[str], die_at: int = 0) -> int:
        """Exit status of a command (-9 for a planned death); `die_at` counts points from 1."""
        return int(self._ask(arguments, die_at)["status"])

    def done(self, arguments: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
        """What a command prints, and its exit status."""
        with tempfile.TemporaryDirectory() as place:
            out, err = (os.path.join(place, name) for name in ("out", "err"))
            status = self._ask(arguments, 0, str(cwd), out, err)["status"]
            texts = [Path(file).read_text() for file in (out, err)]
        return subprocess.CompletedProcess(arguments, int(status), *texts)

    def points(self, arguments: Sequence[str]) -> list[str]:
        """The points of an undisturbed command: `before` or `after`, and which file."""
        answer = self._ask(arguments, 0)
        assert answer["status"] == 0
        return list(answer["points"])

    def _ask(self, arguments: Sequence[str], die_at: int, *place: str) -> dict[str, Any]:
        assert self._server.stdin and self._server.stdout
        print(json.dumps([list(arguments), die_at, place]), file=self._server.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer

    def close(self) -> None:
        self._server.communicate(timeout=30)


@cache
def _common() -> Zygote:
    return Zygote()


def curation(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What a command of the command line gives, in a fork of the tests' common process."""
    return _common().done([str(argument) for argument in arguments], cwd)


def _serve() -> None:
    # What a run imports and compiles, and nothing that starts a thread: a fork has only its own.
    import pyarrow as pa

    import curation.api
    import curation.inspect.droptable
    import curation.stages
    from curation.document import Documents

    words = Documents({"text": pa.array(["a word"], pa.large_string())})
    curation.stages.STAGES["gopher_quality"]().score(words)

    for line in sys.stdin:
        arguments, die_at, place = json.loads(line)
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(readable)
            _settle(*place)
            _count_points(die_at, writable)
            from curation.cli import main

            status = 70
            try:
                status = main(arguments)
            except SystemExit as end:
                status = int(end.code or 0)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        os.close(writable)
        with os.fdopen(readable) as pipe:
            points = pipe.read().splitlines()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"status": status, "points": points}), flush=True)


def _settle(cwd: str | None = None, out: str = os.devnull, err: str | None = None) -> None:
    """Where a command runs, and where what it prints goes; without `err` on our own stderr."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    for number, file in ((1, out), (2, err)):
        if file is not None:
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    if cwd is not None:
        os.chdir(cwd)
        sys.path[0] = ""  # as `python -m` has it


def _count_points(die_at: int, report: int) -> None:
    real, passed = os.replace, 0

    def point(when: str, path: Any) -> None:
        nonlocal passed
        passed += 1
        os.write(report, f"{when} {path}\n".encode())
        if passed == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def replace(source: Any, target: Any) -> None:
        if "lease" in os.path.basename(target):  # renewed by the clock: not a point of the work
            return real(source, target)
        point("before", target)
        real(source, target)
        point("after", target)

    os.replace = replace  # type: ignore[assignment]


if __name__ == "__main__":
    _serve()
