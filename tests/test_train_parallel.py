"""However a model is divided: the same gradients, norm and first values as undivided."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.ranks import run_ranks
from tests.trainers import config as small
from tests.trainers import lines, train
from training import attention, fp8, gradients, parallel, world
from training import config as knobs
from training.config import ConfigError
from training.layout import IGNORED, Layout, Micro, layout_of
from training.model import Block, Shape, Transformer
from training.passes import Passes

VOCAB = 258  # no multiple of anything: 384 rows
LENGTH = 32
ROWS = 8
BASE = (
    *("model.layers=2", "model.dim=32", "model.heads=4", "model.kv_heads=2", "model.ffn=48"),
    *("model.init_std=0.2", "train.steps=1", f"train.batch={ROWS}", "train.micro_batch=2"),
    *("train.z_loss=1e-3", "parallel.device=cpu", "schedule.warmup=0"),
)

ONE = ((), ("train.micro_batch=8",))
TWO: tuple[tuple[str, ...], ...] = (
    (),
    ("parallel.reshard=false",),
    ("parallel.replicate=2",),
    ("parallel.replicate=2", "parallel.reshard=false", "model.tied=true"),
    ("parallel.tensor=2",),
    ("parallel.tensor=2", "model.qk_norm=true", "parallel.activations=selective"),
    ("parallel.tensor=2", "model.tied=true", "parallel.activations=full"),
    ("model.tied=true",),
    ("parallel.activations=selective",),
    ("parallel.activations=full", "parallel.reshard=false", "train.micro_batch=4"),
    ("parallel.offload=true",),
)
FOUR: tuple[tuple[str, ...], ...] = (
    ("parallel.replicate=2",),
    ("parallel.replicate=2", "parallel.reshard=false"),
    ("parallel.tensor=2",),
    ("parallel.tensor=2", "model.tied=true", "parallel.reshard=false"),
    ("parallel.tensor=2", "parallel.replicate=2", "model.qk_norm=true"),
)


def configured(*overrides: str) -> knobs.Config:
    return knobs.load(None, [*BASE, *overrides])


def shape_of(config: knobs.Config) -> Shape:
    return Shape.of(config.model, VOCAB, LENGTH)


def batch() -> Micro:
    """Rows of several documents, some with padding; a third of the labels are none, more of them
    in later rows, so that a mean of means is not the mean."""
    random = np.random.default_rng(5)
    lengths = [[LENGTH], [20, 12], [9, 9, 9], [1, 1, 30], [5], [16, 16], [31], [2, 3, 4, 5, 6]]
    tokens = random.integers(0, VOCAB, (ROWS, LENGTH + 1))
    labels = tokens[:, 1:].copy()
    labels[random.random(labels.shape) < np.linspace(0, 0.7, ROWS)[:, None]] = IGNORED
    for row, own in enumerate(lengths):
        labels[row, sum(own) :] = IGNORED
    zeros = torch.zeros(ROWS, dtype=torch.int64)
    return Micro(
        torch.from_numpy(tokens[:, :-1].copy()),
        torch.from_numpy(labels),
        layout_of(lengths, LENGTH, "causal"),
        zeros,
        torch.arange(ROWS),
    )


def rows(micro: Micro, first: int, count: int) -> Micro:
    """Some rows of a batch; the backends of the CPU need no `starts`."""
    chosen = slice(first, first + count)
    layout = Layout(
        micro.layout.mask, micro.layout.documents[chosen], micro.layout.positions[chosen]
    )
    return Micro(
        micro.tokens[chosen],
        micro.labels[chosen],
        layout,
        micro.sources[chosen],
        micro.samples[chosen],
    )


def labels_of(micro: Micro) -> int:
    return int((micro.labels != IGNORED).sum())


def reference(config: knobs.Config) -> tuple[float, float, dict[str, Tensor]]:
    """Loss, norm and gradients of the model in one piece and one batch, by plain autograd."""
    model = Transformer(shape_of(config), config.model, config.train)
    parallel.fill(model, config, "cpu")
    micro = batch()
    total, _ = model(micro.tokens, micro.layout, micro.labels)
    loss = total / labels_of(micro)
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    norm = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in found.values()))
    return float(loss.detach()), norm, found


def whole(tensor: Tensor) -> np.ndarray:
    """In one piece, as what may go from one process to another."""
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).numpy()


class Found(NamedTuple):
    """What some ranks made of a step."""

    loss: float
    norm: float
    gradients: dict[str, np.ndarray]  # whole, after clipping
    dtypes: set[torch.dtype]  # of parameters and gradients
    first_values: dict[str, np.ndarray]


def divided(cases: list[knobs.Config], clip: float | None = None) -> list[Found]:
    """Loss, norm, and gradients whole, of each case on the same ranks."""
    world.join(cases[0])
    found = []
    for config in cases:
        place = world.place(config, torch.device("cpu"))
        model = parallel.build(config, shape_of(config), place)
        first_values = {name: whole(p) for name, p in model.named_parameters()}
        own, size = ROWS // place.data_ranks, config.train.micro_batch
        first = place.data_rank * own
        micros = [rows(batch(), first + at, size) for at in range(0, own, size)]
        labels = labels_of(batch())
        passes = Passes(model, place, 1, config.parallel.reshard)
        for _ in range(2):  # the second time from a state that has been used
            model.zero_grad(set_to_none=True)
            sums = place.sum(passes.run(micros, torch.tensor(1 / labels)))
        norm = gradients.clip(model.parameters(), clip, 1.0, place)
        kinds = {p.dtype for p in model.parameters()} | {
            p.grad.dtype for p in model.parameters() if p.grad is not None
        }
        own_gradients = {
            name: whole(p.grad) for name, p in model.named_parameters() if p.grad is not None
        }
        found.append(
            Found(float(sums[0]) / labels, float(norm), own_gradients, kinds, first_values)
        )
    return found


def agree(config: knobs.Config, found: Found) -> None:
    loss, norm, expected = reference(config)
    assert found.loss == pytest.approx(loss, rel=1e-6)
    assert found.norm == pytest.approx(norm, rel=1e-6)
    assert set(found.gradients) == set(expected)
    for name, gradient in expected.items():
        least = 2e-6 * float(gradient.abs().max())
        np.testing.assert_allclose(found.gradients[name], gradient, 2e-5, least, err_msg=name)


@pytest.mark.parametrize(("ranks", "cases"), [(1, ONE), (2, TWO), (4, FOUR)])
def test_gradients_and_norm_are_those_of_the_undivided_model(
    ranks: int, cases: tuple[tuple[str, ...], ...]
) -> None:
    """And so are the first values, to the bit; what is kept is fp32."""
    configs = [configured(*case) for case in cases]
    for of_rank in run_ranks(ranks, divided, configs):
        for config, found in zip(configs, of_rank, strict=True):
            agree(config, found)
            assert found.dtypes == {torch.float32}
            for name, values in found.first_values.items():
                expected = parallel.initial(
                    name, torch.Size(values.shape), config.model, config.seed, "cpu"
                )
                np.testing.assert_array_equal(values, expected, err_msg=name)


def test_clipping_scales_all_gradients_alike() -> None:
    cases = [configured(), configured("parallel.tensor=2", "model.tied=true")]
    most = 0.25
    for found, config in zip(run_ranks(2, divided, cases, most)[1], cases, strict=True):
        _, norm, expected = reference(config)
        assert norm > 2 * most
        assert found.norm == pytest.approx(norm, rel=1e-6)
        for name, gradient in expected.items():
            wanted = gradient * most / norm
            least = 1e-5 * float(wanted.abs().max())
            np.testing.assert_allclose(found.gradients[name], wanted, 1e-4, least, err_msg=name)
        squares = sum(float(np.square(g, dtype=np.float64).sum()) for g in found.gradients.values())
        assert math.sqrt(squares) == pytest.approx(most, rel=1e-5)


def test_gradients_below_the_bound_are_left_alone() -> None:
    (kept,), (clipped,) = (run_ranks(1, divided, [configured()], most)[0] for most in (None, 1e3))
    for name, gradient in kept.gradients.items():
        np.testing.assert_array_equal(clipped.gradients[name], gradient)


# ---------------------------------------------------------------- precision


def in_bf16(config: knobs.Config) -> tuple[Found, set[Any]]:
    """A step, and the dtypes of what the blocks are given."""
    seen = set()
    forward = Block.forward

    def watched(self: Block, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Any) -> Tensor:
        seen.add((x.dtype, rotation[0].dtype, self.attention.wqkv.weight.dtype))
        return forward(self, x, rotation, mask)

    Block.forward = watched  # type: ignore[method-assign]
    return divided([config])[0], seen


@pytest.mark.parametrize("fp8", ["false", "true"])
def test_bf16_is_near_fp32_and_keeps_fp32_what_must_be(fp8: str) -> None:
    """Parameters, gradients' sums and rotations are fp32. Relative differences of gradients of one
    or two in a hundred are what 8 bits of mantissa leave, of ten what the 3 of e4m3 do."""
    config = configured("parallel.precision=bf16", f"parallel.fp8={fp8}", "model.init_std=0.05")
    for found, seen in run_ranks(2, in_bf16, config):
        assert seen == {(torch.bfloat16, torch.float32, torch.bfloat16)}
        assert found.dtypes == {torch.float32}
        loss, norm, expected = reference(config)
        assert found.loss == pytest.approx(loss, rel=2e-3)
        assert found.norm == pytest.approx(norm, rel=2e-2 if fp8 == "false" else 1e-1)
        for name, gradient in expected.items():
            off = np.linalg.norm(found.gradients[name] - gradient.numpy())
            assert 0 < off < (0.03 if fp8 == "false" else 0.15) * float(gradient.norm()), name


def test_float8_is_within_its_rounding_of_the_plain_product() -> None:
    """e4m3 has 3 bits of mantissa, e5m2 has 2: single values are off by up to 1/16 and 1/8, and
    sums of many by about 0.04 and 0.07 of their norm."""
    generator = torch.Generator().manual_seed(6)
    weight = torch.randn(64, 48, generator=generator).bfloat16().requires_grad_()
    x = (100 * torch.randn(2, 16, 48, generator=generator)).bfloat16().requires_grad_()
    slope = (1e-4 * torch.randn(2, 16, 64, generator=generator)).bfloat16()
    out, expected = fp8.Linear(weight)(x), x @ weight.T
    pairs = [(out, expected, 0.06)]
    inner = fp8.Linear(weight)
    found = torch.autograd.grad(inner(x), (x, inner.weight), slope)
    plain = torch.autograd.grad(expected, (x, weight), slope)
    pairs += [(one, other, 0.1) for one, other in zip(found, plain, strict=True)]
    for one, other, bound in pairs:
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        off = float((one - other).detach().float().norm() / other.detach().float().norm())
        assert 1e-3 < off < bound


def test_float8_quantises_to_the_whole_range() -> None:
    for dtype, most in [(torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)]:
        x = torch.tensor([0.0, -3.0, 1.5, 6.0])
        small, scale = fp8.quantised(x, dtype)
        assert small.float().abs().max() == most
        torch.testing.assert_close(small.float() * scale, x)
        assert not fp8.quantised(torch.zeros(4), dtype)[0].float().any()


def test_float8_is_for_training_and_for_matrices_that_the_kernel_takes() -> None:
    module = nn.Sequential(nn.Linear(32, 16, bias=False), nn.Linear(16, 24, bias=False))
    fp8.convert(module, torch.device("cpu"))
    assert [type(child) for child in module] == [fp8.Linear, nn.Linear]
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(1))
    assert torch.equal(module[0].eval()(x), x @ module[0].weight.T)
    assert not torch.equal(module[0].train()(x.bfloat16()).float(), x @ module[0].weight.T)


# ---------------------------------------------------------------- accumulation


def traffic(config: knobs.Config) -> tuple[int, int]:
    """How often parameters are gathered, and gradients reduced, in a step of 2 micro-batches."""
    place = world.join(config)
    model = parallel.build(config, shape_of(config), place)
    micros = [rows(batch(), at, 2) for at in (0, 2)]
    passes = Passes(model, place, 1, config.parallel.reshard)
    with Counted() as seen:
        passes.run(micros, torch.tensor(1.0))
    return seen.ops["_allgather_base_"], seen.ops["_reduce_scatter_base_"]


class Counted(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.ops = Counter[str]()

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.ops[str(op).split(".")[1]] += 1
        return op(*args, **(kwargs or {}))


def test_without_resharding_a_step_gathers_and_reduces_once() -> None:
    """Two blocks, embedding and head are gathered, and their gradients reduced, each by itself.
    With resharding a block is gathered for each forward and each backward pass; embedding and head
    once per micro-batch, since a backward pass needs no embedding and the head's comes at once."""
    groups = 4
    assert run_ranks(2, traffic, configured("parallel.reshard=false"))[0] == (groups, groups)
    assert run_ranks(2, traffic, configured())[0] == (2 * (2 * 2 + 2), 2 * groups)


