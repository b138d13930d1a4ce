"""What a training run is told: frozen dataclasses, a docstring per knob, and how they are read.

What may live here: the knobs, reading them from YAML and `a.b=c`, and the checks that need nothing
but the knobs. Every fault is a ConfigError of one line that names the key. What a run is (model,
data, objective, batch, seed) may not change between its starts; everything else may.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_type_hints

import yaml

from manifests import typed

PRESETS = Path(__file__).parent / "presets"


class ConfigError(ValueError):
    """A configuration that cannot be trained with. One line, which names the key."""


@dataclass(frozen=True)
class Data:
    """What is read."""

    manifest: str = "runs/latest-tokens"
    """The manifest of a tokens run, or its directory."""
    read: Literal["auto", "shards", "live"] = "auto"
    """`shards`: the rows as the run wrote them; `live`: the packed files by the order; `auto`: the
    shards as long as they suffice and the mixture is the manifest's."""
    mixture: Mapping[str, float] | None = None
    """Weights of the sources (shares of tokens, in any unit; none for unnamed ones) from the next
    block of 1,024 samples on; null leaves the mixture as it is. What it was when is in the run's
    mixture.jsonl."""
    max_epochs: float | None = None
    """Most times that a source may be gone through; null: what the manifest says of each source."""
    digests: bool = True
    """Compare the SHA-256 of all files that are read with the manifest before the first step; a
    restart looks only at those that have changed since (verified.json)."""
    prefetch: int = 2
    """Batches that are read ahead; 0 reads each when it is wanted."""


@dataclass(frozen=True)
class Model:
    """A decoder of the Llama family."""

    layers: int = 4
    """Blocks."""
    dim: int = 128
    """Width of the residual stream."""
    heads: int = 4
    """Query heads; dim / heads is the width of a head."""
    kv_heads: int = 4
    """Key and value heads, each shared by heads / kv_heads query heads (GQA)."""
    ffn: int = 352
    """Hidden width of the SwiGLU."""
    vocab: int | None = None
    """Entries of the vocabulary; null: the tokenizer's. Stored padded to a multiple of 128."""
    context: int | None = None
    """Most tokens of a row; null: the manifest's sequence length."""
    rope_theta: float = 10000.0
    """Base of the rotary positions, which begin anew with each document."""
    norm_eps: float = 1e-5
    """Epsilon of RMSNorm."""
    qk_norm: bool = False
    """RMSNorm of queries and keys, per head, before the rotation."""
    tied: bool = False
    """The output matrix is the input embedding."""
    init_std: float = 0.02
    """Standard deviation of the weights at the start; matrices that write to the residual stream
    have it divided by sqrt(2 * layers) (GPT-2)."""
    attention: Literal["auto", "varlen", "flash4", "flex", "sdpa"] = "auto"
    """The attention kernel; `auto`: varlen where there is one for the device, precision and mask,
    else flex on a GPU, else sdpa with a dense mask. `flash4`: faster than varlen on a Hopper GPU
    or a later one, with the package flash-attn-4 (`gristmill[flash4]`)."""
    document_mask: bool = True
    """Tokens attend to their own document only; otherwise to the whole row before them."""


@dataclass(frozen=True)
class Objective:
    """What is predicted."""

    kind: Literal["causal", "mlm", "prefix", "span"] = "causal"
    """`causal`: the next token; `mlm`: masked tokens, attending both ways (BERT); `prefix`: the
    next token after a bidirectional prefix; `span`: the spans that sentinels stand for (T5)."""
    mask_share: float = 0.15
    """mlm, span: share of the tokens that are predicted."""
    span_length: float = 3.0
    """span: mean length of a span, in tokens."""


@dataclass(frozen=True)
class Optimizer:
    """How parameters are updated. Weight decay is for matrices only, not for norms."""

    kind: Literal["adamw", "lion", "adafactor", "sophia"] = "adamw"
    """The optimiser."""
    lr: float = 1e-3
    """Learning rate at its peak."""
    min_lr: float = 1e-4
    """Learning rate in the last step (not with schedule.kind=constant)."""
    beta1: float = 0.9
    """Decay of the first moment, per step (lion: how much of the momentum is in an update;
    adafactor has no first moment)."""
    beta2: float = 0.95
    """Decay of the second moment (lion: of the momentum), per step; sophia: of the Hessian, per
    estimate; adafactor has 1 - t**-0.8, as published, whatever is here."""
    eps: float = 1e-8
    """Added to the denominator (sophia: the least denominator; adafactor: 1e-30 is added to
    squares, as published, whatever is here)."""
    weight_decay: float = 0.1
    """Decoupled weight decay."""
    clip: float | None = 1.0
    """Largest norm of all gradients together; null does not clip."""
    rho: float = 0.05
    """sophia: what the Hessian is multiplied by in the denominator; smaller clips more."""
    hessian_every: int = 10
    """sophia: steps from one estimate of the Hessian to the next."""


