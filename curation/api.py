"""The Python form of the commands: `run` and its `Result`.

What may live here: what `from curation import run` gives a user. The command line calls the same.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from curation.engine.driver import RunFailed, Shard, drive
from curation.engine.executors import ExecutorLost, make, stdout_to_stderr
from curation.engine.plan import Plan, build
from curation.engine.progress import Progress
from curation.engine.recipe import Recipe, RecipeError, load
from curation.engine.resources import cores
from curation.inspect.droptable import render
from curation.stage import GlobalStep


@dataclass(frozen=True)
class Result:
    """A finished run."""

    path: Path
    stats: Mapping[str, Any]
    unfinished: Mapping[str, str]  # input -> incomplete or quarantined, with the reason
    failure_ceiling: float

    @property
    def complete(self) -> bool:
        return not self.unfinished

    @property
    def documents(self) -> Path:
        """The directory of the final Parquet files."""
        return self.path / "documents"

    def table(self) -> str:
        """The drop table, for a person."""
        return render(self.stats)


def plan(
    recipe: str | Path | Mapping[str, Any],
    *,
    inputs: str | Path | Sequence[str | Path] = (),
    output: str | Path | None = None,
    settings: Iterable[str] = (),
    limit: int | None = None,
    index: str | Path | None = None,
) -> Plan:
    """The plan of a recipe; runs nothing. Raises RecipeError."""
    if isinstance(inputs, (str, Path)):
        inputs = [str(inputs)]
    if limit is not None and limit < 1:
        raise RecipeError("limit: at least 1 is wanted")
    with contextlib.redirect_stdout(sys.stderr):  # what a user's module prints is no result
        resolved = load(recipe, [str(path) for path in inputs], settings)
        if index is not None:
            settings = [*settings, *indexing(resolved, str(index))]
            resolved = load(recipe, [str(path) for path in inputs], settings)
        for warning in resolved.warnings:
            print(f"curation: {warning}", file=sys.stderr)
        return build(resolved, None if output is None else Path(output), limit)


def indexing(recipe: Recipe, directory: str) -> list[str]:
    """The settings that give every stage which can have an index this one. Raises RecipeError."""
    found = [
        f"{spec.name}.index={json.dumps(directory)}"
        for spec in recipe.stages
        if "index" in type(spec.stage).model_fields and isinstance(spec.stage, GlobalStep)
    ]
    if not found:
        raise RecipeError("--index: no stage of the recipe has an index (minhash_dedup has)")
    return found


def run(
    recipe: str | Path | Mapping[str, Any],
    *,
    inputs: str | Path | Sequence[str | Path] = (),
    output: str | Path | None = None,
    base: str | Path | None = None,
    settings: Iterable[str] = (),
    executor: Literal["inline", "ray"] = "inline",
    workers: int | None = None,
    address: str | None = None,
    limit: int | None = None,
    shard: str | None = None,
    retry: Literal["incomplete"] | None = None,
    accept_collapse: bool = False,
    index: str | Path | None = None,
    quiet: bool = True,
) -> Result:
    """Runs or resumes a recipe.

    `inputs` replace the recipe's paths; `settings` are `key.key=value`; `base` is a run whose
    receipts are reused where their keys are the same; `workers` defaults to the processors of this
    machine; `limit` takes the first files of the listing only. `shard` `I/N` reads the I-th share
    of the units and stops there: when all shares are done, a run without it does the rest. `retry`
    reads again what could not be read to its end. `accept_collapse` goes on where deduplication
    removes more than the recipe's `collapse` allows. `index` is the directory of what earlier runs
    kept: near-duplicates of that are removed as well, and what this run keeps is added. Raises
    RecipeError before any work begins, RunFailed after.
    """
    if executor not in ("inline", "ray"):
        raise RecipeError(f"executor: {executor!r} is neither 'inline' nor 'ray'")
    if workers is not None and workers < 1:
        raise RecipeError("workers: at least 1 is wanted")
    if retry not in (None, "incomplete"):
        raise RecipeError(f"retry: {retry!r} is not 'incomplete'")
    share = None if shard is None else Shard.parse(shard)
    work = plan(recipe, inputs=inputs, output=output, settings=settings, limit=limit, index=index)
    workers = workers or max(1, int(cores()))
    if executor == "inline":
        workers = min(workers, len(work.units))
    with stdout_to_stderr(), contextlib.redirect_stdout(sys.stderr):
        try:
            engine = make(executor, workers, address)
        except ExecutorLost as error:
            raise RunFailed(str(error)) from None
        try:
            outcome = drive(
                *(work, engine, Progress(quiet), base, share),
                retry_incomplete=retry is not None,
                accept_collapse=accept_collapse,
            )
        finally:
            engine.close()
    ceiling = work.recipe.settings.failure_ceiling
    return Result(work.run, outcome.stats, outcome.unfinished, ceiling)
