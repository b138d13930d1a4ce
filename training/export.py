"""`python -m training.export RUN OUTPUT [--step N] [--average K] [--dtype bfloat16]`.

What may live here: writing a directory that transformers loads (Llama, or Qwen3 with `qk_norm`):
config.json, safetensors, the tokenizer and a model card. It appears whole or not at all, and the
same checkpoint gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manifests.files import sha256, write_bytes
from manifests.tokens import Manifest, ManifestError
from training import config as knobs
from training import llama
from training.checkpoint import CheckpointError, check
from training.commands import leave
from training.config import ConfigError
from training.weights import chosen, weights

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LARGEST = 5 * 10**9  # bytes of one safetensors file


class ExportError(ValueError):
    """What cannot be exported. One line."""


def export(
    run: Path,
    output: Path,
    step: int | None = None,
    average: int = 1,
    dtype: str = "float32",
    manifest: Path | None = None,
    largest: int = LARGEST,
) -> None:
    """Writes `output` of a checkpoint of a run, or of the mean of the `average` last ones up to it,
    as `weights.weights` finds them; `manifest`: where the run's manifest is now, if it has moved.

    Raises ExportError, CheckpointError, ManifestError, ConfigError, in one line.
    """
    if output.exists():
        raise ExportError(f"{output}: is there already")
    places = chosen(run, step, average)
    states = [check(place) for place in places]
    state = states[-1]
    if state["objective"] == "mlm":
        raise ExportError("objective.kind=mlm attends both ways, which Llama does not")
    data = _manifest(run, state, manifest)
    tensors = _converted(weights(run, step, average), state, DTYPES[dtype])
    building = output.parent / f".{output.name}.tmp"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    for name, record in _records(state, data, dtype).items():
        write_bytes(building / name, json.dumps(record, indent=2).encode() + b"\n")
    _safetensors(building, tensors, largest)
    shutil.copyfile(data.directory / data.tokenizer.path, building / "tokenizer.json")
    write_bytes(building / "README.md", card(run, states, data).encode())
    building.rename(output)


def _manifest(run: Path, state: Mapping[str, Any], place: Path | None) -> Manifest:
    """The manifest that a checkpoint names, with its tokenizer in place."""
    if place is None:
        if not (run / "config.yaml").exists():
            raise ExportError(f"{run}: no config.yaml that says where the manifest is; --manifest")
        place = Path(knobs.load(run / "config.yaml").data.manifest)
    manifest = Manifest.load(place)
    if manifest.digest != state["manifest"]:
        said = f"digest {manifest.digest}, the checkpoint is of {state['manifest']}"
        raise ExportError(f"{place}: {said}")
    path = manifest.directory / manifest.tokenizer.path
    if not path.exists() or sha256(path) != manifest.tokenizer.sha256:
        raise ExportError(f"{path}: not the tokenizer of the manifest")
    return manifest


# ---------------------------------------------------------------- weights


def _converted(
    whole: dict[str, Tensor], state: Mapping[str, Any], dtype: torch.dtype
) -> dict[str, Tensor]:
    """By Hugging Face's names, in their order; ours are let go on the way."""
    shape = llama.shape_of(state["model"])
    if shape.tied:
        del whole["head.out.weight"]
    found = {}
    for name in list(whole):
        for theirs, part in llama.cut(name, whole.pop(name), shape).items():
            found[theirs] = part.to(dtype).contiguous()
    return dict(sorted(found.items()))


def _safetensors(directory: Path, tensors: dict[str, Tensor], largest: int) -> None:
    """model.safetensors, or where it would be above `largest` bytes some files and their index."""
    try:
        from safetensors.torch import save_file
    except ImportError:
        raise ExportError("safetensors is not installed (pip install safetensors)") from None
    files: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if files[-1] and size + tensor.nbytes > largest:
            files.append({})
            size = 0
        files[-1][name] = tensor
        size += tensor.nbytes
    names = [f"model-{n + 1:05d}-of-{len(files):05d}.safetensors" for n in range(len(files))]
    if len(files) == 1:
        names = ["model.safetensors"]
    for name, own in zip(names, files, strict=True):
        save_file(own, directory / name, metadata={"format": "pt"})
        shutil.copymode(directory / "config.json", directory / name)  # it writes for the owner only
    if len(files) > 1:
        index = {
            "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
            "weight_map": {key: n for n, own in zip(names, files, strict=True) for key in own},
        }
        write_bytes(
            directory / "model.safetensors.index.json", json.dumps(index, indent=2).encode() + b"\n"
        )


