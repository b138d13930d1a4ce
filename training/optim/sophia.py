"""Sophia-G (H. Liu et al., Sophia: A Scalable Stochastic Second-order Optimizer, 2023, algorithm 3
with the Gauss-Newton-Bartlett estimate of algorithm 2).

What may live here: this optimiser; its draws are in training/sampled.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from training.optim.sharded import Sharded, State, gradients, local, named


class Sophia(Sharded):
    """Momentum divided by the diagonal of the Hessian, each coordinate's update at most 1."""

    def __init__(
        self,
        groups: list[dict[str, Any]],
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        rho: float,
    ) -> None:
        super().__init__(groups, lr=lr, beta1=beta1, beta2=beta2, eps=eps, rho=rho)

    def begin(self, parameter: Tensor) -> State:
        """The momentum, and the diagonal of the Hessian."""
        return {"exp_avg": torch.zeros_like(parameter), "hessian": torch.zeros_like(parameter)}

    @torch.no_grad()
    def observe(self, labels: int) -> None:
        """Takes an estimate in: the gradients there are must be those of the mean loss of so many
        labels that were drawn from the model's own distribution."""
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                grads = gradients(parameters)
                estimates = torch._foreach_mul(grads, grads)
                torch._foreach_mul_(estimates, float(labels))
                hessians = named([self.state[p] for p in parameters], "hessian")
                torch._foreach_lerp_(hessians, estimates, 1 - group["beta2"])

    def update(self, group: dict[str, Any], parameters: list[Tensor], states: list[State]) -> None:
        """p -= lr * decay * p; p -= lr * clip(m / max(rho * h, eps), 1)."""
        own, momenta = local(parameters), named(states, "exp_avg")
        torch._foreach_lerp_(momenta, gradients(parameters), 1 - group["beta1"])
        denominators = torch._foreach_mul(named(states, "hessian"), group["rho"])
        torch._foreach_clamp_min_(denominators, group["eps"])
        updates = torch._foreach_div(momenta, denominators)
        torch._foreach_clamp_min_(updates, -1.0)
        torch._foreach_clamp_max_(updates, 1.0)
        torch._foreach_mul_(own, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(own, updates, alpha=-group["lr"])
