"""The chunked loss against its definition: values, gradients, memory, and over some ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.ranks import run_ranks
from training import loss
from training.layout import IGNORED
from training.loss import linear_cross_entropy, plain

DIM = 12


def made(
    tokens: int, vocabulary: int, ignored: float = 0.3, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, weight and labels, some of them ignored."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, DIM, generator=generator)
    weight = torch.randn(vocabulary, DIM, generator=generator)
    labels = torch.randint(vocabulary, (tokens,), generator=generator)
    labels[torch.rand(tokens, generator=generator) < ignored] = IGNORED
    return hidden, weight, labels


def passed(function: Any, *inputs: Tensor, factor: float = 1.0, **options: Any) -> list[Tensor]:
    """The loss, each token's, and the gradients of the first two."""
    hidden, weight = (tensor.detach().clone().requires_grad_() for tensor in inputs[:2])
    total, each = function(hidden, weight, inputs[2], **options)
    (total * factor).backward()
    assert hidden.grad is not None and weight.grad is not None
    return [total.detach(), each, hidden.grad, weight.grad]


def near(found: list[Tensor], wanted: list[Tensor], within: float = 1e-6) -> None:
    """Each tensor, up to a share of its largest value (at least 1, the size of the inputs: slopes
    are differences of such numbers)."""
    for one, other in zip(found, wanted, strict=True):
        most = float(other.abs().max()) if other.numel() else 0.0
        torch.testing.assert_close(one, other, rtol=within, atol=within * max(most, 1.0))


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(0, 33),
    vocabulary=st.integers(1, 40),
    chunk=st.integers(1, 40),
    ignored=st.sampled_from([0.0, 0.4, 1.0]),
    z_loss=st.sampled_from([0.0, 1e-4, 0.5]),
    seed=st.integers(0, 1000),
)
def test_losses_and_gradients_are_those_of_the_definition(
    tokens: int, vocabulary: int, chunk: int, ignored: float, z_loss: float, seed: int
) -> None:
    inputs = made(tokens, vocabulary, ignored, seed)
    found = passed(linear_cross_entropy, *inputs, factor=0.37, z_loss=z_loss, chunk=chunk)
    near(found, passed(plain, *inputs, factor=0.37, z_loss=z_loss), 2e-6)


@pytest.mark.parametrize("z_loss", [0.0, 0.1])
def test_gradients_are_the_slopes_of_the_loss(z_loss: float) -> None:
    """Central differences of the definition in fp64, without tensors or autograd."""
    hidden, weight, labels = made(7, 11)

    def total(h: Tensor, w: Tensor) -> float:
        found = 0.0
        for row, label in zip(h.tolist(), labels.tolist(), strict=True):
            logits = [sum(a * b for a, b in zip(row, entry, strict=True)) for entry in w.tolist()]
            lse = math.log(sum(map(math.exp, logits)))
            if label != IGNORED:
                found += lse - logits[label] + z_loss * lse**2
        return found

    value, _, *gradients = passed(linear_cross_entropy, hidden, weight, labels, z_loss=z_loss)
    both = [hidden.double(), weight.double()]
    assert float(value) == pytest.approx(total(*both), rel=1e-6)
    for which, gradient in enumerate(gradients):
        for place in [(0, 0), (3, 5), (6, 11)]:
            step = torch.zeros_like(both[which])
            step[place] = 1e-5
            up, down = (
                total(*[x + sign * step if n == which else x for n, x in enumerate(both)])
                for sign in (1, -1)
            )
            assert float(gradient[place]) == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-5)


def test_a_loss_of_a_part_of_the_batch_adds_up_to_that_of_the_whole() -> None:
    """Sums, not means: what is divided by is one number for the whole batch."""
    hidden, weight, labels = made(24, 9, ignored=0.5)
    labels[:8] = IGNORED
    weight.requires_grad_()
    for begin, end in [(0, 8), (8, 9), (9, 24)]:
        total, _ = linear_cross_entropy(hidden[begin:end], weight, labels[begin:end], chunk=5)
        (total / 10).backward()  # type: ignore[no-untyped-call]
    wanted = passed(plain, hidden, weight, labels, factor=0.1)[3]
    assert weight.grad is not None
    near([weight.grad], [wanted])


