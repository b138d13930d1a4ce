"""Matrix products in float8, scaled per tensor.

What may live here: a linear layer whose three products (forward, and both gradients) run in
float8, and putting it in the place of the plain one. The weights stay what they are; each pass
quantises anew: e4m3 for activations and weights, e5m2, which reaches further, for gradients
(P. Micikevicius et al., FP8 Formats for Deep Learning, 2022).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.config import ConfigError

MULTIPLE = 16  # of both dimensions of a matrix, or the GPU's kernel refuses it


def convert(module: nn.Module, device: torch.device) -> None:
    """Puts float8 layers in the place of all linear ones below `module` that are large enough.
    Raises ConfigError for a GPU without float8."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        raise ConfigError("parallel.fp8: wants an Ada or Hopper GPU or a later one")
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and not any(n % MULTIPLE for n in child.weight.shape):
                setattr(parent, name, Linear(child.weight))


class Linear(nn.Module):
    """A linear layer without bias, in float8 while training."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out). Evaluation, and a number of tokens that the kernel refuses, are
        computed plainly."""
        tokens = x.flatten(0, -2)
        if not self.training or tokens.shape[0] % MULTIPLE:
            return F.linear(x, self.weight)
        out: Tensor = _Product.apply(tokens, self.weight)  # type: ignore[no-untyped-call]
        return out.view(*x.shape[:-1], -1)


class _Product(torch.autograd.Function):
    """x @ weight.T of (tokens, in) and (out, in)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x8, weight8 = quantised(x, torch.float8_e4m3fn), quantised(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(*x8, *weight8)
        ctx.dtype = x.dtype
        return _product(x8, (weight8[0].t(), weight8[1]), x.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x8, x_scale, weight8, weight_scale = ctx.saved_tensors
        g8, g_scale = quantised(gradient, torch.float8_e5m2)
        for_x = _product((g8, g_scale), (_columns(weight8), weight_scale), ctx.dtype)
        transposed = g8.t().contiguous()
        for_weight = _product((transposed, g_scale), (_columns(x8), x_scale), ctx.dtype)
        return for_x, for_weight


def quantised(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """`x` in float8, scaled so that its largest value is the format's, and what it is to be
    multiplied by to be `x` again (fp32)."""
    most = torch.finfo(dtype).max
    scale = x.abs().amax().float().clamp(min=1e-12) / most
    return (x.float() / scale).clamp(-most, most).to(dtype), scale


def _product(
    a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], dtype: torch.dtype, fast: bool = False
) -> Tensor:
    """`a` stands by rows, `b` by columns, as the kernel wants. `fast` sums in fewer bits, which
    only the forward product bears."""
    out: Tensor = torch._scaled_mm(
        a[0], b[0], scale_a=a[1], scale_b=b[1], out_dtype=dtype, use_fast_accum=fast
    )
    return out


def _columns(x: Tensor) -> Tensor:
    """The same matrix, standing by columns."""
    return x.t().contiguous().t()
