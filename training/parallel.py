"""From a model on the meta device to its shards on this rank.

What may live here: tensor parallelism, activation checkpointing, compilation and FSDP2, in the
order in which they work together, and filling in the first values.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from training import config as knobs
from training import fp8
from training.attention import Mask, choose
from training.model import Head, Shape, Transformer, initial
from training.pipeline import Elsewhere, keep_stage
from training.world import World

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

#: What selective checkpointing keeps: what costs most to compute for the memory that it takes. By
#: name, since not every version of torch has all.
KEPT = frozenset(
    {
        *("aten.mm.default", "aten._scaled_mm.default", "aten._scaled_mm_v2.default"),
        "aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_efficient_attention.default",
        "aten._scaled_dot_product_cudnn_attention.default",
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        *("torch_attn._varlen_attn.default", "gristmill.flash4.default", "flex_attention"),
    }
)

#: Arguments of a block whose sizes differ from one micro-batch to the next (varlen's documents, and
#: the longest of them): compiled for all sizes from the first on.
_VARYING = "L['mask'].starts,L['mask'].longest"


def build(config: knobs.Config, shape: Shape, world: World) -> Transformer:
    """The model of this rank, sharded, with its first values. Raises ConfigError for what the
    device cannot do."""
    parallel = config.parallel
    choose(config.model.attention, world.device, DTYPES[parallel.precision], "causal")
    if parallel.compile:
        torch.compiler.config.dynamic_sources = _VARYING
        _keep_compiled()
    with torch.device("meta"):
        model = Transformer(shape, config.model, config.train)
        keep_stage(model, world)
    _shard(model, parallel, world)
    place = torch.device("cpu") if parallel.offload else world.device
    model.to_empty(device=place)
    model.tie()
    fill(model, config, str(place))
    return model


def fill(model: nn.Module, config: knobs.Config, device: str) -> None:
    """Gives all parameters their first values, the same whatever they are sharded over."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            whole = initial(name, parameter.shape, config.model, config.seed, device)
            if isinstance(parameter, DTensor):
                parameter.to_local().copy_(own_part(whole, parameter))
            else:
                parameter.copy_(whole)


def own_part(whole: Tensor, like: DTensor) -> Tensor:
    """This rank's part of a tensor that all ranks have, divided as `like`.

    Tensor parallelism, the last dimension of the mesh, divides first and FSDP2 divides what it
    left (torch's _StridedShard says so of a matrix that both divide along the same dimension).
    """
    mesh = like.device_mesh
    for dimension in reversed(range(mesh.ndim)):
        placement = like.placements[dimension]
        if not isinstance(placement, Replicate):
            along: int = placement.dim  # type: ignore[attr-defined]
            parts = whole.chunk(mesh.size(dimension), along)
            rank = mesh.get_local_rank(dimension)
            empty = whole.narrow(along, 0, 0)  # more ranks than rows
            whole = parts[rank] if rank < len(parts) else empty
    return whole


def _keep_compiled() -> None:
    """What is compiled is kept from one start, and one run, to the next: in
    `$TORCHINDUCTOR_CACHE_DIR`, else in the user's cache, since torch's own place for it (below
    /tmp) goes with the machine. Where there is no such place, torch has its way."""
    with suppress(OSError, RuntimeError):  # not writable; no home
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        place = home / "gristmill" / "compiled"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(place))


# ---------------------------------------------------------------- the order that works


def _shard(model: Transformer, parallel: knobs.Parallel, world: World) -> None:
    if parallel.tensor > 1:
        _divide(model, world.mesh["tensor"])
    for block in model.blocks.values():
        if parallel.fp8:
            fp8.convert(block, world.device)
        if parallel.activations != "keep":
            _forget(block, parallel.activations == "selective")
        if parallel.compile:
            block.compile()
    if isinstance(model.head, Head):
        model.head.compiled = parallel.compile
    _fully_shard(model, parallel, world)


