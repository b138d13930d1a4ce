"""The model: a decoder with grouped-query attention, rotary positions, RMSNorm and SwiGLU.

What may live here: modules, their forward passes, and the values that parameters begin with.
Nothing of devices, ranks or files. The form is that of Llama (H. Touvron et al., 2023), so that its
weights go out and in (training/export.py).

Fused matrices stand by groups of KV heads: the rows of `wqkv` are, for each KV head, the heads of
its queries, its key and its value; those of `w13`, for each of as many groups, gate and up. So a
rank of tensor parallelism that holds a range of rows holds whole groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from manifests.hashing import salt
from training import config as knobs
from training.attention import Backend, Mask, attend, choose, prepare
from training.config import ConfigError
from training.layout import Layout
from training.loss import linear_cross_entropy
from training.sampled import drawn
from training.swiglu import swiglu

VOCABULARY_MULTIPLE = 128  # rows of the embedding are filled up to this


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, all known."""

    layers: int
    dim: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    context: int
    tied: bool

    @staticmethod
    def of(model: knobs.Model, vocab: int, context: int) -> Shape:
        """Of the knobs, with the tokenizer's vocabulary and the length of rows as the objective
        makes them where they leave them open. Raises ConfigError where they say less than these."""
        for name, said, least in (
            ("vocab", model.vocab, vocab),
            ("context", model.context, context),
        ):
            if said is not None and said < least:
                raise ConfigError(f"model.{name}: {said:,}, but the data has {least:,}")
        return Shape(
            layers=model.layers,
            dim=model.dim,
            heads=model.heads,
            kv_heads=model.kv_heads,
            ffn=model.ffn,
            vocab=vocab if model.vocab is None else model.vocab,
            context=context if model.context is None else model.context,
            tied=model.tied,
        )

    @property
    def rows(self) -> int:
        """Rows of the embedding."""
        return -(-self.vocab // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE

    @property
    def width(self) -> int:
        """Width of a head."""
        return self.dim // self.heads

    @property
    def groups(self) -> int:
        """Groups in which the rows of `w13` stand."""
        return math.gcd(self.ffn, self.kv_heads)


class Attention(nn.Module):
    """Grouped-query attention."""

    def __init__(self, shape: Shape, model: knobs.Model) -> None:
        super().__init__()
        self.width, self.shared = shape.width, shape.heads // shape.kv_heads
        rows = (shape.heads + 2 * shape.kv_heads) * shape.width
        self.wqkv = nn.Linear(shape.dim, rows, bias=False)
        self.wo = nn.Linear(shape.dim, shape.dim, bias=False)
        self.q_norm = nn.RMSNorm(shape.width, eps=model.norm_eps) if model.qk_norm else None
        self.k_norm = nn.RMSNorm(shape.width, eps=model.norm_eps) if model.qk_norm else None

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Mask) -> Tensor:
        """(rows, L, dim) to the same."""
        rows, length, _ = x.shape
        grouped = self.wqkv(x).view(rows, length, -1, self.shared + 2, self.width)
        q, k, v = grouped.split((self.shared, 1, 1), dim=3)
        q, k, v = q.flatten(2, 3), k.flatten(2, 3), v.flatten(2, 3)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        out: Tensor = self.wo(attend(rotate(q, *rotation), rotate(k, *rotation), v, mask))
        return out


class FeedForward(nn.Module):
    """SwiGLU: w2(silu(w1 x) * w3 x) (N. Shazeer, GLU Variants Improve Transformer, 2020)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.part = shape.ffn // shape.groups
        self.w13 = nn.Linear(shape.dim, 2 * shape.ffn, bias=False)
        self.w2 = nn.Linear(shape.ffn, shape.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, L, dim) to the same."""
        both = self.w13(x).unflatten(-1, (-1, 2, self.part))
        out: Tensor = self.w2(swiglu(both).flatten(-2))
        return out


class Block(nn.Module):
    """Attention and feed-forward, each after a norm and added to the residual stream."""

    def __init__(self, shape: Shape, model: knobs.Model) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.dim, eps=model.norm_eps)
        self.attention = Attention(shape, model)
        self.ffn_norm = nn.RMSNorm(shape.dim, eps=model.norm_eps)
        self.ffn = FeedForward(shape)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Mask) -> Tensor:
        """(rows, L, dim) to the same."""
        x = x + self.attention(self.attention_norm(x), rotation, mask)
        out: Tensor = x + self.ffn(self.ffn_norm(x))
        return out


