"""The directory of a run: what it is (`run.json`), and whether a start may go on with it.

What may live here: run.json, the configuration of each start, the lock, and the refusal of what a
resumed run may not change.

    RUN/run.json          what the run is: its identity (config.Config.identity), manifest, digests
        config.yaml       the configuration of the last start, resolved
        configs/00001.yaml                            of each start, by its number
        mixture.jsonl  skips.jsonl                    what a batch is a function of (data/logs.py)
        batches.jsonl  health.jsonl  operations.jsonl  events.jsonl          (metrics.py)
        checkpoints/  spikes/  plots/
"""

from __future__ import annotations

import fcntl
import json
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import torch

from manifests.files import write_bytes
from manifests.order import MOST_SAMPLES
from manifests.tokens import Manifest
from training import config as knobs
from training.config import ConfigError
from training.world import World

_PATIENCE = 5.0  # seconds; workers whose launcher was killed hold the lock until they are gone
_NAMES = {"batch": "train.batch", "z_loss": "train.z_loss"}  # knobs by their key in the identity


def open_run(config: knobs.Config, manifest: Manifest, world: World) -> int:
    """Makes the directory, or holds this start against what is there. The number of the start, from
    1, on all ranks. Raises ConfigError on all ranks, in one line that names the difference."""
    return world.by_first(lambda: _open(config, manifest))


def check_run(config: knobs.Config, manifest: Manifest) -> None:
    """Holds a configuration against the run that is there, if one is. Raises ConfigError."""
    run = Path(config.run)
    try:
        was = json.loads((run / "run.json").read_bytes())
        told, digest = {**_flat(knobs.Config().identity), **_flat(was["identity"])}, was["manifest"]
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"run: {run / 'run.json'} cannot be read: {error!r}") from None
    for name, value in _flat(config.identity).items():
        if told.get(name) != value:
            raise ConfigError(
                f"{name}: {value}, but {run} was begun with {told.get(name)}; "
                "go on with that, or choose another run"
            )
    if digest != manifest.digest:
        raise ConfigError(
            f"data.manifest: {config.data.manifest} has digest {manifest.digest}, but {run} was "
            f"begun with {digest} ({was.get('manifest_path')})"
        )


def lock(run: Path) -> IO[bytes]:
    """Keeps other starts out until the file is closed here and in all processes that have inherited
    it. Makes the directory. Raises ConfigError where another start has the run."""
    try:
        run.mkdir(parents=True, exist_ok=True)
        file = (run / ".lock").open("ab")
    except OSError as error:
        raise ConfigError(f"run: {run}: {error.strerror}") from None
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > until:
                file.close()
                raise ConfigError(f"run: {run} is being trained by another process") from None
            time.sleep(0.1)
        except OSError:
            return file  # a file system without locks, such as Lustre mounted so


def started(world: World) -> dict[str, Any]:
    """What the event of a start says of where it is."""
    return {"host": socket.gethostname(), "ranks": world.size, "torch": torch.__version__}


def steps_of(config: knobs.Config, length: int) -> int:
    """Steps of the whole run, for rows of so many tokens. Raises ConfigError for more than can be
    numbered."""
    steps, batch = config.train.steps, config.train.batch
    if steps is None:
        assert config.train.tokens is not None
        steps = -(-config.train.tokens // (batch * length))
    if steps * batch >= MOST_SAMPLES:
        said = f"{steps:,} steps of {batch:,} samples; {MOST_SAMPLES:,} samples are too many"
        raise ConfigError(f"train.steps: {said}")
    return steps


def _open(config: knobs.Config, manifest: Manifest) -> int:
    check_run(config, manifest)
    run = Path(config.run)
    try:
        (run / "configs").mkdir(parents=True, exist_ok=True)
        if not (run / "run.json").exists():
            record = {
                "identity": config.identity,
                "manifest": manifest.digest,
                "manifest_path": str(Path(config.data.manifest).resolve()),
                "tokenizer": manifest.tokenizer.sha256,
                "torch": torch.__version__,
                "begun": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            write_bytes(run / "run.json", json.dumps(record, indent=1).encode() + b"\n")
        starts = [place.stem for place in (run / "configs").glob("*.yaml")]
        number = 1 + max((int(stem) for stem in starts if stem.isdecimal()), default=0)
        for name in ("config.yaml", f"configs/{number:05d}.yaml"):
            write_bytes(run / name, knobs.dump(config).encode())
    except OSError as error:
        raise ConfigError(f"run: {run}: {error.strerror}") from None
    return number


def _flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity by the dotted names of its knobs."""
    found: dict[str, Any] = {}
    for key, value in identity.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{below}": said for below, said in value.items()}
        else:
            found[_NAMES.get(key, key)] = value
    return found
