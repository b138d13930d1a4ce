"""Attention: every backend is the dense definition, and the definition is what its words say."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from training import attention
from training.attention import Backend, Mask, attend, choose, prepare, seen
from training.config import ConfigError
from training.flash4 import flash4
from training.layout import Layout, MaskKind, layout_of

KINDS: tuple[MaskKind, ...] = get_args(MaskKind)
LENGTHS = [[7, 12, 1], [20, 4], [24]]  # rows of 24; the first has padding
LENGTH = 24
CPU = torch.device("cpu")
BOTH: tuple[Backend, Backend] = ("flex", "sdpa")


def layout(kind: MaskKind, lengths: list[list[int]] = LENGTHS, length: int = LENGTH) -> Layout:
    """A layout whose documents have the first third of them for a prefix, if they have one."""
    made = layout_of(lengths, length, kind)
    prefix = torch.zeros(len(lengths), length, dtype=torch.bool)
    for row, own in enumerate(lengths):
        at = 0
        for size in own:
            prefix[row, at : at + size // 3] = True
            at += size
    values = {**vars(made), "prefix": prefix if kind == "prefix" else None}
    return Layout(**values)


def heads(seed: int = 0, kv_heads: int = 2, rows: int = 3, length: int = LENGTH) -> list[Tensor]:
    """Queries of 4 heads, keys and values of fewer, of width 8."""
    generator = torch.Generator().manual_seed(seed)
    counts = (4, kv_heads, kv_heads)
    return [
        torch.randn(rows, length, count, 8, generator=generator).requires_grad_()
        for count in counts
    ]


def softly(q: Tensor, k: Tensor, v: Tensor, sees: Callable[[int, int, int], bool]) -> Tensor:
    """Attention, query by query."""
    rows, length, count, width = q.shape
    out = torch.zeros(rows, length, count, width, dtype=q.dtype)
    for row in range(rows):
        for query in range(length):
            keys = [key for key in range(length) if sees(row, query, key)]
            for head in range(count):
                shared = head // (count // k.shape[2])
                scores = k[row, keys, shared] @ q[row, query, head] / math.sqrt(width)
                out[row, query, head] = scores.softmax(0) @ v[row, keys, shared]
    return out.flatten(2)


def rule(made: Layout) -> Callable[[int, int, int], bool]:
    """The words of `Layout`."""

    def sees(row: int, query: int, key: int) -> bool:
        if made.documents[row, query] != made.documents[row, key]:
            return False
        if made.mask == "both" or key <= query:
            return True
        return made.mask == "prefix" and made.prefix is not None and bool(made.prefix[row, key])

    return sees


@given(
    lengths=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=3),
    kind=st.sampled_from(KINDS),
)
@settings(max_examples=30, deadline=None)
def test_the_dense_mask_is_what_its_words_say(lengths: list[list[int]], kind: MaskKind) -> None:
    made = layout(kind, lengths, 16)
    sees, mask = rule(made), seen(made)
    assert mask.shape == (len(lengths), 16, 16)
    for row in range(len(lengths)):
        for query in range(16):
            found = [bool(mask[row, query, key]) for key in range(16)]
            assert found == [sees(row, query, key) for key in range(16)]


def test_a_prefix_is_seen_by_its_own_document_only() -> None:
    """Of documents of 6 and 3 tokens with prefixes of 2 and 1."""
    mask = seen(layout("prefix", [[6, 3]], 9))[0]
    assert mask[0].tolist() == [True, True, *[False] * 7]
    assert mask[1].tolist() == [True, True, *[False] * 7]
    assert mask[2].tolist() == [True, True, True, *[False] * 6]
    assert mask[6].tolist() == [*[False] * 6, True, False, False]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_sdpa_is_attention_query_by_query(kind: MaskKind, kv_heads: int) -> None:
    made = layout(kind)
    q, k, v = heads(kv_heads=kv_heads)
    found = attend(q, k, v, prepare(made, "sdpa"))
    torch.testing.assert_close(found, softly(q, k, v, rule(made)), rtol=1e-5, atol=1e-6)


def both_ways(
    mask: Mask, tensors: list[Tensor], weights: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The output, and the gradients of a weighted sum of it."""
    out = attend(*tensors, mask)
    return out, torch.autograd.grad((out.float() * weights).sum(), tensors)