@dataclass(frozen=True)
class Schedule:
    """The learning rate over the steps."""

    kind: Literal["cosine", "wsd", "constant"] = "cosine"
    """After the warm-up: `cosine` to min_lr; `wsd`: constant, then down to min_lr over the last
    steps (warm-up, stable, decay); `constant`."""
    warmup: int = 100
    """Steps of linear warm-up from 0."""
    decay: float = 0.2
    """wsd: share of all steps in which it goes down."""
    shape: Literal["linear", "sqrt"] = "linear"
    """wsd: how it goes down."""


@dataclass(frozen=True)
class Train:
    """How long, and in what portions."""

    steps: int | None = None
    """Steps of the whole run."""
    tokens: int | None = None
    """Instead of steps: tokens of the whole run, padding included, rounded up to whole steps."""
    batch: int = 8
    """Samples (rows of the manifest's sequence length) of a step, over all ranks."""
    micro_batch: int | None = 8
    """Samples of one forward pass of a rank; batch must be a multiple of it times data ranks. null:
    as many as the GPU holds, by what `training.plan` says of memory (8 at most without a GPU)."""
    z_loss: float = 0.0
    """Weight of log(Z)**2, which keeps the logits from drifting (PaLM: 1e-4)."""
    loss_chunk: int = 4096
    """Tokens whose logits are in memory together."""


@dataclass(frozen=True)
class Parallel:
    """Who holds what: replicate * shard * tensor * pipeline is the number of ranks."""

    replicate: int = 1
    """Copies of the (sharded) model: data parallel without sharding; with shard > 1, HSDP."""
    shard: int | None = None
    """Ranks that a copy's parameters, gradients and optimiser are sharded over (FSDP2); null: all
    that the others leave over."""
    tensor: int = 1
    """Ranks that share each matrix; must divide kv_heads."""
    pipeline: int = 1
    """Ranks that the blocks are divided among, in stages (1F1B); a step wants at least as many
    micro-batches of each rank. Not with model.tied."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of the forward and backward passes; parameters, gradients' sums and moments are fp32. fp16
    has dynamic loss scaling."""
    fp8: bool = False
    """Matrix products of the blocks in float8 (a GPU that has it; with bf16 and tensor=1).
    Validation is computed in bf16."""
    activations: Literal["keep", "selective", "full"] = "keep"
    """Activation checkpointing: `selective` computes all but matrix products and attention anew in
    the backward pass, `full` whole blocks."""
    reshard: bool = True
    """Free gathered parameters after the forward pass and gather them again for the backward, and
    reduce gradients after each micro-batch. Otherwise both are done once a step, and each rank has
    memory for all parameters (in `precision`) and all gradients (fp32)."""
    offload: bool = False
    """Keep parameters, gradients and optimiser in the memory of the CPU."""
    compile: bool = False
    """torch.compile of each block; kept in $TORCHINDUCTOR_CACHE_DIR, else in
    ~/.cache/gristmill/compiled."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """What it runs on."""


@dataclass(frozen=True)
class Checkpoint:
    """What is saved, and what is begun from."""

    every: int = 1000
    """Steps from one checkpoint to the next; the last step always has one."""
    keep: int = 3
    """Complete checkpoints that are kept, the newest; 0 keeps all."""
    permanent: int | None = None
    """Checkpoints at multiples of this many steps are kept for ever."""
    asynchronous: bool = True
    """Write while training goes on."""
    init_from: str | None = None
    """A checkpoint, or a directory in Hugging Face's Llama format, whose weights are begun with
    (continued pretraining: step 0, a fresh optimiser, the learning rate warmed up again)."""


@dataclass(frozen=True)
class Guard:
    """What is done about spikes and values that are not finite."""

    enabled: bool = True
    """Look at loss and gradient norm of every step."""
    z: float = 8.0
    """Robust z-score, (x - median) / (1.4826 * MAD), from which a value is a spike."""
    window: int = 128
    """Steps that median and MAD are taken of."""
    least: int = 32
    """Steps that must have been seen before anything is a spike."""
    rollback: int = 100
    """How many steps to go back, at least, to a checkpoint."""
    retries: int = 3
    """Rollbacks after which a further spike ends the run."""


@dataclass(frozen=True)
class Validation:
    """Perplexity of held-out rows while training."""

    every: int | None = None
    """Steps from one validation to the next; null: none but at the end."""
    rows: int | None = None
    """Rows of each source that are looked at, the first; null: all."""


@dataclass(frozen=True)
class Log:
    """What is written down."""

    every: int = 10
    """Steps from one line of progress and of operational metrics to the next."""
    plots: bool = True
    """Draw the curves (PNG; with matplotlib) at checkpoints and at the end."""
    tensorboard: bool = False
    """Write TensorBoard events, too."""
    wandb: str | None = None
    """Log to this project of Weights & Biases, too."""


@dataclass(frozen=True)
class Launch:
    """The local workers."""

    workers: int | None = None
    """Processes to start here; null: one per GPU, one without."""
    restarts: int = 3
    """How often dead or stalled workers are started again, from the last complete checkpoint."""
    stall: float = 600.0
    """Seconds without a finished step after which workers are taken for stalled."""
    on_alert: str | None = None
    """A shell command that is run when workers die or stall, at a rollback and when the run fails;
    the reason is in $GRISTMILL_ALERT, the run's directory in $GRISTMILL_RUN."""


