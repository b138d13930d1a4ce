"""The product of SwiGLU, silu(gate) * up, and on a GPU its gradient in one kernel.

What may live here: the plain form, and what chooses the kernel (training/swiglu_triton.py).
Compiled, the plain form's gradient computes each of its two halves from all that it reads, and took
twice the time of reading and writing once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def swiglu(both: Tensor) -> Tensor:
    """(..., 2, n), gate and up, to (..., n)."""
    if both.is_cuda:
        out: Tensor = _OneKernel.apply(both)  # type: ignore[no-untyped-call]
        return out
    return plain(both)


def plain(both: Tensor) -> Tensor:
    """The definition."""
    gate, up = both.unbind(-2)
    return F.silu(gate) * up


class _OneKernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        return plain(both)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (both,) = ctx.saved_tensors
        found: Tensor = backward(both.contiguous(), gradient.contiguous())
        return found


@torch.library.custom_op("gristmill::swiglu_backward", mutates_args=())
def backward(both: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of `both` (..., 2, n), of that of the product (..., n); both contiguous."""
    from training.swiglu_triton import launch

    out = torch.empty_like(both)
    launch(both, gradient, out)
    return out


@backward.register_fake
def _shape(both: Tensor, gradient: Tensor) -> Tensor:
    return torch.empty_like(both)
