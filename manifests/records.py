"""Records of a run: canonical JSON, digests, and receipts.

What may live here: how a record is written down and recognised again. A receipt is the only state
of a run: one per task, written last; its `core` is the same for every undisturbed or disturbed run,
its `envelope` (times, hosts, memory) is not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from manifests.files import write_bytes

RECEIPT_SCHEMA = 1

Status = Literal["done", "incomplete", "quarantined"]


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no white space: equal values give equal bytes."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest(data: bytes) -> str:
    """32 hex digits of BLAKE2b-128."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of(value: Any) -> str:
    """Digest of a JSON-able value, independent of the order of its keys."""
    return digest(canonical(value))


def origin_of(run: Mapping[str, Any]) -> str:
    """What a documents run is made of and from, as its run.json says: a digest of the keys of its
    segments, of its inputs and of what was taken down, the same wherever the run lies."""
    taken = [run["takedown"]["digests"]] if run.get("takedown") else []
    return digest_of([[segment["key"] for segment in run["segments"]], run["inputs"], *taken])


def _holds(data: bytes, core: Any, wanted: str) -> bool:
    """Whether the core of a receipt has the digest that it says.

    `core` is the first key of a canonical record, so its bytes lie there as they were digested;
    writing it down once more, the sure way, takes twice as long as reading it did.
    """
    head, tail = b'{"core":', f',"digest":"{wanted}","envelope":'.encode()
    end = data.find(tail)
    if data.startswith(head) and end > 0 and digest(data[len(head) : end]) == wanted:
        return True
    return digest_of(core) == wanted


@dataclass(frozen=True, slots=True)
class Output:
    """A file that a task wrote. `path` is relative to the run; absolute where a base run has it."""

    path: str
    bytes: int
    rows: int
    digest: str

    def locate(self, run: Path) -> Path:
        return run / self.path


@dataclass(frozen=True)
class Receipt:
    """What one task did. Everything but `envelope` is a pure function of input and recipe."""

    segment: str
    task: str
    key: str
    status: Status
    outputs: Mapping[str, Output] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    envelope: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def core(self) -> dict[str, Any]:
        """The part that is equal for equal work."""
        return {
            "segment": self.segment,
            "task": self.task,
            "key": self.key,
            "status": self.status,
            "outputs": {name: asdict(output) for name, output in self.outputs.items()},
            "counts": self.counts,
        }

    def save(self, path: Path) -> None:
        core = self.core()
        record = {
            "schema": RECEIPT_SCHEMA,
            "digest": digest_of(core),
            "core": core,
            "envelope": self.envelope,
        }
        write_bytes(path, canonical(record) + b"\n")

    @staticmethod
    def load(path: Path) -> Receipt | None:
        """The receipt at `path`; None where there is none or where its bytes are damaged."""
        try:
            data = path.read_bytes()
            record = json.loads(data)
            core = record["core"]
            if record["schema"] != RECEIPT_SCHEMA or not _holds(data, core, record["digest"]):
                return None
            outputs = {name: Output(**output) for name, output in core["outputs"].items()}
            return Receipt(**{**core, "outputs": outputs}, envelope=record["envelope"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
