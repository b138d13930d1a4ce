"""The recipe of a tokens run: sources, tokenizer, rows, mixture, validation, shards.

What may live here: the models of such a recipe, and how a source becomes an input of the documents
run that reads it. Weights are numbers that a person writes; they are normalised and printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from curation.engine.recipe import (
    RecipeError,
    Size,
    StrictModel,
    nearest,
    parse_setting,
    parse_yaml,
    read_mapping,
)
from curation.tokens.encoding.runs import repeats
from curation.tokens.presets import PATTERNS

if TYPE_CHECKING:
    from curation.tokens.bpe import TrainOptions

Repeats = Annotated[tuple[tuple[int, int], ...], BeforeValidator(repeats)]
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class SourceModel(StrictModel):
    """One source of documents."""

    name: str = Field(pattern=_NAME)
    kind: Literal[
        "run", "parquet", "jsonl", "text", "wet", "datatrove", "code", "mediawiki", "latex", "books"
    ]
    run: str | None = None  # directory of a documents run (kind run)
    paths: tuple[str, ...] = ()  # files, globs, directories, URLs (other kinds)
    options: Mapping[str, Any] = {}  # of the reader, as in a documents recipe: {text: content}
    weight: float | None = Field(default=None, ge=0)  # share of tokens; normalised over all sources
    max_epochs: float = Field(default=4, gt=0)  # how often its rows may be seen (Muennighoff: 4)
    license: str | None = None
    repeat: Repeats = ((1, 1),)  # documents, by their duplicate_count

    @model_validator(mode="after")
    def _place(self) -> SourceModel:
        if self.kind == "run" and (not self.run or self.paths or self.options):
            raise ValueError("a source of kind run has `run`, a directory, and no paths or options")
        if own := {"kind", "paths", "source", "license"} & set(self.options):
            raise ValueError(f"options.{min(own)}: a key of the source, not of its options")
        if self.kind != "run" and (self.run or not self.paths):
            raise ValueError(f"a source of kind {self.kind} has `paths`, and no `run`")
        return self

    def input(self) -> dict[str, Any]:
        """The source as an input of a documents recipe."""
        if self.kind == "run":
            place = Path(self.run or "").resolve()  # `runs/latest` may point elsewhere tomorrow
            found: dict[str, Any] = {"kind": "parquet", "paths": [str(place / "documents")]}
        else:
            found = {**self.options, "kind": self.kind, "paths": list(self.paths)}
        return {**found, "source": self.name, "license": self.license}


class SpecialModel(StrictModel):
    """Special tokens that are reserved when a tokenizer is trained; null leaves one out."""

    eos: str = "<|endoftext|>"
    bos: str | None = None
    pad: str | None = "<|pad|>"
    mask: str | None = "<|mask|>"
    sentinels: int = Field(default=0, ge=0, le=1_000)  # <|sentinel_0|> ... (T5: 100)

    @field_validator("eos", "bos", "pad", "mask")
    @classmethod
    def _no_word(cls, value: str | None) -> str | None:
        """What is no single word of any preset: a word of this name could become an entry."""
        if value is not None and not re.fullmatch(r"[^\w\s].*\w.*[^\w\s]", value):
            raise ValueError("a name such as <|endoftext|>, </s> or [EOS] is wanted")
        return value


class TrainModel(StrictModel):
    """A byte-level BPE tokenizer that is trained."""

    vocab_size: int = Field(default=32_000, ge=257, le=10**7)  # entries, special tokens included
    pretokenizer: str = "llama3"  # how text is cut before merging
    sample: Size = 1_000_000_000  # bytes of text, drawn by the weights of the sources
    min_frequency: int = Field(default=2, ge=1, le=2**32)
    special: SpecialModel = SpecialModel()

    @model_validator(mode="after")
    def _known(self) -> TrainModel:
        if self.pretokenizer not in PATTERNS:
            raise ValueError(f"pretokenizer: one of {', '.join(sorted(PATTERNS))} is wanted")
        self.options()
        return self

    def options(self) -> TrainOptions:
        """The same for the trainer, which refuses what is not to be had."""
        from curation.tokens.bpe import TrainOptions

        said = self.model_dump(exclude={"sample", "special"})
        return TrainOptions(**said, **self.special.model_dump())


class TokenizerModel(StrictModel):
    """Either a tokenizer to train, or one to use."""

    train: TrainModel | None = None
    path: str | None = None  # a tokenizer.json, or the name of a model: tokenizer/gpt2
    eos: str | None = None  # of `path`: the token that ends documents, if it is not found
    bos: str | None = None  # of `path`: the token that begins documents, if they have one
    pad: str | None = None  # of `path`: the token of padding; <|pad|> is found by its name
    mask: str | None = None  # of `path`: the token of masked places; <|mask|> is found by its name
    add_bos: bool = False  # whether documents begin with the bos token

    @model_validator(mode="after")
    def _one(self) -> TokenizerModel:
        if (self.train is None) == (self.path is None):
            raise ValueError("either `train` or `path` is wanted")
        if self.train and (self.eos or self.bos or self.pad or self.mask):
            raise ValueError("special tokens of a tokenizer that is trained: in train.special")
        if self.train and self.add_bos and not self.train.special.bos:
            raise ValueError("add_bos: train.special.bos names no token")
        return self


class PackingModel(StrictModel):
    """How documents fill rows."""

    algorithm: Literal["best_fit", "concat"] = "best_fit"
    max_docs_per_row: int | None = Field(
        default=None, ge=1, le=1 << 22
    )  # pieces; null: a 16th of the row


class StageModel(StrictModel):
    """A stage of a curriculum: a share of all tokens, with weights of its own."""

    share: float = Field(gt=0, le=1)
    weights: Mapping[str, float]


class MixtureModel(StrictModel):
    """How much of which source, where the sources' own weights do not say it."""

    temperature: float | None = Field(default=None, gt=0)  # p ~ tokens^(1/T); 1: as they are
    stages: tuple[StageModel, ...] = ()