def equal(layout: Layout, backend: Backend, document_mask: bool, tensors: list[Tensor]) -> None:
    """A backend and the dense mask, forwards and backwards; in bf16 within its precision."""
    exact = tensors[0].dtype == torch.float32
    bounds = {"rtol": 1e-5, "atol": 1e-6} if exact else {"rtol": 2e-2, "atol": 2e-2}
    rows, length, count, width = tensors[0].shape
    weights = torch.randn(rows, length, count * width, generator=torch.Generator().manual_seed(9))
    weights = weights.to(tensors[0].device)
    found = both_ways(prepare(layout, backend, document_mask), tensors, weights)
    expected = both_ways(prepare(layout, "sdpa", document_mask), tensors, weights)
    torch.testing.assert_close(found, expected, **bounds)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("document_mask", [True, False])
@pytest.mark.parametrize(
    ("kind", "lengths", "length"),
    [*((kind, LENGTHS, LENGTH) for kind in KINDS), ("prefix", [[300], [100, 150, 20]], 300)],
)
def test_flex_is_the_dense_mask(
    kind: MaskKind, lengths: list[list[int]], length: int, document_mask: bool
) -> None:
    """Its masks have blocks of 128 tokens, so that a row may be one of them or several. On a CPU it
    has no backward pass; that is tested on the GPU, below."""
    made = layout(kind, lengths, length)
    with torch.no_grad():
        tensors = [x.detach() for x in heads(rows=len(lengths), length=length)]
        found, expected = (
            attend(*tensors, prepare(made, backend, document_mask)) for backend in BOTH
        )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_without_document_mask_a_token_sees_the_row_before_it() -> None:
    q, k, v = heads()
    found = attend(q, k, v, prepare(layout("causal"), "sdpa", document_mask=False))
    expected = softly(q, k, v, lambda row, query, key: key <= query)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- varlen


def by_bounds(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, causal: bool
) -> Tensor:
    """What torch documents of varlen_attn: each run of tokens by itself."""
    assert starts.dtype == torch.int32
    assert starts[-1] == len(q)
    out = torch.zeros_like(q)
    for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if first < end:
            assert end - first <= longest
            part = [x[first:end][None] for x in (q, k, v)]
            own = softly(*part, lambda row, query, key: not causal or key <= query)
            out[first:end] = own.view(end - first, *q.shape[1:])
    return out


def early(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int,
    max_k: int, *, window_size: tuple[int, int] = (-1, -1),
) -> Tensor:  # fmt: skip
    """The signature of torch 2.11: keys and values may have fewer heads."""
    return late(
        query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, window_size=window_size,
        enable_gqa=query.shape[1] != key.shape[1],
    )  # fmt: skip


