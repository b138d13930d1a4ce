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
from training.world import sizes

GIB = float(2**30)

#: Tokens per parameter at the optimum (J. Hoffmann et al., Training Compute-Optimal Large Language
#: Models, 2022, approach 1 and 2: about 20; FLOPs = 6 N D).
CHINCHILLA = 20.0


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
        layout=sizes(config.parallel, ranks),
        steps=steps,
        tokens=tokens,
        flops_per_token=per_token,
        flops=per_token * tokens,
        memory=memory(config, shape, ranks),
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
    ends = shape.rows * shape.dim
    block = (total - ends * (1 if shape.tied else 2)) / shape.layers
    whole = shape.layers / layout["pipeline"] if not parallel.reshard else 2.0
    gathered = (ends * (1 if shape.tied else 2) + whole * block) / layout["tensor"] * width
    kept = {
        "keep": _kept(shape),
        "selective": _products(shape),
        "full": float(shape.dim),
    }[parallel.activations]
    rows = train.micro_batch * shape.context
    layers = shape.layers / layout["pipeline"]
    in_flight = min(layout["pipeline"], train.batch // train.micro_batch)  # of 1F1B's first stage
    again = 0.0 if parallel.activations == "keep" else _kept(shape)
    activations = rows * width * (kept * layers * in_flight + again) / layout["tensor"]
    logits = min(train.loss_chunk, rows) * shape.vocab * (4.0 + width) / layout["tensor"]
    return Memory(states, gathered, activations, logits + ends / layout["tensor"] * 4.0)


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
        fits = "yes" if found.memory.total <= 0.9 * gpu.memory * GIB else "no"
        cost = f"${hours * found.ranks * price:,.0f}"
        rows.append((name, fits, span(hours), cost, f"${price:g}"))
    head = ("GPU", "fits", f"time on {found.ranks}", "cost", "an hour of one")
    said = f"(at an MFU of {mfu:.0%}; prices are assumptions: --price NAME=DOLLARS)"
    return f"{table(head, rows)}\n{said}"


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
