"""Attention inside documents: one function, and a kernel per backend.

What may live here: choosing a backend, making its mask of a layout once per micro-batch, and
calling it. `visible` is the definition of the mask kinds: `sdpa` makes a dense mask of it, `flex`
its blocks; `varlen` and `flash4` know the boundaries of documents only, so that they cannot do
prefixes.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.nn.attention.varlen import varlen_attn

from training.config import ConfigError
from training.flash4 import flash4
from training.layout import Layout

Backend = Literal["varlen", "flash4", "flex", "sdpa"]
Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

#: Names of its parameters, which differ from one version of torch to the next.
_VARLEN = frozenset(inspect.signature(varlen_attn).parameters)


@dataclass(frozen=True)
class Mask:
    """What a backend needs of a layout."""

    backend: Backend
    causal: bool = False  # without dense mask or blocks: no token sees a later one
    dense: Tensor | None = None  # sdpa: (rows, 1, L, L) bool, True where the query sees the key
    blocks: BlockMask | None = None  # flex
    #: varlen and flash4: first tokens of documents, then the end: (n,) int32
    starts: Tensor | None = None
    longest: int = 0  # varlen and flash4: tokens of the longest document


def choose(wanted: str, device: torch.device, dtype: torch.dtype, kind: str) -> Backend:
    """The backend for a device, a precision and a kind of mask. Raises ConfigError for one that
    cannot do it."""
    lacking = _lacking(device, dtype, kind)
    if wanted == "flash4":
        lacking = lacking or _lacking_flash4(device)
    if wanted in ("varlen", "flash4") and lacking:
        raise ConfigError(f"model.attention: {wanted} wants {lacking}")
    if wanted == "flash4":
        return "flash4"
    if wanted == "varlen" or (wanted == "auto" and not lacking):
        return "varlen"
    if wanted == "flex" and device.type == "cpu" and torch.is_grad_enabled():
        raise ConfigError("model.attention: flex wants a GPU to train on")
    if wanted == "flex" or (wanted == "auto" and device.type == "cuda"):
        return "flex"
    return "sdpa"


def _lacking(device: torch.device, dtype: torch.dtype, kind: str) -> str:
    """What varlen wants and does not have here; empty if nothing."""
    if device.type != "cuda":
        return "a GPU"
    if dtype not in (torch.bfloat16, torch.float16):
        return "bf16 or fp16"
    if kind == "prefix":
        return "a mask without prefixes (not objective.kind=prefix or span)"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "an Ampere GPU or a later one"
    return ""


def _lacking_flash4(device: torch.device) -> str:
    """What flash4 wants above that."""
    if torch.cuda.get_device_capability(device) < (9, 0):
        return "a Hopper GPU or a later one"
    try:
        found = importlib.util.find_spec("flash_attn.cute")
    except ModuleNotFoundError:
        found = None
    return "" if found else "the package flash-attn-4 (pip install 'gristmill[flash4]')"


# ---------------------------------------------------------------- masks


def visible(layout: Layout) -> Rule:
    """Whether query `q` of row `b` sees key `k` (of any head `h`), all of them index tensors that
    broadcast: the definition of the mask kinds, in the form that flex wants."""
    documents, prefix = layout.documents, layout.prefix

    def both(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return documents[b, q] == documents[b, k]

    def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return both(b, h, q, k) & (q >= k)

    def prefixed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        assert prefix is not None
        return both(b, h, q, k) & ((q >= k) | prefix[b, k])

    if layout.mask == "both":
        return both
    return causal if layout.mask == "causal" or prefix is None else prefixed


def _earlier(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


def seen(layout: Layout) -> Tensor:
    """Which keys each query sees: (rows, L, L) bool."""
    rows, length = layout.documents.shape
    row = torch.arange(rows, device=layout.documents.device)[:, None, None]
    place = torch.arange(length, device=layout.documents.device)
    return visible(layout)(row, row, place[:, None], place[None, :])


def prepare(layout: Layout, backend: Backend, document_mask: bool = True) -> Mask:
    """The mask of a micro-batch, for all blocks. Without `document_mask` a token sees all of its
    row before it, whatever the layout's kind."""
    rows, length = layout.documents.shape
    device = layout.documents.device
    if backend in ("varlen", "flash4"):
        if not document_mask:
            starts = torch.arange(0, rows * length + 1, length, dtype=torch.int32, device=device)
            return Mask(backend, causal=True, starts=starts, longest=length)
        return Mask(backend, layout.mask == "causal", starts=layout.starts, longest=layout.longest)
    if backend == "flex":
        rule = visible(layout) if document_mask else _earlier
        make: Any = create_block_mask
        if device.type == "cuda":
            make = _compiled(make)
        return Mask(backend, blocks=make(rule, rows, None, length, length, device=device))
    if not document_mask:
        return Mask(backend, causal=True)
    return Mask(backend, dense=seen(layout)[:, None])


# ---------------------------------------------------------------- kernels


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Attention of (rows, L, heads, width) queries to (rows, L, kv_heads, width) keys and values:
    (rows, L, heads * width)."""
    if mask.backend == "varlen":
        return _attend_varlen(q, k, v, mask)
    if mask.backend == "flash4":
        assert mask.starts is not None
        flat = (x.flatten(0, 1) for x in (q, k, v))
        attended: Tensor = flash4(*flat, mask.starts, mask.longest, mask.causal)[0]
        return attended.view(q.shape).flatten(2)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    shared = q.shape[1] != k.shape[1]
    if mask.backend == "flex":
        flex: Any = flex_attention
        if q.device.type == "cuda" and not torch.compiler.is_compiling():
            flex = _compiled(flex)
        out: Tensor = flex(q, k, v, block_mask=mask.blocks, enable_gqa=shared)
    else:
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask.dense, is_causal=mask.causal, enable_gqa=shared
        )
    return out.transpose(1, 2).flatten(2)


def _attend_varlen(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    options: dict[str, Any] = {"window_size": (-1, 0 if mask.causal else -1)}  # -1: all
    if q.shape[2] != k.shape[2] and "enable_gqa" in _VARLEN:
        options["enable_gqa"] = True  # torch 2.11 does it unasked
    bounds = (mask.starts, mask.starts, mask.longest, mask.longest)
    flat = (x.flatten(0, 1) for x in (q, k, v))
    attention: Any = varlen_attn  # its signature differs by version
    out: Any = attention(*flat, *bounds, **options)
    attended: Tensor = out.view(q.shape).flatten(2)
    return attended


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled once: as they are, the functions of flex make the whole matrix of scores."""
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
    return compiled