def late(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int,
    max_k: int, *, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """The signature of torch 2.13."""
    assert enable_gqa == (query.shape[1] != key.shape[1])
    assert window_size[0] == -1
    return by_bounds(query, key, value, cu_seq_q, max_q, window_size[1] == 0)


@pytest.mark.parametrize("document_mask", [True, False])
@pytest.mark.parametrize("kind", ["causal", "both"])
@pytest.mark.parametrize("signature", [early, late])
def test_varlen_is_called_as_each_version_of_torch_wants(
    signature: Any, kind: MaskKind, document_mask: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "both" and not document_mask:
        pytest.skip("refused by the configuration")
    names = frozenset(signature.__annotations__)
    monkeypatch.setattr(attention, "varlen_attn", signature)
    monkeypatch.setattr(attention, "_VARLEN", names)
    equal(layout(kind), "varlen", document_mask, heads())


# ---------------------------------------------------------------- flash4


def _forward(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: int, max_seqlen_k: int, return_lse: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """With the arguments of flash-attn-4, and its five results."""
    assert return_lse
    assert cu_seqlens_q is cu_seqlens_k
    out = by_bounds(q, k, v, cu_seqlens_q, max_seqlen_q, causal)
    return out, torch.zeros(q.shape[1], len(q)), None, None, None


def _backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, gradient: Tensor, lse: Tensor, *, causal: bool,
    deterministic: bool, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
    max_seqlen_k: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    assert lse.shape == (q.shape[1], len(q))

    def own() -> tuple[Tensor, ...]:
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        again = by_bounds(*inputs, cu_seqlens_q, max_seqlen_q, causal)
        torch.testing.assert_close(again, out)
        return torch.autograd.grad(again, inputs, gradient)

    with ThreadPoolExecutor(1) as threads:  # in this one, an operator has no autograd in it
        return threads.submit(own).result()


@pytest.mark.parametrize("document_mask", [True, False])
@pytest.mark.parametrize("kind", ["causal", "both"])
def test_flash4_is_called_as_it_wants(
    kind: MaskKind, document_mask: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "both" and not document_mask:
        pytest.skip("refused by the configuration")
    module = SimpleNamespace(_flash_attn_fwd=_forward, _flash_attn_bwd=_backward)
    for name in ("flash_attn", "flash_attn.cute"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "flash_attn.cute.interface", module)
    equal(layout(kind), "flash4", document_mask, heads())


def test_flash4_has_the_shapes_that_it_says() -> None:
    """What torch.compile goes by."""
    q, k, v = (x[0] for x in heads())
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        out, denominators = flash4(q, k, v, torch.tensor([0, LENGTH]), LENGTH, True)
    assert out.shape == q.shape
    assert (denominators.shape, denominators.dtype) == ((4, LENGTH), torch.float32)


def test_flash4_without_its_package_or_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = ("flash4", torch.device("cuda"), torch.bfloat16, "causal")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(ConfigError, match=r"flash4 wants a Hopper GPU or a later one$"):
        choose(*choices)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(attention.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"flash4 wants the package flash-attn-4 [^\n]+$"):
        choose(*choices)
    monkeypatch.setattr(attention.importlib.util, "find_spec", lambda name: name)
    assert choose(*choices) == "flash4"


@pytest.mark.gpu
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("document_mask", [True, False])
@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        *((name, k) for name in ("varlen", "flash4") for k in KINDS[:2]),
        *(("flex", k) for k in KINDS),
    ],
)
def test_kernels_of_the_gpu_are_the_dense_mask(
    backend: Backend, kind: MaskKind, document_mask: bool, kv_heads: int
) -> None:
    if kind == "both" and not document_mask:
        pytest.skip("refused by the configuration")
    if backend == "flash4":
        pytest.importorskip("flash_attn.cute", reason="wants flash-attn-4")
    lengths = [[300, 12, 200], [512], [100, 100, 100, 100, 112]]
    made = layout(kind, lengths, 512)
    moved = {
        name: value.cuda() if isinstance(value, Tensor) else value
        for name, value in vars(made).items()
    }
    generator = torch.Generator().manual_seed(3)
    tensors = [
        torch.randn(3, 512, count, 64, generator=generator).cuda().bfloat16().requires_grad_()
        for count in (4, kv_heads, kv_heads)
    ]
    equal(Layout(**moved), backend, document_mask, tensors)


# ---------------------------------------------------------------- choosing


def test_auto_is_sdpa_without_a_gpu() -> None:
    assert {choose("auto", CPU, torch.float32, kind) for kind in KINDS} == {"sdpa"}


def test_flex_cannot_train_on_a_cpu() -> None:
    with torch.no_grad():
        assert choose("flex", CPU, torch.bfloat16, "prefix") == "flex"
    with pytest.raises(ConfigError, match=r"^model\.attention: flex wants a GPU to train on$"):
        choose("flex", CPU, torch.bfloat16, "prefix")


@pytest.mark.parametrize(
    ("device", "dtype", "kind", "expected"),
    [
        ("cuda", torch.bfloat16, "causal", "varlen"),
        ("cuda", torch.float16, "both", "varlen"),
        ("cuda", torch.bfloat16, "prefix", "flex"),
        ("cuda", torch.float32, "causal", "flex"),
    ],
)
def test_auto_on_a_gpu_is_varlen_where_it_can(
    device: str, dtype: torch.dtype, kind: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert choose("auto", torch.device(device), dtype, kind) == expected
    assert choose("sdpa", torch.device(device), dtype, kind) == "sdpa"
    if expected == "flex":
        with pytest.raises(ConfigError, match=r"^model\.attention: varlen wants [^\n]+$"):
            choose("varlen", torch.device(device), dtype, kind)


def test_varlen_is_refused_on_a_cpu() -> None:
    with pytest.raises(ConfigError, match=r"^model\.attention: varlen wants a GPU$"):
        choose("varlen", CPU, torch.bfloat16, "causal")