def test_the_size_of_a_chunk_does_not_change_a_bit_of_the_losses() -> None:
    inputs = made(64, 30)
    one = linear_cross_entropy(*inputs, z_loss=1e-3, chunk=64)
    other = linear_cross_entropy(*inputs, z_loss=1e-3, chunk=8)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_what_is_ignored_has_no_loss_and_no_gradient() -> None:
    hidden, weight, labels = made(9, 8, ignored=0.0)
    labels[4] = IGNORED
    _, each, d_hidden, d_weight = passed(linear_cross_entropy, hidden, weight, labels, z_loss=0.1)
    rest = torch.arange(9) != 4
    without = passed(linear_cross_entropy, hidden[rest], weight, labels[rest], z_loss=0.1)
    assert each[4] == 0 and not d_hidden[4].any()
    near([each[rest], d_hidden[rest], d_weight], without[1:])


def test_without_z_loss_the_loss_is_the_cross_entropy_and_nothing_else() -> None:
    total, each = linear_cross_entropy(*made(40, 17), z_loss=0.0, chunk=7)
    assert float(total) == float(each.sum())


@pytest.mark.parametrize("which", [(True, False), (False, True), (False, False)])
def test_only_gradients_that_are_wanted_are_made(which: tuple[bool, bool]) -> None:
    inputs = made(20, 15)
    hidden, weight = (x.clone().requires_grad_(w) for x, w in zip(inputs[:2], which, strict=True))
    total, _ = linear_cross_entropy(hidden, weight, inputs[2], chunk=6)
    assert total.requires_grad == any(which)
    if any(which):
        total.backward()  # type: ignore[no-untyped-call]
    wanted = passed(plain, *inputs)[2:]
    for tensor, gradient, has in zip((hidden, weight), wanted, which, strict=True):
        assert (tensor.grad is not None) == has
        if tensor.grad is not None:
            near([tensor.grad], [gradient])


def test_under_no_grad_only_the_losses_are_made() -> None:
    inputs = made(20, 15)
    weight = inputs[1].clone().requires_grad_()
    with torch.no_grad(), Products() as products:
        total, _ = linear_cross_entropy(inputs[0], weight, inputs[2], chunk=20)
    assert not total.requires_grad
    assert products.count == 1  # one for the logits, none for gradients


def test_a_second_backward_pass_gives_the_same() -> None:
    hidden, weight, labels = made(10, 6)
    hidden.requires_grad_()
    total, _ = linear_cross_entropy(hidden, weight, labels)
    first = torch.autograd.grad(total * 0.5, hidden, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(total * 0.5, hidden)[0])


def test_padded_rows_of_the_weight_and_strided_inputs_are_all_right() -> None:
    """The head stores a vocabulary that is filled up, and gives a view of it."""
    hidden, weight, labels = made(16, 13)
    stored = torch.cat([weight, torch.full((3, DIM), 50.0)]).requires_grad_()
    strided = torch.stack([hidden, -hidden], dim=1)[:, 0].T.contiguous().T.requires_grad_()
    assert not strided.is_contiguous()
    both = torch.stack([labels, labels], dim=1)[:, 0]
    total, _ = linear_cross_entropy(strided, stored[:13], both, chunk=5)
    total.backward()  # type: ignore[no-untyped-call]
    wanted = passed(plain, hidden, weight, labels)
    assert stored.grad is not None and strided.grad is not None
    assert not stored.grad[13:].any()
    near([total.detach(), strided.grad, stored.grad[:13]], [wanted[0], *wanted[2:]])


def test_a_label_outside_of_the_vocabulary_is_an_error() -> None:
    hidden, weight, labels = made(4, 5, ignored=0.0)
    labels[2] = 5
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        linear_cross_entropy(hidden, weight, labels)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_fewer_bits_are_those_of_the_same_numbers_in_fp32(dtype: torch.dtype) -> None:
    """Within a few units in the last place, also after scaling by a number that the dtype has not,
    and many chunks: the weight's is summed in fp32."""
    hidden, weight, labels = made(400, 50)
    inputs = hidden.to(dtype), weight.to(dtype), labels
    found = passed(linear_cross_entropy, *inputs, factor=1 / 300, z_loss=1e-3, chunk=8)
    exact = passed(plain, *(x.float() for x in inputs[:2]), labels, factor=1 / 300, z_loss=1e-3)
    assert [x.dtype for x in found] == [torch.float32, torch.float32, dtype, dtype]
    unit = torch.finfo(dtype).eps
    near([x.float() for x in found[:2]], exact[:2], 4 * unit)
    near([x.float() for x in found[2:]], exact[2:], 3 * unit)
    for gradient, wanted in zip(found[2:], exact[2:], strict=True):  # no bias from the scaling
        ratio = float((gradient.float() * wanted).sum() / wanted.square().sum())
        assert ratio == pytest.approx(1, abs=unit / 10)