@dataclass(frozen=True)
class Config:
    """A training run."""

    run: str = "runs/train"
    """The directory of the run. A run that is there is resumed."""
    seed: int = 20
    """Of the weights at the start and of what objectives draw."""
    data: Data = field(default_factory=Data)
    """What is read."""
    model: Model = field(default_factory=Model)
    """What is trained."""
    objective: Objective = field(default_factory=Objective)
    """What is predicted."""
    optimizer: Optimizer = field(default_factory=Optimizer)
    """How it is trained."""
    schedule: Schedule = field(default_factory=Schedule)
    """The learning rate."""
    train: Train = field(default_factory=Train)
    """How long."""
    parallel: Parallel = field(default_factory=Parallel)
    """On what, and how it is divided."""
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    """What is saved."""
    guard: Guard = field(default_factory=Guard)
    """Spikes."""
    validation: Validation = field(default_factory=Validation)
    """Held-out loss."""
    log: Log = field(default_factory=Log)
    """Metrics."""
    launch: Launch = field(default_factory=Launch)
    """Workers."""

    @property
    def identity(self) -> dict[str, Any]:
        """What makes the run the run it is: to be the same at every start."""
        model = typed.plain(self.model)
        del model["attention"]
        own = {"seed": self.seed, "model": model, "objective": typed.plain(self.objective)}
        return {**own, "batch": self.train.batch, "z_loss": self.train.z_loss}


# ---------------------------------------------------------------- reading


