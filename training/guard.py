"""The guard: what a spike is, what is left out for it, and the report of what that held.

What may live here: robust z-scores of loss and gradient norm, the verdict, where to go back to, and
`spikes/*`. It looks and says; the loop goes back and skips.

A value is a spike where its robust z-score, (x - median) / (1.4826 * MAD) over the last accepted
steps, is at least `guard.z`, or where it is not finite. Of norms the logarithm is looked at: those
of small batches lie about their median by factors, and several times the median is nothing out of
the way. Only what is too high counts. The batches that did it are the spike's own and those
directly before it whose z-score was above half of that: a batch that bends the weights shows in
the losses of the next ones before the threshold is met.
"""

from __future__ import annotations

import json
import math
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from manifests.files import write_bytes
from manifests.tokens import ManifestError
from manifests.trace import sequence
from training import config as knobs
from training.data.batches import Batches, ranges
from training.data.logs import Logs
from training.metrics import finite

#: The MAD of normal values times this is their standard deviation (P. Rousseeuw and C. Croux,
#: Alternatives to the Median Absolute Deviation, 1993).
SIGMA = 1.4826

#: A standard deviation is taken for at least this share of the median: values that hardly differ,
#: or not at all (MAD 0), would make a spike of nothing. So at z = 8 less than 8 % is never one. Of
#: logarithms it is for at least this.
FLOOR = 0.01

_THREADS = 8  # that look for documents


@dataclass(frozen=True)
class Measure:
    """A value against the `steps` accepted values before it; with fewer than `guard.least` of them
    its z-score is 0, and infinite where the value is not finite. Of a norm, `sigma` is that of its
    logarithm: about the share of the median by which norms differ."""

    value: float
    z: float
    median: float | None
    sigma: float | None
    steps: int


@dataclass(frozen=True)
class Spike:
    """The step (from 0) that was seen, the first of the steps whose batches did it, and why."""

    step: int
    first: int
    reason: str
    measures: Mapping[str, Measure] = field(default_factory=dict)

    @property
    def steps(self) -> range:
        """The steps whose batches did it."""
        return range(self.first, self.step + 1)


