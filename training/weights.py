"""Weights without their run: of one checkpoint or the mean of some, and as a beginning for another.

What may live here: finding checkpoints by the path of a run, reading whole parameters without a
process group, and `checkpoint.init_from`. Optimisers are left alone.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.tensor import DTensor

from manifests.files import sha256, write_bytes
from manifests.tokens import Manifest
from training import config as knobs
from training import llama
from training.checkpoint import (
    MARKER,
    CheckpointError,
    check,
    complete,
    described,
    on_first,
    parameters_of,
    place_of,
    set_parameters,
)
from training.config import ConfigError
from training.model import Shape, Transformer
from training.parallel import own_part
from training.world import World


def weights(run: Path | str, step: int | None = None, average: int = 1) -> dict[str, Tensor]:
    """Whole parameters (fp32, CPU) by their global names, a tied output matrix under both of its
    names: what `Transformer.load_state_dict` takes. Of a checkpoint, or the mean of the `average`
    last ones up to it; memory for the model once, twice for a mean. As `chosen` otherwise.
    """
    places = chosen(run, step, average)
    for place in places:
        check(place)
    total = _read(places[0])
    for place in places[1:]:
        for name, tensor in _read(place).items():
            total[name] += tensor
    for tensor in total.values():
        tensor /= len(places)
    total.setdefault("head.out.weight", total["embed.weight"])
    return total


def chosen(run: Path | str, step: int | None = None, average: int = 1) -> list[Path]:
    """The directories of the `average` last checkpoints up to `step` (null: the newest), ascending.
    `run`: the directory of a run, or of one checkpoint. Raises CheckpointError where there are
    fewer, or none of that step."""
    place = Path(run)
    if (place / MARKER).exists():
        found, steps = [place], [step]
    else:
        directory = place / "checkpoints"
        steps = [s for s in complete(directory) if step is None or s <= step]
        found = [place_of(directory, s) for s in steps if s is not None]
    if not found:
        raise CheckpointError(f"{place}: no complete checkpoint" + (f" of {step}" if step else ""))
    if step is not None and steps[-1] != step:
        raise CheckpointError(f"{place}: no complete checkpoint of step {step}")
    if len(found) < average:
        raise CheckpointError(f"{place}: {len(found)} checkpoints; the mean of {average} is wanted")
    return found[-average:]


def _read(place: Path) -> dict[str, Tensor]:
    """All parameters of a checkpoint, in fp32."""
    stored = FileSystemReader(place).read_metadata().state_dict_metadata
    tensors = {
        key.removeprefix("model."): torch.empty(known.size, dtype=known.properties.dtype)
        for key, known in stored.items()
        if key.startswith("model.") and isinstance(known, TensorStorageMetadata)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no process group, which is what is meant
        dcp_load({"model": tensors}, storage_reader=FileSystemReader(place), no_dist=True)
    return {name: tensor.float() for name, tensor in tensors.items()}


# ---------------------------------------------------------------- a beginning

#: What must be the same there and here; the context need not be, since positions have no weights.
_SIZES = ("layers", "dim", "heads", "kv_heads", "ffn", "vocab", "tied", "qk_norm")
_CONSTANTS = ("rope_theta", "norm_eps")


def begin_from(
    config: knobs.Config, shape: Shape, manifest: Manifest, model: Transformer, world: World
) -> dict[str, Any]:
    """Fills the model with the weights that `checkpoint.init_from` names, and notes in run.json
    where they are from; gives that note. Constants that differ are taken from the configuration,
    and are in the note as `changed`.

    Raises ConfigError where sizes or tokenizer are others.
    """
    source = Path(str(config.checkpoint.init_from))
    here = described(config, shape, manifest)
    hugging_face = (source / "config.json").exists()
    try:
        note = on_first(world, lambda: _note(source, hugging_face, here, manifest))
        if hugging_face:
            _fill_from_llama(source, shape, model)
        else:
            _fill(model, Path(note["from"]))
    except (CheckpointError, ValueError) as error:
        raise ConfigError(f"checkpoint.init_from: {error}") from None
    if world.first:
        path = Path(config.run) / "run.json"
        record = {**json.loads(path.read_bytes()), "init_from": note}
        write_bytes(path, json.dumps(record, indent=1).encode() + b"\n")
    return dict(note)


def _note(
    source: Path, hugging_face: bool, here: Mapping[str, Any], manifest: Manifest
) -> dict[str, Any]:
    """Where the weights are from, once they are found to fit (rank 0)."""
    if hugging_face:
        place, note = source, {}
        there = llama.model_of(json.loads((source / "config.json").read_bytes()))
        _same_tokenizer(source / "tokenizer.json", manifest)
    else:
        place = chosen(source)[-1]
        state = check(place)
        there, note = state["model"], {key: state[key] for key in ("step", "manifest")}
        if state["tokenizer"] != here["tokenizer"]:
            raise _other_tokenizer(state["tokenizer"], here["tokenizer"])
    for size in _SIZES:
        if there[size] != here["model"][size]:
            said = f"model.{size} is {there[size]} there, {here['model'][size]} here"
            raise CheckpointError(f"{place}: {said}")
    changed = {
        name: [there[name], here["model"][name]]
        for name in _CONSTANTS
        if there[name] != here["model"][name]
    }
    return {"from": str(place), **note, **({"changed": changed} if changed else {})}


def _same_tokenizer(path: Path, manifest: Manifest) -> None:
    """Raises CheckpointError where a tokenizer.json is another than the manifest's: other bytes,
    and another vocabulary, other merges or other added tokens, which decide what an id means."""
    if not path.exists():
        raise CheckpointError(f"{path}: not there, so that tokenizers cannot be compared")
    if (found := sha256(path)) != manifest.tokenizer.sha256:
        own = manifest.directory / manifest.tokenizer.path
        if _meaning(path) != _meaning(own):
            raise _other_tokenizer(found, manifest.tokenizer.sha256)


def _meaning(path: Path) -> list[Any]:
    record = json.loads(path.read_bytes())
    merges = [m.split(" ") if isinstance(m, str) else m for m in record["model"].get("merges", [])]
    added = sorted((token["id"], token["content"]) for token in record.get("added_tokens", []))
    vocabulary = record["model"]["vocab"] | {content: number for number, content in added}
    return [vocabulary, merges, added]


def _other_tokenizer(there: str, here: str) -> CheckpointError:
    return CheckpointError(f"another tokenizer: SHA-256 {there} there, {here} in the manifest")


def _fill(model: Transformer, place: Path) -> None:
    """Parameters of a checkpoint of ours, each rank reading what it holds."""
    parameters = parameters_of(model)
    dcp_load({"model": parameters}, storage_reader=FileSystemReader(place))
    set_parameters(model, parameters)


def _fill_from_llama(source: Path, shape: Shape, model: Transformer) -> None:
    """Parameters of a directory in Hugging Face's form, one whole parameter in memory at a time."""
    parameters = parameters_of(model)
    with ExitStack() as files, torch.no_grad():
        get = _stored(source, files)
        for name, target in parameters.items():
            whole = llama.joined(name, get, shape).to(target.dtype)
            if whole.shape != target.shape:
                said = f"{tuple(whole.shape)} there, {tuple(target.shape)} here"
                raise CheckpointError(f"{source}: {llama.theirs(name)[0]}: {said}")
            if isinstance(target, DTensor):
                target.to_local().copy_(own_part(whole, target))
            else:
                target.copy_(whole)
    set_parameters(model, parameters)


def _stored(source: Path, files: ExitStack) -> Callable[[str], Tensor]:
    """What gives the tensors of the *.safetensors files of a directory by their names."""
    try:
        from safetensors import safe_open
    except ImportError:
        raise CheckpointError(f"{source}: safetensors is not installed") from None
    by_name: dict[str, Any] = {}
    for path in sorted(source.glob("*.safetensors")):
        opened = files.enter_context(safe_open(path, framework="pt"))
        by_name |= dict.fromkeys(opened.keys(), opened)

    def get(name: str) -> Tensor:
        if name not in by_name:
            raise CheckpointError(f"{source}: no tensor {name} in its *.safetensors")
        tensor: Tensor = by_name[name].get_tensor(name)
        return tensor

    return get
