"""What a task takes of its machine, and what there is.

What may live here: the estimate behind `memory=` of a task, the limits of this machine, and what a
task really took (`tree_peak_bytes` of its receipt; docs/measured.md holds the two together).
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path

from curation.engine.recipe import StageSpec

WORKER = 320 << 20  # bytes of a worker with its libraries and compiled kernels
MAP = 384 << 20  # bytes of reading, batches on their way, and row groups that are not yet written


def of_exchange(data: int) -> int:
    """Bytes that a task of an exchange takes at most, with so many of arrays."""
    return WORKER + data


def needed_by(stages: Iterable[StageSpec]) -> int:
    """Bytes that a task with these stages takes at most."""
    return WORKER + MAP + sum(spec.stage.memory() for spec in stages)


def memory_of_machine() -> int:
    """Bytes of memory that processes here may take: of the machine, or of its control group."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        limit = control_group(name) or ""
        total = min(total, int(limit)) if limit.isdecimal() else total
    return total


def cores() -> float:
    """Processors that this process may use: by affinity and by the quota of its control group."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux
    found = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    quota, period = (control_group("cpu.max") or "max 1").split()
    if quota == "max":
        quota = control_group("cpu/cpu.cfs_quota_us") or "-1"
        period = control_group("cpu/cpu.cfs_period_us") or "100000"
    return min(found, int(quota) / int(period)) if int(quota) > 0 else found


def control_group(name: str) -> str | None:
    """What a file of this process's control group says."""
    try:
        return Path("/sys/fs/cgroup", name).read_text().strip()
    except OSError:
        return None


def kills() -> int:
    """How many processes the kernel has killed for lack of memory, here or in the control group."""
    texts = [control_group("memory.events") or ""]
    with contextlib.suppress(OSError):
        texts.append(Path("/proc/vmstat").read_text())
    lines = [line for text in texts for line in text.splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


class Usage:
    """Time, CPU and memory of this process and its children from now on, as a task runs."""

    def __init__(self) -> None:
        self._clock, self._own, self._cpu = time.monotonic(), time.process_time(), _cpu()
        for pid in (os.getpid(), *_children()):
            with contextlib.suppress(OSError):  # not ours, or a system without such a mark
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # of the largest size so far

    def read(self) -> dict[str, float]:
        """Seconds, CPU seconds and peak bytes since the start (peaks since the start of the process
        where their mark cannot be reset). `tree_peak_bytes` is the sum of the peaks of process and
        children: at most so much was taken at any one time."""
        own, children = _high_water(os.getpid()), sum(map(_high_water, _children()))
        return {
            "seconds": time.monotonic() - self._clock,
            "cpu_seconds": _cpu() - self._cpu,
            "own_cpu_seconds": time.process_time() - self._own,
            "peak_bytes": own,
            "child_peak_bytes": children,
            "tree_peak_bytes": own + children,
        }


def _children() -> list[int]:
    """The living children of this process."""
    found: list[int] = []
    for path in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def _cpu() -> float:
    """CPU seconds of this process and of its children, ended or not."""
    ticks = 0
    for pid in _children():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # its own and its ended children's
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = time.process_time() + ended.ru_utime + ended.ru_stime
    return own + ticks / os.sysconf("SC_CLK_TCK")


def _high_water(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
