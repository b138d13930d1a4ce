"""FlashAttention 4 (package flash-attn-4), as an operator that torch.compile does not look into.

What may live here: the operator, its gradient, and their shapes. The kernels are compiled when they
are first called (some 7 s on an H200), once for all lengths.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("gristmill::flash4", mutates_args=())
def flash4(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, causal: bool
) -> tuple[Tensor, Tensor]:
    """Attention inside documents that stand one after the other: (tokens, heads, width) queries and
    (tokens, kv_heads, width) keys and values, bf16 or fp16, to (tokens, heads, width), and the
    logarithm of each softmax's denominator, (heads, tokens) fp32.

    `starts` (documents + 1,) int32: first tokens, then the number of all; `longest`: tokens of the
    longest document.
    """
    from flash_attn.cute.interface import _flash_attn_fwd

    bounds = _bounds(starts, longest)
    out, denominators, *_ = _flash_attn_fwd(q, k, v, causal=causal, return_lse=True, **bounds)
    return out, denominators


@flash4.register_fake
def _shapes(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, causal: bool
) -> tuple[Tensor, Tensor]:
    tokens, heads, _ = q.shape
    return torch.empty_like(q), q.new_empty((heads, tokens), dtype=torch.float32)


@torch.library.custom_op("gristmill::flash4_backward", mutates_args=())
def _backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    denominators: Tensor,
    starts: Tensor,
    longest: int,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    from flash_attn.cute.interface import _flash_attn_bwd

    orderly = torch.are_deterministic_algorithms_enabled()
    options = {"causal": causal, "deterministic": orderly, **_bounds(starts, longest)}
    for_q, for_k, for_v, *_ = _flash_attn_bwd(q, k, v, out, gradient, denominators, **options)
    return for_q, for_k, for_v


@_backward.register_fake
def _shapes_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, starts, ctx.longest, ctx.causal = inputs
    ctx.save_for_backward(q, k, v, *output, starts)
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    *saved, starts = ctx.saved_tensors
    found = _backward(gradient.contiguous(), *saved, starts, ctx.longest, ctx.causal)
    return *found, None, None, None


flash4.register_autograd(_gradients, setup_context=_remember)


def _bounds(starts: Tensor, longest: int) -> dict[str, Any]:
    """The same documents for queries and keys."""
    return {
        "cu_seqlens_q": starts,
        "cu_seqlens_k": starts,
        "max_seqlen_q": longest,
        "max_seqlen_k": longest,
    }