class ValidationModel(StrictModel):
    """Which documents are held out."""

    share: float | None = Field(default=None, gt=0, lt=1)  # of documents, by a hash of their id
    source: str | None = None  # or a whole source

    @model_validator(mode="after")
    def _one(self) -> ValidationModel:
        if (self.share is None) == (self.source is None):
            raise ValueError("either `share` or `source` is wanted")
        return self


class ShardsModel(StrictModel):
    """What is written besides the packed files of each source."""

    materialise: bool = True  # shards of the mixture; false leaves reading it live
    shard_rows: int = Field(default=32_768, ge=1)


class TokensModel(StrictModel):
    """A tokens recipe as written."""

    kind: Literal["tokens"]
    name: str = Field(pattern=_NAME)
    seed: int = Field(default=20, ge=0, lt=2**63)  # of validation, packing and order
    sources: tuple[SourceModel, ...] = Field(min_length=1)
    tokenizer: TokenizerModel
    sequence_length: int = Field(default=2048, ge=2, le=1 << 22)  # tokens of a row
    total_tokens: int | None = Field(
        default=None, ge=1, le=2**62
    )  # null: until a source has been seen once
    packing: PackingModel = PackingModel()
    mixture: MixtureModel = MixtureModel()
    takedown: str | None = None  # a list of ids and URLs whose documents are not read
    decontaminate: Mapping[str, Any] | None = None  # parameters of the stage
    dedup: tuple[Any, ...] = ()  # stages over all sources: [exact_dedup, {minhash_dedup: {...}}]
    validation: ValidationModel | None = None
    failure_ceiling: float = Field(default=0.02, ge=0, le=1)  # as in a documents recipe
    output: ShardsModel = ShardsModel()


