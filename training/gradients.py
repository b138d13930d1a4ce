"""Gradients between the backward passes and the update.

What may live here: when they are reduced over ranks, their norm over all ranks, and clipping.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate

from training.world import World

#: Dimensions along which ranks hold different parts; along `replicate` all is the same.
PARTS = ("pipeline", "shard", "tensor")


def expect(model: nn.Module, last: bool, reshard: bool) -> None:
    """Before a backward pass: whether it is the step's last.

    With `reshard` each pass adds to the sharded gradients, so that no rank ever holds all of them;
    the copies of `replicate` are summed once. Without it the gathered parameters, too, stay until
    the last pass: one all-gather a step.
    """
    if isinstance(model, FSDPModule):
        model.set_is_last_backward(last)
        model.set_requires_all_reduce(last)
        if not reshard:
            model.set_requires_gradient_sync(last)
            model.set_reshard_after_backward(last)


@torch.no_grad()
def norm_of(parameters: Iterable[nn.Parameter], world: World) -> Tensor:
    """The norm of all gradients together, over all ranks: fp64, on the device of the gradients."""
    own: list[Tensor] = []
    common: list[Tensor] = []
    for parameter in parameters:
        if parameter.grad is not None:
            divided = "tensor" in _divided(parameter.grad)
            (own if divided else common).append(_local(parameter.grad))
    if world.mesh.get_local_rank("tensor") > 0:
        common = []  # ranks of tensor parallelism hold the same; the first counts it
    device = next((gradient.device for gradient in (*own, *common)), world.device)
    square = torch.zeros((), dtype=torch.float64, device=device)
    if own or common:
        square += torch.stack(torch._foreach_norm([*own, *common])).double().square().sum()
    for name in PARTS:
        if world.mesh[name].size() > 1:
            dist.all_reduce(square, group=world.mesh.get_group(name))
    return square.sqrt()


@torch.no_grad()
def clip(
    parameters: Iterable[nn.Parameter], most: float | None, scale: float, world: World
) -> Tensor:
    """The norm of all gradients together, over all ranks, divided by `scale`; with it the gradients
    themselves, which are scaled down where the norm is above `most`. Waits for no GPU."""
    parameters = list(parameters)
    gradients = [_local(p.grad) for p in parameters if p.grad is not None]
    norm = norm_of(parameters, world) / scale
    factor = torch.full_like(norm, 1.0 / scale)
    if most is not None:
        factor *= (most / (norm + 1e-6)).clamp(max=1.0)
    if gradients and (most is not None or scale != 1.0):
        torch._foreach_mul_(gradients, factor.to(gradients[0].dtype))
    return norm


def _local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def _divided(gradient: Tensor) -> set[str]:
    """The dimensions of the mesh that a gradient is divided along."""
    if not isinstance(gradient, DTensor):
        return set()
    names = gradient.device_mesh.mesh_dim_names or ()
    placed = zip(names, gradient.placements, strict=True)
    return {name for name, placement in placed if not isinstance(placement, Replicate)}
