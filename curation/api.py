"""The Python form of the commands: `run` and its `Result`.

What may live here: what `from curation import run` gives a user. The command line calls the same.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from curation.engine.attempts import RunFailed
from curation.engine.driver import Outcome, Shard, drive
from curation.engine.executors import Executor, ExecutorLost, make, stdout_to_stderr
from curation.engine.plan import Plan, build
from curation.engine.progress import Progress
from curation.engine.recipe import Recipe, RecipeError, load
from curation.engine.resources import cores
from curation.engine.tokens import driver as tokens_driver
from curation.engine.tokens import plan as tokens_plan
from curation.engine.tokens import recipe as tokens_recipe
from curation.inspect.droptable import render
from curation.inspect.tokens import render as tokens_table
from curation.stage import GlobalStep
from manifests.tokens import Manifest

T = TypeVar("T")


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
    places = _places(inputs, limit)
    with contextlib.redirect_stdout(sys.stderr):  # what a user's module prints is no result
        resolved = load(recipe, places, settings)
        if index is not None:
            settings = [*settings, *indexing(resolved, str(index))]
            resolved = load(recipe, places, settings)
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
    if tokens_recipe.is_tokens(recipe):
        raise RecipeError("kind: tokens: `run_tokens` runs such a recipe")
    _check(executor, workers, retry)
    share = None if shard is None else Shard.parse(shard)
    work = plan(recipe, inputs=inputs, output=output, settings=settings, limit=limit, index=index)
    workers = workers or max(1, int(cores()))
    if executor == "inline":
        workers = min(workers, len(work.units))

    def go(engine: Executor) -> Outcome:
        return drive(
            *(work, engine, Progress(quiet), base, share),
            retry_incomplete=retry is not None,
            accept_collapse=accept_collapse,
        )

    outcome = _driven(go, executor, workers, address)
    ceiling = work.recipe.settings.failure_ceiling
    return Result(work.run, outcome.stats, outcome.unfinished, ceiling)


@dataclass(frozen=True)
class TokensResult:
    """A finished tokens run. `unfinished` as of a run of documents: of its sources."""

    path: Path
    manifest: Manifest
    unfinished: Mapping[str, str]

    @property
    def complete(self) -> bool:
        return not self.unfinished

    def table(self) -> str:
        """Sources, tokens, rows, weights and epochs, for a person."""
        return tokens_table(self.manifest)


def run_tokens(
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
    retry: Literal["incomplete"] | None = None,
    accept_collapse: bool = False,
    quiet: bool = True,
) -> TokensResult:
    """Runs or resumes a recipe of `kind: tokens`.

    `inputs` are the places of its only source; the others as in `run`. Raises RecipeError for wrong
    configuration, before any work but where only the tokens can tell (a source that would be seen
    more often than it may); RunFailed for the rest.
    """
    _check(executor, workers, retry)
    work, corpus = plan_tokens(recipe, inputs=inputs, output=output, settings=settings, limit=limit)

    def go(engine: Executor) -> tuple[Manifest, Outcome]:
        return tokens_driver.drive(
            *(work, corpus, engine, Progress(quiet), base),
            retry_incomplete=retry is not None,
            accept_collapse=accept_collapse,
        )

    manifest, outcome = _driven(go, executor, workers or max(1, int(cores())), address)
    return TokensResult(work.run, manifest, outcome.unfinished)


def plan_tokens(
    recipe: str | Path | Mapping[str, Any],
    *,
    inputs: str | Path | Sequence[str | Path] = (),
    output: str | Path | None = None,
    settings: Iterable[str] = (),
    limit: int | None = None,
) -> tuple[tokens_plan.TokensPlan, Plan]:
    """The plan of a tokens recipe and of its corpus; runs nothing. Raises RecipeError."""
    places = _places(inputs, limit)
    resolved = tokens_recipe.load(recipe, places, settings)
    with contextlib.redirect_stdout(sys.stderr):
        return tokens_plan.build(resolved, None if output is None else Path(output), limit)


def _places(inputs: str | Path | Sequence[str | Path], limit: int | None) -> list[str]:
    """The inputs as a recipe has them. Raises RecipeError for a limit that is none."""
    if limit is not None and limit < 1:
        raise RecipeError("limit: at least 1 is wanted")
    return [str(path) for path in ([inputs] if isinstance(inputs, (str, Path)) else inputs)]


def _check(executor: str, workers: int | None, retry: str | None) -> None:
    if executor not in ("inline", "ray"):
        raise RecipeError(f"executor: {executor!r} is neither 'inline' nor 'ray'")
    if workers is not None and workers < 1:
        raise RecipeError("workers: at least 1 is wanted")
    if retry not in (None, "incomplete"):
        raise RecipeError(f"retry: {retry!r} is not 'incomplete'")


def _driven(go: Callable[[Executor], T], executor: str, workers: int, address: str | None) -> T:
    """What a driver gives, with an executor that is closed afterwards."""
    with stdout_to_stderr(), contextlib.redirect_stdout(sys.stderr):
        try:
            engine = make(executor, workers, address)
        except ExecutorLost as error:
            raise RunFailed(str(error)) from None
        try:
            return go(engine)
        finally:
            engine.close()
