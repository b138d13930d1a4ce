"""The sandbox: extraction in a child process that may crash, hang or run out of memory.

What may live here: the parent's side of the child (`curation.extract.child`): starting it, handing
it exchanges of pages, noticing its death and finding the page that caused it.

While the child works the parent is free: pages and texts travel through two arena files in memory,
and only slot numbers through the pipes, so that neither side ever waits for the other to read.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

from curation.extract.child import (
    MESSAGE,
    OUT_OF_MEMORY,
    PROGRESS,
    RECYCLE,
    SLOT,
    Outcome,
    Settings,
    write_at,
)

#: An exchange: large enough that messages cost nothing, small enough that a death repeats little.
EXCHANGE_PAGES = 64
EXCHANGE_BYTES = 4 << 20
#: Deaths in a row without a page in hand after which the child itself is held to be broken.
MAX_IDLE_DEATHS = 3
RECYCLED = "recycled"


class SandboxError(RuntimeError):
    """The child cannot be started or dies without a page in hand: not a page's fault."""


class Page(NamedTuple):
    """A body as captured, the label of its HTTP charset, and its media type."""

    content: bytes | memoryview
    charset: str | None = None
    media_type: str = "text/html"


@dataclass(eq=False)
class Exchange:
    """Pages that were handed in together, and their outcomes once they are known."""

    pages: Sequence[Page]
    slot: int
    outcomes: list[Outcome] | None = None


class _Death(NamedTuple):
    page: int  # index of the page in hand, or -1
    failure: str
    said: str  # the last line on the child's stderr, which is open only while it starts


class Sandbox:
    """One child, restarted when it dies, and the exchanges that it has not answered yet.

    A page in whose hands the child died is tried again alone in a fresh child; if that dies too,
    the page's outcome is the failure `crash`, `timeout` or `memory`. All other pages come out as
    if nothing had happened. Belongs to one thread.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._pending: deque[Exchange] = deque()
        self._free: list[int] = []
        self._slots = 0
        self._idle_deaths = 0
        self._child: _Child | None = None
        self._inbox, self._outbox, self._progress = (_memory_file() for _ in range(3))
        os.ftruncate(self._progress.fileno(), PROGRESS.size)

    def extract(self, pages: Sequence[Page]) -> list[Outcome]:
        """The outcomes of pages, in order."""
        return next(self.extract_many([pages]))

    def extract_many(self, batches: Iterable[Sequence[Page]]) -> Iterator[list[Outcome]]:
        """Outcomes batch by batch; the child works on the next while the caller has this one."""
        submitted: deque[list[Exchange]] = deque()
        for batch in batches:
            submitted.append([self.submit(pages) for pages in _divided(batch)])
            if len(submitted) > 1:
                yield self._gather(submitted.popleft())
        while submitted:
            yield self._gather(submitted.popleft())

    def _gather(self, exchanges: Iterable[Exchange]) -> list[Outcome]:
        return [outcome for exchange in exchanges for outcome in self.collect(exchange)]

    def submit(self, pages: Sequence[Page]) -> Exchange:
        """Hands pages to the child and returns at once."""
        if not self._free:
            self._free.append(self._slots)
            self._slots += 1
        exchange = Exchange(pages, self._free.pop())
        self._pending.append(exchange)
        self._send(exchange)
        return exchange

    def collect(self, exchange: Exchange) -> list[Outcome]:
        """The outcomes of an exchange's pages; waits for them.

        Raises SandboxError when the child cannot run at all.
        """
        while exchange.outcomes is None:
            reply = self._receive()
            if isinstance(reply, _Death):
                self._recover(reply)
            else:
                done = self._pending.popleft()
                done.outcomes = reply
                self._free.append(done.slot)
        return exchange.outcomes

    def close(self) -> None:
        """Ends the child and forgets what it has not answered."""
        self._pending.clear()
        if self._child:
            self._child.end()
            self._child = None

    # --- messages -------------------------------------------------------------------------------

    def _send(self, exchange: Exchange) -> None:
        if self._child is None:
            self._child = _Child(self.settings, self._inbox, self._outbox, self._progress)
        headers, bodies = [], []
        for content, charset, media_type in exchange.pages:
            # One byte too many is enough to know that a page is too large.
            body = memoryview(content)[: self.settings.max_bytes + 1]
            headers.append((len(body), charset, media_type))
            bodies.append(body)
        data = b"".join([json.dumps(headers).encode(), b"\n", *bodies])
        write_at(self._inbox.fileno(), data, exchange.slot * SLOT)
        self._child.send(MESSAGE.pack(exchange.slot, len(data)))

    def _receive(self) -> list[Outcome] | _Death:
        """The oldest pending exchange's outcomes, or how the child died."""
        child = self._child
        if child is None:
            raise SandboxError("the sandbox was closed before it had answered")
        message = child.receive(self._where, self.settings.wall_seconds)
        if message is None:
            self._child = None
            return _Death(self._where()[1], *child.bury())
        self._idle_deaths = 0
        slot, size = MESSAGE.unpack(message)
        data = os.pread(self._outbox.fileno(), size, slot * SLOT)
        end = data.index(b"\n") + 1
        outcomes = []
        for length, *rest in json.loads(data[:end]):
            text = None if length is None else data[end : end + length]
            end += length or 0
            outcomes.append(Outcome(text, *rest))
        return outcomes

    def _where(self) -> tuple[int, int, int]:
        slot, index, begun = PROGRESS.unpack(os.pread(self._progress.fileno(), PROGRESS.size, 0))
        return slot, index, begun

    # --- deaths ---------------------------------------------------------------------------------

    def _recover(self, death: _Death) -> None:
        """Answers the exchange that the child died of, then gives the others to a fresh child."""
        if death.page >= 0:
            exchange = self._pending.popleft()
            exchange.outcomes = self._isolate(exchange, death.page)
            self._free.append(exchange.slot)
        elif death.failure != RECYCLED:
            self._idle(death)
        for exchange in self._pending:
            self._send(exchange)

    def _isolate(self, exchange: Exchange, suspect: int) -> list[Outcome]:
        """Outcomes of an exchange that killed a child: the suspect alone first, then the rest."""
        known: dict[int, Outcome] = {}
        while True:
            reply = self._attempt([exchange.pages[suspect]], exchange.slot)
            known[suspect] = (
                Outcome(failure=reply.failure) if isinstance(reply, _Death) else reply[0]
            )
            rest = [index for index in range(len(exchange.pages)) if index not in known]
            reply = self._attempt([exchange.pages[index] for index in rest], exchange.slot)
            if not isinstance(reply, _Death):
                known.update(zip(rest, reply, strict=True))
                return [known[index] for index in range(len(exchange.pages))]
            suspect = rest[reply.page]

    def _attempt(self, pages: Sequence[Page], slot: int) -> list[Outcome] | _Death:
        while True:
            self._send(Exchange(pages, slot))
            reply = self._receive()
            if not isinstance(reply, _Death) or reply.page >= 0:
                return reply
            if reply.failure != RECYCLED:
                self._idle(reply)

    def _idle(self, death: _Death) -> None:
        self._idle_deaths += 1
        if self._idle_deaths >= MAX_IDLE_DEATHS:
            self.close()
            raise SandboxError(f"the extraction child does not run ({death.failure}): {death.said}")


