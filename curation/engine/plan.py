"""The plan of a run: segments, units, keys, and the files they will write.

What may live here: how a recipe is cut into segments at its global steps, what each task is called
and consumes, and `run.json`, from which every worker rebuilds the same plan.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa

from curation import models
from curation.document import DOCUMENT_SCHEMA, SCHEMA_VERSION, Documents
from curation.engine import index
from curation.engine.chain import as_column
from curation.engine.listed import Sealed
from curation.engine.recipe import (
    CommonCrawlInput,
    Input,
    Recipe,
    RecipeError,
    StageSpec,
    load,
    nearest,
)
from curation.read import SUFFIXES
from curation.read.common_crawl import archives
from curation.read.span import Entry, Span
from curation.stage import RAISED, Editor, Filter, GlobalStep, Stage, rules_of
from curation.storage import InputError, InputFile, list_inputs
from manifests.files import write_bytes
from manifests.records import canonical, digest, digest_of

T = TypeVar("T")

RUN_SCHEMA = 1
#: Bumped when readers or the engine write other bytes for the same input and recipe.
ENGINE_VERSION = 6
MAX_RANGES = 1_000_000  # of one file

Kind = Literal["read", "exchange", "filter", "documents"]


@dataclass(frozen=True, slots=True)
class Unit:
    """One input file, or the records that start in a byte range of it: what a task reads.

    `span` is None for a whole file; `weight` the bytes that the unit reads; `member` says to which
    of the recipe's inputs the file belongs.
    """

    ordinal: int
    name: str
    input: InputFile
    span: Span | None = None
    member: int = 0

    @property
    def weight(self) -> int:
        if self.span is None or self.span.stop is None:
            return self.input.size or 0
        return self.span.stop - self.span.start

    @property
    def shown(self) -> str:
        """The unit for a person: its path, and the range where it is not the whole file."""
        if self.span is None:
            return self.input.path
        return f"{self.input.path}, bytes {self.span.start}-{self.span.stop}"

    @property
    def salt(self) -> int:
        """64 bits that tell this unit's rows from those of any other."""
        return int.from_bytes(hashlib.blake2b(self.name.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Segment:
    """Stages that run together in one task per unit, or the exchange of one global step.

    `removals` are the global steps whose decisions are applied first, `prepares` those that the
    segment ends with; an exchange has neither, but its `step`.
    """

    index: int
    kind: Kind
    name: str
    stages: tuple[StageSpec, ...]
    removals: tuple[StageSpec, ...]
    prepares: tuple[StageSpec, ...]
    step: StageSpec | None
    key: str = ""

    @property
    def directory(self) -> str:
        return f"segments/{self.index}-{self.name}-{self.key[:8]}"

    @property
    def applies(self) -> tuple[StageSpec, ...]:
        """The global steps whose decisions it applies: removals and edits, then scores."""
        return (*self.removals, *(s for s in self.stages if isinstance(s.stage, GlobalStep)))

    @property
    def accounts(self) -> list[str]:
        return [spec.name for spec in (*self.removals, *self.stages)]


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work: small enough to send, complete enough to run anywhere.

    `entry` is told where reading a byte range must begin, once that is known better than by a look.
    `piece` i of `pieces` does the i-th share of the documents alone, for lack of memory; piece
    number `pieces` joins what the others wrote. Where `base` is a run, the task takes from it what
    the stages before `start` did, and texts and signals from there on, instead of reading.
    """

    segment: int
    name: str
    key: str
    units: tuple[int, ...] = ()
    phase: str = ""
    part: int = 0
    parts: int = 1
    weight: int = 0  # bytes to be read, for the order and the progress
    memory: int = 0  # bytes that the task is expected to take at most
    entry: Entry | None = None
    piece: int = 0
    pieces: int = 0
    base: str = ""
    start: int = 0

    @property
    def is_piece(self) -> bool:
        """Whether the task does a share of a divided one."""
        return self.piece < self.pieces

    @property
    def joins(self) -> bool:
        """Whether the task joins the pieces of a divided one."""
        return 0 < self.pieces == self.piece

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Task:
        entry = plain["entry"]
        return Task(
            **{
                **plain,
                "units": tuple(plain["units"]),
                "entry": Entry(**entry) if entry else None,
            }
        )


@dataclass(frozen=True)
class Plan:
    """A resolved run: recipe, frozen listing, segments. Rebuilt from `run.json` by `open_plan`."""

    run: Path
    recipe: Recipe
    units: tuple[Unit, ...]
    segments: tuple[Segment, ...]
    types: Mapping[str, str]  # Arrow types of the signals, `<stage>.<signal>`
    indexes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # batches read, by step
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by stage and name
    previous: str = ""  # of a run that `curation takedown` has made: digest of the other's run.json

    def signal_types(self, segment: Segment) -> dict[str, pa.DataType]:
        names = set(segment.accounts)
        types = {
            column: pa.type_for_alias(alias)
            for column, alias in self.types.items()
            if column.partition(".")[0] in names
        }
        for spec in segment.removals:
            assert isinstance(spec.stage, GlobalStep)
            said = {"survivor": "string", **spec.stage.evidence}
            if spec.stage.edits:
                said = {"removed_bytes": "int64", **spec.stage.evidence}
            for name, alias in said.items():
                types[f"{spec.name}.{name}"] = pa.type_for_alias(alias)
        return types

    @cached_property
    def files(self) -> list[InputFile]:
        """The input files, each once."""
        return list(dict.fromkeys(unit.input for unit in self.units))

    @cached_property
    def origin(self) -> str:
        """What the run is made of and from; not where it lies, nor what an index had for it."""
        taken = [self.recipe.takedown.plain()] if self.recipe.takedown else []
        return digest_of([[s.key for s in self.segments], listing(self.recipe, self.units), *taken])

    def indexed(self) -> list[tuple[StageSpec, Path]]:
        """The global steps that have an index of earlier crawls, and where it lies."""
        return [
            (spec, Path(directory))
            for spec in self.recipe.stages
            if isinstance(spec.stage, GlobalStep) and (directory := spec.stage.index_directory())
        ]

    @cached_property
    def maps(self) -> list[Segment]:
        """The segments that documents pass through."""
        return [segment for segment in self.segments if segment.kind != "exchange"]

    def before(self, segment: Segment) -> Segment:
        """The segment whose texts this one reads."""
        return [other for other in self.maps if other.index < segment.index][-1]

    def exchange_of(self, step: StageSpec) -> Segment:
        return next(segment for segment in self.segments if segment.step == step)

    def receipt_path(self, segment: Segment, task: str) -> Path:
        return self.receipts(segment) / f"{task}.json"

    def receipt_of(self, task: Task) -> Path:
        """Where the receipt of a task lies; that of a piece lies beside what it wrote."""
        if task.is_piece:
            return self.pieces(task) / f"{task.piece}.json"
        return self.receipt_path(self.segments[task.segment], task.name)

    def pieces(self, task: Task) -> Path:
        """The directory of the pieces of a divided task; it is removed once they are joined."""
        return self.run / self.segments[task.segment].directory / "pieces" / task.name

    def receipts(self, segment: Segment) -> Path:
        """The directory of a segment's receipts."""
        return self.run / segment.directory / "receipts"

    def record(self) -> dict[str, Any]:
        """What `run.json` says."""
        homes = {home(spec.users) for spec in self.recipe.stages if spec.users is not None}
        return {
            "schema": RUN_SCHEMA,
            "name": self.recipe.settings.name,
            "seed": self.recipe.settings.seed,
            "recipe": self.recipe.resolved(),
            "import_path": sorted(homes),
            "inputs": listing(self.recipe, self.units),
            "signals": dict(self.types),
            "indexes": {name: list(batches) for name, batches in self.indexes.items()},
            "models": self.models,
            **self._taken(),
            "segments": [
                {
                    "index": segment.index,
                    "kind": segment.kind,
                    "name": segment.name,
                    "directory": segment.directory,
                    "key": segment.key,
                    "stages": segment.accounts,
                    "prepares": [spec.name for spec in segment.prepares],
                }
                for segment in self.segments
            ],
        }

    def _taken(self) -> dict[str, Any]:
        """What `run.json` says of a takedown, where there is one."""
        if self.recipe.takedown is None:
            return {}
        previous = {"previous": self.previous} if self.previous else {}
        return {"takedown": {"digests": self.recipe.takedown.plain(), **previous}}

    @property
    def path(self) -> Path:
        return self.run / "run.json"


def home(kind: type) -> str:
    """The directory from which a user's class was imported."""
    depth = kind.__module__.count(".")
    return str(Path(inspect.getfile(kind)).resolve().parents[depth])


def build(recipe: Recipe, run: Path | None, limit: int | None = None) -> Plan:
    """The plan of a recipe; `run` None names the run after what it consumes.

    Raises RecipeError for wrong configuration or inputs that are not there.
    """
    settings = recipe.settings
    units = units_of(recipe, [_listed(one, limit) for one in settings.inputs])
    segments = cut(recipe)
    types = probe(recipe)
    _signals_are_given(segments, types)
    if run is None:
        taken = [recipe.takedown.plain()] if recipe.takedown else []
        identity = digest_of(
            [recipe.resolved(), [s.key for s in segments], listing(recipe, units), *taken]
        )
        run = Path("runs") / f"{settings.name}-{identity[:8]}"
    plan = Plan(Path(os.path.abspath(run)), recipe, units, segments, types)
    return replace(plan, indexes=_indexes(plan), models=_models(recipe))


def _models(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Size and digest of the models and lists that each stage reads, by their names."""
    return {
        spec.name: {
            name: {"bytes": models.size(path), "sha256": models.digest(path)}
            for name, path in sorted(files.items())
        }
        for spec in recipe.stages
        if (files := spec.stage.files())
    }


class OtherModel(RecipeError):
    """A model or list on this machine is not the one that the run began with."""


def check_models(plan: Plan) -> None:
    """Makes sure that the models and lists of this machine are those that the run began with.

    Digests are remembered, so this is quick but for the first time in a process. Raises OtherModel.
    """
    for spec in plan.recipe.stages:
        recorded = plan.models.get(spec.name, {})
        try:
            here = spec.stage.files() if recorded else {}
            found = {name: models.digest(path) for name, path in here.items()}
        except RAISED as error:
            raise OtherModel(f"stage {spec.name}: on {platform.node()}: {error}") from error
        for name, said in recorded.items():
            if found.get(name) != said["sha256"]:
                raise OtherModel(
                    f"stage {spec.name}: {name} has sha256 {found.get(name)} on {platform.node()}; "
                    f"the run began with {said['sha256']}"
                )


def _indexes(plan: Plan) -> dict[str, tuple[str, ...]]:
    """What each global step with an index reads of it. Raises RecipeError."""
    found = {}
    users = {plan.run: "the run directory"}
    for spec, directory in plan.indexed():
        assert isinstance(spec.stage, GlobalStep)
        if directory in users:
            raise RecipeError(
                f"stage {spec.name}: index: {directory} is {users[directory]}: each has its own"
            )
        users[directory] = f"that of {spec.name}"
        try:
            form = spec.stage.index_form()
            found[spec.name] = index.readable(directory, form, plan.origin, plan.files)
        except index.IndexUnusable as error:
            raise RecipeError(f"stage {spec.name}: index: {error}") from None
    return found


def make_indexes(plan: Plan) -> None:
    """Makes sure, before any work, that the indexes can take what the run adds. Raises
    RecipeError."""
    for spec, directory in plan.indexed():
        assert isinstance(spec.stage, GlobalStep)
        try:
            index.open_or_make(directory, spec.stage.index_form())
        except index.IndexUnusable as error:
            raise RecipeError(f"stage {spec.name}: index: {error}") from None


def _listed(settings: Input, limit: int | None) -> list[InputFile]:
    """The files of an input, in order; the first `limit` of them. Raises RecipeError."""
    try:
        found = list_inputs(_patterns(settings), SUFFIXES[settings.reader], limit)
    except InputError as error:
        raise RecipeError(str(error)) from None
    files = sorted({replace(file, path=absolute(file.path)) for file in found})
    for file in files:
        if not _is_utf8(file.path):
            raise RecipeError(f"{file.path!r}: the name of this file is not UTF-8")
    return files


def units_of(recipe: Recipe, files: Sequence[Sequence[InputFile]]) -> tuple[Unit, ...]:
    """The units of a listing (the files of each input): input by input, file by file, and the byte
    ranges of files that are larger than a split.

    The ranges are cut evenly by the recipe's split size alone, never by who will read them. Raises
    RecipeError for more of a file than can be kept in mind (a server may announce any size), and
    for a file of two inputs: its documents would be there twice.
    """
    units: list[Unit] = []
    owners: dict[str, int] = {}
    for member, settings in enumerate(recipe.settings.inputs):
        split = getattr(settings, "split", None)
        for file in files[member]:
            name, size = unit_name(file.path), file.size or 0
            if (owner := owners.setdefault(file.path, member)) != member:
                raise RecipeError(f"input.{member}: {file.path} is a file of input.{owner} as well")
            ranges = -(-size // split) if split else 1
            if ranges > MAX_RANGES:
                raise RecipeError(
                    f"input.split: {split} bytes cut {file.path} ({size} bytes) into {ranges} "
                    f"ranges; at most {MAX_RANGES} are possible"
                )
            if ranges <= 1:
                units.append(Unit(len(units), name, file, None, member))
                continue
            for i in range(ranges):
                span = Span(i * size // ranges, (i + 1) * size // ranges)
                units.append(Unit(len(units), f"{name}-{i:05d}", file, span, member))
    return tuple(units)


def listing(recipe: Recipe, units: Sequence[Unit]) -> list[dict[str, Any]]:
    """The input files, each once; where the recipe has a list of inputs, with whose they are."""
    files = dict.fromkeys((unit.input, unit.member) for unit in units)
    listed = recipe.settings.listed
    return [asdict(file) | ({"member": member} if listed else {}) for file, member in files]


def _files_of(recipe: Recipe, entries: Sequence[Mapping[str, Any]]) -> list[list[InputFile]]:
    """The files of each input, from a listing."""
    found: list[list[InputFile]] = [[] for _ in recipe.settings.inputs]
    for entry in entries:
        file = {name: value for name, value in entry.items() if name != "member"}
        found[entry.get("member", 0)].append(InputFile(**file))
    return found


def _patterns(settings: Input) -> Sequence[str]:
    """What an input consists of. Raises InputError; RecipeError where it says nothing."""
    if isinstance(settings, CommonCrawlInput):
        files = None if settings.files == "all" else settings.files
        return archives(settings.base, settings.crawl, settings.subset, files, settings.seed)
    if not settings.paths:
        raise RecipeError("input.paths: no input given (name files, globs, directories or URLs)")
    return settings.paths


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def absolute(path: str) -> str:
    """A local path from the root; a URL as it is."""
    return path if "://" in path else os.path.abspath(path)


def unit_name(path: str) -> str:
    """A file name for what concerns one input: readable, and unique by the hash of the path."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", path.rstrip("/").rpartition("/")[2])[:60]
    return f"{stem}-{digest(path.encode())[:10]}"


def cut(recipe: Recipe, keys: Sequence[str] | None = None) -> tuple[Segment, ...]:
    """Cuts a recipe at its global steps: neighbouring ones take the same texts, but for those
    after one that edits. The last segment writes `documents/`.

    `keys` are those under which an existing run has its segments: it can be looked at also where a
    model, a library or a user's file is another one by now.
    """
    runs: list[tuple[list[StageSpec], list[StageSpec]]] = [([], [])]  # (stages, steps after them)
    for spec in recipe.stages:
        if isinstance(spec.stage, GlobalStep):
            if runs[-1][1] and edits(runs[-1][1][-1]):  # the text that it notes is another one
                runs.append(([], []))
            runs[-1][1].append(spec)
            if isinstance(spec.stage, Filter):  # its rules judge before the next step looks
                runs.append(([spec], []))
        elif runs[-1][1]:
            runs.append(([spec], []))
        else:
            runs[-1][0].append(spec)
    if runs[-1][1] or len(runs) == 1:
        runs.append(([], []))  # what applies the last steps, or only writes

    segments: list[Segment] = []
    removals: tuple[StageSpec, ...] = ()
    for position, (stages, steps) in enumerate(runs):
        kind: Kind = "filter"
        if position == len(runs) - 1:
            kind = "documents"
        if position == 0:
            kind = "read"
        name = kind if kind != "filter" else f"filter{position + 1}"
        segments.append(
            Segment(len(segments), kind, name, tuple(stages), removals, tuple(steps), None)
        )
        for step in steps:
            segments.append(Segment(len(segments), "exchange", step.name, (), (), (), step))
        removals = tuple(step for step in steps if not isinstance(step.stage, Filter))
    if keys is None:
        return tuple(replace(s, key=segment_key(recipe, s)) for s in segments)
    return tuple(replace(s, key=key) for s, key in zip(segments, keys, strict=True))


def _signals_are_given(segments: Sequence[Segment], types: Mapping[str, str]) -> None:
    """Refuses a global step that reads a signal which the segment before it does not give, or one
    that is no number (RecipeError)."""
    for segment in segments:
        prefixes = tuple(f"{spec.name}." for spec in segment.stages)
        given = [name for name in types if name.startswith(prefixes)]
        for spec in segment.prepares:
            assert isinstance(spec.stage, GlobalStep)
            for name in spec.stage.signals():
                if name not in given:
                    before = [*segment.removals, *segment.stages[:1]]
                    since = next((s.name for s in before if isinstance(s.stage, GlobalStep)), None)
                    stages = f"stages after {since}" if since else "stages before it"
                    raise RecipeError(
                        f"stage {spec.name}: it reads signals of the {stages}, and none has "
                        f"{name!r}{nearest(name, given)}"
                    )
                kind = pa.type_for_alias(types[name])
                if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                    raise RecipeError(
                        f"stage {spec.name}: signal {name!r} is {types[name]}: a number is wanted"
                    )


def edits(spec: StageSpec) -> bool:
    """Whether a stage is a global step that edits texts."""
    return isinstance(spec.stage, GlobalStep) and spec.stage.edits


def segment_key(recipe: Recipe, segment: Segment) -> str:
    """Digest of all that decides what the tasks of a segment write, but for what they read."""
    settings = recipe.settings
    own: list[Any] = [segment.kind, ENGINE_VERSION, SCHEMA_VERSION, version("pyarrow")]
    own.append(settings.seed)
    if segment.kind == "read":
        own.append(settings.store)
        # Of a list each unit's own input decides: one more leaves those of the others as they are.
        own.append("inputs" if settings.listed else settings.input_keys()[0])
    if segment.kind == "documents":
        own.append(settings.output.model_dump(mode="json"))
    for role in (segment.stages, segment.removals):
        own.append([[spec.name, *stage_key(spec)] for spec in role])
    step = (segment.step,) if segment.step else ()
    for role in (segment.prepares, step):  # whatever the rules of a step that scores decide
        own.append([[spec.name, stage_key(spec)[0]] for spec in role])
    return digest_of(own)


def stage_key(spec: StageSpec) -> tuple[str, str]:
    """Keys of a stage's scores and of its decisions: re-tuned thresholds change only the second."""
    stage = spec.stage
    rules = rules_of(stage)
    thresholds = {rule.parameter for rule in rules if rule.parameter}
    parameters = spec.parameters()
    scores = {k: v for k, v in parameters.items() if k not in thresholds | stage.places}
    decisions = {k: v for k, v in parameters.items() if k in thresholds}
    try:
        depends = {str(name): str(value) for name, value in stage.depends().items()}
        depends |= {f"file {name}": models.digest(path) for name, path in stage.files().items()}
    except RAISED as error:
        known = isinstance(error, (OSError, ValueError, LookupError)) and spec.users is None
        what = "" if known else f"depends: {type(error).__name__}: "
        raise RecipeError(f"stage {spec.name}: {what}{error}") from error
    if spec.users is not None:
        depends["source"] = _source_digest(spec.users)
    identity = [spec.type, stage.version, scores, depends]
    return digest_of(identity), digest_of([decisions, [asdict(rule) for rule in rules]])


def _source_digest(kind: type) -> str:
    """Of the file of a user's own class: an edit of the file is another stage."""
    try:
        return digest(Path(inspect.getfile(kind)).read_bytes())
    except (OSError, TypeError):
        return digest(kind.__qualname__.encode())


def probe(recipe: Recipe) -> dict[str, str]:
    """The Arrow types of all signals, found by scoring one small document.

    A stage that cannot score it is a wrong configuration: it is said before any work begins.
    """
    text = "The quick brown fox jumps over the lazy dog, and that is the whole of the story."
    docs = Documents(
        {
            "row": pa.array([0]),
            "id": pa.array(["0" * 32]),
            "text": pa.array([text], pa.large_string()),
            **{
                name: pa.array(["x"])
                for name in ("url", "date", "source", "crawl", "license", "language")
            },
            "metadata": pa.array(["{}"]),
            "language_score": pa.array([1.0]),
            "duplicate_count": pa.array([1]),
            "warc_file": pa.array(["x"]),
            "warc_offset": pa.array([0]),
            "warc_length": pa.array([0]),
        }
    )
    types: dict[str, str] = {}
    for spec in recipe.stages:
        try:
            types.update({f"{spec.name}.{k}": v for k, v in _probe_stage(spec.stage, docs).items()})
        except RecipeError as error:
            raise RecipeError(f"stage {spec.name}: {error}") from None
        except RAISED as error:
            known = spec.users is None and isinstance(error, ValueError | OSError)
            what = "" if known else f"{type(error).__name__}: "
            raise RecipeError(f"stage {spec.name}: {what}{error}") from None
    return types


def _probe_stage(stage: Stage, docs: Documents) -> dict[str, str]:
    """Types of the signals of one stage. Raises RecipeError, or whatever the stage raises."""
    if isinstance(stage, Filter):
        if isinstance(stage, GlobalStep):
            said = {name: pa.nulls(1, pa.type_for_alias(a)) for name, a in stage.evidence.items()}
            docs = docs.replace(**said)
        signals, adds = stage.score(docs), stage.adds
    elif isinstance(stage, Editor):
        edited = stage.edit(docs)
        signals, adds = edited.signals, {}
        if len(as_column(edited.text).cast(pa.large_string())) != 1:
            raise RecipeError(f"edit: {len(edited.text)} texts for one document")
    else:
        return {}
    columns = {name: as_column(values) for name, values in signals.items()}
    for name, column in columns.items():
        if len(column) != 1:
            raise RecipeError(f"signal {name!r}: {len(column)} values for one document")
    types = {name: stage.types.get(name, str(column.type)) for name, column in columns.items()}
    for name, alias in types.items():
        try:
            kind = pa.type_for_alias(alias)
        except (ValueError, TypeError):
            kind = None
        if kind is None or pa.types.is_null(kind) or pa.types.is_decimal(kind):
            raise RecipeError(
                f"signal {name!r} is {alias} for one document: numbers, strings and booleans are "
                "stored; name the type in `types` where one document cannot tell"
            )
        columns[name] = columns[name].cast(kind)
    names = [rule.name for rule in stage.rules]
    if len(set(names)) < len(names):
        raise RecipeError(f"rules: two are called {max(names, key=names.count)!r}")
    for rule in stage.rules:
        if rule.signal not in columns:
            raise RecipeError(f"rule {rule.name}: no signal is called {rule.signal!r}")
        if rule.parameter and rule.parameter not in type(stage).model_fields:
            raise RecipeError(f"rule {rule.name}: no parameter {rule.parameter!r}")
        rule.violated(columns[rule.signal], rule.threshold(stage, docs["language"]))
    for target, signal in adds.items():
        if target not in DOCUMENT_SCHEMA.names or target in ("id", "text", "duplicate_count"):
            raise RecipeError(f"adds: {target!r} is no document column that a filter may fill")
        if signal not in columns:
            raise RecipeError(f"adds: no signal is called {signal!r}")
        columns[signal].cast(DOCUMENT_SCHEMA.field(target).type)
    return types


def freeze(plan: Plan) -> None:
    """Writes `run.json`; refuses a directory that holds something else. Raises RecipeError."""
    freeze_record(plan.run, plan.record())


def freeze_record(
    run: Path,
    record: dict[str, Any],
    comparable: Callable[[dict[str, Any]], dict[str, Any]] = lambda record: record,
) -> None:
    """Writes the record of a run of any kind, or makes sure that it is there already, in what
    `comparable` leaves of it. Raises RecipeError."""
    path = run / "run.json"
    if path.exists():
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            raise RecipeError(f"{path}: damaged; remove it or choose another --output") from None
        difference = first_difference(comparable(found), comparable(record))
        if difference is not None:
            raise RecipeError(
                f"{run} holds another run: {difference}; choose another --output "
                f"(and --base {run} to reuse what it has)"
            )
        return
    if run.is_dir() and any(not p.name.startswith(".run.json.") for p in run.iterdir()):
        raise RecipeError(f"{run}: the output directory is not empty and holds no run")
    try:
        write_bytes(path, canonical(record) + b"\n")
    except OSError as error:
        raise RecipeError(f"{run}: cannot write the output: {error.strerror}") from None


def first_difference(old: Any, new: Any, path: str = "") -> str | None:
    """Where two records differ first, for a person; None where they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if key in ("import_path", "indexes"):
                continue
            found = first_difference(old.get(key), new.get(key), f"{path}.{key}" if path else key)
            if found:
                return found
        return None
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            found = first_difference(a, b, f"{path}[{index}]")
            if found:
                return found
        return None
    if old == new:
        return None
    shown = [json.dumps(value) for value in (old, new)]
    return f"{path} is {shown[0][:80]} there and {shown[1][:80]} here"


@lru_cache(maxsize=8)
def _open(path: Path, stamp: int) -> Plan:
    record = json.loads(path.read_bytes())
    if not isinstance(record, dict):
        raise ValueError("not a record of a run")
    if record.get("schema") != RUN_SCHEMA:
        raise RecipeError(f"{path}: schema {record.get('schema')} is unknown to this version")
    if record.get("kind") == "tokens":
        unfinished = "" if (path.parent / "manifest.json").is_file() else ", not finished yet"
        raise RecipeError(
            f"{path.parent} is a tokens run{unfinished} (curation status says how far it is); "
            f"the run of its documents is {path.parent / 'corpus'}"
        )
    for entry in record["import_path"]:
        if entry not in sys.path:
            sys.path.append(entry)
    taken = record.get("takedown")
    sealed = None if taken is None else Sealed(frozenset(taken["digests"]))
    recipe = replace(load(record["recipe"]), takedown=sealed)
    keys = [segment["key"] for segment in record["segments"]]
    units = units_of(recipe, _files_of(recipe, record["inputs"]))
    batches = {name: tuple(names) for name, names in record.get("indexes", {}).items()}
    segments = cut(recipe, keys)
    used = record.get("models", {})
    previous = "" if taken is None else taken.get("previous", "")
    return Plan(path.parent, recipe, units, segments, record["signals"], batches, used, previous)


def open_plan(run: str | Path) -> Plan:
    """The plan of an existing run. Raises RecipeError where there is none."""
    return opened(run, _open)


def opened(run: str | Path, read: Callable[[Path, int], T]) -> T:
    """What `read` makes of the record of a run, given its path and the time of its last change.
    Raises RecipeError where there is none, or a damaged one."""
    path = Path(os.path.abspath(run)) / "run.json"
    try:
        return read(Path(os.path.realpath(path)), path.stat().st_mtime_ns)
    except OSError:
        raise RecipeError(f"{run}: no run lies here (no run.json)") from None
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, RecipeError):
            raise
        raise RecipeError(f"{path}: damaged: {error}") from None


def tasks_of(
    plan: Plan, segment: Segment, consumed: Mapping[int, str], sizes: Sequence[int]
) -> list[Task]:
    """The tasks of a map segment. `consumed`: by unit ordinal, the digest of what it reads there;
    units that are not in it take no part. `sizes`: bytes to be read, by ordinal."""
    if segment.kind == "documents":
        target = plan.recipe.settings.output.file_size
        groups: list[list[int]] = []
        filled = 0
        for ordinal in sorted(consumed):
            other = groups and plan.units[ordinal].member != plan.units[groups[-1][-1]].member
            if not groups or other or filled + sizes[ordinal] > target:
                groups.append([])
                filled = 0
            groups[-1].append(ordinal)
            filled += sizes[ordinal]
        return [
            Task(
                segment.index,
                f"part-{number:05d}",
                digest_of([segment.key, [[plan.units[u].name, consumed[u]] for u in units]]),
                tuple(units),
                weight=int(sum(sizes[u] for u in units)),
            )
            for number, units in enumerate(groups)
        ]
    return [
        Task(
            segment.index,
            plan.units[ordinal].name,
            digest_of([segment.key, plan.units[ordinal].name, consumed[ordinal]]),
            (ordinal,),
            weight=int(sizes[ordinal]),
        )
        for ordinal in sorted(consumed)
    ]


def reading_tasks(plan: Plan) -> list[Task]:
    """The tasks of the first segment, one per unit."""
    consumed = {}
    sealed = plan.recipe.takedown
    taken = [] if sealed is None else [digest_of(sealed.plain())]
    keys = plan.recipe.settings.input_keys()
    for unit in plan.units:
        identity: list[Any] = [unit.input.path, unit.input.size, unit.input.version]
        if unit.span is not None:
            identity += [unit.span.start, unit.span.stop]
        if plan.recipe.settings.listed:
            identity.append(keys[unit.member])
        consumed[unit.ordinal] = digest_of([*identity, *taken])
    sizes = [unit.weight for unit in plan.units]
    return tasks_of(plan, plan.segments[0], consumed, sizes)