# ---------------------------------------------------------------- compiling


def test_compiled_blocks_give_the_same_gradients() -> None:
    """Together with checkpointing and sharding."""
    case = configured("parallel.compile=true", "parallel.activations=selective", "model.layers=1")
    agree(case, run_ranks(2, divided, [case])[0][0])


@pytest.mark.parametrize("activations", ["keep", "full", "selective"])
def test_blocks_are_compiled_once_whatever_the_documents_are(activations: str) -> None:
    """With the arguments of varlen, of which there is no kernel on a CPU."""
    case = configured(f"parallel.activations={activations}", "parallel.compile=true")
    assert run_ranks(1, graphs_of, case) == [[1, 1, 1, 1]]


def graphs_of(config: knobs.Config) -> list[int]:
    """How many graphs have been compiled after batches of other documents."""
    compiled = nn.Module.compile
    nn.Module.compile = lambda block: compiled(block, backend="aot_eager")  # type: ignore[assignment, misc]
    attention.varlen_attn = lambda q, k, v, starts, *others, **options: _queries(q, starts, *others)
    attention._lacking = lambda *arguments: ""
    here = world.join(config)
    model = parallel.build(config, shape_of(config), here)
    passes, found = Passes(model, here, 1), []
    for lengths in ([LENGTH], [20, 12], [9, 9, 9], [2, 3, 4, 5, 6, 12]):
        micro = batch()
        layout = layout_of([lengths] * ROWS, LENGTH, "causal")
        passes.run([replace(micro, layout=layout)] * 2, torch.tensor(1.0))
        found.append(counters["stats"]["unique_graphs"])
    world.leave()
    return found


