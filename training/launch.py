"""`python -m training.launch [CONFIG.yaml|PRESET] [a.b=c ...]`: train, or go on.

What may live here: the command, its exit codes, and the checks before anything is started. Where
RANK is set (torchrun, or our own launcher) this process is a worker; else it starts its own.

Exit codes: 0 done; 1 failed; 2 a wrong configuration or manifest, in one line; 75 interrupted after
saving, so that a scheduler starts it again. torch is imported once a worker listens to signals.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import textwrap
import traceback
from collections.abc import Iterable
from pathlib import Path

import yaml

from manifests.files import write_bytes
from manifests.tokens import Manifest, ManifestError
from training import config as knobs
from training.config import Config, ConfigError, load
from training.stop import HOPELESS, INTERRUPTED, Failed, Interrupted, listen
from training.supervise import LAUNCHER, die_with_launcher, supervise


def main(arguments: list[str]) -> int:
    """The command; gives its exit code."""
    told = _parse(arguments)
    if told.knobs:
        print("\n".join(_knobs()))
        return 0
    words = told.words
    source = words[0] if words and "=" not in words[0] else None
    try:
        config = load(source, words[1:] if source else words)
        if "RANK" in os.environ:
            return _work(config)
        return _launch(config, told.dry_run, told.quiet)
    except (ConfigError, ManifestError) as error:
        return _said(error, 2)
    except OSError as error:  # a full disk, a directory that cannot be written to
        return _said(f"{error.filename}: {error.strerror}" if error.filename else error, 1)
    except KeyboardInterrupt:  # before there were workers
        return 128 + signal.SIGINT


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m training.launch", description="Trains a model.")
    add = parser.add_argument
    add("words", nargs="*", metavar="CONFIG.yaml|PRESET a.b=c", help="a file or preset, and knobs")
    add("--dry-run", action="store_true", help="check everything, print the plan, start nothing")
    add("--knobs", action="store_true", help="print all knobs and their defaults")
    add("--quiet", action="store_true", help="no progress; what is wrong is still said")
    return parser.parse_intermixed_args(arguments)


# ---------------------------------------------------------------- the launcher


def _launch(config: Config, dry: bool, quiet: bool) -> int:
    """Checks, then has the workers do it."""
    manifest = Manifest.load(config.data.manifest)
    workers = _workers(config)
    if dry:
        _check(config, manifest, workers, dry=True)
        from training.plan import describe

        print(describe(config, workers))
        return 0
    from training import run

    with run.lock(Path(config.run)) as held:
        _check(config, manifest, workers)
        if done := _finished(config, manifest):
            return _said(f"{config.run} is finished: {done} steps are done", 0)
        write_bytes(Path(config.run) / "config.yaml", knobs.dump(config).encode())
        listen(_leave)
        return supervise(config, workers, held, quiet)


def _early(number: int, frame: object) -> None:
    """Asked to stop while files are still looked at: nothing is to save, threads not awaited."""
    os._exit(_said("asked to stop before the first step", INTERRUPTED))


def _leave(number: int) -> None:
    raise SystemExit(128 + number)  # supervise kills the workers on its way out


def _workers(config: Config) -> int:
    """How many to start here. Raises ConfigError where there are not so many GPUs."""
    import torch

    gpus = 0 if config.parallel.device == "cpu" else torch.cuda.device_count()
    if config.parallel.device == "cuda" and not gpus:
        raise ConfigError("parallel.device: cuda, but there is no GPU here")
    workers = config.launch.workers or gpus or 1
    if gpus and workers > gpus:
        raise ConfigError(f"launch.workers: {workers}, but there are {gpus} GPUs here")
    return workers


def _check(config: Config, manifest: Manifest, ranks: int, dry: bool = False) -> None:
    """All that can be known before a worker is there; `dry` writes nothing. Raises ConfigError and
    ManifestError."""
    from training import run, world
    from training.data.consumption import refuse_repetition
    from training.data.files import Check
    from training.metrics import check_packages
    from training.model import Shape
    from training.objectives import Objective
    from training.plan import batches_of

    check_packages(config.log)
    run.check_run(config, manifest)
    world.divide(config, ranks)
    objective = Objective(config.objective, manifest.tokenizer, config.seed)
    Shape.of(config.model, manifest.tokenizer.size, objective.length(manifest.sequence_length))
    steps = run.steps_of(config, manifest.sequence_length)
    batches = batches_of(config, manifest, steps)
    refuse_repetition(batches, steps, config.data.max_epochs)
    files = Check(manifest, batches.files(), config.data.digests, Path(config.run), keep=not dry)
    while (problem := files.wait(5)) is None:
        pass
    if problem:
        raise ManifestError(problem)


def _finished(config: Config, manifest: Manifest) -> int:
    """The steps that are done, if they are all that are asked for; else 0."""
    from training.checkpoint import newest
    from training.run import steps_of

    done = newest(Path(config.run))
    return done if done >= steps_of(config, manifest.sequence_length) else 0


def _knobs() -> Iterable[str]:
    """Every knob with its default and what it does, in columns."""
    docs, rows = knobs.docs(), list(knobs.leaves(Config()))
    names = max(len(name) for name, _ in rows) + 2
    told = [yaml.safe_dump(value, default_flow_style=True).split("\n")[0] for _, value in rows]
    values = max(map(len, told)) + 2
    width = max(40, shutil.get_terminal_size((120, 24)).columns - names - values)
    for (name, _), value in zip(rows, told, strict=True):
        first, *others = textwrap.wrap(docs[name], width)
        yield f"{name:{names}}{value:{values}}{first}"
        yield from (" " * (names + values) + line for line in others)


# ---------------------------------------------------------------- a worker


def _work(config: Config) -> int:
    """A rank, of our own launcher or of torchrun."""
    die_with_launcher()
    listen(lambda number: os._exit(128 + number))
    from training import loop, run, world
    from training.checkpoint import CheckpointError

    if LAUNCHER not in os.environ and os.environ["RANK"] == "0":
        held = run.lock(Path(config.run))  # noqa: F841 (until this process ends)
    code = 0
    try:
        loop.main(config, world.join(config))
    except Interrupted as stopped:
        code = _said(stopped, INTERRUPTED) if os.environ["RANK"] == "0" else INTERRUPTED
    except (ConfigError, ManifestError) as error:
        code = _said(error, 2)
    except (Failed, CheckpointError) as error:
        code = _said(error, HOPELESS)
    except Exception:
        traceback.print_exc()
        code = 1
    if code in (0, INTERRUPTED):
        world.leave()
        return code
    sys.stderr.flush()
    os._exit(code)  # at once: to take leave of ranks that are lost can take for ever


def _said(line: object, code: int) -> int:
    """The code, once the line is printed."""
    print(f"training.launch: {line}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _early)
    sys.exit(main(sys.argv[1:]))