def test_never_more_than_a_chunk_of_logits_is_in_memory() -> None:
    tokens, vocabulary, chunk = 256, 128, 16
    hidden, weight, labels = made(tokens, vocabulary)
    with Products() as products:
        passed(linear_cross_entropy, hidden, weight, labels, z_loss=1e-4, chunk=chunk)
    most = max(tokens * DIM, vocabulary * DIM, chunk * vocabulary)
    assert products.largest == most
    with Products() as products:
        passed(plain, hidden, weight, labels)
    assert products.largest == tokens * vocabulary


class Products(TorchDispatchMode):
    """Counts products of matrices, and the elements of the largest tensor that anything gives."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.largest = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.count += "mm" in func.__name__
        every = found if isinstance(found, tuple | list) else [found]
        sizes = [x.numel() for x in every if isinstance(x, Tensor)]
        self.largest = max([self.largest, *sizes])
        return found


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(1, 6),
    entries=st.integers(0, 9),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 1 << 30),
)
def test_slopes_are_the_same_in_the_form_that_is_compiled(
    tokens: int, entries: int, dtype: torch.dtype, seed: int
) -> None:
    """With labels that are not among these columns, as other ranks have, and ignored ones."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, entries, generator=generator)
    own = (torch.rand(tokens, generator=generator) < 0.6) & (entries > 0)
    index = torch.randint(0, max(entries, 1), (tokens,), generator=generator)
    scale = torch.rand(tokens, generator=generator) * own
    lse = logits.logsumexp(1) if entries else torch.zeros(tokens)
    expected = loss._slopes(logits.clone(), lse, index, own, scale, dtype)
    found = loss._slopes_at_once(logits, lse, index, own, scale, dtype)
    torch.testing.assert_close(found, expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_gpu_the_loss_is_that_of_the_cpu(compiled: bool) -> None:
    inputs = made(300, 130)
    options: dict[str, Any] = {"z_loss": 1e-3, "chunk": 128}
    wanted = passed(linear_cross_entropy, *inputs, **options)
    there = [tensor.cuda() for tensor in inputs]
    found = passed(linear_cross_entropy, *there, compiled=compiled, **options)
    near([tensor.cpu() for tensor in found], wanted, 1e-5)


# ---------------------------------------------------------------- a vocabulary over ranks


def part(cuts: list[int], z_loss: float, bad: bool) -> list[np.ndarray]:
    """The losses and gradients of this rank, which has the vocabulary between two cuts."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    hidden, weight, labels = made(21, 18)
    if bad:
        labels[3] = 18
    own = weight[cuts[rank] : cuts[rank + 1]]
    options = {"z_loss": z_loss, "chunk": 8, "group": dist.group.WORLD, "first": cuts[rank]}
    found = passed(linear_cross_entropy, hidden, own, labels, factor=0.25, **options)
    return [tensor.numpy() for tensor in found]


@pytest.mark.parametrize(("cuts", "z_loss"), [([0, 11, 18], 0.0), ([0, 18, 18], 0.1)])
def test_a_vocabulary_over_two_ranks_gives_the_losses_and_gradients_of_the_whole(
    cuts: list[int], z_loss: float
) -> None:
    """Also where one of them has none of it, but for what it is filled up with."""
    wanted = passed(plain, *made(21, 18), factor=0.25, z_loss=z_loss)
    parts = run_ranks(2, part, cuts, z_loss, False)
    for arrays, begin, end in zip(parts, cuts[:-1], cuts[1:], strict=True):
        found = [torch.from_numpy(array) for array in arrays]
        near(found, [*wanted[:3], wanted[3][begin:end]], 2e-6)
    for one, other in zip(parts[0][:3], parts[1][:3], strict=True):
        assert np.array_equal(one, other)


def test_a_label_that_no_rank_has_is_no_finite_loss() -> None:
    assert all(np.isinf(found[0]) for found in run_ranks(2, part, [0, 9, 18], 0.0, True))
