"""Where a step's time goes on a GPU: kernels by what they do, and the time when there is none.

What may live here: the classes of kernels, by their names, and one table. One process on one GPU:

    python -m bench.train_profile [KNOB=VALUE ...]      the `1.4b` preset on a made-up token set
    torchrun --nproc_per_node 4 -m bench.train_profile  rank 0's share

Steps are those of `bench/train_speed.py` (65,536 tokens on a GPU). The profiler itself slows the
processor down, so that the idle time is an upper bound. Kernels of several streams that run at the
same time count each by its own; "busy" counts such time once.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from bench.token_set import make
from bench.train_speed import ROWS, WARM
from training import config as knobs
from training import loop, world
from training.tables import table

STEPS = 3  # that are profiled together

#: The first pattern that a kernel's name has.
CLASSES = {
    "communication": r"nccl",
    # the last: of keys' and values' gradients over the query heads that share them
    "attention": r"reduce_kernel.*BFloat16|flash|fmha|flex_attention|cudnn.*sdpa|mha|cute",
    "matrix products": r"nvjet|gemm|cutlass|xmma|cublas|scaled_mm|splitKreduce",
    "shards: gather, reduce, cast": r"split_with_sizes|chunk_cat|CatArray|Copy<|copy_kernel",
    "optimiser, norm, clip": r"FusedAdam|adam|LpNorm|lpnorm|multi_tensor_apply|BinaryOpScalar",
    "pointwise, compiled": r"triton_|^_kernel",
    "memory": r"^Mem(cpy|set)",
}
OTHER = "other"


def kind(name: str) -> str:
    """The class of a kernel."""
    return next((own for own, like in CLASSES.items() if re.search(like, name, re.I)), OTHER)


def busy(spans: Iterable[tuple[int, int]]) -> int:
    """The length of the union of spans (begin, end)."""
    total, reached = 0, 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def shown(kernels: Sequence[tuple[str, int, int]], steps: int, tokens: int) -> str:
    """The tables, of kernels (name, begin, end) in nanoseconds."""
    spans = [(begin, end) for _, begin, end in kernels]
    whole = max(end for _, end in spans) - min(begin for begin, _ in spans)
    by_class: Counter[str] = Counter()
    by_name: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for name, begin, end in kernels:
        by_class[kind(name)] += end - begin
        by_name[name] += end - begin
        calls[name] += 1

    def row(name: str, time: float, *more: str) -> list[str]:
        return [name, f"{time / steps / 1e6:.1f}", f"{100 * time / whole:.1f}", *more]

    rows = [row(name, time) for name, time in by_class.most_common()]
    idle = whole - busy(spans)
    rows += [row("no kernel", idle), row("a step", whole)]
    largest = [
        row(name[:90], time, f"{calls[name] / steps:.0f}") for name, time in by_name.most_common(25)
    ]
    return "\n\n".join(
        [
            table(["of a step", "ms", "%"], rows),
            table(["kernel", "ms", "%", "calls"], largest),
            f"{tokens * steps / whole * 1e9:,.0f} tokens/s, profiled",
        ]
    )


def main(overrides: Sequence[str]) -> int:
    """Profiles some steps and prints the tables."""
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        make(work / "tokens", samples=ROWS * ranks * (WARM + STEPS + 4))
        values = {
            "data.manifest": work / "tokens",
            "data.max_epochs": ".inf",
            "run": work / "run",
            "train.batch": ROWS * ranks,
            "train.tokens": "null",
            "train.steps": WARM + STEPS + 2,
            "schedule.warmup": WARM,
        }
        config = knobs.load("1.4b", [*(f"{k}={v}" for k, v in values.items()), *overrides])
        here = world.join(config)
        trainer = loop.Trainer(config, here)
        trainer.resume()
        for step in range(WARM):
            trainer.one(step)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for step in range(WARM, WARM + STEPS):
                trainer.one(step)
            torch.cuda.synchronize()
        found = profiled.profiler.kineto_results.events()  # type: ignore[union-attr]
        kernels = [
            (event.name(), event.start_ns(), event.start_ns() + event.duration_ns())
            for event in found
            if event.device_type() == torch.autograd.DeviceType.CUDA and event.duration_ns() > 0
        ]
        if here.first:
            rows = config.train.batch * trainer.manifest.sequence_length // ranks
            print(shown(kernels, STEPS, rows))
        trainer.loader.close()
        world.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
