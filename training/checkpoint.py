"""Checkpoints: a directory per step, complete once its marker is there.

What may live here: saving and loading model, optimiser and the small state beside them with
torch.distributed.checkpoint, the marker, `latest`, and which old ones go.

    checkpoints/step-00000100/    .metadata, *.distcp     the sharded tensors
                                  state.json              step, digests, guard, scaler, model
                                  COMPLETE                the marker, written last: every file with
                                                          its size and BLAKE2b-128
    checkpoints/latest            the name of the newest complete one

Everything before the marker is on disk when it is written, `latest` is moved after that, and only
then do old ones go, their markers first. So whatever is cut off where, the last complete one stays.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from manifests import typed
from manifests.files import file_digest, write_bytes
from manifests.records import digest
from manifests.tokens import Manifest
from training import config as knobs
from training.config import ConfigError
from training.model import Shape
from training.staging import Staging
from training.world import World

MARKER, LATEST, STATE = "COMPLETE", "latest", "state.json"
_NAME = re.compile(r"step-\d{8,}")  # `place_of`
_THREADS = 4  # that write files of a rank, and that read them for their digests


class CheckpointError(RuntimeError):
    """A checkpoint that could not be written, or is not what its marker says. One line."""


class Checkpoints:
    """The checkpoints of a run. All methods but `place` are for all ranks together."""

    def __init__(self, run: Path, checkpoint: knobs.Checkpoint, world: World) -> None:
        self.directory = run / "checkpoints"
        self.knobs, self.world = checkpoint, world
        self._group = dist.new_group(backend="gloo")  # its own: it is used beside the steps
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None
        self._staging = Staging(world.device)
        self._room: Future[dict[str, Any]] | None = None

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending: what rank 0 sees."""
        self.wait()
        found: list[int] = self._on_first(lambda: complete(self.directory))
        return found

    def place(self, step: int) -> Path:
        """The directory of a step's checkpoint."""
        return place_of(self.directory, step)

    def reserve(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Begins to make the room that asynchronous saves are copied to, unless that has been done:
        beside the steps, once the optimiser has its moments."""
        if self._room is None and self.knobs.asynchronous:
            self._room = self._thread.submit(self._staging.room, _tensors(model, optimizer))

    def settle(self) -> None:
        """To be called before model or optimiser are changed: a save may still read from them."""
        self._staging.settle()

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: dict[str, Any],
    ) -> None:
        """Saves after `step` steps, with `state` (JSON) beside; may return before it is durable,
        but not before the save before it is.

        Raises CheckpointError where this one, or in the background the one before, went wrong.
        """
        self.wait()
        tensors = _tensors(model, optimizer)
        state = {**state, **self._surroundings()}
        self.reserve(model, optimizer)
        if self._room is None:
            self._write(step, tensors, state)
            return
        room = self._room.result()
        self._staging.copy(tensors, room)
        self._pending = self._thread.submit(self._write, step, room, state)

    def load(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Loads a complete checkpoint into model and optimiser, whatever it was sharded over, and
        gives the state beside it. Later ones belong to a past that is given up with this, and are
        removed.

        Raises CheckpointError where it is damaged, ConfigError where it is of another optimiser.
        """
        self.wait()
        place = self.place(step)
        state: dict[str, Any] = self._on_first(lambda: check(place))
        tensors = _tensors(model, optimizer)
        _same_optimizer(place, tensors)
        dcp_load(tensors, storage_reader=FileSystemReader(place), process_group=self._group)
        set_parameters(model, tensors["model"])
        moments = get_optimizer_state_dict(model, optimizer) | {"state": tensors["optimizer"]}
        set_optimizer_state_dict(model, optimizer, moments)
        _set_random(state["random"])
        self.forget(step)
        return state

    def forget(self, after: int) -> None:
        """Removes the checkpoints of more than `after` steps, the newest first, so that what is
        left at any moment is a beginning of the run."""
        self.wait()
        self._on_first(lambda: self._forget(after))

    def wait(self) -> None:
        """Waits until everything that was saved is durable. Raises CheckpointError where that went
        wrong."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Lets a save that is under way come to its end, whatever that is."""
        self._thread.shutdown(wait=True)

    # ------------------------------------------------------------ writing

    def _write(self, step: int, tensors: dict[str, Any], state: dict[str, Any]) -> None:
        """Writes a checkpoint; of the thread, where it is asynchronous."""
        place = self.place(step)
        self._staging.wait()
        self._on_first(lambda: remove(place))
        writer = FileSystemWriter(place, thread_count=_THREADS, sync_files=True)
        try:
            dcp_save(tensors, storage_writer=writer, process_group=self._group)
        except CheckpointException as error:
            rank, (problem, _) = next(iter(error.failures.items()))
            raise CheckpointError(f"{place}: rank {rank}: {_line(problem)}") from None
        self._on_first(lambda: self._finish(place, state))

    def _finish(self, place: Path, state: dict[str, Any]) -> None:
        """What rank 0 does once the tensors of all ranks are on disk."""
        write_bytes(place / STATE, json.dumps(state, indent=1).encode() + b"\n")
        names = sorted(file.name for file in place.iterdir())
        marker = json.dumps({"files": _facts(place, names)}, indent=1).encode() + b"\n"
        _sync(place)
        _sync(self.directory)
        write_bytes(place / MARKER, marker)
        _sync(place)
        self._point(place)
        for other in _places(self.directory):
            if other != place and not (other / MARKER).exists():
                remove(other)  # cut off while it was written or removed
        for step in self._old():
            remove(self.place(step))

    def _point(self, place: Path) -> None:
        write_bytes(self.directory / LATEST, place.name.encode() + b"\n")
        _sync(self.directory)

    def _old(self) -> list[int]:
        """Complete ones that are not to be kept."""
        steps, permanent = complete(self.directory), self.knobs.permanent
        old = steps[: -self.knobs.keep] if self.knobs.keep else []
        return [step for step in old if permanent is None or step % permanent]

    def _forget(self, after: int) -> None:
        steps = complete(self.directory)
        for step in reversed(steps):
            if step > after:
                remove(self.place(step))
        if left := [step for step in steps if step <= after]:
            self._point(self.place(left[-1]))
        else:
            (self.directory / LATEST).unlink(missing_ok=True)

    def _surroundings(self) -> dict[str, Any]:
        mesh = self.world.mesh
        layout = {name: mesh[name].size() for name in mesh.mesh_dim_names or ()}
        return {"ranks": layout, "torch": torch.__version__, "random": _random()}

    def _on_first(self, work: Callable[[], Any]) -> Any:
        return on_first(self.world, work, self._group)


def on_first(world: World, work: Callable[[], Any], group: dist.ProcessGroup | None = None) -> Any:
    """What something gives on rank 0, on all ranks. What goes wrong with it is a CheckpointError on
    all, so that none waits for rank 0."""
    answer: list[Any] = [None, None]
    if world.first:
        try:
            answer[0] = work()
        except Exception as error:
            answer[1] = _line(error)
    dist.broadcast_object_list(answer, src=0, group=group)
    if answer[1] is not None:
        raise CheckpointError(answer[1])
    return answer[0]


# ---------------------------------------------------------------- files


def place_of(directory: Path, step: int) -> Path:
    """The directory of a step's checkpoint in that of all."""
    return directory / f"step-{step:08d}"


def complete(directory: Path) -> list[int]:
    """Steps of the checkpoints in `checkpoints/` that have their marker, ascending."""
    return sorted(
        int(place.name.removeprefix("step-"))
        for place in _places(directory)
        if (place / MARKER).exists()
    )


def newest(run: Path) -> int:
    """The steps that the newest complete checkpoint of a run holds; 0 where there is none."""
    return max(complete(run / "checkpoints"), default=0)


def _places(directory: Path) -> list[Path]:
    """The directories of checkpoints, complete or not; not what others have put beside them."""
    return [place for place in directory.glob("step-*") if _NAME.fullmatch(place.name)]


def check(place: Path) -> dict[str, Any]:
    """The state beside a checkpoint, once all of its files are found to be what the marker says.

    Raises CheckpointError, which names the first file that is not.
    """
    try:
        said = json.loads((place / MARKER).read_bytes())["files"]
        for name, (size, _) in said.items():
            if (found := (place / name).stat().st_size) != size:
                raise CheckpointError(f"{place / name}: {found} bytes, the marker says {size}")
        for name, facts in _facts(place, list(said)).items():
            if facts != said[name]:
                raise CheckpointError(f"{place / name}: its bytes are not those that were written")
        state: dict[str, Any] = json.loads((place / STATE).read_bytes())
    except OSError as error:
        raise CheckpointError(f"{error.filename}: {error.strerror}") from None
    except (KeyError, ValueError, TypeError, AttributeError):
        raise CheckpointError(f"{place / MARKER}: damaged") from None
    return state


def remove(place: Path) -> None:
    """Removes a checkpoint, its marker first: what is left of it half-way counts no more."""
    if place.exists():
        (place / MARKER).unlink(missing_ok=True)
        _sync(place)
        shutil.rmtree(place)


def _facts(place: Path, names: list[str]) -> dict[str, list[Any]]:
    """Size and digest of files."""
    with ThreadPoolExecutor(_THREADS) as threads:
        read = threads.map(file_digest, [place / name for name in names])
        return {name: [size, digest] for name, (digest, size) in zip(names, read, strict=True)}


def _sync(directory: Path) -> None:
    """Makes durable which files are in a directory."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


# ---------------------------------------------------------------- what is in one


def described(config: knobs.Config, shape: Shape, manifest: Manifest) -> dict[str, Any]:
    """What a checkpoint says of itself, so that it can be used without its run: digests, objective,
    and the model's sizes and constants."""
    model = config.model
    own = {"rope_theta": model.rope_theta, "norm_eps": model.norm_eps, "qk_norm": model.qk_norm}
    return {
        "config": digest(knobs.dump(config).encode()),
        "manifest": manifest.digest,
        "tokenizer": manifest.tokenizer.sha256,
        "objective": config.objective.kind,
        "model": {**typed.plain(shape), **own},
    }


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What is saved: every parameter once, and what the optimiser keeps of it. The optimiser's
    settings are those of the configuration, and its rate is set in each step."""
    moments = get_optimizer_state_dict(model, optimizer)["state"]
    return {"model": parameters_of(model), "optimizer": moments}


def parameters_of(model: nn.Module) -> dict[str, Any]:
    """The parameters by their global names, as they are sharded; tied ones once."""
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    tied = every - {name for name, _ in model.named_parameters()}
    found = get_model_state_dict(model)
    return {name: tensor for name, tensor in found.items() if name not in tied}


def set_parameters(model: nn.Module, parameters: dict[str, Any]) -> None:
    """The other way round."""
    set_model_state_dict(model, parameters, options=StateDictOptions(strict=False))


def _same_optimizer(place: Path, tensors: dict[str, Any]) -> None:
    """Raises ConfigError where other things are kept of a parameter than the optimiser keeps."""
    stored = FileSystemReader(place).read_metadata().state_dict_metadata
    for name, moments in tensors["optimizer"].items():
        prefix = f"optimizer.{name}."
        found = {key.removeprefix(prefix) for key in stored if key.startswith(prefix)}
        if found != set(moments):
            has, wants = (", ".join(sorted(keys)) or "nothing" for keys in (found, moments))
            raise ConfigError(
                f"optimizer.kind: {place.name} has {has} of {name}, the optimiser wants {wants}; "
                "another optimiser can begin with it by checkpoint.init_from"
            )
        return  # the same for all


def _random() -> dict[str, str]:
    """The states of rank 0's generators. Nothing in the trainer draws from them: all that is drawn
    belongs to (seed, name) or (seed, sample). They are kept for what others may add."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return {kind: base64.b64encode(s.numpy().tobytes()).decode() for kind, s in states.items()}


def _set_random(states: dict[str, str]) -> None:
    for kind, text in states.items():
        state = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
        if kind == "cpu":
            torch.set_rng_state(state)
        elif torch.cuda.is_available():
            torch.cuda.set_rng_state(state)


def _line(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, CheckpointError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
