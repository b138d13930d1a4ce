"""Linear output layer and cross-entropy in one, some tokens' logits in memory at a time.

What may live here: the loss, its gradient, and the plain form that both are held against. Losses
are sums over the tokens that have a label; what they are divided by is the caller's affair.

The gradients are made in the forward pass, while the logits of a chunk are there, and are scaled in
the backward pass by the gradient that comes in. So each logit is computed once and none is kept;
what is kept are the gradients, of the size of `hidden` and `weight`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

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
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    z_loss: float = 0.0,
    chunk: int = 4096,
    group: dist.ProcessGroup | None = None,
    first: int = 0,
    compiled: bool = False,
) -> tuple[Tensor, Tensor]:
    """As `plain`, with the logits of `chunk` tokens in memory at a time.

    Both gradients are in the dtype of what they belong to; that of `weight` is summed over the
    chunks, and scaled, in fp32. A label outside of the vocabulary is an error (IndexError on a
    CPU, an assertion on a GPU). `compiled`: on a GPU, torch.compile what is done to the logits.

    With a `group`, `weight` is this rank's part of the vocabulary, from entry `first` on, maybe
    none of it; `hidden` and `labels` are the same on all ranks. Each rank gets the same losses, the
    gradient of its part of `weight`, and the whole gradient of `hidden`: it is summed over the
    group here. A label that no rank has gives a loss of infinity.
    """
    how = _How(z_loss, chunk, group, first, compiled and hidden.is_cuda, torch.is_grad_enabled())
    total, each = _LinearCrossEntropy.apply(hidden, weight, labels, how)  # type: ignore[no-untyped-call]
    return total, each


@dataclass(frozen=True)
class _How:
    z_loss: float
    chunk: int
    group: dist.ProcessGroup | None
    first: int
    compiled: bool
    gradients: bool  # not known inside of a Function


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, how: _How
    ) -> tuple[Tensor, Tensor]:
        wanted = [how.gradients and needed for needed in ctx.needs_input_grad[:2]]
        d_hidden = hidden.new_empty(hidden.shape) if wanted[0] else None
        d_weight = weight.new_zeros(weight.shape, dtype=torch.float32) if wanted[1] else None
        each = hidden.new_empty(len(hidden), dtype=torch.float32)
        squares = torch.zeros_like(each)
        sums, slopes = _sums, _slopes
        if how.compiled:
            sums, slopes = _compiled(_sums), _compiled(_slopes_at_once)
        for begin in range(0, len(hidden), how.chunk):
            part = slice(begin, begin + how.chunk)
            valid = labels[part] != IGNORED
            index = torch.where(valid, labels[part] - how.first, 0)
            own = valid
            if how.group is not None:
                own = valid & (index >= 0) & (index < len(weight))
                index = torch.where(own, index, 0)
            logits = hidden[part] @ weight.T
            if not how.compiled:
                logits = logits.float()
            lse, label = _joined(sums(logits, index, own), how.group)
            each[part] = torch.where(valid, lse - label, 0.0)
            scale = valid.float()
            if how.z_loss:  # not times 0: what is not finite would not go away
                squares[part] = torch.where(valid, lse, 0.0).square()
                scale = torch.where(valid, 1 + 2 * how.z_loss * lse, 0.0)
            if any(wanted):
                slope = slopes(logits, lse, index, own, scale, hidden.dtype)
                del logits
                if d_hidden is not None:
                    d_hidden[part] = slope @ weight
                if d_weight is not None:
                    d_weight += slope.T @ hidden[part]
        if d_hidden is not None and how.group is not None:
            dist.all_reduce(d_hidden, group=how.group)
        ctx.save_for_backward(d_hidden, d_weight)
        ctx.dtype = weight.dtype
        ctx.mark_non_differentiable(each)
        total = each.sum()
        return (total + how.z_loss * squares.sum() if how.z_loss else total), each

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor, d_each: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight = ctx.saved_tensors
        return (
            None if d_hidden is None else _scaled(d_hidden, d_total, d_hidden.dtype),
            None if d_weight is None else _scaled(d_weight, d_total, ctx.dtype),
            None,
            None,
        )


def _scaled(gradient: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    """The product, rounded once: a factor without dimensions would be rounded to the gradient's
    dtype first. Not in place, since the gradient may be wanted again (retain_graph)."""
    return torch.mul(gradient, factor.reshape(1), out=torch.empty_like(gradient, dtype=dtype))


def _sums(logits: Tensor, index: Tensor, own: Tensor) -> Tensor:
    """Of each token the log-sum-exp over these columns, and its label's logit, -inf where the label
    is not among them: (2, tokens) fp32."""
    logits = logits.float()
    nothing = torch.full_like(index, -torch.inf, dtype=torch.float32)
    if not logits.shape[1]:
        return torch.stack((nothing, nothing))
    label = torch.where(own, logits.gather(1, index[:, None])[:, 0], nothing)
    return torch.stack((logits.logsumexp(1), label))


def _joined(sums: Tensor, group: dist.ProcessGroup | None) -> tuple[Tensor, Tensor]:
    """The same over all columns of the group: the ranks' values are added up in one order
    everywhere, so that all get the same bits."""
    if group is None:
        return sums[0], sums[1]
    every = [torch.empty_like(sums) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, sums, group=group)
    lse, label = torch.stack(every, 1)
    return lse.logsumexp(0), label.amax(0)


def _slopes(
    logits: Tensor, lse: Tensor, index: Tensor, own: Tensor, scale: Tensor, dtype: torch.dtype
) -> Tensor:
    """The gradient of the logits: softmax times `scale`, less 1 at the label. Uses up `logits`."""
    slopes = logits.float().sub_(lse[:, None]).exp_().mul_(scale[:, None])
    if logits.shape[1]:
        slopes.scatter_add_(1, index[:, None], -own[:, None].float())
    return slopes.to(dtype)


def _slopes_at_once(
    logits: Tensor, lse: Tensor, index: Tensor, own: Tensor, scale: Tensor, dtype: torch.dtype
) -> Tensor:
    """The same without scattering, which would take compiled code a second pass over fp32."""
    columns = torch.arange(logits.shape[1], device=logits.device)
    label = (columns == index[:, None]) & own[:, None]
    softmax = (logits.float() - lse[:, None]).exp() * scale[:, None]
    return (softmax - label.float()).to(dtype)


@cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return torch.compile(function, dynamic=False)
