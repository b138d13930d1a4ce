"""The order of a run on disk, so that every task that shuffles reads the same one.

What may live here: `phases/order.json`: seed, rows and deals, and the packed files that rows are
counted through.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from curation.engine.exchange import DamagedFile
from curation.engine.tokens.mixture import Mixture
from curation.engine.tokens.plan import TokensPlan
from manifests.files import write_bytes
from manifests.order import Deal, Order
from manifests.records import Output, Receipt, canonical, digest_of


@dataclass(frozen=True)
class PackedFile:
    """Packed rows of a window of a source, for training."""

    source: int  # ordinal
    first_row: int  # of its first row among those of the source
    rows: int
    output: Output


@dataclass(frozen=True)
class Frozen:
    """What scattering and gathering go by."""

    order: Order
    samples: int
    files: tuple[PackedFile, ...]


def packed_files(packed: Mapping[str, Receipt]) -> list[PackedFile]:
    """The packed files for training, by source and window; those of empty windows are none."""
    found: list[PackedFile] = []
    for name in sorted(task for task in packed if task.startswith("train-")):
        receipt = packed[name]
        if "rows" not in receipt.outputs:
            continue
        source = int(name.split("-")[1])
        same = found and found[-1].source == source
        first = found[-1].first_row + found[-1].rows if same else 0
        found.append(PackedFile(source, first, receipt.counts["rows"], receipt.outputs["rows"]))
    return found


def _path(plan: TokensPlan) -> Path:
    return plan.run / "phases" / "order.json"


def freeze(plan: TokensPlan, mixture: Mixture, files: Sequence[PackedFile]) -> str:
    """Writes the order; its digest."""
    order = mixture.order
    record = {
        "seed": order.seed,
        "names": list(order.names),
        "rows": [int(rows) for rows in order.rows],
        "deals": [[deal.from_sample, list(deal.parts)] for deal in order.deals],
        "samples": mixture.samples,
        "files": [asdict(file) for file in files],
    }
    write_bytes(_path(plan), canonical(record) + b"\n")
    return digest_of(record)


def read(plan: TokensPlan) -> Frozen:
    """The order as it was written."""
    path = _path(plan)
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _read(path: Path, version: int) -> Frozen:
    try:
        record = json.loads(path.read_bytes())
        deals = [Deal(first, tuple(parts)) for first, parts in record["deals"]]
        order = Order(record["seed"], record["names"], record["rows"], deals)
        files = [PackedFile(**{**f, "output": Output(**f["output"])}) for f in record["files"]]
    except (ValueError, KeyError, TypeError):
        raise DamagedFile("phases/order.json") from None
    return Frozen(order, record["samples"], tuple(files))
