"""Training speed on the GPUs of this machine, beside the peers, on the model of the `1.4b` preset.

What may live here: cases (a command each, and how its steps are read), running them in turn, and
one table. Ours read a manifest and mask documents; the peers are run as their scripts are, on
synthetic tokens without documents:

    reference    a single file (--reference): FSDP2, compiled blocks, fused loss; an upper bound
    torchtitan   0.2.2 (--torchtitan, a shell script: TAG GPUS ROWS ACCUMULATION STEPS ACTIVATIONS)

Both print a line `RESULT {...}` with med_s, min_s, max_s, n, mem_alloc_gib; of the reference it has
also first_step_s.

    python -m bench.train_speed [CASE ...] [--gpus 1,2,4] [--rounds 2] [--steps 24] [--tokens DIR]

Every case has a process of its own; a round goes through all cases once, so that neighbours in time
are compared. A step is timed by its own trainer, from its start to the end of its update; the first
`WARM` are left out. Time to the first step is that from the start of the process, compiling
included; for the peers it is what is left of their process without the steps that were timed.
Tokens are those of whole rows; MFU is as in training/flops.py, against the bf16 peak.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bench.token_set import make
from training import config as knobs
from training.flops import flops_per_token
from training.meter import peak
from training.metrics import read
from training.model import Shape
from training.tables import table

WARM = 6  # first steps, which are left out
SPARE = 20  # steps that ours could go on for, when it is stopped
ROWS = 32  # of 2,048 tokens on a GPU and step: 65,536 tokens, as the peers' figures have
VOCAB = 32_000
PATIENCE = 420.0  # seconds that a case may take


@dataclass(frozen=True)
class Setting:
    """What a case is run with."""

    gpus: int
    steps: int  # that are timed
    tokens: dict[int, Path]  # manifests, by the length of their rows
    work: Path
    reference: Path | None
    torchtitan: Path | None


@dataclass(frozen=True)
class Result:
    """What a case gave in a round: seconds of steps, GiB of the fullest GPU."""

    case: str
    gpus: int
    length: int
    median: float
    least: float
    most: float
    steps: int
    memory: float
    wait: float | None  # share of the steps' time
    first: float  # seconds

    def speed(self, seconds: float) -> float:
        """Tokens/s of a GPU."""
        return ROWS * 2048 / seconds


Run = Callable[[str, Setting], Result]


# ---------------------------------------------------------------- ours


def ours(*overrides: str, length: int = 2048) -> Run:
    """The preset with some knobs changed; stopped once its steps are done, so that no checkpoint is
    written."""

    def run(case: str, setting: Setting) -> Result:
        place = setting.work / "run"
        shutil.rmtree(place, ignore_errors=True)
        rows, wanted = ROWS * 2048 // length, WARM + setting.steps
        values = {
            "data.manifest": setting.tokens[length],
            "data.max_epochs": ".inf",
            "run": place,
            "model.context": length,
            "train.batch": rows * setting.gpus,
            "train.micro_batch": rows // 2,
            "train.tokens": "null",
            "train.steps": wanted + SPARE,
            "schedule.warmup": WARM,
            "log.every": 1,
            "log.plots": "false",
            "launch.workers": setting.gpus,
            "launch.restarts": 0,
        }
        own = [f"{knob}={value}" for knob, value in values.items()]
        command = [sys.executable, "-m", "training.launch", "1.4b", *own, *overrides]
        began = time.monotonic()
        process, log = _start(command, setting.work)
        first: float | None = None
        while True:
            lines = read(place, "operations")
            if lines and first is None:
                first = time.monotonic() - began
            if len(lines) >= wanted:
                break
            if process.poll() is not None or time.monotonic() - began > PATIENCE:
                _end(process)
                raise RuntimeError(f"{case}: {len(lines)} steps; {_last(log)}")
            time.sleep(0.05)
        _end(process)
        timed = lines[WARM:wanted]
        seconds = [line["seconds"] for line in timed]
        waited = sum(line["data_wait"] * line["seconds"] for line in timed) / sum(seconds)
        memory = max(line["memory_allocated"] or 0 for line in timed) / 2**30
        assert first is not None
        spread = (statistics.median(seconds), min(seconds), max(seconds))
        return Result(case, setting.gpus, length, *spread, len(seconds), memory, waited, first)

    return run


# ---------------------------------------------------------------- peers


def reference(*options: str, length: int = 2048) -> Run:
    """The single file."""

    def run(case: str, setting: Setting) -> Result:
        if setting.reference is None:
            raise RuntimeError(f"{case}: wants --reference")
        rows = ROWS * 2048 // length
        start = [sys.executable]
        if setting.gpus > 1:
            start += ["-m", "torch.distributed.run", "--nproc_per_node", str(setting.gpus)]
        own = ["--mbs", rows // 2, "--accum", 2, "--seq", length, "--steps", setting.steps]
        shard = ["--reshard", "0"] if setting.gpus > 1 else []
        command = [*start, str(setting.reference), *map(str, own), *shard, *options]
        return _peer(case, setting, command, length, WARM + 1)

    return run


def torchtitan(*options: str) -> Run:
    """The framework, by its script."""

    def run(case: str, setting: Setting) -> Result:
        if setting.torchtitan is None:
            raise RuntimeError(f"{case}: wants --torchtitan")
        own = ["speed", setting.gpus, ROWS // 2, 2, WARM + setting.steps + 1, "none"]
        command = ["bash", str(setting.torchtitan), *map(str, own), *options]
        return _peer(case, setting, command, 2048, WARM)

    return run


def _peer(case: str, setting: Setting, command: Sequence[str], length: int, untimed: int) -> Result:
    began = time.monotonic()
    process, log = _start(command, setting.work)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    took = time.monotonic() - began
    _end(process)
    said = [
        line.partition("RESULT ")[2] for line in log.read_text().splitlines() if "RESULT " in line
    ]
    if not said:
        raise RuntimeError(f"{case}: no result; {_last(log)}")
    found: dict[str, Any] = json.loads(said[-1])
    least, median, most = (found[f"{name}_s"] for name in ("min", "med", "max"))
    steps = found["n"]
    first = took - (steps + untimed - 1) * median
    memory = found["mem_alloc_gib"]
    return Result(
        case, setting.gpus, length, median, least, most, steps, memory, None, max(0.0, first)
    )


# ---------------------------------------------------------------- processes


def _start(command: Sequence[str], work: Path) -> tuple[subprocess.Popen[bytes], Path]:
    log = work / "log.txt"
    with open(log, "wb") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        ), log


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends all of its processes at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1.0)  # until the driver has taken the memory back


def _last(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-12:])


# ---------------------------------------------------------------- the table


CASES: dict[str, Run] = {
    "gristmill": ours(),
    "torchtitan": torchtitan(),
    "reference": reference(),
    "gristmill-flex": ours("model.attention=flex"),
    "gristmill-causal": ours("model.document_mask=false"),
    "gristmill-flash4": ours("model.attention=flash4"),
    "gristmill-resharded": ours("parallel.reshard=true"),
    "gristmill-fitted": ours("train.micro_batch=null"),
    "gristmill-selective": ours("parallel.activations=selective"),
    "gristmill-fp8": ours("parallel.fp8=true"),
    "gristmill-fp8-flash4": ours("parallel.fp8=true", "model.attention=flash4"),
    "gristmill-8192": ours(length=8192),
    "gristmill-8192-flash4": ours("model.attention=flash4", length=8192),
    "gristmill-8192-flash4-causal": ours(
        "model.attention=flash4", "model.document_mask=false", length=8192
    ),
    "gristmill-8192-flex": ours("model.attention=flex", length=8192),
    "gristmill-8192-causal": ours("model.document_mask=false", length=8192),
    "reference-8192": reference(length=8192),
}
#: Those that are run without being asked for.
USUAL = ("gristmill", "torchtitan", "reference")


def joined(results: Sequence[Result]) -> list[Result]:
    """Rounds of the same case and GPUs as one: the median of medians, the extremes of extremes."""
    groups: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        groups.setdefault((result.case, result.gpus), []).append(result)
    return [
        replace(
            own[0],
            median=statistics.median(result.median for result in own),
            least=min(result.least for result in own),
            most=max(result.most for result in own),
            steps=sum(result.steps for result in own),
            memory=max(result.memory for result in own),
            wait=None if own[0].wait is None else max(result.wait or 0.0 for result in own),
            first=max(result.first for result in own),
        )
        for own in groups.values()
    ]


def shown(results: Sequence[Result], name: str) -> str:
    """The table."""
    known = peak(name)
    rows = []
    for result in joined(results):
        speed = result.speed(result.median)
        mfu = "" if known is None else f"{100 * flops(result.length) * speed / known:.1f}"
        rows.append(
            [
                result.case,
                str(result.gpus),
                f"{speed:,.0f}",
                f"{result.speed(result.most):,.0f}",
                f"{result.speed(result.least):,.0f}",
                mfu,
                f"{result.memory:.1f}",
                "" if result.wait is None else f"{100 * result.wait:.2f}",
                f"{result.first:.0f}",
                str(result.steps),
            ]
        )
    head = ["case", "GPUs", "tokens/s/GPU", "least", "most", "MFU %", "GiB", "data wait %"]
    return table([*head, "first step s", "steps"], rows)


def flops(length: int) -> float:
    """Of a token of the preset in rows of `length`."""
    preset = knobs.load("1.4b")
    return flops_per_token(Shape.of(preset.model, VOCAB, 0), length)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--gpus", default="1", help="numbers of GPUs, such as 1,2,4")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=24, help="timed steps of a round")
    parser.add_argument("--tokens", type=Path, help="a tokens run of rows of 2,048; else made up")
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--torchtitan", type=Path)
    parser.add_argument("--out", type=Path, help="also writes the results there, as JSON")
    options = parser.parse_args(arguments)
    cases = options.cases or USUAL
    for case in cases:
        if case not in CASES:
            parser.error(f"no case {case}; there are {', '.join(CASES)}")
    if not torch.cuda.is_available():
        parser.error("there is no GPU here")
    name = torch.cuda.get_device_name()
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        tokens = {2048: options.tokens or work / "tokens-2048", 8192: work / "tokens-8192"}
        counts = [int(gpus) for gpus in options.gpus.split(",")]
        samples = (WARM + options.steps + SPARE) * ROWS * max(counts)
        if options.tokens is None:
            make(tokens[2048], rows=4096, samples=samples)
        if any("8192" in case for case in cases):
            make(tokens[8192], length=8192, rows=1024, samples=samples // 4)
        results: list[Result] = []
        for number in range(options.rounds):
            for gpus in counts:
                setting = Setting(
                    gpus, options.steps, tokens, work, options.reference, options.torchtitan
                )
                for case in cases:
                    try:
                        results.append(CASES[case](case, setting))
                    except RuntimeError as error:
                        print(error, file=sys.stderr, flush=True)
                        continue
                    print(f"round {number + 1}:", asdict(results[-1]), file=sys.stderr, flush=True)
        if options.out is not None:
            record = {
                "gpu": name,
                "torch": torch.__version__,
                "results": list(map(asdict, results)),
            }
            options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{name}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}")
    if results:
        print(shown(results, name))
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
