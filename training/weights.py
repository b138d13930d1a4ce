"""Weights of checkpoints, whole, without optimiser or process group."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load


def weights(run: Path, step: int | None = None, average: int = 1) -> dict[str, Tensor]:
    """stub"""
    place = sorted((run / "checkpoints").glob("step-*"))[-1]
    reader = FileSystemReader(place)
    meta = reader.read_metadata().state_dict_metadata
    found = {
        k: torch.empty(v.size, dtype=v.properties.dtype)
        for k, v in meta.items()
        if k.startswith("model.")
    }
    load(found, storage_reader=reader, no_dist=True)
    return {k.removeprefix("model."): v for k, v in found.items()}
