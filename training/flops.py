"""How many parameters a model has, and how many FLOPs a token costs.

What may live here: these two formulas.
"""

from __future__ import annotations

from training.model import Shape


def parameters(shape: Shape) -> tuple[int, int]:
    """All parameters, and those without the input embedding (tied: it is the output's)."""
    attention = shape.dim * (2 * shape.heads + 2 * shape.kv_heads) * shape.width
    block = attention + 3 * shape.dim * shape.ffn + 2 * shape.dim
    ends = shape.rows * shape.dim
    inner = shape.layers * block + shape.dim + ends
    return inner if shape.tied else inner + ends, inner


def flops_per_token(shape: Shape, length: int) -> float:
    """6 N + 12 L H Q T: N parameters without the input embedding, L layers of H heads of Q, rows of
    T tokens (A. Chowdhery et al., PaLM, 2022, appendix B; no discount for the causal mask)."""
    _, inner = parameters(shape)
    return 6.0 * inner + 12.0 * shape.layers * shape.heads * shape.width * length
