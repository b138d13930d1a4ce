"""Filters and formatters of datatrove as stages: to move a pipeline one stage at a time.

What may live here: the editor `datatrove`, how it finds a class, and how it keeps one document from
touching the next.
"""

from __future__ import annotations

import copy
import difflib
import io
import json
import pickle
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from hashlib import blake2b
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from packaging.requirements import Requirement
from pydantic import Field, model_validator

from curation.datatrove import id_of, metadata_of
from curation.document import DOCUMENT_SCHEMA, Documents
from curation.stage import RAISED, Class, Edited, Editor, Rule

MISSING = "datatrove is not installed: pip install 'gristmill[datatrove]'"
#: The text that every step sees first.
FIRST = "The quick brown fox jumps over the lazy dog, and that is the whole of the story."
#: Bytes of an attribute, pickled, up to which every document has one of its own.
_OWN = 4096


class Datatrove(Editor):
    """Runs a filter or a formatter of datatrove, or a class of yours that is one of theirs.

    Each document is handed over as a `Document` with its text, its id (datatrove's own where it
    came from there) and its columns and metadata as datatrove names them. What a filter rejects is
    dropped for `rejected`, with the text that it came with; the filter's own reason is the signal
    `reason` (`rejected` where it gives none, null for what it keeps). A text that a filter or
    formatter changes is the new text. What it writes into `metadata` is lost: columns
    are filled by stages of ours. `run` is never called, nor are `exclusion_writer` and batches.

    A decision must not depend on the documents before (`PIIFormatter` takes its replacements in
    turn, `SamplerFilter` draws one number after the other). So each document meets the step in one
    state, that after a first document which is always the same: attributes of up to 4 kB are its
    own, and random numbers are drawn from its id and the parameters. Larger attributes and what
    cannot be pickled (models, word lists) are shared: do not run a step that counts in those.
    """

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (Rule("rejected", signal="reason", not_in="tolerate"),)
    types: ClassVar[Mapping[str, str]] = {"reason": "string"}

    type: str
    """Import path of the class: `datatrove.pipeline.filters.GopherQualityFilter`, or that of a
    subclass of `BaseFilter` or `BaseFormatter` in a file beside the recipe."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """What the class is constructed with."""
    tolerate: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Reasons of the filter for which a document is kept all the same, as it came."""

    @model_validator(mode="after")
    def _can_be_constructed(self) -> Self:
        self._step()
        return self

    def hosted(self) -> Class | None:
        """The class that `type` names, where it is not one of datatrove's own."""
        return None if self.type.startswith("datatrove.") else find(self.type)

    def depends(self) -> dict[str, str]:
        """The versions of datatrove and of the libraries that its filters work with."""
        return {"datatrove": metadata.version("datatrove"), **_libraries()}

    def edit(self, docs: Documents) -> Edited:
        """Each document by itself; what the step raises is raised."""
        from datatrove.data import Document

        step = self._step()
        names = [name for name in DOCUMENT_SCHEMA.names if name in docs]
        columns = [docs[name].to_pylist() for name in names]
        texts: list[str] = []
        reasons: list[str | None] = []
        for values in zip(*columns, strict=True):
            row = dict(zip(names, values, strict=True))
            document = Document(text=row["text"], id=id_of(row), metadata=metadata_of(row))
            kept, reason = step.apply(document, row["id"])
            texts.append(document.text if kept else row["text"])
            reasons.append(None if kept else str(reason or "rejected"))
        signals = {"reason": pa.array(reasons, pa.string())}
        return Edited(pa.array(texts, pa.large_string()), signals)

    def _step(self) -> _Step:
        return _construct(self.type, json.dumps(self.parameters, sort_keys=True))


