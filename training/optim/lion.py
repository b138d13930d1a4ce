"""Lion (X. Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, algorithm 2).

What may live here: this optimiser.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from training.optim.sharded import Sharded, State, gradients, local, named


class Lion(Sharded):
    """The sign of a mean of momentum and gradient. Wants a learning rate some 3 to 10 times lower,
    and a weight decay as much higher, than AdamW (section 5 of the paper)."""

    def __init__(self, groups: list[dict[str, Any]], lr: float, beta1: float, beta2: float) -> None:
        super().__init__(groups, lr=lr, beta1=beta1, beta2=beta2)

    def begin(self, parameter: Tensor) -> State:
        """The momentum."""
        return {"exp_avg": torch.zeros_like(parameter)}

    def update(self, group: dict[str, Any], parameters: list[Tensor], states: list[State]) -> None:
        """c = lerp(m, g); p -= lr * (sign(c) + decay * p); then the momentum takes g in."""
        own, grads, momenta = local(parameters), gradients(parameters), named(states, "exp_avg")
        signs = torch._foreach_lerp(momenta, grads, 1 - group["beta1"])
        torch._foreach_sign_(signs)
        torch._foreach_mul_(own, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(own, signs, alpha=-group["lr"])
        torch._foreach_lerp_(momenta, grads, 1 - group["beta2"])