@torch.library.custom_op("gristmill_tests::queries", mutates_args={})
def _queries(q: Tensor, starts: Tensor, also: Tensor, longest: int, too: int) -> Tensor:
    return q.clone()


@_queries.register_fake
def _(q: Tensor, starts: Tensor, also: Tensor, longest: int, too: int) -> Tensor:
    return torch.empty_like(q)


_queries.register_autograd(lambda context, gradient: (gradient, None, None, None, None))


# ---------------------------------------------------------------- a vocabulary of 258


def test_a_checkpoint_of_an_odd_vocabulary_goes_on_with_another_number_of_ranks(
    toy_manifest: Path, tmp_path: Path
) -> None:
    """258 entries on 2 ranks, then on 1, lose what 1 rank alone does (torchtitan #1136)."""
    for name, ranks in [("alone", (1, 1)), ("moved", (2, 1))]:
        for steps, count in zip((3, 6), ranks, strict=True):
            train_some(toy_manifest, tmp_path / name, steps, count)
    alone, moved = (lines(tmp_path / name, "health") for name in ("alone", "moved"))
    assert [line["step"] for line in moved] == list(range(1, 7))
    assert [line["loss"] for line in moved] == pytest.approx(
        [line["loss"] for line in alone], rel=1e-6
    )


