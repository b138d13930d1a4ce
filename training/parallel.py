"""From a model on the meta device to its shards on this rank.

What may live here: tensor parallelism, activation checkpointing, compilation and FSDP2, in the
order in which they work together, and filling in the first values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from training import config as knobs
from training.model import Shape, Transformer, initial
from training.pipeline import keep_stage
from training.world import World

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def build(config: knobs.Config, shape: Shape, world: World) -> Transformer:
    """The model of this rank, sharded, with its first values."""
    with torch.device("meta"):
        model = Transformer(shape, config.model, config.train)
        keep_stage(model, world)
    _shard(model, config.parallel, world)
    model.to_empty(device=world.device)
    fill(model, config, str(world.device))
    return model


def fill(model: nn.Module, config: knobs.Config, device: str) -> None:
    """Gives all parameters their first values, the same whatever they are sharded over."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            whole = initial(name, parameter.shape, config.model, config.seed, device)
            if isinstance(parameter, DTensor):
                whole = distribute_tensor(whole, parameter.device_mesh, parameter.placements)
            parameter.copy_(whole)


def _shard(model: Transformer, parallel: knobs.Parallel, world: World) -> None:
    dtype = DTYPES[parallel.precision]
    policy = MixedPrecisionPolicy(
        param_dtype=None if dtype == torch.float32 else dtype,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    options: dict[str, Any] = {"mesh": world.mesh["replicate", "shard"], "mp_policy": policy}
    for block in model.blocks.values():
        fully_shard(block, **options, reshard_after_forward=parallel.reshard)
    fully_shard(model, **options)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # the loss is divided by all labels already
            module.set_force_sum_reduction_for_comms(True)  # gloo has sums only
