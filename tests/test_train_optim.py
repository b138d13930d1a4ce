"""Optimisers against their published algorithms, whole and in shards; Sophia's estimate."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from tests.ranks import run_ranks
from tests.trainers import config
from training import config as knobs
from training import loop, optim, world
from training.layout import IGNORED
from training.model import Shape, Transformer
from training.optim.sophia import Sophia
from training.sampled import drawn, uniforms

KINDS = ("adamw", "lion", "adafactor", "sophia")
SHAPES = ((5, 3), (1, 4), (7, 8), (6,), (3,))
LR, DECAY, BETA1, BETA2, EPS, RHO = 0.02, 0.1, 0.9, 0.95, 1e-8, 0.05
LABELS = 40  # of Sophia's estimate

Array = np.ndarray
Update = Callable[[Array, dict[str, Array], int], Array]


def told(kind: Any) -> knobs.Optimizer:
    """The knobs of the tests."""
    return knobs.Optimizer(
        kind, lr=LR, beta1=BETA1, beta2=BETA2, eps=EPS, weight_decay=DECAY, rho=RHO
    )


class Bag(nn.Module):
    """Parameters of some shapes."""

    def __init__(self, values: list[Tensor]) -> None:
        super().__init__()
        self.values = nn.ParameterList(values)


def numbers(step: int, what: int = 0) -> list[Tensor]:
    """Gradients (or first values) of each shape, the same in every process; some are large, so
    that what clips does clip."""
    generator = torch.Generator().manual_seed(100 * what + step)
    return [torch.randn(shape, generator=generator) * 3 ** (step % 3) for shape in SHAPES]


# ---------------------------------------------------------------- the published algorithms


def adamw(g: Array, s: dict[str, Array], t: int) -> Array:
    """Loshchilov and Hutter 2019, algorithm 2."""
    s["m"] = BETA1 * s.get("m", 0) + (1 - BETA1) * g
    s["v"] = BETA2 * s.get("v", 0) + (1 - BETA2) * g**2
    return (s["m"] / (1 - BETA1**t)) / (np.sqrt(s["v"] / (1 - BETA2**t)) + EPS)


def lion(g: Array, s: dict[str, Array], t: int) -> Array:
    """Chen et al. 2023, algorithm 2."""
    m = s.get("m", np.zeros_like(g))
    s["m"] = BETA2 * m + (1 - BETA2) * g
    return np.sign(BETA1 * m + (1 - BETA1) * g)


def adafactor(g: Array, s: dict[str, Array], t: int) -> Array:
    """Shazeer and Stern 2018, algorithms 4 (matrices) and 5 (vectors)."""
    decay, squares = 1 - t**-0.8, g**2 + 1e-30
    if g.ndim == 2:
        s["r"] = decay * s.get("r", 0) + (1 - decay) * squares @ np.ones(g.shape[1])
        s["c"] = decay * s.get("c", 0) + (1 - decay) * np.ones(g.shape[0]) @ squares
        v = np.outer(s["r"], s["c"]) / s["r"].sum()
    else:
        s["v"] = v = decay * s.get("v", 0) + (1 - decay) * squares
    u = g / np.sqrt(v)
    return u / max(1, np.sqrt((u**2).mean()) / 1.0)


def sophia(g: Array, s: dict[str, Array], t: int) -> Array:
    """Liu et al. 2023, algorithm 3 with k = 2; `e` is the gradient by sampled labels."""
    s["m"] = BETA1 * s.get("m", 0) + (1 - BETA1) * g
    if t % 2 == 1:
        s["h"] = BETA2 * s.get("h", 0) + (1 - BETA2) * LABELS * s["e"] ** 2
    return np.clip(s["m"] / np.maximum(RHO * s["h"], EPS), -1, 1)


REFERENCES: dict[str, Update] = dict(zip(KINDS, (adamw, lion, adafactor, sophia), strict=True))


def reference(kind: str, steps: int) -> list[Array]:
    """What parameters are after some steps, in fp64."""
    values = [each.double().numpy() for each in numbers(0, 1)]
    states: list[dict[str, Array]] = [{} for _ in values]
    for t in range(1, steps + 1):
        for n, g in enumerate(numbers(t)):
            states[n]["e"] = numbers(t, 2)[n].double().numpy() / 50
            update = REFERENCES[kind](g.double().numpy(), states[n], t)
            decay = DECAY if g.dim() > 1 else 0.0
            values[n] = values[n] * (1 - LR * decay) - LR * update
    return values


def steps(model: Bag, optimizer: torch.optim.Optimizer, begin: int, end: int) -> None:
    """Updates `begin` to `end - 1`, from 1."""

    def give(gradients: list[Tensor]) -> None:
        for parameter, gradient in zip(model.values, gradients, strict=True):
            if isinstance(parameter, DTensor):
                mesh, placements = parameter.device_mesh, parameter.placements
                gradient = distribute_tensor(gradient, mesh, placements)
            parameter.grad = gradient

    for t in range(begin, end):
        if isinstance(optimizer, Sophia) and t % 2 == 1:
            give([each / 50 for each in numbers(t, 2)])
            optimizer.observe(LABELS)
        give(numbers(t))
        optimizer.step()


def values(model: nn.Module) -> list[Array]:
    """All parameters, whole."""
    return [
        (p.full_tensor() if isinstance(p, DTensor) else p).detach().numpy()
        for p in model.parameters()
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_seven_steps_are_those_of_the_published_algorithm(kind: str) -> None:
    model = Bag(numbers(0, 1))
    steps(model, optim.build(model, told(kind)), 1, 8)
    for own, wanted in zip(values(model), reference(kind, 7), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_decay_and_norms_do_not(kind: str) -> None:
    shape = Shape(1, 8, 2, 2, 8, vocab=10, context=4, tied=False)
    model = Transformer(shape, knobs.Model(), knobs.Train())
    optimizer = optim.build(model, told(kind))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        shrunk = 1 if "norm" in name else 1 - LR * DECAY
        torch.testing.assert_close(p.detach(), before[name] * shrunk, msg=name)


# ---------------------------------------------------------------- shards


def sharded(ranks: int) -> dict[tuple[str, int], list[Array]]:
    """Parameters after five steps, by kind and by the dimension that they were sharded along. Rows
    of 5 and of 1 do not divide."""
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (ranks,))
    found = {}
    for kind, dim in product(KINDS, (0, 1)):
        placed = [
            distribute_tensor(each, mesh, [Shard(dim) if each.dim() > dim else Replicate()])
            for each in numbers(0, 1)
        ]
        model = Bag(placed)
        steps(model, optim.build(model, told(kind)), 1, 6)
        found[kind, dim] = values(model)
    return found


def test_shards_are_updated_as_the_whole_is() -> None:
    for found in run_ranks(2, sharded, 2):
        for (kind, dim), own in found.items():
            for part, wanted in zip(own, reference(kind, 5), strict=True):
                np.testing.assert_allclose(
                    part, wanted, rtol=2e-5, atol=2e-6, err_msg=f"{kind} {dim}"
                )


class Pair(nn.Module):
    """Two matrices and a norm, as a block has them."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.norm, self.up = nn.RMSNorm(6), nn.Linear(6, 10, bias=False)
        self.down = nn.Linear(10, 6, bias=False)
        for linear in (self.up, self.down):
            linear.weight.data = torch.randn(linear.weight.shape, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 6) to the same."""
        out: Tensor = 1.0 * self.down(F.silu(self.up(self.norm(x))))
        return out


def crossed(tensor: int) -> dict[str, list[Array]]:
    """Parameters after three steps, FSDP2 over rows, and matrices over `tensor` ranks besides: the
    norm is on another mesh than they."""
    torch.distributed.init_process_group("gloo")
    size = torch.distributed.get_world_size()
    mesh = init_device_mesh("cpu", (size // tensor, tensor), mesh_dim_names=("shard", "tensor"))
    found = {}
    for kind in KINDS:
        model = Pair()
        if tensor > 1:
            plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
            parallelize_module(model, mesh["tensor"], plan)
        fully_shard(model, mesh=mesh["shard"])
        model.set_gradient_divide_factor(1.0)
        model.set_force_sum_reduction_for_comms(True)
        optimizer = optim.build(model, told(kind))
        for t in range(3):
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(t))
            own = x.chunk(size // tensor)[mesh.get_local_rank("shard")]
            model(own).square().sum().backward()
            if isinstance(optimizer, Sophia):
                optimizer.observe(LABELS)
            optimizer.step()
            optimizer.zero_grad()
        found[kind] = values(model)
    return found


def test_fsdp_over_tensor_parallel_is_the_same_as_one_rank() -> None:
    alone = run_ranks(1, crossed, 1)[0]
    for found in run_ranks(4, crossed, 2):
        for kind, wanted in alone.items():
            for own, whole in zip(found[kind], wanted, strict=True):
                np.testing.assert_allclose(own, whole, rtol=1e-4, atol=1e-6, err_msg=kind)


# ---------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_state_goes_through_torchs_state_dicts(kind: str, flat: bool) -> None:
    """Into an optimiser that has made no step: nothing of it is missing there (KempnerForge #115),
    and going on is bitwise the same."""
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    first, second = Bag(numbers(0, 1)), Bag(numbers(0, 1))
    optimizer, other = (optim.build(model, told(kind)) for model in (first, second))
    fresh = copy.deepcopy(get_optimizer_state_dict(second, other, options=options))
    steps(first, optimizer, 1, 5)
    saved = copy.deepcopy(get_optimizer_state_dict(first, optimizer, options=options))
    assert _names(saved) == _names(fresh)
    second.load_state_dict(first.state_dict())
    set_optimizer_state_dict(second, other, saved, options=options)
    for model, its in ((first, optimizer), (second, other)):
        steps(model, its, 5, 8)
    for own, wanted in zip(values(second), values(first), strict=True):
        np.testing.assert_array_equal(own, wanted)


def _names(state: Any, above: str = "") -> set[str]:
    if not isinstance(state, dict):
        return {above}
    return {name for key, below in state.items() for name in _names(below, f"{above}/{key}")}


@pytest.mark.parametrize("kind", KINDS)
def test_asking_for_the_state_before_the_first_step_moves_nothing(kind: str) -> None:
    """torch makes a trial step where there is no state, which would count."""
    model = Bag(numbers(0, 1))
    optimizer = optim.build(model, told(kind))
    get_optimizer_state_dict(model, optimizer)
    assert all(not value.any() for state in optimizer.state.values() for value in state.values())
    steps(model, optimizer, 1, 4)
    for own, wanted in zip(values(model), reference(kind, 3), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=2e-5, atol=2e-6)


def test_a_checkpoint_brings_state_and_the_configuration_knobs() -> None:
    model = Bag(numbers(0, 1))
    saved = optim.build(model, told("adamw")).state_dict()
    other = optim.build(model, knobs.Optimizer(lr=1.0, weight_decay=0.3, beta2=0.5))
    other.load_state_dict(saved)
    assert [group["weight_decay"] for group in other.param_groups] == [0.3, 0.0]
    assert {group["beta2"] for group in other.param_groups} == {0.5}
    assert [len(group["params"]) for group in other.param_groups] == [3, 2]


def going(config: knobs.Config, begin: int) -> list[float]:
    """Losses of the steps from `begin` to the fifth; what three steps have made is saved."""
    trainer = loop.Trainer(config, world.join(config))
    if begin:
        trainer.restore(begin)
    losses = []
    for step in range(begin, 5):
        if step == 3 and not begin:
            trainer.step = 3
            trainer.save()
            trainer.checkpoints.wait()
        losses.append(trainer.one(step).loss)
    return losses


def test_sums_of_rows_and_columns_go_to_other_numbers_of_ranks(
    toy_manifest: Path, tmp_path: Path
) -> None:
    """Adafactor's state has shapes of its own; saved by two ranks, loaded by one."""
    here = config(toy_manifest, tmp_path, "optimizer.kind=adafactor", "train.micro_batch=4")
    undisturbed = run_ranks(2, going, here, 0)[0]
    assert run_ranks(1, going, here, 3)[0] == pytest.approx(undisturbed[3:], rel=1e-6)


# ---------------------------------------------------------------- Sophia's estimate


def test_draws_belong_to_seed_step_sample_and_place() -> None:
    samples = torch.tensor([5, 9, 1 << 40])
    whole = uniforms(1, 2, samples, 4096)
    torch.testing.assert_close(uniforms(1, 2, samples[1:], 4096), whole[1:], rtol=0, atol=0)
    torch.testing.assert_close(uniforms(1, 2, samples, 100), whole[:, :100], rtol=0, atol=0)
    for other in (uniforms(2, 2, samples, 4096), uniforms(1, 3, samples, 4096), whole.roll(1, 0)):
        assert (other == whole).float().mean() < 0.01
    assert whole.min() >= 0 and whole.max() < 1
    shares = torch.histc(whole, 16, 0, 1) / whole.numel()
    # Each share has a standard deviation of sqrt(1/16 * 15/16 / 12288) = 0.0022.
    torch.testing.assert_close(shares, torch.full((16,), 1 / 16), rtol=0, atol=5 * 0.0022)


@pytest.mark.parametrize("chunk", [7, 1000, 10_000])
def test_labels_are_drawn_in_proportion_to_their_probability(chunk: int) -> None:
    """Evenly spaced draws give each label as often as its probability says, to one draw."""
    generator = torch.Generator().manual_seed(3)
    hidden, weight = torch.randn(1, 8, generator=generator), torch.randn(11, 8, generator=generator)
    tokens = 5000
    draws = (torch.arange(tokens) + 0.5) / tokens
    labels = torch.zeros(tokens, dtype=torch.int64)
    found = drawn(hidden.expand(tokens, -1), weight, labels, draws, chunk)
    shares = torch.bincount(found, minlength=11) / tokens
    wanted = (hidden @ weight.T).double().softmax(-1)[0]
    torch.testing.assert_close(shares.double(), wanted, rtol=0, atol=1.1 / tokens)


def test_only_places_with_a_label_get_one() -> None:
    labels = torch.tensor([4, IGNORED, 0, IGNORED])
    found = drawn(torch.zeros(4, 2), torch.ones(9, 2), labels, torch.full((4,), 0.99), 3)
    assert found.tolist() == [8, IGNORED, 8, IGNORED]


def estimated(config: knobs.Config) -> tuple[dict[str, Array], dict[str, Array]]:
    """The diagonal of the Hessian after the first step, and one by brute force from the weights
    before it: labels by a loop over probabilities, the loss by plain autograd."""
    here = world.join(config)
    trainer = loop.Trainer(config, here)
    whole = {name: p.full_tensor() for name, p in trainer.model.named_parameters()}
    plain = Transformer(trainer.shape, config.model, config.train)
    plain.load_state_dict({**plain.state_dict(), **whole})
    losses, labels = [], 0
    rows, samples = trainer.loader.batches.rows(0, 0, config.train.batch)
    micro = trainer.objective(rows, samples)
    logits = plain(micro.tokens, micro.layout)
    draws = uniforms(config.seed, 0, micro.samples, micro.tokens.shape[1])
    for row, place in (micro.labels != IGNORED).nonzero().tolist():
        sums = logits[row, place].detach().softmax(-1).numpy().cumsum()
        label = int((sums <= draws[row, place].item() * sums[-1]).sum())
        losses.append(-logits[row, place].log_softmax(-1)[label])
        labels += 1
    torch.stack(losses).mean().backward()
    own = 1 - config.optimizer.beta2
    wanted = {n: (own * labels * p.grad**2).numpy() for n, p in plain.named_parameters()}
    trainer.one(0)
    states = {
        name: trainer.optimizer.state[p]["hessian"].full_tensor().numpy()
        for name, p in trainer.model.named_parameters()
    }
    return states, wanted


@pytest.mark.parametrize(("ranks", "micro_batch"), [(1, 8), (2, 2)])
def test_the_estimate_is_that_of_brute_force(
    toy_manifest: Path, tmp_path: Path, ranks: int, micro_batch: int
) -> None:
    here = config(
        toy_manifest, tmp_path, "optimizer.kind=sophia", f"train.micro_batch={micro_batch}",
        "train.z_loss=0.01", "model.layers=1", "train.loss_chunk=100",
    )  # fmt: skip
    for states, wanted in run_ranks(ranks, estimated, here):
        for name, state in states.items():
            scale = wanted[name].max()
            np.testing.assert_allclose(state, wanted[name], rtol=1e-3, atol=1e-5 * scale)
            assert scale > 0


def test_sophia_is_refused_where_labels_cannot_be_drawn(toy_manifest: Path, tmp_path: Path) -> None:
    for knob in ("parallel.tensor=2", "parallel.pipeline=2"):
        with pytest.raises(knobs.ConfigError, match=r"^optimizer\.kind: "):
            config(toy_manifest, tmp_path, "optimizer.kind=sophia", knob)


def test_no_factor_of_adafactor_underflows() -> None:
    """Rows and columns that never had a gradient, beside some that have: finite, and still."""
    model = Bag([torch.ones(64, 32), torch.ones(2)])
    optimizer = optim.build(model, told("adafactor"))
    model.values[0].grad = torch.zeros(64, 32)
    model.values[0].grad[3, 4] = 1e-12
    model.values[1].grad = torch.zeros(2)
    optimizer.step()
    shrunk = 1 - LR * DECAY
    assert torch.equal(model.values[0][10], torch.full((32,), shrunk))
    assert math.isfinite(model.values[0][3, 4].item()) and model.values[0][3, 4].item() < shrunk
    assert torch.equal(model.values[1], torch.ones(2))