class Head(nn.Module):
    """The last norm and the output layer: logits, or the loss without them."""

    def __init__(self, shape: Shape, model: knobs.Model, train: knobs.Train) -> None:
        super().__init__()
        self.vocab, self.z_loss, self.chunk = shape.vocab, train.z_loss, train.loss_chunk
        self.compiled = False  # the chunks of the loss, on a GPU
        self.norm = nn.RMSNorm(shape.dim, eps=model.norm_eps)
        self.out = nn.Linear(shape.dim, shape.rows, bias=False)

    def forward(
        self, x: Tensor, labels: Tensor | None, draws: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Logits (rows, L, vocabulary); with labels the sum of losses, and each one (rows, L). With
        draws (rows, L) the labels are the model's own (training/sampled.py), without z-loss."""
        x, weight = self.norm(x), self.out.weight
        if labels is None:
            whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
            return F.linear(x, whole[: self.vocab])
        own, first, group = part(weight)
        own = own[: max(0, self.vocab - first)]
        hidden, flat, z_loss = x.flatten(0, 1), labels.flatten(), self.z_loss
        if draws is not None:  # the whole vocabulary is here (config._problems)
            flat, z_loss = drawn(hidden, own, flat, draws.flatten(), self.chunk), 0.0
        total, each = linear_cross_entropy(
            hidden,
            own,
            flat,
            z_loss=z_loss,
            chunk=self.chunk,
            group=group,
            first=first,
            compiled=self.compiled,
        )
        return total, each.view(labels.shape).clone()  # FSDP2 warns of outputs that are views


class Transformer(nn.Module):
    """The whole model. `blocks` are named by their number, also where a rank has only some."""

    def __init__(self, shape: Shape, model: knobs.Model, train: knobs.Train) -> None:
        super().__init__()
        self.shape, self.knobs = shape, model
        self.embed = nn.Embedding(shape.rows, shape.dim)
        self.blocks = nn.ModuleDict(
            {str(number): Block(shape, model) for number in range(shape.layers)}
        )
        self.head = Head(shape, model, train)
        self.tie()

    def tie(self) -> None:
        """Makes the output matrix the embedding, if it is to be; again whenever a parameter has
        been replaced by another."""
        if self.shape.tied:
            self.head.out.weight = self.embed.weight

    def forward(
        self,
        tokens: Tensor,
        layout: Layout,
        labels: Tensor | None = None,
        draws: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """As `Head.forward`; `tokens`: (rows, L) int64."""
        x = self.embed(tokens)
        rotation = rotations(layout.positions, self.shape.width, self.knobs.rope_theta)
        mask = prepare(layout, self.backend(x, layout), self.knobs.document_mask)
        for block in self.blocks.values():
            x = block(x, rotation, mask)
        out: Tensor | tuple[Tensor, Tensor] = self.head(x, labels, draws)
        return out

    def backend(self, x: Tensor, layout: Layout) -> Backend:
        """The attention kernel for a micro-batch."""
        return choose(self.knobs.attention, x.device, x.dtype, layout.mask)


def part(weight: Tensor) -> tuple[Tensor, int, dist.ProcessGroup | None]:
    """The rows of a matrix that this rank has, the first one's number, and the ranks that have the
    others: with tensor parallelism some, else all."""
    if not isinstance(weight, DTensor):
        return weight, 0, None
    mesh = weight.device_mesh
    rows = -(-weight.shape[0] // mesh.size())
    return weight.to_local(), rows * mesh.get_local_rank(), mesh.get_group()


def rotations(positions: Tensor, width: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine (rows, L, 1, width / 2) of rotary positions, fp32 (J. Su et al., RoFormer,
    2021)."""
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    angles = positions[..., None].float() * theta**-exponents
    return angles.cos()[:, :, None], angles.sin()[:, :, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(rows, L, heads, width), its first half paired with its second, as Llama in Hugging Face's
    form has it."""
    first, second = x.float().chunk(2, -1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return turned.to(x.dtype)


def initial(name: str, shape: torch.Size, model: knobs.Model, seed: int, device: str) -> Tensor:
    """What a parameter begins with, whole: the same whatever it is sharded over."""
    if len(shape) == 1:
        return torch.ones(shape, device=device)
    std = model.init_std
    if name.endswith(("wo.weight", "w2.weight")):
        std /= math.sqrt(2 * model.layers)
    generator = torch.Generator(device).manual_seed(salt(seed, "initial", name) >> 1)
    return torch.randn(shape, generator=generator, device=device) * std
