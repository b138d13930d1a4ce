"""The optimiser that the knobs ask for, and which parameters decay."""

from __future__ import annotations

import torch
from torch import nn

from training import config as knobs


def build(model: nn.Module, optimizer: knobs.Optimizer) -> torch.optim.Optimizer:
    """An optimiser of all parameters; matrices decay, norms do not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {
            "params": [parameter for parameter in parameters if parameter.dim() > 1],
            "weight_decay": optimizer.weight_decay,
        },
        {
            "params": [parameter for parameter in parameters if parameter.dim() <= 1],
            "weight_decay": 0.0,
        },
    ]
    return torch.optim.AdamW(
        groups,
        lr=optimizer.lr,
        betas=(optimizer.beta1, optimizer.beta2),
        eps=optimizer.eps,
        fused=True,
    )
