"""The lease of a run: who drives it, since when, and whether they still do.

What may live here: taking, renewing and reading leases. A lease is a courtesy, not a lock: two
drivers at once waste work and harm nothing, because receipts are the only state. So it may err, and
no clock decides alone: on this machine the process itself is looked at, elsewhere the age of the
file by the clock of its file system, and where that clock has jumped the file is watched.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from typing import Any

BEAT = 5.0  # seconds between renewals
STALE = 60.0  # seconds without a renewal after which a holder elsewhere has gone
_FIELDS = ("host", "pid", "process", "user", "since", "shard", "token", "beat")


@dataclass(frozen=True)
class Holder:
    """Who holds a lease. `seen`: seconds since the last renewal, by the file system's clock."""

    host: str
    pid: int
    user: str
    since: str  # ISO 8601, by the holder's clock
    seen: float
    shard: str  # `I/N`; empty for a driver of the whole run
    alive: bool

    def __str__(self) -> str:
        what = f"shard {self.shard} of this run" if self.shard else "this run"
        return f"{what} is held by {self.user}@{self.host} (process {self.pid}) since {self.since}"


class LeaseHeld(RuntimeError):
    """Somebody else drives the run; the message says who, and since when."""


def holders(run: Path, now: float | None = None) -> list[Holder]:
    """Everyone who has a lease on a run, dead or alive. Writes nothing.

    `now`: seconds, as the file system would stamp a file now; default: this machine's clock.
    """
    now = time.time() if now is None else now
    found = (_read(path, now) for path in sorted(run.glob("lease*.json")))
    return [holder for holder in found if holder is not None]


class Lease:
    """A lease that is renewed in the background until it is given back.

    Raises LeaseHeld where another driver of the same work is alive. A whole run conflicts with all
    its shards, a shard with the whole run and with shards that share units with it.
    """

    def __init__(
        self, run: Path, shard: str = "", wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._path = run / _file_name(shard)
        self._token = uuid.uuid4().hex
        self._beats = 0
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        self._shard = shard
        self._stop = threading.Event()
        self.taken_over = ""  # by whom, once somebody else has taken the lease
        self._take(run, wait)
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def _take(self, run: Path, wait: Callable[[float], object]) -> None:
        now = _file_system_time(run)
        for path in sorted(run.glob("lease*.json")):
            holder = _read(path, now)
            if holder is None or not _conflict(holder.shard, self._shard) or not holder.alive:
                continue
            if holder.seen < -BEAT:  # its clock or ours has jumped: look whether it is renewed
                before = _record(path)
                wait(3 * BEAT)
                if _record(path) == before:
                    continue
            raise LeaseHeld(str(holder))
        self._write()

    def _write(self) -> None:
        self._beats += 1
        record = {
            "host": platform.node(),
            "pid": os.getpid(),
            "process": _process(os.getpid()),
            "user": _user(),
            "since": self._since,
            "shard": self._shard,
            "token": self._token,
            "beat": self._beats,
        }
        fresh = self._path.with_name(f".{self._path.name}.{self._token[:12]}.tmp")
        fresh.write_text(json.dumps(record, indent=1) + "\n")
        os.replace(fresh, self._path)

    def _renew(self) -> None:
        while not self._stop.wait(BEAT):
            self.renew()
            if self.taken_over:
                return

    def renew(self) -> None:
        """Renews the lease, or notes that another driver has taken it (this one slept too long)."""
        record = _record(self._path)
        if record and record["token"] != self._token:
            self.taken_over = f"{record['user']}@{record['host']} (process {record['pid']})"
            return
        # Where it was removed or damaged it is written again, too.
        with contextlib.suppress(OSError):  # a full disk stops the run with a better message
            self._write()

    def close(self) -> None:
        """Gives the lease back."""
        self._stop.set()
        self._thread.join()
        record = _record(self._path)
        if record and record["token"] == self._token:
            with contextlib.suppress(OSError):
                self._path.unlink()


def _file_name(shard: str) -> str:
    return f"lease-{shard.replace('/', '-of-')}.json" if shard else "lease.json"


def _conflict(theirs: str, ours: str) -> bool:
    """Whether two drivers would do the same units: shards of one division do not."""
    if not theirs or not ours:
        return True
    return theirs == ours or theirs.partition("/")[2] != ours.partition("/")[2]


def _record(path: Path) -> dict[str, Any] | None:
    """What a lease says; None where the file is gone or damaged."""
    try:
        record = json.loads(path.read_bytes())
        return {name: record[name] for name in _FIELDS}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(path: Path, now: float) -> Holder | None:
    """The holder that a lease names; None where the file is gone or damaged."""
    record = _record(path)
    try:
        seen = now - path.stat().st_mtime
    except OSError:
        return None
    if record is None:
        return None
    about = {name: record[name] for name in ("host", "pid", "user", "since", "shard")}
    return Holder(**about, seen=seen, alive=_alive(record, seen))


def _alive(record: dict[str, Any], seen: float) -> bool:
    here = record["host"] == platform.node() and record["process"].split()[0] == _boot()
    if here and _boot() != "-":
        return bool(_process(record["pid"]) == record["process"])
    return seen < STALE


def _boot() -> str:
    """Which start of which machine this is; in another container the host name differs."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-"


def _process(pid: int) -> str:
    """A process of this machine, unmistakably: boot, number and start (in ticks since the boot)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return f"{_boot()} {pid} -"
    return f"{_boot()} {pid} {'-' if fields[0] == 'Z' else fields[19]}"


def _user() -> str:
    try:
        return getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


def _file_system_time(run: Path) -> float:
    """What the file system of the run stamps a file with now."""
    probe = run / f".lease.{uuid.uuid4().hex[:12]}.tmp"
    probe.touch()
    stamp = probe.stat().st_mtime
    probe.unlink(missing_ok=True)
    return stamp
