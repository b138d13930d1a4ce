"""The recipe: a validated, frozen description of a run, read from YAML or a mapping.

What may live here: the models of a recipe, and errors that name the key and the nearest right one.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
)

from curation.engine.listed import ListError, Sealed, read_list
from curation.filters import thresholds
from curation.filters.language import LID_176, Language
from curation.filters.parameters import LIST, MAPPING, SINGLE
from curation.read import common_crawl
from curation.read.code import LANGUAGES
from curation.stage import (
    RAISED,
    Class,
    Editor,
    Filter,
    Rule,
    Stage,
    by_language,
    thresholds_of,
)
from curation.stages import STAGES
from curation.storage import COMMON_CRAWL


class RecipeError(ValueError):
    """A wrong recipe or usage: one line that names the key and, where there is one, the fix."""


class StrictModel(BaseModel):
    """Frozen; no unknown key, no value of another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def _bytes(value: Any) -> Any:
    """`512MB` -> 512000000."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?i?B)?\s*", value, re.IGNORECASE)
        if not match:
            raise ValueError("a size such as 512MB or 1GiB is wanted")
        return int(float(match[1]) * _UNITS[(match[2] or "B").upper()])
    return value


Size = Annotated[int, BeforeValidator(_bytes), Field(gt=0)]


class _Input(StrictModel):
    """What is known about all documents of an input, and how its files are read.

    `where` are the fields that say where the files lie: what a file gives does not depend on them.
    """

    where: ClassVar[frozenset[str]]

    kind: str
    source: str | None = None  # name of the source, as a document column
    license: str | None = None  # licence of the documents, as a document column

    @property
    def reader(self) -> str:
        """The kind that `curation.read` reads the files as."""
        return self.kind

    def options(self) -> dict[str, Any]:
        """The options of the reader."""
        known = {"kind", "source", "license", "crawl", "split"}
        return self.model_dump(exclude=known | self.where)

    def key(self) -> dict[str, Any]:
        """What decides the documents of a unit, but for the file and the bytes of it."""
        return self.model_dump(mode="json", exclude={"split", *self.where})


class _Files(_Input):
    """Files that the user names."""

    where = frozenset({"paths"})

    paths: tuple[str, ...] = ()  # files, globs, directories, URLs, lists of paths
    crawl: str | None = None  # name of the crawl, as a document column

    def crawl_of(self, path: str) -> str | None:
        """The crawl that a file belongs to, as a document column."""
        return self.crawl


class _Captures(StrictModel):
    """Which records of WARC archives are documents."""

    media_types: tuple[str, ...] = ("text/html", "application/xhtml+xml")  # that are documents
    truncated: Literal["keep", "drop"] = "keep"  # captures cut by the crawler or on the way
    max_body: Size = 32 << 20  # bytes of a decoded body; a larger one is skipped
    split: Size = 256 * 10**6  # bytes of a unit: a larger file is read in byte ranges


class WarcInput(_Files, _Captures):
    """WARC archives of HTTP responses."""

    kind: Literal["warc"]


class WetInput(_Files):
    """WET archives: text that Common Crawl has extracted."""

    kind: Literal["wet"]
    split: Size = 256 * 10**6  # bytes of a unit: a larger file is read in byte ranges


class _Rows(_Files):
    """Rows of named fields; the source is a part of their ids."""

    text: str = "text"
    id: str = "id"
    url: str = "url"

    def options(self) -> dict[str, Any]:
        return {**super().options(), "source": self.source}


class JsonlInput(_Rows):
    """JSON lines, plain, .gz or .zst. `text`, `id` and `url` name the fields."""

    kind: Literal["jsonl"]


class DatatroveInput(_Files):
    """JSON lines as datatrove writes them. `text` and `id` name the fields."""

    kind: Literal["datatrove"]
    text: str = "text"
    id: str = "id"

    def options(self) -> dict[str, Any]:
        return {**super().options(), "source": self.source}


class ParquetInput(_Rows):
    """Parquet tables. `text`, `id` and `url` name the columns; only the text must be there."""

    kind: Literal["parquet"]


class TextInput(_Files):
    """Plain text files."""

    kind: Literal["text"]
    per: Literal["file", "paragraph", "line"] = "file"  # what is one document


class MediawikiInput(_Files):
    """Dumps of MediaWiki (XML exports, plain, .gz, .bz2, .xz or .zst): wikitext as plain text."""

    kind: Literal["mediawiki"]
    namespaces: tuple[int, ...] = (0,)  # numbers of those that are read; 0 has the articles
    max_page: Size = 16 << 20  # bytes of a page as XML; a larger one is skipped

    def options(self) -> dict[str, Any]:
        return {**super().options(), "source": self.source}


class CodeInput(_Files):
    """Source trees: directories and archives (tar, zip), each a unit; one file is one document."""

    kind: Literal["code"]
    languages: tuple[str, ...] | None = None  # as Linguist has them; null: all but DATA
    max_file: Size = 1 << 20  # bytes of a file; a larger one is skipped

    @field_validator("languages")
    @classmethod
    def _known(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in value or ():
            if name not in LANGUAGES:
                raise ValueError(f"no language is called {name!r}{nearest(name, LANGUAGES)}")
        return value


class LatexInput(_Files):
    """LaTeX papers: directories and archives of sources, as arXiv has them; they stay LaTeX."""

    kind: Literal["latex"]
    max_paper: Size = 8 << 20  # bytes of a paper; a larger one is skipped


class BooksInput(_Files):
    """Books: .txt (with Project Gutenberg's frame or without) and .epub; directories, archives."""

    kind: Literal["books"]
    unwrap: bool = False  # whether the lines of a paragraph are joined
    max_file: Size = 64 << 20  # bytes of a book; a larger one is skipped


def _crawls(value: Any) -> Any:
    """One name or several, as a tuple."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names:
        raise ValueError("the name of a crawl, or a list of names, is wanted")
    for name in names:
        if not isinstance(name, str) or not common_crawl.CRAWL.fullmatch(name):
            raise ValueError(f"{name!r} is no crawl; such as CC-MAIN-2026-05 is wanted")
    if len(set(names)) < len(names):
        raise ValueError("a crawl is named twice")
    return tuple(names)


def _files(value: Any) -> Any:
    if value != "all" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError("a number of at least 1, or all, is wanted")
    return value


class CommonCrawlInput(_Input, _Captures):
    """Archives of Common Crawl, by the names of the crawls. `crawl` is a document column, too."""

    where = frozenset({"crawl", "files", "seed", "base"})

    kind: Literal["common_crawl"]
    crawl: Annotated[tuple[str, ...], BeforeValidator(_crawls)]  # which are read, in this order
    files: Annotated[int | Literal["all"], BeforeValidator(_files)]  # how many of each crawl
    seed: int = Field(default=0, ge=0, lt=2**63)  # of the choice of files
    subset: Literal["warc", "wet"] = "warc"  # captures, or the text that was extracted from them
    base: str = Field(default=COMMON_CRAWL, min_length=1)  # what paths are below: URL or directory

    @property
    def reader(self) -> str:
        return self.subset

    def options(self) -> dict[str, Any]:
        options = super().options()
        del options["subset"]
        return options

    def crawl_of(self, path: str) -> str | None:
        """The crawl that a file belongs to, as a document column."""
        return common_crawl.crawl_of(path)


Input = Annotated[
    WarcInput
    | WetInput
    | JsonlInput
    | DatatroveInput
    | ParquetInput
    | TextInput
    | MediawikiInput
    | CodeInput
    | LatexInput
    | BooksInput
    | CommonCrawlInput,
    Field(discriminator="kind"),
]


def _form(value: Any) -> str:
    return LIST if isinstance(value, (list, tuple)) else SINGLE


#: What a recipe reads: one input, or a list of them, each with a source of its own.
Inputs = Annotated[
    Annotated[Input, Tag(SINGLE)] | Annotated[tuple[Input, ...], Field(min_length=1), Tag(LIST)],
    Discriminator(_form),
]


class OutputModel(StrictModel):
    """The final files."""

    kind: Literal["parquet"] = "parquet"
    file_size: Size = 512 * 10**6  # bytes on disk that a file of documents/ aims at


class CollapseModel(StrictModel):
    """Beyond what a global step stops the run with its evidence; null switches a limit off.

    Only where a source, language or domain has at least `documents`. `--accept-collapse` goes on.
    """

    documents: int = Field(default=1_000, ge=1)  # that came to the step
    source: float | None = Field(default=0.1, ge=0, le=1)  # least share kept of a source
    language: float | None = Field(default=0.1, ge=0, le=1)  # least share kept of a language
    domain: float | None = Field(default=0.01, ge=0, le=1)  # least share kept of a host
    group: float | None = Field(default=0.1, ge=0, le=1)  # largest share that one stands for


class RecipeModel(StrictModel):
    """A recipe as written, before its stages are looked up."""

    kind: Literal["documents"]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    seed: int = Field(default=20, ge=0, lt=2**63)  # of samples
    store: Literal["all", "kept"] = "all"  # whose text is kept, to look at and to re-tune
    failure_ceiling: float = Field(default=0.02, ge=0, le=1)  # share of failed documents or units
    collapse: CollapseModel = CollapseModel()  # where deduplication stops the run
    input: Inputs
    takedown: str | None = None  # path of a list of ids and URLs that are not read
    thresholds: str | None = None  # by language: the name of a table, or the path of your own
    stages: tuple[Any, ...] = ()
    output: OutputModel = OutputModel()

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs in the order of the recipe: a unit says which one it is of."""
        return self.input if isinstance(self.input, tuple) else (self.input,)

    @property
    def listed(self) -> bool:
        """Whether the recipe has a list of inputs: there, the source that one names is that of
        all its documents, whatever they say themselves."""
        return isinstance(self.input, tuple)

    def input_keys(self) -> list[dict[str, Any]]:
        """Of each input what decides the documents of a unit, but for the file and the bytes."""
        more = {"listed": True} if self.listed else {}
        return [{**one.key(), **more} for one in self.inputs]


@dataclass(frozen=True)
class StageSpec:
    """A stage of a recipe under the name that it has there."""

    name: str
    type: str
    stage: Stage

    @property
    def users(self) -> Class | None:
        """The class of a user's file that is the stage (named `module:Class`) or does its work."""
        return type(self.stage) if ":" in self.type else self.stage.hosted()

    def parameters(self) -> dict[str, Any]:
        return self.stage.model_dump(mode="json")


@dataclass(frozen=True)
class Recipe:
    """A resolved recipe."""

    settings: RecipeModel
    stages: tuple[StageSpec, ...]
    warnings: tuple[str, ...] = ()  # one line each, for whoever starts it
    takedown: Sealed | None = None  # whose documents are not read

    def resolved(self) -> dict[str, Any]:
        """The recipe with every default filled in, less its input paths: the listing is frozen
        beside it, and its order or wording on the command line must not matter."""
        plain = self.settings.model_dump(mode="json")
        for section in _sections(plain["input"]):
            section.pop("paths", None)
        del plain["thresholds"]  # they are in the stages
        del plain["takedown"]  # what it lists is frozen beside the recipe, and says nothing
        plain["stages"] = [
            {spec.type: {**spec.parameters(), "as": spec.name}} for spec in self.stages
        ]
        return plain


def load(
    source: str | Path | Mapping[str, Any],
    inputs: Sequence[str] = (),
    settings: Iterable[str] = (),
) -> Recipe:
    """Reads and validates a recipe.

    `source` is a YAML file or a mapping; `inputs` replace the recipe's paths; `settings` are
    `key.key=value` with YAML values, where the first key is a field of the recipe or the name of a
    stage. Raises RecipeError.
    """
    raw = _read(source)
    settings = sorted(settings, key=lambda setting: not _names_table(setting))  # that comes first
    naming = sum(map(_names_table, settings))
    for setting in settings[:naming]:
        _set(raw, setting)
    table = _fill_in_table(raw)
    for setting in settings[naming:]:
        _set(raw, setting)
    if inputs:
        section = raw.setdefault("input", {})
        if isinstance(section, list):
            raise RecipeError(
                "--input: the recipe has a list of inputs, each with paths of its own "
                "(--set input.0.paths=[...])"
            )
        if not isinstance(section, dict):
            raise RecipeError("input: a mapping is wanted, such as {kind: warc, paths: []}")
        section["paths"] = list(inputs)
    _refuse_paths(raw.get("input"))
    model = _validate(RecipeModel, raw, "")
    assert isinstance(model, RecipeModel)
    stages = tuple(_stage(index, entry) for index, entry in enumerate(model.stages))
    names = [spec.name for spec in stages]
    for name in names:
        if names.count(name) > 1:
            raise RecipeError(f"stages: two stages are called {name!r}; name one with `as:`")
    encoded = [one.kind for one in model.inputs if one.reader in ENCODED]
    if encoded and not any(spec.type == "extract" for spec in stages):
        raise RecipeError(
            f"stages: input of kind {encoded[0]} needs the stage `extract`, which decodes it"
        )
    if encoded:
        for spec in stages[: [spec.type for spec in stages].index("extract")]:
            if spec.stage.needs_text:
                raise RecipeError(
                    f"stages: {spec.name} reads text and stands before `extract`, which makes it; "
                    "put it after (a stage that reads no text says `needs_text = False`)"
                )
    _languages_are_known(stages, len(encoded) == len(model.inputs))
    warnings = (*_foreign_scores(stages, table), *_english_rules(stages))
    return Recipe(model, stages, warnings, _takedown(model.takedown))


def _takedown(path: str | None) -> Sealed | None:
    """The list that a recipe names."""
    if path is None:
        return None
    try:
        return read_list(path).sealed()
    except ListError as error:
        raise RecipeError(f"takedown: {error}") from None


def _names_table(setting: str) -> bool:
    return setting.partition("=")[0] == "thresholds"


def _fill_in_table(raw: dict[str, Any]) -> thresholds.Table | None:
    """Writes the thresholds of the table that a recipe names into its stages, and returns it.

    What the recipe itself says of a parameter, or of a language of it, is stronger. Languages
    without a threshold in the table have the stage's default.
    """
    name = raw.pop("thresholds", None)
    if name is None:
        return None
    if not isinstance(name, str):
        raise RecipeError(f"thresholds: the name or path of a table is wanted (got {name!r})")
    try:
        table = thresholds.read(name)
    except ValueError as error:
        raise RecipeError(f"thresholds: {error}") from None
    for kind in table.stages:
        if ":" not in kind and kind not in STAGES:
            hint = nearest(kind, STAGES)
            raise RecipeError(f"thresholds: {name}: no stage is called {kind!r}{hint}")
    entries = raw.get("stages")
    used = False
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        kind, given = _entry(entry)
        if kind not in table.stages:
            continue
        used = True
        stage = _class(index, kind)
        known = thresholds_of(stage)
        filled: dict[str, Any] = {}
        for parameter, rows in table.stages[kind].items():
            if parameter not in known:
                hint = nearest(parameter, known)
                raise RecipeError(f"thresholds: {name}: {kind}.{parameter}: no threshold{hint}")
            filled[parameter] = _by_default(stage, parameter) | rows
        _validate(stage, filled, f"thresholds: {name}: {kind}.")
        own = _replace(raw, entry)
        for parameter, rows in filled.items():
            said = given.get(parameter, {})
            own[parameter] = {**rows, **said} if isinstance(said, dict) else said
    if not used:
        raise RecipeError(
            f"thresholds: {name} is about {', '.join(table.stages)}; the recipe has none of these"
        )
    return table


def _foreign_scores(stages: Sequence[StageSpec], table: thresholds.Table | None) -> Iterator[str]:
    """Warnings of cut-offs that were found with the scores of another language model."""
    for spec in stages:
        language = spec.stage
        if not isinstance(language, Language) or table is None or table.scores_of is None:
            continue
        if language.model == LID_176 and isinstance(language.min_score, Mapping):
            yield (
                f"{spec.name}.min_score: the thresholds {table.name} are for scores of "
                f"{table.scores_of}, and the model is {language.model}: set min_score or model"
            )


def _english_rules(stages: Sequence[StageSpec]) -> Iterator[str]:
    """Warnings of English rules that judge other languages which the stage `language` keeps."""
    finder: StageSpec | None = None
    for spec in stages:
        if isinstance(spec.stage, Language):
            finder = spec
        if finder is None:
            continue
        assert isinstance(finder.stage, Language)
        others = [tag for tag in finder.stage.keep or ["und"] if tag.split("-")[0] != "en"]
        judged = {tag: found for tag in others if (found := spec.stage.english(tag))}
        if judged:
            what, instead = next(iter(judged.values()))
            kept = ", ".join(judged) if finder.stage.keep else "every language"
            yield f"{spec.name}: {what}, but `{finder.name}` keeps {kept}: {instead}"


def _languages_are_known(stages: Sequence[StageSpec], encoded: bool) -> None:
    """Refuses what is said by language where a document's language is not known (yet)."""
    for place, spec in enumerate(stages):
        needing = spec.stage.needs_language()
        if not needing:
            continue
        finds = [i for i, s in enumerate(stages) if "language" in getattr(s.stage, "adds", ())]
        if finds and finds[-1] > place:
            raise RecipeError(
                f"{spec.name}.{needing[0]}: by language, before the stage "
                f"{stages[finds[-1]].name}, which finds the language; put it after"
            )
        if encoded and not finds:
            raise RecipeError(
                f"{spec.name}.{needing[0]}: by language, and no document has one: "
                "put the stage `language` before it"
            )


def _sections(given: Any) -> list[Any]:
    """The inputs of a recipe as written: one, or a list."""
    return given if isinstance(given, list) else [given]


def _refuse_paths(given: Any) -> None:
    for section in _sections(given):
        if not isinstance(section, dict) or section.get("kind") != "common_crawl":
            continue
        if "paths" in section:
            raise RecipeError(
                "input.paths: kind common_crawl finds its files by crawl and files; "
                "no paths are wanted"
            )


def _read(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(source, Mapping):
        # A JSON round trip copies it, and refuses what a recipe cannot say.
        try:
            copy = json.loads(json.dumps(source))
        except (TypeError, ValueError, RecursionError) as error:
            raise RecipeError(f"recipe: {error}") from None
        return dict(copy)
    path = Path(source)
    raw = read_mapping(
        path, "recipe", "a recipe is a mapping with the keys kind, name, input, stages"
    )
    sys_path = str(path.resolve().parent)
    if sys_path not in sys.path:
        sys.path.append(sys_path)  # a user's filters may lie beside the recipe
    return raw


def read_mapping(path: Path, what: str, wanted: str = "a mapping is wanted") -> dict[str, Any]:
    """The mapping in a YAML file. Raises RecipeError that names the file and the line."""
    try:
        raw = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RecipeError(f"{path}: cannot read the {what}: {reason}") from None
    except ValueError as error:
        raise RecipeError(f"{path}{error}") from None
    if not isinstance(raw, dict):
        raise RecipeError(f"{path}: {wanted}")
    return raw


def parse_setting(setting: str) -> tuple[str, Any]:
    """Key and value of `key.key=value`, whose value is YAML. Raises RecipeError."""
    key, separator, text = setting.partition("=")
    if not separator or not key:
        raise RecipeError(f"--set {setting}: key.key=value is wanted")
    try:
        return key, parse_yaml(text)
    except ValueError as error:
        raise RecipeError(f"--set {key}{error}") from None


def parse_yaml(text: str) -> Any:
    """The value of a YAML text. Raises ValueError with `:LINE: what is wrong` for any fault."""
    try:
        value = yaml.safe_load(text)
        json.dumps(value, default=str)  # aliases may make it endless
        return value
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f":{where.line + 1}" if where else ""
        problem = getattr(error, "problem", None) or "not YAML"
    except (ValueError, TypeError, RecursionError) as error:
        line, problem = "", str(error)
    raise ValueError(f"{line}: {' '.join(problem.split())[:200]}")


def _set(raw: dict[str, Any], setting: str) -> None:
    key, value = parse_setting(setting)
    head, *rest = key.split(".")
    target: Any = raw
    stages = raw.get("stages") or []
    if not isinstance(stages, list):
        raise RecipeError("stages: a list is wanted")
    if head not in RecipeModel.model_fields:
        for index, entry in enumerate(stages):
            kind, parameters = _entry(entry)
            if (parameters.get("as") or kind) == head and rest:
                target, head, rest = _replace(raw, entry), rest[0], rest[1:]
                stage = _class(index, kind)
                if rest and head in thresholds_of(stage):
                    # One language more: what was the threshold stays that of the others.
                    default = _by_default(stage, head)
                    target[head] = by_language(target[head]) if head in target else default
                break
        else:
            names = [p.get("as") or k for k, p in map(_entry, stages)]
            known = [*RecipeModel.model_fields, *names]
            raise RecipeError(f"--set {key}: no such field or stage{nearest(head, known)}")
    for step in rest:
        if isinstance(target, dict):
            target.setdefault(head, {})
        target = target[_place(target, head, key)]
        if not isinstance(target, (dict, list)):
            raise RecipeError(f"--set {key}: {head} is not a mapping")
        head = step
    target[_place(target, head, key)] = value


def _place(target: dict[str, Any] | list[Any], step: str, key: str) -> Any:
    """A step of a key as what it is in a mapping (a name) or in a list (a number from 0)."""
    if isinstance(target, dict):
        return step
    if not step.isdecimal() or int(step) >= len(target):
        raise RecipeError(f"--set {key}: {step!r} is no place in a list of {len(target)}")
    return int(step)


def _by_default(stage: type[Stage], threshold: str) -> dict[str, Any]:
    """What a kind of stage has for a threshold, as a mapping from languages."""
    field = stage.model_fields[threshold]
    return {} if field.is_required() else by_language(field.default)


def _replace(raw: dict[str, Any], entry: Any) -> dict[str, Any]:
    """Makes a stage's parameters a mapping of their own inside the recipe, and returns it."""
    kind, parameters = _entry(entry)
    own = dict(parameters)
    position = next(i for i, other in enumerate(raw["stages"]) if other is entry)
    raw["stages"][position] = {kind: own}
    return own


def _entry(entry: Any) -> tuple[str, dict[str, Any]]:
    """A stage entry as (type, parameters): `name` or `{name: {parameters}}`."""
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, dict) and len(entry) == 1:
        [(kind, parameters)] = entry.items()
        if isinstance(kind, str) and (parameters is None or isinstance(parameters, dict)):
            return kind, parameters or {}
    raise RecipeError(f"stages: {entry!r}: a stage is written `- name: {{parameter: value}}`")


def _stage(index: int, entry: Any) -> StageSpec:
    kind, parameters = _entry(entry)
    parameters = dict(parameters)
    name = parameters.pop("as", kind.rpartition(":")[2])
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise RecipeError(f"stages[{index}].as: {name!r} is no name (letters, digits, _)")
    stage = _validate(_class(index, kind), parameters, f"stages[{index}].{kind}.")
    assert isinstance(stage, Stage)
    return StageSpec(name, kind, stage)


def with_parameters(spec: StageSpec, parameters: Mapping[str, Any]) -> StageSpec:
    """The same stage with some parameters changed. Raises RecipeError."""
    changed = {**spec.parameters(), **parameters}
    stage = _validate(type(spec.stage), changed, f"{spec.name}.")
    assert isinstance(stage, Stage)
    return StageSpec(spec.name, spec.type, stage)


def _class(index: int, kind: str) -> type[Stage]:
    if ":" not in kind:
        if kind not in STAGES:
            raise RecipeError(
                f"stages[{index}]: no stage is called {kind!r}{nearest(kind, STAGES)}"
            )
        return STAGES[kind]
    if not kind.isprintable():
        raise RecipeError(f"stages[{index}]: {kind!r} is no name of a stage")
    module, _, name = kind.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as for any script
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RecipeError(f"stages[{index}]: {kind}: {error}") from None
    except RAISED as error:  # the user's own module does not run
        raise RecipeError(f"stages[{index}]: {kind}: {type(error).__name__}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Stage)):
        raise RecipeError(f"stages[{index}]: {kind} is not a stage (a subclass of curation.Filter)")
    if not isinstance(getattr(found, "version", None), int):
        raise RecipeError(f"stages[{index}]: {kind} has no `version` (an integer)")
    if issubclass(found, (Filter, Editor)):
        rules = getattr(found, "rules", None)
        if not isinstance(rules, tuple) or not all(isinstance(rule, Rule) for rule in rules):
            raise RecipeError(f"stages[{index}]: {kind} has no `rules` (a tuple of Rule)")
    return found


def _validate(model: type[BaseModel], raw: Mapping[str, Any], prefix: str) -> BaseModel:
    try:
        text = json.dumps(raw)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecipeError(f"{prefix.rstrip('.') or 'recipe'}: {error}") from None
    try:
        found = model.model_validate_json(text)
    except ValidationError as error:
        raise RecipeError(_explain(model, error, prefix)) from None
    for name, value in found.model_dump().items():
        numbers = value.values() if isinstance(value, dict) else [value]
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise RecipeError(f"{prefix}{name}: a finite number is wanted (None switches off)")
    return found


def _explain(model: type[BaseModel], error: ValidationError, prefix: str) -> str:
    """The first fault of a validation in one line."""
    fault = error.errors(include_url=False)[0]
    path = [str(step) for step in fault["loc"] if step not in UNSAID]
    fields: Iterable[str] = model.model_fields
    if path and path[0] == "input" and model is RecipeModel:
        kinds = {m.model_fields["kind"].annotation.__args__[0]: m for m in INPUTS}  # type: ignore[union-attr]
        for kind in [step for step in path[1:3] if step in kinds][:1]:
            fields = kinds[kind].model_fields
            path.remove(kind)
    elif path and path[0] == "output":
        fields = OutputModel.model_fields
    where = prefix + ".".join(path)
    if fault["type"] == "extra_forbidden":
        return f"{where}: unknown key{nearest(path[-1], fields)}"
    if fault["type"] == "missing":
        return f"{where}: this key is missing"
    if fault["type"] == "union_tag_invalid":
        return f"{where}.kind: {fault['input'].get('kind')!r} is none of {', '.join(kinds)}"
    if fault["type"] == "union_tag_not_found":
        return f"{where}.kind: this key is missing (one of {', '.join(kinds)})"
    message = fault["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if fault["type"] == "value_error" and not path:
        return f"{where.rstrip('.')}: {message}"
    return f"{where.rstrip('.')}: {message} (got {fault['input']!r})"


#: How files are read whose documents are bytes until `extract` has decoded them.
ENCODED = frozenset(("warc", "wet", "text"))

#: Steps of pydantic's locations that are no keys: the forms of parameters.
UNSAID = (SINGLE, LIST, MAPPING, "[key]")

INPUTS = (
    WarcInput,
    WetInput,
    JsonlInput,
    DatatroveInput,
    ParquetInput,
    TextInput,
    MediawikiInput,
    CodeInput,
    LatexInput,
    BooksInput,
    CommonCrawlInput,
)


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the nearest right name, or at all that there are."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"