# ---------------------------------------------------------------- what goes with them


def _records(state: Mapping[str, Any], manifest: Manifest, dtype: str) -> dict[str, Any]:
    """The JSON files, but for the tokenizer itself."""
    tokenizer = manifest.tokenizer
    ids = {
        "bos_token_id": tokenizer.bos,
        "eos_token_id": tokenizer.eos,
        "pad_token_id": tokenizer.pad,
    }
    by_id = {number: token for token, number in tokenizer.special.items()}
    special = {
        f"{name}_token": by_id[number]
        for name in ("bos", "eos", "pad", "mask")
        if (number := getattr(tokenizer, name)) in by_id
    }
    return {
        "config.json": {**llama.config_of(state["model"]), **ids, "torch_dtype": dtype},
        "generation_config.json": ids,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": state["model"]["context"],
            "clean_up_tokenization_spaces": False,
            **special,
        },
        "special_tokens_map.json": special,
    }


def card(run: Path, states: Sequence[Mapping[str, Any]], manifest: Manifest) -> str:
    """The model card: what it was trained on, so that it can be traced."""
    state = states[-1]
    steps = ", ".join(f"{one['step']:,}" for one in states)
    of = "step" if len(states) == 1 else f"mean of {len(states)} checkpoints, steps"
    seen = state["samples"] * manifest.sequence_length
    sources = "\n".join(
        f"| {source.name} | {source.license or 'not stated'} | {source.realised:.2%} |"
        for source in manifest.sources
    )
    taken = "a takedown of " + str(manifest.takedown.get("previous")) if manifest.takedown else None
    return f"""---
library_name: transformers
pipeline_tag: text-generation
---

# {run.resolve().name}

| | |
| --- | --- |
| run | {run.resolve().name}, {of} {steps} |
| objective | {state["objective"]}{_OBJECTIVES.get(state["objective"], "")} |
| tokens seen | {seen:,}, padding included ({state["samples"]:,} rows of \
{manifest.sequence_length:,}) |
| manifest | {manifest.name}, `{manifest.digest}`{f", {taken}" if taken else ""} |
| tokenizer | {manifest.tokenizer.size:,} entries, SHA-256 `{manifest.tokenizer.sha256}` |
| configuration | `{state["config"]}` |

## Sources

| source | licence | share of tokens |
| --- | --- | --- |
{sources}

Shares are those of the manifest's own mixture, padding not counted.

## Takedown

The manifest names every document that the model was trained on, with its URL and its place in the
archive that it is from. A document that is taken down from the manifest is no longer trained on
from then on, but the weights of runs before have seen it: whether this one has is told by the
digest of the manifest above, which changes with every takedown.
"""


_OBJECTIVES = {
    kind: "; here all attention is causal, while the prefix was seen both ways in training"
    for kind in ("prefix", "span")
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; gives its exit code."""
    parser = argparse.ArgumentParser(
        prog="training.export", description="Writes a checkpoint as transformers loads it."
    )
    parser.add_argument("run", type=Path, help="directory of a run, or of one checkpoint")
    parser.add_argument("output", type=Path, help="directory that is written; must not be there")
    parser.add_argument("--step", type=int, help="of this checkpoint; without: of the newest")
    parser.add_argument("--average", type=int, default=1, help="mean of so many last checkpoints")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--manifest", type=Path, help="where the manifest is, if it has moved")
    said = parser.parse_args(arguments)
    try:
        export(said.run, said.output, said.step, said.average, said.dtype, said.manifest)
    except (ExportError, CheckpointError, ManifestError, ConfigError) as error:
        print(f"training.export: {error}", file=sys.stderr)
        return 2
    print(said.output)
    return 0


if __name__ == "__main__":
    leave(main)