class _Child:
    """The child process and its two pipes."""

    def __init__(
        self, settings: Settings, inbox: IO[bytes], outbox: IO[bytes], progress: IO[bytes]
    ) -> None:
        files = [file.fileno() for file in (inbox, outbox, progress)]
        write_at(files[2], PROGRESS.pack(-1, -1, 0), 0)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in _reap)
        self._killed = False
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "curation.extract.child", str(os.getpid())),
                *map(str, files),
                json.dumps(settings),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            pass_fds=files,
            start_new_session=True,  # an interrupt from the terminal is the parent's business
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path),
                "PYTHONHASHSEED": "0",  # the order of sets must not decide any text
            },
        )
        self._end = weakref.finalize(self, _kill, self._process, os.getpid())

    def send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        # A dead child is noticed when its reply is awaited.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(message)

    def receive(self, where: Callable[[], object], wall_seconds: float) -> bytes | None:
        """The next reply, or None when the child is dead; kills it after too long on one page."""
        assert self._process.stdout is not None
        last, since = where(), time.monotonic()
        while not select.select([self._process.stdout], [], [], min(1.0, wall_seconds))[0]:
            now = where()
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > wall_seconds:
                self._killed = True
                self._process.kill()
        return os.read(self._process.stdout.fileno(), MESSAGE.size) or None

    def bury(self) -> tuple[str, str]:
        """Of a child whose pipe has ended: the failure that its end stands for, its last words."""
        try:
            status = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it has closed its pipe and lives on
            self._killed = True
            self._process.kill()
            status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip()
        self.end()
        if self._killed or status == -signal.SIGPROF:
            failure = "timeout"
        elif status in (OUT_OF_MEMORY, -signal.SIGKILL):  # the kernel kills whoever takes too much
            failure = "memory"
        else:
            failure = RECYCLED if status == RECYCLE else "crash"
        return failure, said[said.rfind("\n") + 1 :]

    def end(self) -> None:
        self._end()
        self._errors.close()


def _kill(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:  # a fork of the parent
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


def _memory_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("gristmill-extract"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _divided(pages: Sequence[Page]) -> Iterator[Sequence[Page]]:
    """Pages in exchanges of bounded length and, unless a single page is longer, bounded size."""
    start = size = 0
    for index, page in enumerate(pages):
        if index > start and (
            index - start == EXCHANGE_PAGES or size + len(page.content) > EXCHANGE_BYTES
        ):
            yield pages[start:index]
            start, size = index, 0
        size += len(page.content)
    if start < len(pages):
        yield pages[start:]


_of_thread = threading.local()


def sandbox(settings: Settings) -> Sandbox:
    """This thread's sandbox for these settings: started once, kept, and ended with the process."""
    if getattr(_of_thread, "pid", None) != os.getpid():
        _of_thread.pid, _of_thread.sandboxes = os.getpid(), {}
    sandboxes: dict[Settings, Sandbox] = _of_thread.sandboxes
    if settings not in sandboxes:
        sandboxes[settings] = Sandbox(settings)
    return sandboxes[settings]