def load(source: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """A checked configuration: a YAML file or the name of a preset, then `a.b=c` one by one.

    A file may say `preset: NAME`, whose values it overrides. Raises ConfigError.
    """
    record = _file(source) if source is not None else {}
    for override in overrides:
        _set(record, override)
    try:
        config = typed.build(Config, _numbers(Config, record))
    except ValueError as error:
        raise ConfigError(_nearest(str(error))) from None
    check(config)
    return config


def presets() -> list[str]:
    """Names of the presets."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def check(config: Config) -> None:
    """What knobs say against each other. Raises ConfigError; touches no device and no file."""
    for where, problem in _problems(config):
        raise ConfigError(f"{where}: {problem}")


def _problems(config: Config) -> Iterator[tuple[str, str]]:
    model, train, parallel = config.model, config.train, config.parallel
    yield from _ranges(config)
    if "\0" in config.run:
        yield "run", "a path has no NUL in it"
    if model.dim % model.heads:
        yield "model.dim", f"{model.dim} is no multiple of model.heads ({model.heads})"
    elif (model.dim // model.heads) % 2:
        yield "model.heads", f"heads of {model.dim // model.heads}; rotary positions want even ones"
    if model.heads % model.kv_heads:
        yield "model.heads", f"{model.heads} is no multiple of model.kv_heads ({model.kv_heads})"
    if (train.steps is None) == (train.tokens is None):
        said = "both are" if train.steps is not None else "neither is"
        yield "train.steps", f"one of train.steps and train.tokens is wanted; {said} given"
    if train.micro_batch is not None and train.batch % train.micro_batch:
        yield (
            "train.batch",
            f"{train.batch} is no multiple of train.micro_batch ({train.micro_batch})",
        )
    yield from _mixture(config.data.mixture)
    if model.kv_heads % parallel.tensor:
        yield (
            "parallel.tensor",
            f"{parallel.tensor} does not divide model.kv_heads ({model.kv_heads})",
        )
    if model.ffn % parallel.tensor:
        yield "parallel.tensor", f"{parallel.tensor} does not divide model.ffn ({model.ffn})"
    if model.layers < parallel.pipeline:
        yield "parallel.pipeline", f"{parallel.pipeline} stages of {model.layers} layers"
    if model.tied and parallel.pipeline > 1:
        yield (
            "model.tied",
            "embedding and output matrix are in different stages (parallel.pipeline)",
        )
    if parallel.fp8 and parallel.precision != "bf16":
        yield "parallel.fp8", "wants parallel.precision=bf16"
    if parallel.fp8 and parallel.tensor > 1:
        yield "parallel.fp8", f"wants parallel.tensor=1, not {parallel.tensor}"
    if model.attention in ("varlen", "flash4"):
        if parallel.precision == "fp32":
            yield "model.attention", f"{model.attention} wants parallel.precision=bf16 or fp16"
        if config.objective.kind in ("prefix", "span"):
            kind = config.objective.kind
            yield "model.attention", f"{model.attention} cannot do objective.kind={kind}"
    if config.optimizer.min_lr > config.optimizer.lr:
        yield "optimizer.min_lr", f"{config.optimizer.min_lr} is above optimizer.lr"
    if config.optimizer.kind == "sophia" and parallel.tensor * parallel.pipeline > 1:
        yield "optimizer.kind", "sophia wants parallel.tensor=1 and parallel.pipeline=1"
    if train.steps is not None and config.schedule.warmup > train.steps:
        yield "schedule.warmup", f"{config.schedule.warmup} of {train.steps} steps"
    if config.objective.kind != "causal" and not model.document_mask:
        yield "model.document_mask", f"objective.kind={config.objective.kind} wants it"
    if config.objective.span_length < 1:
        yield "objective.span_length", f"{config.objective.span_length} is below 1"
    if config.guard.least > config.guard.window:
        yield "guard.least", f"{config.guard.least} is above guard.window ({config.guard.window})"


def _mixture(weights: Mapping[str, float] | None) -> Iterator[tuple[str, str]]:
    for name, weight in (weights or {}).items():
        if not 0 <= weight < math.inf:
            yield f"data.mixture.{name}", f"{weight} is no number from 0 on"
    if weights is not None and not any(weights.values()):
        yield "data.mixture", "no source has a weight above 0"


#: Knobs that may be 0; all other numbers must be above 0.
_MAY_BE_ZERO = {
    *("seed", "data.prefetch", "optimizer.min_lr", "optimizer.beta1", "optimizer.beta2"),
    *("optimizer.weight_decay", "schedule.warmup", "train.z_loss", "checkpoint.keep"),
    *("guard.retries", "launch.restarts"),
}
#: Knobs that may be infinite: never a spike, never stalled, no cap, no clipping.
_MAY_BE_INFINITE = {"guard.z", "launch.stall", "data.max_epochs", "optimizer.clip"}
_BELOW_ONE = {"optimizer.beta1", "optimizer.beta2", "objective.mask_share", "schedule.decay"}


def _ranges(config: Config) -> Iterator[tuple[str, str]]:
    for where, value in leaves(config):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if value < 0 or (value == 0 and where not in _MAY_BE_ZERO) or value != value:
            yield where, f"{value} is not {'at least' if where in _MAY_BE_ZERO else 'above'} 0"
        elif value == math.inf and where not in _MAY_BE_INFINITE:
            yield where, f"{value} is no number to train with"
        elif where in _BELOW_ONE and value >= 1 and where != "schedule.decay":
            yield where, f"{value} is not below 1"
        elif where == "schedule.decay" and value > 1:
            yield where, f"{value} is above 1"


def leaves(config: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every knob by its dotted name, with its value."""
    for knob in fields(config):
        name, value = f"{where}{knob.name}", getattr(config, knob.name)
        if is_dataclass(value):
            yield from leaves(value, f"{name}.")
        else:
            yield name, value


def changed(config: Config, **knobs: Any) -> Config:
    """The configuration with other values, by dotted names with `__` for the dot."""
    for name, value in knobs.items():
        section, _, knob = name.partition("__")
        value = replace(getattr(config, section), **{knob: value}) if knob else value
        config = replace(config, **{section: value})
    return config


def dump(config: Config) -> str:
    """The configuration as YAML that `load` reads back."""
    return yaml.safe_dump(typed.plain(config), sort_keys=False)


@cache
def docs(kind: type = Config) -> dict[str, str]:
    """The docstring of every knob, by its dotted name."""
    found: dict[str, str] = {}
    body = ast.parse(inspect.getsource(kind)).body[0].body  # type: ignore[attr-defined]
    hints = get_type_hints(kind)
    for line, after in pairwise(body):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            name = line.target.id
            if is_dataclass(hints[name]):
                inner = docs(hints[name]).items()
                found |= {f"{name}.{below}": said for below, said in inner}
            elif isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[name] = " ".join(str(after.value.value).split())
    return found


class _Loader(yaml.SafeLoader):
    """YAML in which 3e-4 is a number, as in YAML 1.2, and a key may stand once only."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        own = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        keys = [self.construct_object(key, deep=True) for key in own]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key} stands there twice")
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{where}: no YAML: {problem}") from None


def _file(source: str | Path) -> dict[str, Any]:
    place = Path(source)
    if str(source) in presets() and not place.exists():
        place = PRESETS / f"{source}.yaml"
    try:
        text = place.read_text()
    except (OSError, ValueError) as error:
        known = ", ".join(presets())
        said = getattr(error, "strerror", None) or "no text"
        raise ConfigError(f"{source}: {said}; a file or one of {known} is wanted") from None
    record = _yaml(text, str(source)) or {}
    if not isinstance(record, dict):
        raise ConfigError(f"{source}: keys and values are wanted")
    if (preset := record.pop("preset", None)) is not None:
        if preset not in presets():
            raise ConfigError(f"preset: {preset!r} is none of {', '.join(presets())}")
        record = _merged(_file(PRESETS / f"{preset}.yaml"), record)
    return record


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` over `below`, section by section; a mapping that is a value replaces as a whole."""
    found = dict(below)
    for key, value in above.items():
        old = found.get(key)
        section = isinstance(value, dict) and isinstance(old, dict)
        found[key] = {**old, **value} if section else value  # type: ignore[dict-item]
    if {"steps", "tokens"} & set(above.get("train") or {}):  # either takes the other's place
        for key in {"steps", "tokens"} - set(above["train"]):
            found["train"].pop(key, None)
    return found


def _set(record: dict[str, Any], override: str) -> None:
    name, equals, value = override.partition("=")
    if not equals:
        raise ConfigError(f"{override}: NAME=VALUE is wanted")
    *above, last = name.split(".")
    place = record
    for key in above:
        if place.get(key) is None:  # also `train:` with nothing below it, and `mixture: null`
            place[key] = {}
        place = place[key]
        if not isinstance(place, dict):
            raise ConfigError(f"{name}: {key} has no knobs")
    place[last] = _yaml(value, name)
    if name in ("train.steps", "train.tokens"):
        place.pop("tokens" if last == "steps" else "steps", None)


def _numbers(kind: Any, record: Any) -> Any:
    """Whole numbers where a fraction is wanted and the other way round: 1e9 for a count."""
    if not is_dataclass(kind) or not isinstance(record, dict):
        return record
    hints, found = get_type_hints(kind), {}
    for key, value in record.items():
        wanted = hints.get(key)
        if is_dataclass(wanted):
            value = {} if value is None else value
        elif isinstance(value, float) and wanted in (int, int | None) and value.is_integer():
            value = int(value)
        elif type(value) is int and wanted in (float, float | None):
            value = float(value)
        found[key] = _numbers(wanted, value)
    return found


def _nearest(problem: str) -> str:
    """An unknown field with the nearest one that there is."""
    where, _, said = problem.partition(": ")
    if said != "an unknown field":
        return problem
    known = [*docs(), *(knob.name for knob in fields(Config))]
    near = difflib.get_close_matches(where, known, n=1, cutoff=0.5)
    by_name = difflib.get_close_matches(
        where.split(".")[-1], [name.split(".")[-1] for name in known], n=1, cutoff=0.8
    )
    if by_name and not near:
        near = [name for name in known if name.split(".")[-1] == by_name[0]]
    return f"{where}: no such knob" + (f"; {near[0]}?" if near else "")
