"""The model in Hugging Face's Llama form: which tensor is which, and what config.json says.

What may live here: names, cutting fused matrices into theirs and putting them together again, and
sizes to and from config.json. No checkpoints, no model cards. With `qk_norm` the form is that of
Qwen3, which is Llama with a norm of queries and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from training.model import Shape

_WHOLE = {
    "embed.weight": "model.embed_tokens.weight",
    "head.norm.weight": "model.norm.weight",
    "head.out.weight": "lm_head.weight",
}
_IN_BLOCK = {
    "attention_norm.weight": ("input_layernorm.weight",),
    "attention.wqkv.weight": tuple(f"self_attn.{x}_proj.weight" for x in "qkv"),
    "attention.wo.weight": ("self_attn.o_proj.weight",),
    "attention.q_norm.weight": ("self_attn.q_norm.weight",),
    "attention.k_norm.weight": ("self_attn.k_norm.weight",),
    "ffn_norm.weight": ("post_attention_layernorm.weight",),
    "ffn.w13.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "ffn.w2.weight": ("mlp.down_proj.weight",),
}


def theirs(name: str) -> tuple[str, ...]:
    """The names under which Hugging Face has a parameter of ours, in parts where it is fused."""
    if name in _WHOLE:
        return (_WHOLE[name],)
    _, number, inner = name.split(".", 2)
    return tuple(f"model.layers.{number}.{part}" for part in _IN_BLOCK[inner])


def cut(name: str, tensor: Tensor, shape: Shape) -> dict[str, Tensor]:
    """A whole parameter of ours as Hugging Face has it: by its names, without the rows that fill
    up the vocabulary."""
    if name in ("embed.weight", "head.out.weight"):
        parts = [tensor[: shape.vocab]]
    elif (grouped := _grouped(name, shape)) is not None:
        groups, sizes = grouped
        by_group = torch.split(_by_group(tensor, groups), sizes, dim=1)
        parts = [part.flatten(0, 1) for part in by_group]
    else:
        parts = [tensor]
    return dict(zip(theirs(name), parts, strict=True))


def joined(name: str, get: Callable[[str], Tensor], shape: Shape) -> Tensor:
    """A whole parameter of ours, of what `get` gives by Hugging Face's names."""
    parts = [get(part) for part in theirs(name)]
    if name in ("embed.weight", "head.out.weight"):
        return F.pad(parts[0], (0, 0, 0, shape.rows - shape.vocab))
    if (grouped := _grouped(name, shape)) is not None:
        groups, _ = grouped
        return torch.cat([_by_group(part, groups) for part in parts], 1).flatten(0, 1)
    return parts[0]


def _grouped(name: str, shape: Shape) -> tuple[int, list[int]] | None:
    """Groups of a fused matrix, and the rows of its parts in each."""
    if name.endswith("wqkv.weight"):
        shared = shape.heads // shape.kv_heads
        return shape.kv_heads, [shared * shape.width, shape.width, shape.width]
    if name.endswith("w13.weight"):
        return shape.groups, [shape.ffn // shape.groups] * 2
    return None


def _by_group(matrix: Tensor, groups: int) -> Tensor:
    return matrix.view(groups, -1, matrix.shape[1])


# ---------------------------------------------------------------- config.json


def config_of(model: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json says of a model (`checkpoint.described`), its special tokens left out."""
    kind = "Qwen3" if model["qk_norm"] else "Llama"
    return {
        "architectures": [f"{kind}ForCausalLM"],
        "model_type": kind.lower(),
        "hidden_act": "silu",
        "hidden_size": model["dim"],
        "intermediate_size": model["ffn"],
        "num_hidden_layers": model["layers"],
        "num_attention_heads": model["heads"],
        "num_key_value_heads": model["kv_heads"],
        "head_dim": model["dim"] // model["heads"],
        "vocab_size": model["vocab"],
        "max_position_embeddings": model["context"],
        "rope_theta": model["rope_theta"],
        "rms_norm_eps": model["norm_eps"],
        "tie_word_embeddings": model["tied"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_cache": True,
        **({} if model["qk_norm"] else {"mlp_bias": False, "pretraining_tp": 1}),
    }


def model_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The other way round. Raises ValueError, in a line, for what this model cannot be; what
    config.json leaves out is as transformers has it."""
    kind = config.get("model_type")
    if kind not in ("llama", "qwen3"):
        raise ValueError(f"model_type {kind!r}; llama and qwen3 are understood")
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise ValueError(f"rope_scaling {rope}; plain rotary positions are understood")
    for key, wanted in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False)):
        if config.get(key, wanted) != wanted:
            raise ValueError(f"{key} is {config[key]!r}; {wanted!r} is understood")
    dim, heads = config["hidden_size"], config["num_attention_heads"]
    if (
        width := config.get("head_dim") or (128 if kind == "qwen3" else dim // heads)
    ) * heads != dim:
        raise ValueError(f"{heads} heads of {width} in a hidden_size of {dim}")
    return {
        "layers": config["num_hidden_layers"],
        "dim": dim,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "ffn": config["intermediate_size"],
        "vocab": config["vocab_size"],
        "context": config.get("max_position_embeddings", 2048),
        "tied": config.get("tie_word_embeddings", False),
        "rope_theta": float(rope.get("rope_theta", config.get("rope_theta", 10000.0))),
        "norm_eps": config.get("rms_norm_eps", 1e-6),
        "qk_norm": kind == "qwen3",
    }


def shape_of(model: Mapping[str, Any]) -> Shape:
    """The sizes among what is said of a model."""
    return Shape(**{size.name: model[size.name] for size in fields(Shape)})
