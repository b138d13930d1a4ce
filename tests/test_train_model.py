"""The model: what its documented form says, computed in another way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from training import config as knobs
from training.layout import IGNORED, Layout, layout_of
from training.model import Shape, Transformer, initial, rotate, rotations
from training.parallel import fill
from training.swiglu import plain, swiglu

VOCAB, LENGTH = 131, 24
BASE = (
    *("model.layers=2", "model.dim=32", "model.heads=4", "model.kv_heads=2", "model.ffn=48"),
    *("train.steps=1", "parallel.device=cpu", "schedule.warmup=0"),
)
LENGTHS = [[10, 8, 3], [24], [1, 23]]  # the first row has padding


def made(*overrides: str) -> tuple[knobs.Config, Transformer]:
    config = knobs.load(None, [*BASE, *overrides])
    shape = Shape.of(config.model, VOCAB, LENGTH)
    model = Transformer(shape, config.model, config.train)
    fill(model, config, "cpu")
    return config, model


def tokens(rows: int = len(LENGTHS), length: int = LENGTH) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randint(0, VOCAB, (rows, length), generator=generator)


# ---------------------------------------------------------------- an independent forward pass


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def turned(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """RoFormer's rotation, by multiplication of complex numbers; x: (L, width)."""
    half = x.shape[-1] // 2
    numbers = torch.complex(x[:, :half].double(), x[:, half:].double())
    speeds = torch.tensor([theta ** (-2 * i / x.shape[-1]) for i in range(half)]).double()
    angles = positions.double()[:, None] * speeds
    numbers = numbers * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((numbers.real, numbers.imag), -1).to(x.dtype)


def oracle(
    weights: dict[str, Tensor], config: knobs.Config, row: Tensor, lengths: list[int]
) -> Tensor:
    """Logits of one row: a document at a time, a head at a time, matrices taken apart."""
    model = config.model
    width, shared, eps = model.dim // model.heads, model.heads // model.kv_heads, model.norm_eps
    groups = math.gcd(model.ffn, model.kv_heads)
    outs = []
    for document in row.split(lengths):
        x = weights["embed.weight"][document]
        positions = torch.arange(len(document))
        causal = torch.ones(len(document), len(document)).tril().bool()
        for number in range(model.layers):
            own = {name.removeprefix(f"blocks.{number}."): value for name, value in weights.items()}
            h = normed(x, own["attention_norm.weight"], eps)
            heads = []
            for group in own["attention.wqkv.weight"].chunk(model.kv_heads):
                *of_q, of_k, of_v = (h @ part.T for part in group.split(width))
                assert len(of_q) == shared
                if model.qk_norm:
                    of_q = [normed(q, own["attention.q_norm.weight"], eps) for q in of_q]
                    of_k = normed(of_k, own["attention.k_norm.weight"], eps)
                k = turned(of_k, positions, model.rope_theta)
                for q in of_q:
                    scores = turned(q, positions, model.rope_theta) @ k.T / math.sqrt(width)
                    heads.append(scores.masked_fill(~causal, -math.inf).softmax(-1) @ of_v)
            x = x + torch.cat(heads, -1) @ own["attention.wo.weight"].T
            h = normed(x, own["ffn_norm.weight"], eps)
            parts = own["ffn.w13.weight"].chunk(2 * groups)
            gate, up = torch.cat(parts[::2]), torch.cat(parts[1::2])
            x = x + (F.silu(h @ gate.T) * (h @ up.T)) @ own["ffn.w2.weight"].T
        x = normed(x, weights["head.norm.weight"], eps)
        name = "embed.weight" if model.tied else "head.out.weight"
        outs.append(x @ weights[name][:VOCAB].T)
    return torch.cat(outs)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("model.kv_heads=4",),
        ("model.kv_heads=1", "model.tied=true"),
        ("model.qk_norm=true", "model.rope_theta=500.0"),
        ("model.ffn=45",),
    ],
)
def test_logits_are_those_of_matrices_taken_apart(overrides: tuple[str, ...]) -> None:
    config, model = made("model.init_std=0.3", *overrides)
    with torch.no_grad():  # norms that are not all 1
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter += torch.linspace(-0.5, 0.5, len(parameter))
    weights = {name: p.detach() for name, p in model.named_parameters(remove_duplicate=False)}
    with torch.no_grad():
        logits = model(tokens(), layout_of(LENGTHS, LENGTH, "causal"))
    for row, lengths in enumerate(LENGTHS):
        expected = oracle(weights, config, tokens()[row, : sum(lengths)], lengths)
        torch.testing.assert_close(logits[row, : sum(lengths)], expected, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- documents


def test_documents_in_a_row_are_what_they_are_alone() -> None:
    """Logits, and gradients of the summed loss."""
    _, model = made("model.init_std=0.3")
    own, labels = tokens(), tokens().roll(-1, 1)
    labels[0, 21:] = IGNORED
    logits = model(own, layout_of(LENGTHS, LENGTH, "causal"))
    total, each = model(own, layout_of(LENGTHS, LENGTH, "causal"), labels)
    together = torch.autograd.grad(total, list(model.parameters()))
    alone = [torch.zeros_like(p) for p in model.parameters()]
    for row, lengths in enumerate(LENGTHS):
        begins = np.cumsum([0, *lengths[:-1]])
        for first, size in zip(begins.tolist(), lengths, strict=True):
            part = (slice(row, row + 1), slice(first, first + size))
            layout = layout_of([[size]], size, "causal")
            bounds = {"rtol": 1e-4, "atol": 1e-5}
            torch.testing.assert_close(model(own[part], layout), logits[part], **bounds)
            sum_, losses = model(own[part], layout, labels[part])
            torch.testing.assert_close(losses, each[part], **bounds)
            for gradient, more in zip(
                alone, torch.autograd.grad(sum_, list(model.parameters())), strict=True
            ):
                gradient += more
    for (name, _), found, expected in zip(model.named_parameters(), together, alone, strict=True):
        least = 1e-5 * float(expected.abs().max())
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=least, msg=name)