class _Step:
    """A constructed filter or formatter, of which every document gets a fresh copy."""

    def __init__(self, step: Any, is_filter: bool, name: str) -> None:
        self._step = step
        self._is_filter = is_filter
        self._name = name

    def apply(self, document: Any, identity: str) -> tuple[bool, str | None]:
        """Whether the document is kept, and why not; it may be changed. `identity`: its id."""
        seed = blake2b(f"{self._name}\0{identity}".encode(), digest_size=8).digest()
        clone = copy.copy(self._step)
        vars(clone).update(_Unpickler(io.BytesIO(self._own), int.from_bytes(seed)).load())
        return self._run(clone, document)

    def _run(self, step: Any, document: Any) -> tuple[bool, str | None]:
        if not self._is_filter:
            document.text = step.format(document.text)
            return True, None
        result = step.filter(document)
        kept, reason = result if isinstance(result, tuple) else (result, None)
        return bool(kept), reason

    @cached_property
    def _own(self) -> bytes:
        """The attributes of which every document has its own, pickled together for what they share.

        The step does a document first: what it loads when needed is to be loaded once.
        """
        from datatrove.data import Document

        with suppress(*RAISED):  # if it is not for this one, the documents will tell
            self._run(self._step, Document(FIRST, "0" * 32, metadata={"url": "https://x.example/"}))
        return _pickled({key: value for key, value in vars(self._step).items() if _is_small(value)})


class _Pickler(pickle.Pickler):
    """Pickles attributes; a generator of random numbers is only noted."""

    def persistent_id(self, value: Any) -> Any:
        return "generator" if isinstance(value, np.random.Generator) else None


class _Unpickler(pickle.Unpickler):
    """Unpickles attributes; generators of random numbers begin at the seed."""

    def __init__(self, file: io.BytesIO, seed: int) -> None:
        super().__init__(file)
        self._seed = seed

    def persistent_load(self, pid: Any) -> np.random.Generator:
        return np.random.default_rng(self._seed)


def _pickled(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def _is_small(value: Any) -> bool:
    try:
        return len(_pickled(value)) <= _OWN
    except Exception:  # an open file, a lambda, a model: whatever its pickling raises
        return False


@lru_cache(maxsize=64)
def _construct(path: str, parameters: str) -> _Step:
    """The step of an import path and its parameters (JSON). Raises ValueError for both."""
    found = find(path)
    from datatrove.pipeline.filters.base_filter import BaseFilter

    try:
        step = found(**json.loads(parameters))
    except RAISED as error:
        what = str(error) or type(error).__name__
        raise ValueError(f"{path}: {what}") from None
    return _Step(step, issubclass(found, BaseFilter), f"{path}\0{parameters}")


def find(path: str) -> Class:
    """The class with this import path. Raises ValueError where it is no filter or formatter."""
    if find_spec("datatrove") is None:
        raise ValueError(MISSING)
    from datatrove.pipeline.filters.base_filter import BaseFilter
    from datatrove.pipeline.formatters.base import BaseFormatter

    module, _, name = path.rpartition(".")
    try:
        home = import_module(module)
    except ImportError as error:
        raise ValueError(f"type: {path}: {error}") from None
    except ValueError:
        raise ValueError(f"type: {path!r} is no import path (module.Class)") from None
    except RAISED as error:  # a user's own module does not run
        raise ValueError(f"type: {path}: {type(error).__name__}: {error}") from None
    steps = {
        key: value
        for key, value in vars(home).items()
        if isinstance(value, type) and issubclass(value, (BaseFilter, BaseFormatter))
    }
    if name in steps:
        return steps[name]
    if hasattr(home, name):
        raise ValueError(f"type: {path} is neither a filter nor a formatter of datatrove")
    close = difflib.get_close_matches(name, steps, n=1, cutoff=0.5)
    known = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(steps))}"
    raise ValueError(f"type: {module} has no {name!r}; {known}")


@lru_cache(maxsize=1)
def _libraries() -> dict[str, str]:
    """The versions of the installed libraries that datatrove names for filters and words."""
    found = {}
    for line in metadata.requires("datatrove") or []:
        requirement = Requirement(line)
        marker = str(requirement.marker)
        if 'extra == "processing"' in marker or 'extra == "multilingual"' in marker:
            try:
                found[requirement.name] = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                continue
    return found
