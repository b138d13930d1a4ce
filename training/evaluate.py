"""`python -m training.evaluate RUN`: held-out loss by source, and tasks.

What may live here: the command.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from manifests.reader import open_reader
from manifests.tokens import ManifestError
from training.checkpoint import CheckpointError
from training.commands import leave
from training.config import ConfigError
from training.passes import forward
from training.tables import table
from training.tasks import Outcome
from training.tasks import evaluate as evaluate_task
from training.trained import Trained, bytes_of_tokens, open_trained, tokenizer_of
from training.validate import Score, held_out, scores


def validation(trained: Trained, rows: int | None) -> list[Score]:
    """Held-out loss of each source, then of all."""
    held = held_out(
        open_reader(trained.manifest, live=not trained.manifest.shards),
        trained.objective,
        bytes_of_tokens(trained.manifest),
        micro_batch=trained.config.train.micro_batch or 8,
        most=rows,
    )
    names = trained.manifest.names
    sums = forward(trained.model, held.micros, len(names), trained.device)
    losses, labels = sums[1:].cpu().numpy().reshape(2, len(names))
    return scores(names, held, losses, labels)


def text(trained: Trained, held: list[Score], outcomes: list[Outcome]) -> str:
    """The tables."""
    parts = [f"step {trained.step:,} of {trained.config.run}"]
    if held:
        rows = [
            (
                score.source,
                f"{score.rows:,}",
                f"{score.labels:,}",
                f"{score.loss:.4f}",
                f"{score.perplexity:,.2f}",
                "" if score.bits_per_byte is None else f"{score.bits_per_byte:.4f}",
            )
            for score in held
        ]
        names = ("held out", "rows", "tokens", "loss", "perplexity", "bits per byte")
        parts.append(table(names, rows))
    if outcomes:
        lines = [
            (
                outcome.task,
                f"{outcome.questions:,}",
                f"{outcome.accuracy:.2%}",
                "" if outcome.normalised is None else f"{outcome.normalised:.2%}",
                f"{outcome.perplexity:,.4g}",
            )
            for outcome in outcomes
        ]
        head = ("task", "questions", "accuracy", "per byte", "perplexity")
        parts.append(table(head, lines))
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; gives its exit code."""
    parser = argparse.ArgumentParser(prog="training.evaluate", description="Held-out loss, tasks.")
    parser.add_argument("run", type=Path, help="the directory of a training run")
    parser.add_argument("--step", type=int, help="the checkpoint; the newest without it")
    parser.add_argument("--average", type=int, default=1, help="mean of the last N checkpoints")
    parser.add_argument("--rows", type=int, help="held-out rows of each source (all)")
    parser.add_argument("--tasks", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        trained = open_trained(given.run, given.step, given.average, given.device)
        with torch.no_grad():
            held = validation(trained, given.rows)
            tokenizer = tokenizer_of(trained.manifest) if given.tasks else None
            outcomes = [evaluate_task(trained, tokenizer, path) for path in given.tasks]
    except (CheckpointError, ConfigError, ManifestError) as error:
        print(f"training.evaluate: {error}", file=sys.stderr)
        return 2
    if given.json:
        own = [{"source": score.source, **score.record()} for score in held]
        record = {"step": trained.step, "validation": own, "tasks": [asdict(o) for o in outcomes]}
        print(json.dumps(record))
    else:
        print(text(trained, held, outcomes))
    return 0


if __name__ == "__main__":
    leave(main)