def _fully_shard(model: Transformer, parallel: knobs.Parallel, world: World) -> None:
    dtype = DTYPES[parallel.precision]
    policy = MixedPrecisionPolicy(
        param_dtype=None if dtype == torch.float32 else dtype,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,  # rotations stay fp32
    )
    pinned = world.device.type == "cuda"
    options: dict[str, Any] = {
        "mesh": world.mesh["replicate", "shard"] if parallel.replicate > 1 else world.mesh["shard"],
        "mp_policy": policy,
        "offload_policy": CPUOffloadPolicy(pinned) if parallel.offload else OffloadPolicy(),
    }
    for block in model.blocks.values():
        fully_shard(block, **options, reshard_after_forward=parallel.reshard)
    if not model.shape.tied:  # a tied matrix is wanted at both ends: it stays with the root
        if not isinstance(model.embed, Elsewhere):
            fully_shard(model.embed, **options, reshard_after_forward=parallel.reshard)
            model.embed.set_unshard_in_backward(False)  # type: ignore[operator]
        if not isinstance(model.head, Elsewhere):  # its backward comes next
            fully_shard(model.head, **options, reshard_after_forward=False)
    fully_shard(model, **options, reshard_after_forward=False)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            if world.data_ranks > 1:  # one rank would divide by 1, and copy for it
                module.set_gradient_divide_factor(1.0)  # the loss is divided by all labels
            module.set_force_sum_reduction_for_comms(True)  # gloo has sums only


# ---------------------------------------------------------------- tensor parallelism


def _divide(model: Transformer, mesh: DeviceMesh) -> None:
    """Megatron's way (M. Shoeybi et al., 2019): the first matrix of a pair by rows, which stand in
    groups (model.py), the second by columns, and the vocabulary by rows. Activations between the
    pairs are whole on each rank."""
    # The embedding's output is a view of a DTensor's, and nothing is done to it in place.
    warnings.filterwarnings("ignore", r"FSDP2-wrapped module \(FSDPEmbedding\) returned a view")
    for name, module in list(model.named_modules()):
        if name.endswith(("wqkv", "w13", "head.out")):
            parallelize_module(module, mesh, ColwiseParallel())
        elif name.endswith(("wo", "w2")):
            parallelize_module(module, mesh, RowwiseParallel())
        elif isinstance(module, nn.Embedding):
            parallelize_module(module, mesh, RowwiseParallel(input_layouts=Replicate()))
        elif isinstance(module, nn.RMSNorm):
            of_heads = name.endswith(("q_norm", "k_norm"))  # (rows, L, heads, width)
            _replicate(module, mesh, Shard(2) if of_heads else Replicate())
    model.tie()


def _replicate(module: nn.Module, mesh: DeviceMesh, placement: Placement) -> None:
    """The same parameters on all ranks of the mesh, for inputs of this placement; where each rank
    has a part of the input, their gradients are summed."""

    def enter(module: nn.Module, inputs: Any, mesh: DeviceMesh) -> DTensor:
        return DTensor.from_local(inputs[0], mesh, [placement], run_check=False)

    def leave(module: nn.Module, output: Any, mesh: DeviceMesh) -> Tensor:
        local: Tensor = output.to_local()
        return local

    distribute_module(module, mesh, None, enter, leave)  # type: ignore[arg-type]


# ---------------------------------------------------------------- activation checkpointing


def _forget(block: nn.Module, selective: bool) -> None:
    """Lets a block compute its activations anew in the backward pass. Its names stay, unlike in a
    wrapper. Nothing in a block is drawn at random."""
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    if selective:
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    forward = block.forward

    def anew(x: Tensor, rotation: tuple[Tensor, Tensor], mask: Mask) -> Any:
        return checkpoint(forward, x, rotation, mask, **options)

    block.forward = anew  # not partial(checkpoint, ...), which torch.compile does not look into


def _policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    kept = str(op) in KEPT
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