@dataclass(frozen=True)
class TokensRecipe:
    """A resolved tokens recipe."""

    settings: TokensModel

    def resolved(self) -> dict[str, Any]:
        """The recipe with every default filled in, less the places of its sources: the listing is
        frozen in the corpus, and its wording must not matter."""
        plain = self.settings.model_dump(mode="json")
        plain["packing"]["max_docs_per_row"] = self.max_docs_per_row
        for source in plain["sources"]:
            del source["paths"], source["run"]
        return plain

    @property
    def names(self) -> list[str]:
        return [source.name for source in self.settings.sources]

    @property
    def max_docs_per_row(self) -> int:
        """Pieces that a row may have."""
        given = self.settings.packing.max_docs_per_row
        return given or max(8, self.settings.sequence_length // 16)

    def corpus(self) -> dict[str, Any]:
        """The documents recipe that reads, decontaminates and deduplicates all sources."""
        said = self.settings
        stages: list[Any] = []
        if said.validation is not None:
            held = {k: v for k, v in said.validation.model_dump().items() if v is not None}
            stages.append({"split": {**held, **({"seed": said.seed} if "share" in held else {})}})
        for number, entry in enumerate(said.dedup):
            named = {entry: {}} if isinstance(entry, str) else entry
            if not isinstance(named, Mapping) or len(named) != 1:
                raise RecipeError(
                    f"dedup[{number}]: the name of a stage is wanted, or {{name: {{}}}}"
                )
            [(name, given)] = named.items()
            if name not in ("exact_dedup", "minhash_dedup"):
                raise RecipeError(f"dedup: {name!r} is neither exact_dedup nor minhash_dedup")
            if not isinstance(given or {}, Mapping):
                raise RecipeError(f"dedup.{name}: a mapping of parameters is wanted")
            first = {"policy": "highest(split.validation)"} if said.validation else {}
            if first and "policy" in (given or {}):
                raise RecipeError(f"dedup.{name}.policy: validation documents come first here")
            stages.append({name: {**(given or {}), **first}})
        if said.decontaminate is not None:  # a benchmark on many copied pages is found by then
            stages.append({"decontaminate": dict(said.decontaminate)})
        return {
            "kind": "documents",
            "name": f"{said.name}-corpus"[:64],
            "seed": said.seed,
            "store": "kept",
            "failure_ceiling": said.failure_ceiling,
            "takedown": said.takedown,
            "input": [source.input() for source in said.sources],
            "stages": stages,
            "output": {"file_size": CORPUS_FILE},
        }


CORPUS_FILE = 48 * 10**6  # bytes on disk of a file of the corpus: what one task encodes


def is_tokens(source: str | Path | Mapping[str, Any]) -> bool:
    """Whether a recipe (a file or a mapping) says `kind: tokens`; not one that cannot be read."""
    if isinstance(source, Mapping):
        return source.get("kind") == "tokens"
    try:
        raw = parse_yaml(Path(source).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(raw, dict) and raw.get("kind") == "tokens"


def load(
    source: str | Path | Mapping[str, Any],
    inputs: Sequence[str] = (),
    settings: Iterable[str] = (),
) -> TokensRecipe:
    """Reads and validates a tokens recipe.

    `inputs` are the places of its only source; `settings` are `key.key=value` with YAML values,
    where a source is named by its name: `sources.web.weight=0.3`. Raises RecipeError.
    """
    raw = _read(source, "recipe")
    home = Path() if isinstance(source, Mapping) else Path(source).parent
    if isinstance(raw.get("sources"), str):
        listed = _read(_beside(raw["sources"], home), "sources")
        raw = {**listed, **{k: v for k, v in raw.items() if k != "sources"}}
    for setting in settings:
        _set(raw, setting)
    if inputs:
        _replace_places(raw, inputs)
    model = _validate(raw)
    _consistent(model)
    recipe = TokensRecipe(model)
    recipe.corpus()
    return recipe


def _beside(path: str, home: Path) -> Path:
    """A list of sources: beside the recipe, where it is run, or one that ships, by its name."""
    import manifests

    places = [home / path, Path(path), Path(manifests.__file__).parent / "sources" / f"{path}.yaml"]
    return next((place for place in places if place.is_file()), places[0])


def _read(source: str | Path | Mapping[str, Any], what: str) -> dict[str, Any]:
    if not isinstance(source, Mapping):
        return read_mapping(Path(source), what)
    try:
        return dict(json.loads(json.dumps(source)))
    except (TypeError, ValueError, RecursionError) as error:
        raise RecipeError(f"{what}: {error}") from None


def _set(raw: dict[str, Any], setting: str) -> None:
    key, value = parse_setting(setting)
    *steps, last = key.split(".")
    target: Any = raw
    for step in steps:
        if isinstance(target, list):
            named = [item for item in target if isinstance(item, dict) and item.get("name") == step]
            if not named:
                known = [item.get("name", "") for item in target if isinstance(item, dict)]
                raise RecipeError(
                    f"--set {key}: no source is called {step!r}{nearest(step, known)}"
                )
            target = named[0]
            continue
        if target.get(step) is None:
            target[step] = {}
        target = target[step]
        if not isinstance(target, (dict, list)):
            raise RecipeError(f"--set {key}: {step} is not a mapping")
    if isinstance(target, list):
        if value is not None or last not in [item.get("name") for item in target]:
            raise RecipeError(
                f"--set {key}: name a field of a source, as sources.NAME.weight; null for a source "
                "of the list leaves it out"
            )
        target[:] = [item for item in target if item.get("name") != last]
        return
    if steps[-1:] == ["tokenizer"] and last in ("path", "train"):
        target.pop("train" if last == "path" else "path", None)  # one stands for the other
    target[last] = value


def _replace_places(raw: dict[str, Any], inputs: Sequence[str]) -> None:
    sources = raw.get("sources")
    if not isinstance(sources, list) or len(sources) != 1 or not isinstance(sources[0], dict):
        raise RecipeError(
            "--input: the recipe has several sources; set sources.NAME.paths or sources.NAME.run"
        )
    if sources[0].get("kind") == "run":
        if len(inputs) != 1:
            raise RecipeError("--input: a source of kind run is one directory")
        sources[0]["run"] = inputs[0]
    else:
        sources[0]["paths"] = list(inputs)


def _validate(raw: Mapping[str, Any]) -> TokensModel:
    try:
        return TokensModel.model_validate_json(json.dumps(raw))
    except (TypeError, ValueError, RecursionError) as error:
        if not isinstance(error, ValidationError):
            raise RecipeError(f"recipe: {error}") from None
        raise RecipeError(_explain(error, raw)) from None


def _explain(error: ValidationError, raw: Mapping[str, Any]) -> str:
    """The first fault in one line, with the nearest right key."""
    fault = error.errors(include_url=False)[0]
    where: list[str] = []
    model: type[BaseModel] = TokensModel
    value: Any = raw
    for step in fault["loc"]:
        if isinstance(step, int) and isinstance(value, list):
            value = value[step] if step < len(value) else None
            named = value.get("name") if isinstance(value, dict) else None
            where[-1] += f"[{named if isinstance(named, str) else step}]"
            continue
        where.append(str(step))
        value = value.get(step) if isinstance(value, dict) else None
        field = model.model_fields.get(str(step))
        inner = re.findall(r"\w+Model", str(field.annotation)) if field else []
        model = globals().get(inner[0], model) if inner else model
    path = ".".join(where)
    if fault["type"] == "extra_forbidden":
        return f"{path}: unknown key{nearest(where[-1], model.model_fields)}"
    if fault["type"] == "missing":
        return f"{path}: this key is missing"
    message = fault["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if fault["type"] == "value_error":
        return f"{path or 'recipe'}: {message}"
    return f"{path or 'recipe'}: {message} (got {fault['input']!r})"


def _consistent(model: TokensModel) -> None:
    """Refuses what its parts do not agree on. Raises RecipeError."""
    names = [source.name for source in model.sources]
    for name in names:
        if names.count(name) > 1:
            raise RecipeError(f"sources: two are called {name!r}")
    held = model.validation.source if model.validation else None
    if held is not None and held not in names:
        raise RecipeError(f"validation.source: no source is called {held!r}{nearest(held, names)}")
    mixed = [source for source in model.sources if source.name != held]
    if not mixed:
        raise RecipeError("sources: all are held out for validation; nothing is left to train on")
    for source in model.sources:
        if source.name == held and source.weight is not None:
            raise RecipeError(f"sources[{held}].weight: it is validation and has no weight")
    given = [source for source in mixed if source.weight is not None]
    if given and len(given) < len(mixed):
        missing = next(source.name for source in mixed if source.weight is None)
        raise RecipeError(f"sources[{missing}].weight: others have one; give all a weight or none")
    ways = [bool(given), model.mixture.temperature is not None, bool(model.mixture.stages)]
    if sum(ways) > 1:
        raise RecipeError(
            "mixture: weights of sources, a temperature and stages: only one of them is wanted"
        )
    if given and not sum(source.weight or 0 for source in given):
        raise RecipeError("sources: all weights are 0")
    if sum(source.weight or 0 for source in given) == float("inf"):
        raise RecipeError("sources: the sum of the weights is too large for a number")
    own = [source.name for source in mixed]
    for number, stage in enumerate(model.mixture.stages):
        where = f"mixture.stages[{number}].weights"
        for name, weight in stage.weights.items():
            if name not in own:
                raise RecipeError(f"{where}: no source is called {name!r}{nearest(name, own)}")
            if weight < 0:
                raise RecipeError(f"{where}.{name}: a number of at least 0 is wanted")
        if not 0 < sum(stage.weights.values()) < float("inf"):
            raise RecipeError(f"{where}: all are 0, or their sum is too large for a number")
    if model.mixture.stages:
        total = sum(stage.share for stage in model.mixture.stages)
        if abs(total - 1) > 1e-6:
            raise RecipeError(f"mixture.stages: their shares sum to {total:g}, not to 1")
        for name in own:
            if not any(stage.weights.get(name) for stage in model.mixture.stages):
                raise RecipeError(f"mixture.stages: no stage has anything of source {name!r}")
    for source in mixed:
        if source.weight == 0:
            raise RecipeError(
                f"sources[{source.name}].weight: 0; leave the source out "
                f"(--set sources.{source.name}=null)"
            )
