"""Attention inside documents: one function, and a kernel per backend.

What may live here: choosing a backend, making its mask of a layout once per micro-batch, and
calling it. The dense mask of `sdpa` is the definition; the others are held against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from training.layout import Layout

Backend = Literal["varlen", "flex", "sdpa"]


@dataclass(frozen=True)
class Mask:
    """What a backend needs of a layout: a dense mask, or None where plain causal will do."""

    backend: Backend
    dense: Tensor | None = None  # (rows, 1, L, L) bool: True where the query sees the key
    causal: bool = False


def choose(wanted: str, device: torch.device, dtype: torch.dtype, kind: str) -> Backend:
    """The backend for a device, a precision and a kind of mask. Raises ValueError for one that
    cannot do it."""
    return "sdpa"


def seen(layout: Layout) -> Tensor:
    """Which keys each query sees: (rows, L, L) bool. The definition of the mask kinds."""
    same = layout.documents[:, :, None] == layout.documents[:, None, :]
    if layout.mask == "both":
        return same
    place = torch.arange(same.shape[-1], device=same.device)
    visible = place[:, None] >= place[None, :]
    if layout.mask == "prefix" and layout.prefix is not None:
        visible = visible | layout.prefix[:, None, :]
    return same & visible


def prepare(layout: Layout, backend: Backend, document_mask: bool = True) -> Mask:
    """The mask of a micro-batch, for all blocks."""
    if not document_mask:
        return Mask(backend, causal=True)
    return Mask(backend, dense=seen(layout)[:, None])


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Attention of (rows, L, heads, width) queries to (rows, L, kv_heads, width) keys and values:
    (rows, L, heads * width)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask.dense,
        is_causal=mask.causal,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out.transpose(1, 2).flatten(2)
