"""`python -m training.plan`: what a run will need and cost, before anything is started.

What may live here: sizes, memory, FLOPs, hours, money, the Chinchilla point, and how often the data
will be seen. All of it follows from the configuration and the manifest; nothing is run.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from manifests.tokens import Manifest, ManifestError
from training import config as knobs
from training.checkpoint import newest
from training.commands import leave
from training.config import ConfigError, load
from training.data.batches import Batches
from training.data.consumption import consumption, refuse_repetition
from training.data.logs import Logs, change
from training.flops import flops_per_token, parameters
from training.meter import PEAKS
from training.model import Shape
from training.objectives import Objective
from training.run import steps_of
from training.tables import count, pairs, size, span, table
from training.world import World, divide, sizes

GIB = float(2**30)

#: Tokens per parameter at the optimum (J. Hoffmann et al., Training Compute-Optimal Large Language
#: Models, 2022, approach 1 and 2: about 20; FLOPs = 6 N D).
CHINCHILLA = 20.0

FULL = 0.9  # of a GPU's memory: the rest is for what the formula leaves out, and for gaps


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU: dense bf16 FLOP/s of its maker's data sheet, and the memory that its driver
    shows; the price is what an hour of one costs about, to be replaced by yours (`--price`)."""

    peak: float  # FLOP/s
    memory: float  # GiB
    price: float  # dollars per hour


GPUS = {
    "a100": Gpu(PEAKS["A100"], 79.2, 1.5),
    "l40s": Gpu(PEAKS["L40S"], 45.0, 1.0),
    "h100": Gpu(PEAKS["H100"], 79.6, 2.5),
    "h200": Gpu(PEAKS["H200"], 140.4, 3.0),
    "b200": Gpu(PEAKS["B200"], 178.0, 5.0),
}


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank, at its fullest."""

    states: float  # parameters, gradients and moments, sharded
    gathered: float  # parameters of the blocks that are whole for a while
    activations: float  # of one micro-batch
    logits: float  # of a chunk, and the gradient of the output matrix

    @property
    def total(self) -> float:
        """All of it."""
        return self.states + self.gathered + self.activations + self.logits


@dataclass(frozen=True)
class Seen:
    """What a run will see of a source."""

    name: str
    tokens: float  # without padding
    epochs: float
    cap: float


@dataclass(frozen=True)
class Plan:
    """Everything that is printed."""

    parameters: int
    without_embedding: int
    ranks: int
    layout: dict[str, int]
    steps: int
    tokens: int
    flops_per_token: float
    flops: float
    memory: Memory
    micro_batches: dict[str, int | None]  # the most samples that fit into each kind of GPU
    sources: tuple[Seen, ...] | None
    optimal_tokens: float  # Chinchilla's for as many parameters


def plan(config: knobs.Config, ranks: int) -> Plan:
    """The plan of a configuration on so many ranks. Raises ConfigError, also where a source would
    be seen more often than its cap; without a manifest, the data is left out, and the configuration
    has to say vocabulary and context."""
    manifest = _manifest(config)
    shape, length = shape_of(config, manifest)
    steps = steps_of(config, length)
    total, inner = parameters(shape)
    tokens = steps * config.train.batch * length
    per_token = flops_per_token(shape, shape.context)
    return Plan(
        parameters=total,
        without_embedding=inner,
        ranks=ranks,
        layout=divide(config, ranks),
        steps=steps,
        tokens=tokens,
        flops_per_token=per_token,
        flops=per_token * tokens,
        memory=memory(config, shape, ranks),
        micro_batches={
            name: micro_batch(config, shape, ranks, gpu.memory * GIB) for name, gpu in GPUS.items()
        },
        sources=None if manifest is None else tuple(seen(config, manifest, steps)),
        optimal_tokens=CHINCHILLA * total,
    )


def shape_of(config: knobs.Config, manifest: Manifest | None) -> tuple[Shape, int]:
    """The model's sizes, and the tokens of a packed row."""
    if manifest is not None:
        length = manifest.sequence_length
        objective = Objective(config.objective, manifest.tokenizer, config.seed)
        return Shape.of(config.model, manifest.tokenizer.size, objective.length(length)), length
    vocab, context = config.model.vocab, config.model.context
    if vocab is None or context is None:
        raise ConfigError(
            f"data.manifest: none at {config.data.manifest}; without one, model.vocab and "
            "model.context are wanted"
        )
    return Shape.of(config.model, vocab, context), context


def batches_of(config: knobs.Config, manifest: Manifest, steps: int) -> Batches:
    """The batches as the next start of the run will see them: what is logged, and the mixture that
    is asked for from there on."""
    logs, batch = Logs.read(Path(config.run)), config.train.batch
    done = newest(Path(config.run)) * batch
    if config.data.mixture and (entry := change(manifest, logs, config.data.mixture, done)):
        logs = replace(logs, mixtures=(*logs.mixtures, entry))
    return Batches(manifest, config.data, logs, batch, steps)


