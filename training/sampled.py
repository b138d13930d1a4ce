"""Labels drawn from the model's own distribution, for Sophia's estimate of the Hessian.

What may live here: the draws, and labels by them. A draw belongs to (seed, step, sample, place), so
it is the same however a batch is divided; nothing is kept between calls.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from manifests.hashing import mix64, salt
from training.layout import IGNORED

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seed: int, step: int, samples: Tensor, length: int) -> Tensor:
    """(rows, length) fp32 in [0, 1), of 24 bits each; `samples`: (rows,) int64, on the CPU."""
    salted = np.uint64(salt(seed, "sophia", step))
    with np.errstate(over="ignore"):
        rows = mix64(samples.numpy().astype(np.uint64) + salted)
        words = mix64(rows[:, None] + np.arange(1, length + 1, dtype=np.uint64) * _GOLDEN)
    return torch.from_numpy((words >> np.uint64(40)).astype(np.float32) * np.float32(2**-24))


@torch.no_grad()
def drawn(hidden: Tensor, weight: Tensor, labels: Tensor, draws: Tensor, chunk: int) -> Tensor:
    """A label from the model's distribution wherever there is one: (tokens,) int64.

    The first entry of the vocabulary up to which the probabilities sum to more than the draw, with
    the logits of `chunk` tokens in memory at a time. `hidden`: (tokens, dim); `weight`:
    (vocabulary, dim); `labels`, `draws`: (tokens,).
    """
    found = []
    for x, u in zip(torch.split(hidden, chunk), torch.split(draws, chunk), strict=True):
        sums = (x @ weight.T).float().softmax(-1).cumsum(-1)
        found.append(torch.searchsorted(sums, sums[:, -1:] * u[:, None], right=True).squeeze(1))
    within = torch.cat(found).clamp(max=len(weight) - 1)
    return torch.where(labels == IGNORED, IGNORED, within)
