"""AdamW (I. Loshchilov and F. Hutter, Decoupled Weight Decay Regularization, 2019).

What may live here: this optimiser.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from training.optim.sharded import Sharded, State, gradients, local, named


class AdamW(Sharded):
    """torch's fused kernel, on the shards. State as in torch.optim.AdamW."""

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, beta1: float, beta2: float, eps: float
    ) -> None:
        # `fused` tells torch's load_state_dict that `step` belongs on the device.
        super().__init__(groups, lr=lr, beta1=beta1, beta2=beta2, eps=eps, fused=True)

    def begin(self, parameter: Tensor) -> State:
        """The count of updates, and both moments."""
        return {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }

    def update(self, group: dict[str, Any], parameters: list[Tensor], states: list[State]) -> None:
        """One call for the group."""
        adamw(
            local(parameters),
            gradients(parameters),
            named(states, "exp_avg"),
            named(states, "exp_avg_sq"),
            [],
            named(states, "step"),
            fused=True,
            amsgrad=False,
            maximize=False,
            beta1=group["beta1"],
            beta2=group["beta2"],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
        )
