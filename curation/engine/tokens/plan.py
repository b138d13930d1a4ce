"""The plan of a tokens run: its corpus, its phases, and the files they will write.

What may live here: `run.json` of such a run, from which every worker rebuilds the same plan, and
where things lie. How many tasks a phase has is known only when the phase before it has ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from curation import models
from curation.engine import plan as documents
from curation.engine.plan import RUN_SCHEMA, Plan, Task, freeze_record, opened
from curation.engine.recipe import RecipeError
from curation.engine.recipe import load as load_documents
from curation.engine.tokens.recipe import SourceModel, TokensModel, TokensRecipe
from manifests.records import digest_of, origin_of

PHASES = (
    *("sample", "train", "report"),
    *("grams", "known", "shared", "common", "overlap"),
    *("encode", "pack", "scatter", "gather"),
)
#: Bumped when the tasks of a phase write other bytes for the same input and recipe.
VERSIONS = {name: 1 for name in PHASES}


@dataclass(frozen=True, eq=False)
class TokensPlan:
    """A resolved tokens run."""

    run: Path
    recipe: TokensRecipe
    tokenizer: Mapping[str, Any] = field(default_factory=dict)  # of a given one: path, sha256
    upstream: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by source

    @property
    def corpus(self) -> Path:
        """The documents run that reads the sources."""
        return self.run / "corpus"

    def directory(self, phase: str) -> Path:
        return self.run / "phases" / f"{PHASES.index(phase)}-{phase}"

    def receipts(self, phase: str) -> Path:
        return self.directory(phase) / "receipts"

    def receipt_of(self, task: Task) -> Path:
        return self.receipts(task.phase) / f"{task.name}.json"

    @property
    def trained(self) -> Path:
        """Where the tokenizer of the run lies, trained or copied."""
        return self.run / "tokenizer" / "tokenizer.json"

    def record(self) -> dict[str, Any]:
        """What `run.json` says."""
        return {
            "schema": RUN_SCHEMA,
            "kind": "tokens",
            "name": self.recipe.settings.name,
            "seed": self.recipe.settings.seed,
            "recipe": self.recipe.resolved(),
            "tokenizer": dict(self.tokenizer),
            "upstream": {name: dict(about) for name, about in self.upstream.items()},
        }

    @property
    def path(self) -> Path:
        return self.run / "run.json"


def build(
    recipe: TokensRecipe, run: Path | None, limit: int | None = None
) -> tuple[TokensPlan, Plan]:
    """The plan of a recipe, and that of its corpus; `run` None names the run after what it
    consumes. `limit`: only the first files of each source.

    Raises RecipeError for wrong configuration or sources that are not there.
    """
    tokenizer = _given(recipe)
    upstream = {s.name: _upstream(s) for s in recipe.settings.sources}
    named = load_documents(recipe.corpus())
    corpus = documents.build(named, Path("corpus"), limit)
    if run is None:
        identity = digest_of([recipe.resolved(), corpus.origin, tokenizer])
        run = Path("runs") / f"{recipe.settings.name}-{identity[:8]}"
    run = Path(os.path.abspath(run))
    plan = TokensPlan(run, recipe, tokenizer, upstream)
    return plan, replace(corpus, run=plan.corpus)


def _given(recipe: TokensRecipe) -> dict[str, Any]:
    """The tokenizer that a recipe names, looked at before any work. Raises RecipeError."""
    from curation.tokens.encoding.loaded import Named, TokenizerError, load

    said = recipe.settings.tokenizer
    if said.path is None:
        return {}
    try:
        path = Path(said.path) if Path(said.path).is_file() else models.find(said.path)
        if path.is_dir():
            path = path / "tokenizer.json"
        named = Named(eos=said.eos, bos=said.bos, pad=said.pad, mask=said.mask)
        loaded = load(path, named)
        if loaded.bos is None and said.add_bos:
            raise RecipeError("tokenizer.add_bos: no token begins documents; name it as bos")
        for warning in loaded.warnings:
            print(f"curation: {warning}", file=sys.stderr)
        return {"path": os.path.abspath(path), "sha256": models.digest(path)}
    except (TokenizerError, models.ModelNotFound, OSError) as error:
        raise RecipeError(f"tokenizer.path: {error}") from None


def _upstream(source: SourceModel) -> dict[str, Any]:
    """What a source is made of, for the manifest: of a run its name, digest and ledger."""
    run = source.run
    if source.kind != "run" or run is None:
        return {"kind": "files"}
    try:
        record = json.loads(Path(run, "run.json").read_bytes())
        stats = json.loads(Path(run, "stats.json").read_bytes())
    except (OSError, ValueError):
        raise RecipeError(
            f"sources[{source.name}].run: {run}: no complete documents run lies here "
            "(curation run makes one; other kinds of sources have `paths`)"
        ) from None
    if record.get("kind") == "tokens":
        raise RecipeError(
            f"sources[{source.name}].run: {run} is a tokens run; a run of documents is wanted"
        )
    about = {"kind": "run", "name": record["name"], "digest": origin_of(record), "stats": stats}
    return {**about, "seed": record["seed"], "models": record.get("models", {})}


def freeze(plan: TokensPlan) -> None:
    """Writes `run.json`; refuses a directory that holds something else. Raises RecipeError."""
    freeze_record(plan.run, plan.record(), _portable)


def _portable(record: dict[str, Any]) -> dict[str, Any]:
    """A record without the place of the tokenizer: its digest says which it is."""
    said = record.get("tokenizer") or {}
    return {**record, "tokenizer": {k: v for k, v in said.items() if k != "path"}}


@lru_cache(maxsize=8)
def _open(path: Path, version: int) -> TokensPlan:
    record = json.loads(path.read_bytes())
    if record["schema"] != RUN_SCHEMA or record.get("kind") != "tokens":
        raise RecipeError(f"{path.parent}: no tokens run lies here")
    for source in record["recipe"]["sources"]:  # their places are in the corpus
        source.update({"run": "."} if source["kind"] == "run" else {"paths": ["."]})
    model = TokensModel.model_validate_json(json.dumps(record["recipe"]))
    return TokensPlan(path.parent, TokensRecipe(model), record["tokenizer"], record["upstream"])


def open_tokens(run: str | Path) -> TokensPlan:
    """The plan of an existing tokens run. Raises RecipeError where there is none."""
    return opened(run, _open)


def kind_of(run: str | Path) -> str:
    """`tokens` or `documents`: what a run directory holds. What cannot be read counts as the
    latter, so that the usual error names it."""
    path = Path(os.path.abspath(run)) / "run.json"
    try:
        return _kind(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return "documents"


@lru_cache(maxsize=32)
def _kind(path: Path, version: int) -> str:
    record = json.loads(path.read_bytes())
    return "tokens" if isinstance(record, dict) and record.get("kind") == "tokens" else "documents"