def test_positions_alone_keep_no_document_apart() -> None:
    """Without the document mask the second document does see the first: the mask is what the test
    above depends on, not the positions."""
    _, with_mask = made("model.init_std=0.3")
    _, without = made("model.init_std=0.3", "model.document_mask=false")
    layout = layout_of([[12, 12]], LENGTH, "causal")
    with torch.no_grad():
        apart, seeing = with_mask(tokens(1), layout), without(tokens(1), layout)
    torch.testing.assert_close(apart[:, :12], seeing[:, :12])
    assert (apart[:, 12:] - seeing[:, 12:]).abs().max() > 0.1


def test_a_token_changes_nothing_before_it_and_nothing_in_other_documents() -> None:
    _, model = made("model.init_std=0.3")
    layout = layout_of([[10, 14]], LENGTH, "causal")
    other = tokens(1)
    other[0, 4] = (other[0, 4] + 1) % VOCAB
    with torch.no_grad():
        differs = (model(tokens(1), layout) != model(other, layout)).any(-1)[0]
    assert differs[4:10].all()
    assert not differs[:4].any()
    assert not differs[10:].any()


# ---------------------------------------------------------------- rotary positions


def test_rotations_are_products_of_complex_numbers() -> None:
    """Also far from the start, where bf16 positions would be wrong."""
    positions = torch.tensor([[0, 1, 2, 77, 2047, 8191]])
    x = torch.randn(1, 6, 3, 16, generator=torch.Generator().manual_seed(1))
    found = rotate(x, *rotations(positions, 16, 10000.0))
    for head in range(3):
        expected = turned(x[0, :, head], positions[0], 10000.0)
        torch.testing.assert_close(found[0, :, head], expected, rtol=1e-3, atol=1e-3)


def test_products_of_rotated_vectors_depend_on_distance_only() -> None:
    q, k = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(2))

    def product(query: int, key: int) -> float:
        at_q, at_k = (rotations(torch.tensor([[p]]), 8, 10000.0) for p in (query, key))
        return float((rotate(q, *at_q) * rotate(k, *at_k)).sum())

    assert product(5, 3) == pytest.approx(product(105, 103), abs=1e-4)
    assert product(5, 3) != pytest.approx(product(5, 4), abs=1e-2)