def seen(config: knobs.Config, manifest: Manifest, steps: int) -> Iterator[Seen]:
    """Tokens and epochs of each source over the whole run, by its mixture."""
    batches, most = batches_of(config, manifest, steps), config.data.max_epochs
    refuse_repetition(batches, steps, most)
    for one in consumption(batches, steps, most):
        yield Seen(one.source, one.tokens, one.epochs, one.cap)


def memory(config: knobs.Config, shape: Shape, ranks: int) -> Memory:
    """What a rank holds, in bytes (docs/training.md has the formula and how near it comes)."""
    parallel, train = config.parallel, config.train
    layout = sizes(parallel, ranks)
    total, _ = parameters(shape)
    model_ranks = layout["tensor"] * layout["pipeline"]
    moments = {"adamw": 8.0, "sophia": 8.0, "lion": 4.0, "adafactor": 0.1}
    states = total / (layout["shard"] * model_ranks) * (8.0 + moments[config.optimizer.kind])
    width = 4.0 if parallel.precision == "fp32" else 2.0
    matrix = shape.rows * shape.dim  # of the embedding, and of the output
    ends = matrix if shape.tied else 2 * matrix
    block = (total - ends) / shape.layers
    own = shape.layers / layout["pipeline"]
    gathered = (ends + (2.0 if parallel.reshard else own) * block) / layout["tensor"] * width
    if not parallel.reshard:  # nor are gradients reduced before the last micro-batch
        gathered += (ends + own * block) / layout["tensor"] * 4.0
    kept = {
        "keep": _kept(shape),
        "selective": _products(shape),
        "full": float(shape.dim),
    }[parallel.activations]
    micro = train.micro_batch or 1
    rows = micro * shape.context
    in_flight = min(layout["pipeline"], train.batch // micro)  # of 1F1B's first stage
    again = 0.0 if parallel.activations == "keep" else _kept(shape)
    activations = rows * width * (kept * own * in_flight + again) / layout["tensor"]
    logits = min(train.loss_chunk, rows) * shape.vocab * (4.0 + width) / layout["tensor"]
    return Memory(states, gathered, activations, logits + matrix / layout["tensor"] * 4.0)


def micro_batch(config: knobs.Config, shape: Shape, ranks: int, gpu: float) -> int | None:
    """The most samples of a forward pass that leave a tenth of a GPU of so many bytes free, where
    each rank has whole micro-batches; None where one is too many."""
    layout = sizes(config.parallel, ranks)
    own = config.train.batch // (layout["replicate"] * layout["shard"])
    for size_ in range(own // layout["pipeline"], 0, -1):
        if own % size_ == 0:
            tried = knobs.changed(config, train__micro_batch=size_)
            if memory(tried, shape, ranks).total <= FULL * gpu:
                return size_
    return None


def fitted(config: knobs.Config, shape: Shape, world: World) -> int:
    """The micro-batch, also where the configuration leaves it open: the same on all ranks."""
    if config.train.micro_batch is not None:
        return config.train.micro_batch
    own = config.train.batch // world.data_ranks // world.stages
    found: int | None = max(size_ for size_ in range(1, min(8, own) + 1) if own % size_ == 0)
    if world.device.type == "cuda":
        gpu = torch.cuda.get_device_properties(world.device).total_memory
        least = -int(world.most(torch.tensor(-gpu, device=world.device)))
        found = micro_batch(config, shape, world.size, least)
    return found or 1


def _kept(shape: Shape) -> float:
    """Numbers per token that a block keeps for its backward pass: inputs and outputs of both norms,
    the products, rotated queries and keys, attention, and what w2 takes."""
    queries, keys = shape.heads * shape.width, shape.kv_heads * shape.width
    attention = 4 * shape.dim + (queries + 2 * keys) + (queries + keys) + queries
    return float(attention + 3 * shape.ffn)


def _products(shape: Shape) -> float:
    """The same where all but products and attention is computed anew."""
    queries, keys = shape.heads * shape.width, shape.kv_heads * shape.width
    return float(shape.dim + (queries + 2 * keys) + queries + 2 * shape.dim + 2 * shape.ffn)


def chinchilla(flops: float) -> tuple[float, float]:
    """Parameters and tokens that make the best of so many FLOPs: C = 6 N D with D = 20 N."""
    best = math.sqrt(flops / (6 * CHINCHILLA))
    return best, CHINCHILLA * best


# ---------------------------------------------------------------- text


def describe(
    config: knobs.Config, ranks: int, mfu: float = 0.5, prices: dict[str, float] | None = None
) -> str:
    """The plan, for people."""
    found = plan(config, ranks)
    lines = [
        pairs(list(_model(config, found))),
        _data(config, found),
        _gpus(found, mfu, prices or {}),
    ]
    return "\n\n".join(line for line in lines if line)


def _model(config: knobs.Config, found: Plan) -> Iterator[tuple[str, str]]:
    model, memory_ = config.model, found.memory
    layout = " x ".join(f"{size} {name}" for name, size in found.layout.items() if size > 1)
    inner = count(found.without_embedding)
    yield "parameters", f"{count(found.parameters)} ({inner} without the input embedding)"
    heads = f"{model.heads} heads, {model.kv_heads} KV heads"
    yield "model", f"{model.layers} layers, {model.dim} wide, {heads}, SwiGLU {model.ffn}"
    yield "steps", f"{found.steps:,} of {config.train.batch:,} rows: {count(found.tokens)} tokens"
    ratio = found.tokens / found.parameters
    best = count(found.optimal_tokens)
    yield "", f"{ratio:.1f} tokens a parameter; Chinchilla's point is {best} tokens"
    yield "FLOPs", f"{found.flops_per_token:.4g} a token (6N + 12LHQT), {found.flops:.3g} in all"
    yield "ranks", f"{found.ranks}" + (f": {layout}" if layout else "")
    yield (
        "memory a rank",
        f"{size(memory_.total)}: states {size(memory_.states)}, gathered {size(memory_.gathered)}, "
        f"activations {size(memory_.activations)}, logits {size(memory_.logits)}",
    )


def _data(config: knobs.Config, found: Plan) -> str:
    if found.sources is None:
        return f"no manifest at {config.data.manifest}: what the data allows is not known"
    return table(
        ("source", "tokens", "epochs", "most"),
        [(s.name, count(s.tokens), f"{s.epochs:.2f}", f"{s.cap:g}") for s in found.sources],
    )


def _gpus(found: Plan, mfu: float, prices: dict[str, float]) -> str:
    rows = []
    for name, gpu in GPUS.items():
        hours = found.flops / (gpu.peak * mfu * found.ranks) / 3600
        price = prices.get(name, gpu.price)
        fits = found.micro_batches[name]
        cost = f"${hours * found.ranks * price:,.0f}"
        rows.append((name, str(fits or "-"), span(hours), cost, f"${price:g}"))
    head = ("GPU", "micro-batch", f"time on {found.ranks}", "cost", "an hour of one")
    said = f"(at an MFU of {mfu:.0%}; prices are assumptions: --price NAME=DOLLARS)"
    return f"{table(head, rows)}\n(micro-batch: the most samples that fit, - if none does)\n{said}"


# ---------------------------------------------------------------- command


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; gives its exit code."""
    parser = argparse.ArgumentParser(prog="training.plan", description=__doc__.split("\n")[0])
    parser.add_argument("config", nargs="*", help="a YAML file or a preset, then knobs as a.b=c")
    parser.add_argument("--ranks", type=int, help="GPUs; launch.workers or 1 without it")
    parser.add_argument("--mfu", type=float, default=0.5, help="assumed share of the peak (0.5)")
    parser.add_argument("--price", action="append", default=[], metavar="GPU=DOLLARS")
    parser.add_argument("--flops", type=float, help="only the Chinchilla point of so many FLOPs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_intermixed_args(arguments)
    try:
        if given.flops is not None:
            return _point(given.flops, given.json)
        source = given.config[0] if given.config and "=" not in given.config[0] else None
        config = load(source, given.config[1:] if source else given.config)
        ranks = given.ranks or config.launch.workers or _least(config.parallel)
        if given.json:
            print(json.dumps(asdict(plan(config, ranks))))
        else:
            print(describe(config, ranks, given.mfu, _prices(given.price)))
    except (ConfigError, ManifestError, ValueError) as error:
        print(f"training.plan: {error}", file=sys.stderr)
        return 2
    return 0


def _least(parallel: knobs.Parallel) -> int:
    return parallel.replicate * parallel.tensor * parallel.pipeline * (parallel.shard or 1)


def _point(flops: float, as_json: bool) -> int:
    if not flops > 0 or math.isinf(flops):
        raise ConfigError(f"--flops: {flops} is not above 0")
    best, tokens = chinchilla(flops)
    if as_json:
        print(json.dumps({"flops": flops, "parameters": best, "tokens": tokens}))
    else:
        print(f"{flops:.3g} FLOPs: {count(best)} parameters, {count(tokens)} tokens (Chinchilla)")
    return 0


def _prices(given: Sequence[str]) -> dict[str, float]:
    prices = {}
    for one in given:
        name, _, value = one.partition("=")
        if name not in GPUS:
            raise ConfigError(f"--price: {name!r} is none of {', '.join(GPUS)}")
        try:
            prices[name] = float(value)
        except ValueError:
            raise ConfigError(f"--price: {one}: NAME=DOLLARS is wanted") from None
    return prices


def _manifest(config: knobs.Config) -> Manifest | None:
    try:
        return Manifest.load(config.data.manifest)
    except ManifestError:
        if Path(config.data.manifest).exists():
            raise
        return None


if __name__ == "__main__":
    leave(main)
