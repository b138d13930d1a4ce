"""What the optimisers have in common: they work on this rank's shards.

What may live here: the base of the optimisers, and sums over the shards of a parameter. Working on
the local part of DTensors costs no dispatch per parameter, and lets parameters of several meshes
(tensor parallel or not) be updated by one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

State = dict[str, Tensor]


class Sharded(torch.optim.Optimizer):
    """An optimiser whose state is there from the start: what a checkpoint is loaded into is never
    missing, and torch's state dicts need no trial step to see it.

    The knobs of a group (lr, decays, ...) are what it was made with, also after a checkpoint was
    loaded: a run may be resumed with others.
    """

    def __init__(self, groups: list[dict[str, Any]], **defaults: Any) -> None:
        super().__init__(groups, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = self.begin(parameter)

    def begin(self, parameter: Tensor) -> State:
        """The state of a parameter before the first step, sharded as the parameter is."""
        raise NotImplementedError

    def update(self, group: dict[str, Any], parameters: list[Tensor], states: list[State]) -> None:
        """Updates the parameters of a group, which all have gradients."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update by the gradients there are."""
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self.update(group, parameters, [self.state[p] for p in parameters])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the state of the parameters, not the knobs."""
        own = [{k: v for k, v in group.items() if k != "params"} for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, values in zip(self.param_groups, own, strict=True):
            group.update(values)


def local(tensors: Sequence[Tensor]) -> list[Tensor]:
    """This rank's parts of tensors, in the same memory."""
    return [each.to_local() if isinstance(each, DTensor) else each for each in tensors]


def gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    """This rank's parts of the gradients."""
    return local([p.grad for p in parameters if p.grad is not None])


def named(states: Sequence[State], name: str) -> list[Tensor]:
    """This rank's parts of one of the states of each parameter."""
    return local([state[name] for state in states])


def shard_groups(parameter: Tensor, dims: Sequence[int]) -> list[dist.ProcessGroup]:
    """The groups of ranks over which the parameter is sharded along some of its dimensions."""
    if not isinstance(parameter, DTensor):
        return []
    mesh = parameter.device_mesh
    return [
        mesh.get_group(number)
        for number, placement in enumerate(parameter.placements)
        if getattr(placement, "dim", None) in dims and mesh.size(number) > 1
    ]


def sum_over_shards(tensors: Sequence[Tensor], groups: Sequence[list[dist.ProcessGroup]]) -> None:
    """Sums each tensor over its groups, in place, with one reduction per group for all of them.

    Ranks of a group have the same parameters in the same order, so their buffers agree.
    """
    for group in dict.fromkeys(group for own in groups for group in own):
        parts = [tensor for tensor, own in zip(tensors, groups, strict=True) if group in own]
        together = torch.cat([part.flatten() for part in parts])
        dist.all_reduce(together, group=group)
        summed = torch.split(together, [part.numel() for part in parts])
        torch._foreach_copy_(parts, [s.view_as(p) for s, p in zip(summed, parts, strict=True)])
