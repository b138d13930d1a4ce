"""The sandbox's child: takes pages, decodes, extracts and cleans them, gives texts back.

What may live here: the child's loop and the path of one page. It starts fast, so it imports only
the standard library and what the engine needs. Run by `curation.extract.sandbox`, never by hand:
`python -m curation.extract.child SETTINGS`, with the requests on stdin and the replies on stdout.

An exchange is a slot of the shared arena files. A request or reply is two numbers, slot and size in
bytes; the slot holds a line of JSON (one list per page) and the pages' bytes one after the other.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from curation.extract import decode, engines, limits

#: Bytes between two slots of an arena. The files are sparse: only what is written takes memory.
SLOT = 1 << 32
#: A request or reply: slot, bytes.
MESSAGE = struct.Struct("=qq")
#: Progress: slot and index of the page in hand (index -1: none), pages begun since the start.
PROGRESS = struct.Struct("=qqq")
#: Exit statuses: memory ran out; memory is half full between two exchanges (engines leak).
OUT_OF_MEMORY, RECYCLE = 86, 87


class Settings(NamedTuple):
    """What a child does with a page, and what a page may cost.

    Bytes of `max_bytes` are those of the body; `cpu_seconds` is the child's CPU time on one page,
    `wall_seconds` the clock's; `memory_mib` is address space above what the child starts with.
    """

    engine: str = "blocks"
    options: tuple[tuple[str, Any], ...] = ()
    max_bytes: int = 20_000_000
    max_tags: int = 1_000_000
    max_depth: int = 512
    max_replaced: float = 0.05
    cpu_seconds: float = 30.0
    wall_seconds: float = 300.0
    memory_mib: int = 2048


class Outcome(NamedTuple):
    """What became of a page: its text in UTF-8, or the class of its failure.

    `encoding`, `source` and `replaced` as in `decode.Decoded`; `sanitised` counts characters that
    cleaning changed; `title` and `date` (YYYY-MM-DD) are the page's own, from engines that tell
    them. Failures: `too_large`, `too_deep`, `too_many_tags`, `undecodable`,
    `extractor_error`, and by the sandbox `crash`, `timeout`, `memory`.
    """

    text: bytes | None = None
    encoding: str | None = None
    source: str | None = None
    replaced: int | None = None
    sanitised: int | None = None
    failure: str | None = None
    title: str | None = None
    date: str | None = None


def outcome_of(
    content: bytes, charset: str | None, media_type: str, settings: Settings, engine: engines.Engine
) -> Outcome:
    """The path of one page. Raises only what no page should decide: MemoryError."""
    if len(content) > settings.max_bytes:
        return Outcome(failure="too_large")
    text, encoding, source, replaced = decode.decode(content, charset, media_type)
    found = Outcome(None, encoding, source, replaced)
    if replaced > settings.max_replaced * len(text):
        return found._replace(failure="undecodable")
    if not media_type.startswith("text/plain"):
        failure = limits.exceeded(text, settings.max_tags, settings.max_depth, content, encoding)
        if failure:
            return found._replace(failure=failure)
        try:
            made = engine(text)
        except MemoryError:
            raise
        except Exception:
            return found._replace(failure="extractor_error")
        if isinstance(made, engines.Content):
            text, title, date = made
            title = None if title is None else decode.sanitise(title)[0]
            found = found._replace(title=title, date=date)
        else:
            text = made
    text, sanitised = decode.sanitise(text)
    return found._replace(text=text.encode(), sanitised=sanitised)


def main() -> None:
    """Serves exchanges until stdin ends."""
    parent, inbox, outbox, progress_file, packed = sys.argv[1:]
    settings = Settings(*json.loads(packed))
    _die_with(int(parent))
    requests, replies = os.dup(0), os.dup(1)
    progress = mmap.mmap(int(progress_file), PROGRESS.size)
    engine = partial(engines.load(settings.engine), **dict(settings.options))
    engine("<html></html>")  # imports its library: one that is missing is no page's fault
    _quiet()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # whatever the parent made of it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    base = _address_space()
    _limit_memory(base + (settings.memory_mib << 20))
    begun = 0

    def begin(slot: int, index: int) -> None:
        nonlocal begun
        begun += 1
        PROGRESS.pack_into(progress, 0, slot, index, begun)
        # Its default action ends the process, also from inside native code that never returns.
        signal.setitimer(signal.ITIMER_PROF, settings.cpu_seconds)

    while message := os.read(requests, MESSAGE.size):
        slot, size = MESSAGE.unpack(message)
        request = os.pread(int(inbox), size, slot * SLOT)
        try:
            reply = _answer(request, settings, engine, partial(begin, slot))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        signal.setitimer(signal.ITIMER_PROF, 0)
        PROGRESS.pack_into(progress, 0, slot, -1, begun)
        write_at(int(outbox), reply, slot * SLOT)
        os.write(replies, MESSAGE.pack(slot, len(reply)))
        if _address_space() - base > settings.memory_mib << 19:
            os._exit(RECYCLE)


def _answer(
    request: bytes, settings: Settings, engine: engines.Engine, begin: Callable[[int], None]
) -> bytes:
    end = request.index(b"\n") + 1
    headers, bodies = [], []
    for index, (length, charset, media_type) in enumerate(json.loads(request[:end])):
        begin(index)
        outcome = outcome_of(request[end : end + length], charset, media_type, settings, engine)
        end += length
        headers.append([None if outcome.text is None else len(outcome.text), *outcome[1:]])
        bodies.append(outcome.text or b"")
    return json.dumps(headers).encode() + b"\n" + b"".join(bodies)


def write_at(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _die_with(parent: int) -> None:
    """The kernel kills this process when its parent ends; without Linux the end of stdin does."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _quiet() -> None:
    """Nothing that an engine prints may reach the parent's streams, nor be mistaken for a reply."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _address_space() -> int:
    """Bytes of this process's address space; 0 where the kernel does not tell (not Linux)."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * mmap.PAGESIZE
    except OSError:
        return 0


def _limit_memory(limit: int) -> None:
    """Allocations fail beyond this address space, in bytes; and a crash leaves no core file."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