def train_some(manifest: Path, run: Path, steps: int, ranks: int) -> None:
    own = small(
        manifest, run, "train.micro_batch=4", "schedule.kind=constant", f"train.steps={steps}"
    )
    assert (own.model.vocab or VOCAB) % 4 == 2
    run_ranks(ranks, train, own)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("parallel.fp8=true",), "parallel.fp8: wants parallel.precision=bf16"),
        (
            ("parallel.fp8=true", "parallel.precision=bf16", "parallel.tensor=2"),
            "parallel.fp8: wants parallel.tensor=1, not 2",
        ),
        (
            ("model.attention=varlen",),
            "model.attention: varlen wants parallel.precision=bf16 or fp16",
        ),
        (
            ("model.attention=varlen", "parallel.precision=bf16", "objective.kind=prefix"),
            "model.attention: varlen cannot do objective.kind=prefix",
        ),
        (("parallel.tensor=4",), "parallel.tensor: 4 does not divide model.kv_heads (2)"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    overrides: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        configured(*overrides)


def test_ranks_that_do_not_multiply_are_refused() -> None:
    config = configured("parallel.tensor=2", "parallel.shard=3")
    said = "parallel: 1 pipeline x 1 replicate x 3 shard x 2 tensor is 6 ranks; there are 4"
    with pytest.raises(ConfigError, match=f"^{said}$"):
        world.sizes(config.parallel, 4)
    assert world.sizes(config.parallel, 6) == {
        "pipeline": 1, "replicate": 1, "shard": 3, "tensor": 2
    }  # fmt: skip


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_a_line() -> None:
    with pytest.raises(ConfigError, match=r"^parallel\.device: cuda, and there is no GPU$"):
        world.join(configured("parallel.device=cuda"))
