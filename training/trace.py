"""`python -m training.trace RUN --step K [--rank R] [--sample S]`: what a step was made of.

What may live here: from a step to its samples, documents, URLs and places in WARC files. Nothing of
it was logged: a batch is a function of manifest and logs (data/batches.py), which are read again,
and the digest that was logged says that it is the same batch. Steps are counted from 1, as in the
logs; samples, rows, epochs and ranks from 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifests.logs import Logs
from manifests.tokens import Manifest, ManifestError
from manifests.trace import sequence
from training.commands import leave
from training.config import Config, ConfigError, load
from training.data.batches import Batches, digest
from training.data.replay import Replay
from training.world import sizes

_URL, _WORDS = 80, 90  # characters of a URL and of a text that a person is shown


@dataclass(frozen=True)
class Run:
    """A run as its directory says."""

    config: Config
    manifest: Manifest
    batches: Batches
    replay: Replay

    @staticmethod
    def open(run: Path, manifest: str | None = None) -> Run:
        """Raises ConfigError and ManifestError, in one line."""
        try:
            record = json.loads((run / "run.json").read_bytes())
        except (OSError, ValueError):
            raise ConfigError(f"{run}: no training run") from None
        config = load(run / "config.yaml")
        place = manifest or config.data.manifest
        found = Manifest.load(place)
        if found.digest != record["manifest"]:
            said = f"the run was of {record['manifest']}"
            raise ConfigError(f"{place}: manifest {found.digest}, {said}; see --manifest")
        replay = Replay.read(run)
        steps = max(len(replay.keys) - 1, 0)
        batches = Batches(found, config.data, Logs.read(run), config.train.batch, steps)
        return Run(config, found, batches, replay)

    @property
    def done(self) -> int:
        """The steps that it has logged."""
        return max(len(self.replay.keys) - 1, 0)

    def step_of(self, sample: int) -> int | None:
        """The step, from 1, that has a sample; None where it is skipped."""
        live = int(self.batches.logs.live(np.array([sample]))[0])
        return None if live < 0 else live // self.batches.size + 1

    def batch(self, step: int) -> dict[str, Any]:
        """Facts of a step's batch: its digest, and what was logged. Raises ConfigError for a step
        that was not run, ManifestError where the batch is not what was logged."""
        if not 1 <= step <= self.done:
            raise ConfigError(f"--step {step}: the run has done {self.done:,} steps, from 1 on")
        samples = self.batches.samples(step - 1)
        now = f"{digest(self.batches.take(samples), samples) & (1 << 64) - 1:016x}"
        self.replay.check(step, now, self.batches.key(step - 1))
        return {"step": step, "digest": now, "samples": samples.tolist()}


def start_of(run: Path, step: int) -> dict[str, Any]:
    """The start that ran a step, as events.jsonl says: `start`, its number, and `ranks`, how many
    it had. Empty where it does not say."""
    found: dict[str, Any] = {}
    place = run / "events.jsonl"
    for line in place.read_bytes().splitlines() if place.exists() else ():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # torn
        if event.get("event") == "start" and event.get("step", 0) < step:
            found = event
    return found


def ranks_of(config: Config, ranks: int) -> list[list[int]]:
    """The ranks, of so many, that see each row of a batch. Raises ConfigError where the
    configuration's layout is not of so many."""
    of = sizes(config.parallel, ranks)
    data_ranks = of["replicate"] * of["shard"]
    own = config.train.batch // data_ranks
    seen = [rank // of["tensor"] % data_ranks for rank in range(ranks)]  # world.DIMENSIONS
    return [
        [rank for rank in range(ranks) if seen[rank] == row // own]
        for row in range(config.train.batch)
    ]


def document_start(manifest: Manifest, provenance: dict[str, Any]) -> str | None:
    """How the text of a document begins; None where the corpus is not there."""
    try:
        with pq.ParquetFile(manifest.directory / provenance["file"], memory_map=True) as file:
            row = int(provenance["row"])
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if row < rows:
                    text = file.read_row_group(group, ["id", "text"]).slice(row, 1).to_pylist()[0]
                    own = text["id"] == provenance["id"]
                    return " ".join(str(text["text"][: 4 * _WORDS]).split()) if own else None
                row -= rows
    except (OSError, pa.ArrowException, KeyError, TypeError):
        pass
    return None


def trace(run: Run, sample: int) -> dict[str, Any]:
    """A sample of a run: where its row lies, and its pieces with their origin and text."""
    found = sequence(run.manifest, sample, run.batches.order)
    pieces = [
        {
            **{"id": p.id, "start": p.start, "length": p.length, "offset": p.offset},
            **{name: (p.provenance or {}).get(name) for name in _ORIGIN},
            "text": document_start(run.manifest, p.provenance) if p.provenance else None,
        }
        for p in found.pieces
    ]
    names = ("sample", "source", "epoch", "row", "file", "file_row", "shard", "shard_row")
    return {name: getattr(found, name) for name in names} | {
        "padding": found.padding,
        "pieces": pieces,
    }


_ORIGIN = ("url", "date", "license", "warc_file", "warc_offset", "warc_length")


def render(batch: dict[str, Any], samples: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The same for a person."""
    count = len(batch["samples"])
    yield f"step {batch['step']:,}: {count} samples, digest {batch['digest']} as logged"
    for one in samples:
        place = one["shard"] or one["file"]
        row = one["file_row"] if one["shard"] is None else one["shard_row"]
        ranks = ", ".join(map(str, one["ranks"] or ())) or "?"
        yield ""
        yield (
            f"sample {one['sample']:,}  rank {ranks}  {one['source']}  epoch {one['epoch']}  "
            f"row {one['row']:,}  ({place} row {row:,})"
        )
        width = len(f"{len(one['pieces']) and one['pieces'][-1]['start']:,}")
        for piece in one["pieces"]:
            start, length = f"{piece['start']:,}", f"{piece['length']:,}"
            indent = " " * (width + 12)
            yield (
                f"  {start:>{width}} +{length:<7} {piece['id']}  "
                f"{_cut(piece['url'] or 'no provenance', _URL)}"
            )
            if piece["warc_file"]:
                name = _cut(piece["warc_file"], _URL)
                yield f"{indent}{name} at {piece['warc_offset']:,}"
            if piece["text"]:
                yield indent + _cut(piece["text"], _WORDS, end=True)
        if one["padding"]:
            yield f"  {one['padding']:,} tokens of padding"


def _cut(text: str, most: int, end: bool = False) -> str:
    """On one line, harmless to a terminal; of a long one the `end` is left out, or else the middle,
    for both ends of a URL say something."""
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    if len(text) <= most:
        return text
    if end:
        return text[: most - 3] + "..."
    return text[: most * 2 // 3] + "..." + text[3 - most // 3 :]


def main(arguments: Sequence[str]) -> int:
    """The command; gives its exit code: 2 for what cannot be answered as it was asked, 1 where
    files are not what they were."""
    parser = argparse.ArgumentParser(
        prog="training.trace", description="What a step of a training run was made of."
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="directory of a training run")
    parser.add_argument("--step", type=int, metavar="K", help="a step, from 1, as in the logs")
    parser.add_argument("--sample", type=int, metavar="S", help="only this sample")
    parser.add_argument("--rank", type=int, metavar="R", help="only what this rank saw")
    parser.add_argument("--ranks", type=int, metavar="N", help="ranks of the start that ran it")
    parser.add_argument("--manifest", metavar="PATH", help="where the manifest is now")
    parser.add_argument("--json", action="store_true", help="a JSON object")
    options = parser.parse_args(arguments)
    if options.step is None and options.sample is None:
        parser.error("--step or --sample is wanted")
    try:
        run = Run.open(options.run, options.manifest)
        batch, samples = _wanted(run, options)
    except ConfigError as error:
        print(f"training.trace: {error}", file=sys.stderr)
        return 2
    except ManifestError as error:
        print(f"training.trace: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({**batch, "traced": samples}, indent=1))
    else:
        print("\n".join(render(batch, samples)))
    return 0


def _wanted(run: Run, options: argparse.Namespace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    step = options.step
    if options.sample is not None:
        if options.sample < 0 or (of := run.step_of(options.sample)) is None:
            said = "was skipped" if options.sample >= 0 else "there is no such sample"
            raise ConfigError(f"--sample {options.sample}: {said}{_why(run, options.sample)}")
        if step not in (None, of):
            raise ConfigError(f"--sample {options.sample}: is of step {of}, not {step}")
        step = of
    batch = run.batch(step)
    start = start_of(options.run, step)
    ranks = options.ranks or start.get("ranks")
    own_config = options.run / "configs" / f"{start.get('start', 0):05d}.yaml"
    config = load(own_config) if own_config.exists() else run.config
    seen: list[list[int]] | None = ranks_of(config, ranks) if ranks else None
    if options.rank is not None:
        if seen is None:
            raise ConfigError("--rank: the run does not say of how many; --ranks N does")
        if not 0 <= options.rank < (ranks or 0):
            raise ConfigError(f"--rank {options.rank}: there were {ranks}, from 0 on")
    found = []
    for row, sample in enumerate(batch["samples"]):
        own = seen[row] if seen else None
        if options.sample not in (None, sample):
            continue
        if options.rank is None or (own and options.rank in own):
            found.append({**trace(run, sample), "ranks": own})
    return batch, found


def _why(run: Run, sample: int) -> str:
    """The reason of a skip, with a comma before it."""
    for skip in run.batches.logs.skips:
        if skip.begin <= sample < skip.end:
            return f": {skip.reason}"
    return ""


if __name__ == "__main__":
    leave(lambda: main(sys.argv[1:]))
