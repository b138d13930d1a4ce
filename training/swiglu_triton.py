"""The kernel of SwiGLU's gradient. What may live here: what wants Triton, which CPU builds of torch
lack, so that this is imported where it runs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 512  # of a program


def launch(both: Tensor, gradient: Tensor, out: Tensor) -> None:
    """Writes the gradient of `both` (..., 2, n) to `out`; all contiguous."""
    n = both.shape[-1]
    rows = gradient.numel() // n
    if rows == 0:
        return
    with torch.cuda.device(both.device):
        _kernel[(rows, triton.cdiv(n, COLUMNS))](both, gradient, out, n, COLUMNS, num_warps=4)


@triton.jit
def _kernel(both, gradient, out, n, columns: tl.constexpr):  # type: ignore[no-untyped-def]
    """d silu(g) u / dg = u s (1 + g (1 - s)), with s the sigmoid of g; / du = g s. In fp32."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = column < n
    gate = tl.load(both + row * 2 * n + column, inside).to(tl.float32)
    up = tl.load(both + row * 2 * n + n + column, inside).to(tl.float32)
    slope = tl.load(gradient + row * n + column, inside).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    for_gate = slope * up * sigmoid * (1 + gate * (1 - sigmoid))
    for_up = slope * gate * sigmoid
    tl.store(out + row * 2 * n + column, for_gate.to(out.dtype.element_ty), inside)
    tl.store(out + row * 2 * n + n + column, for_up.to(out.dtype.element_ty), inside)
