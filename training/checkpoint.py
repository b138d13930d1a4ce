"""Checkpoints: a directory per step, complete once its marker is there.

What may live here: saving and loading model, optimiser and the small state beside them with
torch.distributed.checkpoint, the marker, `latest`, and which old ones go.

    checkpoints/step-00000100/    .metadata, *.distcp     the sharded tensors
                                  state.json              step, digests, guard, scaler
                                  COMPLETE                the marker, written last
    checkpoints/latest            the name of the newest complete one
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from manifests.files import write_bytes
from training import config as knobs
from training.world import World

MARKER, LATEST, STATE = "COMPLETE", "latest", "state.json"


class Checkpoints:
    """The checkpoints of a run."""

    def __init__(self, run: Path, checkpoint: knobs.Checkpoint, world: World) -> None:
        self.directory = run / "checkpoints"
        self.knobs, self.world = checkpoint, world

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending."""
        return sorted(
            int(place.name.removeprefix("step-"))
            for place in self.directory.glob("step-*")
            if (place / MARKER).exists()
        )

    def place(self, step: int) -> Path:
        """The directory of a step's checkpoint."""
        return self.directory / f"step-{step:08d}"

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: dict[str, Any],
    ) -> None:
        """Saves after `step` steps; may return before it is durable."""
        place = self.place(step)
        if self.world.first:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
        self.world.barrier()
        tensors: dict[str, Any] = {
            "model": get_model_state_dict(model),
            "optimizer": get_optimizer_state_dict(model, optimizer),
        }
        dcp_save(tensors, checkpoint_id=place)
        self.world.barrier()
        if self.world.first:
            write_bytes(place / STATE, json.dumps(state).encode())
            write_bytes(place / MARKER, b"")
            write_bytes(self.directory / LATEST, place.name.encode() + b"\n")

    def load(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Loads a complete checkpoint into model and optimiser, and gives the state beside it."""
        place = self.place(step)
        tensors: dict[str, Any] = {
            "model": get_model_state_dict(model),
            "optimizer": get_optimizer_state_dict(model, optimizer),
        }
        dcp_load(tensors, checkpoint_id=place)
        set_model_state_dict(model, tensors["model"])
        set_optimizer_state_dict(model, optimizer, tensors["optimizer"])
        state: dict[str, Any] = json.loads((place / STATE).read_text())
        return state

    def forget(self, after: int) -> None:
        """Removes the checkpoints of more than `after` steps, the newest first, so that what is
        left is always a beginning of the run."""
        self.wait()
        if self.world.first:
            for step in reversed([step for step in self.steps() if step > after]):
                (self.place(step) / MARKER).unlink()
                shutil.rmtree(self.place(step))
            if left := self.steps():
                write_bytes(self.directory / LATEST, self.place(left[-1]).name.encode() + b"\n")
            else:
                (self.directory / LATEST).unlink(missing_ok=True)
        self.world.barrier()

    def wait(self) -> None:
        """Waits until everything that was saved is durable."""
