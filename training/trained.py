"""A trained model, whole, in one process: for evaluation and generation.

What may live here: opening a run at one of its checkpoints, its tokenizer, and how many bytes a
token stands for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from manifests.tokens import Manifest
from training import config as knobs
from training.config import ConfigError
from training.model import Shape, Transformer
from training.objectives import Objective
from training.weights import chosen, weights


@dataclass(frozen=True)
class Trained:
    """A model with everything that it was trained with."""

    model: Transformer
    config: knobs.Config
    manifest: Manifest
    objective: Objective
    step: int
    device: torch.device


def open_trained(
    run: Path, step: int | None = None, average: int = 1, device: str = "auto"
) -> Trained:
    """The model of a run after a step (the newest checkpoint without one), or the mean of the
    `average` checkpoints up to there. Raises ConfigError, CheckpointError and ManifestError."""
    if not (run / "run.json").exists():
        raise ConfigError(f"{run}: no training run")
    config = knobs.load(run / "config.yaml")
    manifest = Manifest.load(config.data.manifest)
    objective = Objective(config.objective, manifest.tokenizer, config.seed)
    shape = Shape.of(
        config.model, manifest.tokenizer.size, objective.length(manifest.sequence_length)
    )
    tensors = weights(run, step, average)
    found = int(chosen(run, step, average)[-1].name.removeprefix("step-"))
    place = _device(device)
    # Another kernel than in training, maybe: weights are fp32 here, which varlen cannot do.
    knobs_of_model = replace(config.model, attention="auto")
    with torch.device("meta"):
        model = Transformer(shape, knobs_of_model, config.train)
    model.load_state_dict(tensors, assign=True)
    model.tie()
    model.to(place).eval().requires_grad_(False)
    return Trained(model, config, manifest, objective, found, place)


def _device(wanted: str) -> torch.device:
    """Raises ConfigError for one that is not there."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=wanted).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"--device {wanted}: {str(error).splitlines()[0]}") from None


def tokenizer_of(manifest: Manifest) -> Any:
    """The tokenizer, by the package `tokenizers`. Raises ConfigError where that is not here."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ConfigError("text wants the package tokenizers: pip install tokenizers") from None
    return Tokenizer.from_file(str(manifest.directory / manifest.tokenizer.path))


def bytes_of_tokens(manifest: Manifest) -> np.ndarray | None:
    """How many bytes of text each token stands for: (size,) int64, 0 for special ones.

    None where the tokenizer is not byte-level, since a token of another kind may stand for more or
    fewer bytes than it is written with.
    """
    try:
        record = json.loads((manifest.directory / manifest.tokenizer.path).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{manifest.tokenizer.path}: {error}") from None
    if "ByteLevel" not in json.dumps([record.get("decoder"), record.get("pre_tokenizer")]):
        return None
    counts = np.zeros(manifest.tokenizer.size, np.int64)
    for token, number in record["model"]["vocab"].items():
        counts[number] = len(token)  # each byte is written as one character
    for added in record.get("added_tokens") or []:
        counts[added["id"]] = 0 if added["special"] else len(added["content"].encode())
    counts[list(manifest.tokenizer.special.values())] = 0
    return counts
