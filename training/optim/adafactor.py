"""Adafactor (N. Shazeer and M. Stern, Adafactor: Adaptive Learning Rates with Sublinear Memory
Cost, 2018, algorithms 4 and 5), without momentum and with absolute steps: the learning rate is that
of the schedule, not relative to the size of the parameters.

What may live here: this optimiser.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Placement, Replicate

from training.optim.sharded import (
    Sharded,
    State,
    gradients,
    local,
    named,
    shard_groups,
    sum_over_shards,
)

EPS = 1e-30  # added to squares (epsilon 1 of the paper)
MOST = 1.0  # root mean square of an update, from which it is scaled down (d of the paper)
EXPONENT = 0.8  # the second moments' decay at update t is 1 - t ** -0.8 (section 7.2)


class Adafactor(Sharded):
    """Second moments of matrices are kept as sums of their rows and of their columns.

    `row` is (rows, 1) and `column` (1, columns): each is sharded as the matrix is along the
    dimension that it has, and the same on all ranks along the other.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float) -> None:
        super().__init__(groups, lr=lr)

    def begin(self, parameter: Tensor) -> State:
        """The count of updates, on the CPU; sums for matrices, and all squares for vectors."""
        state = {"step": torch.zeros(())}
        if parameter.dim() == 2:
            return {**state, "row": _zeros(parameter, 1), "column": _zeros(parameter, 0)}
        return {**state, "square": torch.zeros_like(parameter)}

    def update(self, group: dict[str, Any], parameters: list[Tensor], states: list[State]) -> None:
        """p -= lr * decay * p; p -= lr * u / max(1, rms(u)), with u = g / sqrt(second moment)."""
        torch._foreach_add_([state["step"] for state in states], 1.0)
        shares = [float(state["step"]) ** -EXPONENT for state in states]  # 1 in the first update
        grads = gradients(parameters)
        squares = list(torch._foreach_mul(grads, grads))
        torch._foreach_add_(squares, EPS)
        factored = "row" in states[0]  # a group has matrices only, or vectors only
        divide = self._by_sums if factored else self._by_squares
        updates = divide(parameters, states, grads, squares, shares)
        _clip(parameters, updates)
        own = local(parameters)
        torch._foreach_mul_(own, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(own, updates, alpha=-group["lr"])

    def _by_sums(
        self,
        parameters: list[Tensor],
        states: list[State],
        grads: list[Tensor],
        squares: list[Tensor],
        shares: list[float],
    ) -> list[Tensor]:
        """g / sqrt(row * column / sum of all), in an order in which nothing underflows."""
        along = [[shard_groups(p, [dim]) for p in parameters] for dim in (0, 1)]
        by_row = [each.sum(1, keepdim=True) for each in squares]
        by_column = [each.sum(0, keepdim=True) for each in squares]
        sum_over_shards(by_row + by_column, along[1] + along[0])
        rows, columns = named(states, "row"), named(states, "column")
        _mean(rows, by_row, shares)
        _mean(columns, by_column, shares)
        totals = [row.sum() for row in rows]
        sum_over_shards(totals, along[0])
        factors = torch._foreach_div(rows, totals)
        torch._foreach_rsqrt_(factors)
        updates = torch._foreach_mul(grads, factors)
        torch._foreach_mul_(updates, torch._foreach_rsqrt(columns))
        return list(updates)

    def _by_squares(
        self,
        parameters: list[Tensor],
        states: list[State],
        grads: list[Tensor],
        squares: list[Tensor],
        shares: list[float],
    ) -> list[Tensor]:
        """g / sqrt(squares)."""
        kept = named(states, "square")
        _mean(kept, squares, shares)
        return list(torch._foreach_mul(grads, torch._foreach_rsqrt(kept)))


def _mean(kept: list[Tensor], new: list[Tensor], shares: list[float]) -> None:
    """kept = (1 - share) * kept + share * new, in place; `new` is used up."""
    torch._foreach_mul_(kept, [1 - share for share in shares])
    torch._foreach_mul_(new, shares)
    torch._foreach_add_(kept, new)


def _clip(parameters: list[Tensor], updates: list[Tensor]) -> None:
    """Scales updates down whose root mean square, over all shards, is above MOST."""
    norms = [norm.square() for norm in torch._foreach_norm(updates)]
    sum_over_shards(norms, [shard_groups(p, range(p.dim())) for p in parameters])
    torch._foreach_sqrt_(norms)
    torch._foreach_div_(norms, [MOST * math.sqrt(p.numel()) for p in parameters])
    torch._foreach_clamp_min_(norms, 1.0)
    torch._foreach_div_(updates, norms)


def _zeros(matrix: Tensor, dim: int) -> Tensor:
    """What is left of a matrix of zeros when one of its dimensions is summed up."""
    own = matrix.to_local() if isinstance(matrix, DTensor) else matrix
    zeros = torch.zeros_like(own.narrow(dim, 0, 0).sum(dim, keepdim=True))
    if not isinstance(matrix, DTensor):
        return zeros
    placements: list[Placement] = [
        Replicate() if getattr(placement, "dim", None) == dim else placement
        for placement in matrix.placements
    ]
    shape = torch.Size(1 if n == dim else size for n, size in enumerate(matrix.shape))
    return DTensor.from_local(
        zeros, matrix.device_mesh, placements, run_check=False, shape=shape, stride=(shape[1], 1)
    )
