"""The optimiser that the knobs ask for, and which parameters decay.

What may live here: the choice of an optimiser and its groups.
"""

from __future__ import annotations

from torch import nn

from training import config as knobs
from training.optim.adafactor import Adafactor
from training.optim.adamw import AdamW
from training.optim.lion import Lion
from training.optim.sharded import Sharded
from training.optim.sophia import Sophia


def build(model: nn.Module, optimizer: knobs.Optimizer) -> Sharded:
    """An optimiser of all parameters. Matrices decay, that of the embedding too; norms do not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    vectors = [parameter for parameter in parameters if parameter.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": optimizer.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    lr, betas = optimizer.lr, (optimizer.beta1, optimizer.beta2)
    if optimizer.kind == "lion":
        return Lion(groups, lr, *betas)
    if optimizer.kind == "adafactor":
        return Adafactor(groups, lr)
    if optimizer.kind == "sophia":
        return Sophia(groups, lr, *betas, optimizer.eps, optimizer.rho)
    return AdamW(groups, lr, *betas, optimizer.eps)