# ---------------------------------------------------------------- vocabulary, first values


@pytest.mark.parametrize("tied", ["true", "false"])
def test_rows_that_fill_up_the_vocabulary_have_no_part_in_anything(tied: str) -> None:
    _, model = made(f"model.tied={tied}")
    layout = layout_of(LENGTHS, LENGTH, "causal")
    assert model.embed.weight.shape[0] == 256
    assert model(tokens(), layout).shape == (3, LENGTH, VOCAB)
    total, _ = model(tokens(), layout, tokens().roll(-1, 1))
    total.backward()
    before = float(total.detach())
    gradient = model.head.out.weight.grad
    assert gradient is not None
    assert not gradient[VOCAB:].any()
    with torch.no_grad():
        model.head.out.weight[VOCAB:] = 1e4
    again, _ = model(tokens(), layout, tokens().roll(-1, 1))
    assert float(again.detach()) == before


@pytest.mark.parametrize("tied", ["true", "false"])
def test_the_first_loss_is_that_of_a_guess(tied: str) -> None:
    _, model = made("model.dim=64", f"model.tied={tied}")
    layout = layout_of([[LENGTH]] * 32, LENGTH, "causal")
    with torch.no_grad():
        total, _ = model(tokens(32), layout, tokens(32).roll(-1, 1))
    assert float(total) / tokens(32).numel() == pytest.approx(math.log(VOCAB), abs=0.05)


def test_first_values_have_the_spread_that_is_said() -> None:
    config, _ = made("model.layers=8")
    for name, expected in [("x.wqkv.weight", 0.02), ("x.wo.weight", 0.005), ("x.w2.weight", 0.005)]:
        values = initial(name, torch.Size((300, 200)), config.model, 7, "cpu")
        assert float(values.std()) == pytest.approx(expected, rel=0.02)
        assert abs(float(values.mean())) < 0.02 * expected
    norm = initial("x.attention_norm.weight", torch.Size((9,)), config.model, 7, "cpu")
    assert norm.tolist() == [1.0] * 9


def test_first_values_belong_to_seed_and_name() -> None:
    config, _ = made()

    def values(name: str, seed: int) -> Any:
        return initial(name, torch.Size((4, 4)), config.model, seed, "cpu")

    assert torch.equal(values("a", 1), values("a", 1))
    assert not torch.equal(values("a", 1), values("b", 1))
    assert not torch.equal(values("a", 1), values("a", 2))


def test_a_tied_model_has_one_matrix_for_both_ends() -> None:
    _, model = made("model.tied=true")
    assert model.head.out.weight is model.embed.weight
    assert "head.out.weight" not in dict(model.named_parameters())


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("kind", ["causal", "both", "prefix"])
def test_flex_gives_the_logits_of_sdpa(kind: Any) -> None:
    layout = layout_of(LENGTHS, LENGTH, kind)
    prefix = torch.zeros(len(LENGTHS), LENGTH, dtype=torch.bool)
    prefix[:, :3] = True
    layout = Layout(layout.mask, layout.documents, layout.positions, prefix)
    with torch.no_grad():
        found = [made(f"model.attention={name}")[1](tokens(), layout) for name in ("flex", "sdpa")]
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- kernels


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(3, 5, 4, 2, 1408), (7, 1, 2, 8), (2, 2, 2, 513), (0, 2, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_kernel_of_swiglu_gives_the_gradient_of_the_plain_form(
    shape: tuple[int, ...], dtype: torch.dtype, compiled: bool
) -> None:
    torch.compiler.reset()
    generator = torch.Generator("cuda").manual_seed(5)
    both = torch.randn(shape, generator=generator, device="cuda", dtype=dtype).requires_grad_()
    slopes = torch.randn((*shape[:-2], shape[-1]), generator=generator, device="cuda", dtype=dtype)
    exact = both.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(plain(exact), exact, slopes.double())
    function = torch.compile(swiglu) if compiled else swiglu
    out = function(both)
    (found,) = torch.autograd.grad(out, both, slopes)
    torch.testing.assert_close(out, plain(exact).to(dtype), rtol=1.6e-2, atol=1e-5)
    torch.testing.assert_close(found, expected.to(dtype))