class Guard:
    """Looks at every step in order. What it looks at has been reduced over all ranks, so all have
    the same bits and say the same: nothing is to be agreed on."""

    def __init__(self, guard: knobs.Guard) -> None:
        self.knobs = guard
        #: Step, loss, norm (None: not known) and z-score of the last accepted steps.
        self.window: deque[tuple[int, float, float | None, float]] = deque(maxlen=guard.window)

    def look(self, step: int, loss: float, norm: float | None) -> Spike | None:
        """What is wrong with a step; None for nothing. Values that are not finite are spikes from
        the first step on. `norm` None: not to be judged (an overflow of fp16's loss scaling)."""
        if not self.knobs.enabled:
            return None
        measures = {"loss": self._measure(loss, [entry[1] for entry in self.window])}
        if norm is not None:
            past = [entry[2] for entry in self.window if entry[2] is not None]
            measures["norm"] = self._measure_logarithm(norm, past)
        worst = max(measures, key=lambda name: measures[name].z)
        z = measures[worst].z
        if z < self.knobs.z:
            self.window.append((step, loss, norm, z))
            return None
        return Spike(step, self._first(step), _reason(worst, measures[worst]), measures)

    def target(self, spike: Spike, saved: Sequence[int]) -> int:
        """Which of the complete checkpoints (ascending) to go back to: the newest that is
        `guard.rollback` steps before the spike, else the oldest before it; 0, the beginning, where
        there is none."""
        before = [step for step in saved if step <= spike.first]
        far = [step for step in before if step <= spike.first - self.knobs.rollback]
        return max(far) if far else min(before, default=0)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: JSON."""
        return {"window": [list(entry) for entry in self.window]}

    def load(self, state: dict[str, Any]) -> None:
        """What a checkpoint kept."""
        self.window.clear()
        self.window.extend(tuple(entry) for entry in state["window"])

    def _measure(self, value: float, past: list[float], least: float | None = None) -> Measure:
        """`least`: the smallest deviation; null: a share of the median."""
        middle = median(past) if past else None
        sigma = None
        if middle is not None:
            sigma = _sigma(past, middle, FLOOR * abs(middle) if least is None else least)
        if not math.isfinite(value):
            z = math.inf
        elif middle is None or sigma is None or len(past) < self.knobs.least:
            z = 0.0
        else:
            z = (value - middle) / sigma
        return Measure(value, z, middle, sigma, len(past))

    def _measure_logarithm(self, value: float, past: list[float]) -> Measure:
        found = self._measure(_logarithm(value), [_logarithm(each) for each in past], FLOOR)
        middle = None if found.median is None else math.exp(found.median)
        return replace(found, value=value, median=middle)

    def _first(self, step: int) -> int:
        for before, _, _, z in reversed(self.window):
            if before != step - 1 or z <= self.knobs.z / 2:
                break
            step = before
        return step


def _sigma(past: list[float], middle: float, least: float) -> float:
    mad = median(abs(value - middle) for value in past)
    return max(SIGMA * mad, least, sys.float_info.min)


def _logarithm(value: float) -> float:
    """Of what may be 0, as the norm of a batch without labels."""
    return math.log(max(value, sys.float_info.min)) if math.isfinite(value) else value


def _reason(name: str, measure: Measure) -> str:
    if not math.isfinite(measure.value):
        return f"{name} is {measure.value}"
    said = f"{measure.z:.1f} deviations above the median {measure.median:.4g}"
    return f"{name} {measure.value:.4g} is {said} of {measure.steps} steps"


# ---------------------------------------------------------------- what is left out

_SKIPPED = "rollback "  # how the reasons of the guard's skips begin


def rollbacks(logs: Logs) -> int:
    """How often the run has gone back: it stands in the skip log, which no restart forgets."""
    return len({skip.reason for skip in logs.skips if skip.reason.startswith(_SKIPPED)})


def reason_of(number: int, spike: Spike) -> str:
    """What the skip log says of the skips of a rollback, the first of which is number 1."""
    return f"{_SKIPPED}{number} at step {spike.step + 1}: {spike.reason}"


# ---------------------------------------------------------------- the report


def report(
    batches: Batches, spike: Spike, losses: Mapping[int, tuple[float, int]]
) -> dict[str, Any]:
    """Which documents, sources and URLs the batches of a spike held. Steps count from 1, as in the
    other files of a run. `losses`: cross-entropy and labels of samples, as far as they are known;
    rows with the highest loss come first."""
    with ThreadPoolExecutor(_THREADS) as pool:
        steps = [batches.samples(step).tolist() for step in spike.steps]
        samples = [sample for step in steps for sample in step]
        rows = list(pool.map(lambda sample: _row(batches, sample), samples))
    for row in rows:
        total, labels = losses.get(row["sample"], (math.nan, 0))
        row["labels"], row["loss"] = labels or None, finite(total / labels) if labels else None
    rows.sort(key=lambda row: -math.inf if row["loss"] is None else row["loss"], reverse=True)
    by_source: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_source.setdefault(row.pop("source"), []).append(row)
    return {
        "step": spike.step + 1,
        "reason": spike.reason,
        "measures": finite({name: asdict(measure) for name, measure in spike.measures.items()}),
        "batches": [
            {"step": step + 1, "samples": ranges(np.array(own))}
            for step, own in zip(spike.steps, steps, strict=True)
        ],
        "sources": by_source,
    }


def write_report(run: Path, number: int, record: Mapping[str, Any]) -> Path:
    """Writes `spikes/step-STEP-NUMBER.json`, and the same as text beside it; gives the text's
    place. `number`: of the rollback."""
    place = run / "spikes" / f"step-{record['step']:08d}-{number}.json"
    write_bytes(place, json.dumps(record, indent=1, allow_nan=False).encode() + b"\n")
    write_bytes(place.with_suffix(".txt"), _text(record).encode())
    return place.with_suffix(".txt")


def _row(batches: Batches, sample: int) -> dict[str, Any]:
    """A sample and its documents; where they cannot be read, what is wrong: a report is written
    all the same."""
    try:
        found = sequence(batches.manifest, sample, batches.order)
    except ManifestError as error:
        return {"sample": sample, "source": "unknown", "problem": str(error), "documents": []}
    return {
        "sample": sample,
        "source": found.source,
        "epoch": found.epoch,
        "file": found.file,
        "row": found.file_row,
        "documents": [
            {
                "id": piece.id,
                "start": piece.start,
                "tokens": piece.length,
                "offset": piece.offset,
                **{
                    name: (piece.provenance or {}).get(name)
                    for name in ("url", "warc_file", "warc_offset")
                },
            }
            for piece in found.pieces
        ],
    }


def _text(record: Mapping[str, Any]) -> str:
    lines = [f"step {record['step']}: {record['reason']}"]
    for batch in record["batches"]:
        said = ", ".join(f"{begin} to {end - 1}" for begin, end in batch["samples"])
        lines.append(f"batch of step {batch['step']}: samples {said}")
    for source, rows in record["sources"].items():
        lines += ["", f"{source}: {len(rows)} rows"]
        for row in rows:
            loss = "" if row["loss"] is None else f"  loss {row['loss']:.4f}"
            lines.append(f"  sample {row['sample']}{loss}  {row.get('problem', '')}".rstrip())
            for found in row["documents"]:
                warc = f"  {found['warc_file']}:{found['warc_offset']}" * bool(found["warc_file"])
                lines.append(f"    {found['id']}  {found['url'] or ''}{warc}")
    return "\n".join(lines) + "\n"
