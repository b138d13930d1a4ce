"""An index of earlier crawls: what a run reads of it, and what it adds (DESIGN section 7).

What may live here: the directory of an index, its batches, and the rules under which a run may use
it. What the arrays mean is the business of the global step.

    INDEX/
      index.json                      what the arrays are made with: others are refused
      batches/<number>-<name>-<origin>/
        batch.json                    of which run: origin, inputs, the batches that it read,
                                      files with their digests
        <array>-<task>.npy            as the run's exchange made them

Batches are added, never changed. Their numbers are their order: an earlier one comes first. A run
reads those that were there when it was planned (`indexes` in run.json), and adds its own when it is
done; started again from nothing, it knows its own batch by the origin and reads what that had read.
A takedown adds a batch of `tombstones` alone: the places of documents with which runs that are
planned later are not compared.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curation.stage import TOMBSTONE
from curation.storage import InputFile
from manifests.files import file_digest, write_bytes
from manifests.records import Output, canonical, digest_of

SCHEMA = 2
_NAME = re.compile(r"(\d{5})-.+-[0-9a-f]{12}")


class IndexUnusable(ValueError):
    """An index that a run cannot use; the message says why, in one line."""


@dataclass(frozen=True)
class Batch:
    """What one run has added. `files`: by array, in order; paths are relative to the batch."""

    path: Path
    origin: str
    inputs: frozenset[str]
    reads: tuple[str, ...]  # names of the batches that its run was compared with
    files: Mapping[str, tuple[Output, ...]]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def digest(self) -> str:
        """Of all that the arrays hold."""
        return digest_of({name: [f.digest for f in files] for name, files in self.files.items()})

    def arrays(self, name: str, check: bool) -> Iterator[Path]:
        """Paths of the files of an array. `check`: their bytes are held against the digests; raises
        IndexUnusable."""
        for output in self.files.get(name, ()):
            path = self.path / output.path
            if check and file_digest(path) != (output.digest, output.bytes):
                raise IndexUnusable(f"{path}: its bytes are not what they were")
            yield path

    @staticmethod
    def load(path: Path) -> Batch:
        """Raises IndexUnusable."""
        try:
            record = json.loads((path / "batch.json").read_bytes())
            files = {
                name: tuple(Output(**output) for output in outputs)
                for name, outputs in record["files"].items()
            }
            for outputs in files.values():
                for output in outputs:
                    if (path / output.path).stat().st_size != output.bytes:
                        raise IndexUnusable(f"{path / output.path}: its size is not what it was")
            inputs, reads = frozenset(record["inputs"]), tuple(record["reads"])
            return Batch(path, record["origin"], inputs, reads, files)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, IndexUnusable):
                raise
            raise IndexUnusable(f"{path}: damaged ({type(error).__name__})") from None


def batches(directory: Path, form: Mapping[str, Any]) -> list[Batch]:
    """The batches of an index, the earliest first; none where nothing lies there yet.

    Raises IndexUnusable where it was made otherwise than `form` says, or is damaged.
    """
    path = directory / "index.json"
    if not path.exists():
        # What a kill leaves of an index.json is hidden.
        if directory.is_dir() and any(not p.name.startswith(".") for p in directory.iterdir()):
            raise IndexUnusable(f"{directory}: not empty, and no index")
        return []
    try:
        record = json.loads(path.read_bytes())
        made = dict(record["form"])
        known = record["schema"] == SCHEMA
    except (OSError, ValueError, KeyError, TypeError):
        raise IndexUnusable(f"{path}: damaged") from None
    if not known:
        raise IndexUnusable(f"{path}: schema {record['schema']} is unknown to this version")
    for name in sorted({*made, *form}):
        if made.get(name) != form.get(name):
            raise IndexUnusable(
                f"{directory} was made with {name} {made.get(name)}, this run has {form.get(name)}"
            )
    folder = directory / "batches"
    names = sorted(p.name for p in folder.glob("*") if _NAME.fullmatch(p.name))
    return [Batch.load(folder / name) for name in names]


def readable(
    directory: Path, form: Mapping[str, Any], origin: str, files: Sequence[InputFile]
) -> tuple[str, ...]:
    """Names of the batches that a new run reads: all, or what it has read before.

    Raises IndexUnusable also where another run has added one of the same input files: all that is
    in them would be a duplicate of itself.
    """
    found: list[str] = []
    inputs = {identity(file) for file in files}
    for batch in batches(directory, form):
        if batch.origin == origin:
            return batch.reads
        if inputs & batch.inputs:
            raise IndexUnusable(
                f"{directory}: batch {batch.name} was made of the same input by another recipe; "
                "take another index, or remove that batch if nothing was deduplicated against it"
            )
        found.append(batch.name)
    return tuple(found)


def identity(file: InputFile) -> str:
    """What makes an input file the same one."""
    return digest_of([file.path, file.size, file.version])


def open_or_make(directory: Path, form: Mapping[str, Any]) -> list[Batch]:
    """The batches of an index, which is made if need be. Raises IndexUnusable."""
    try:
        known = batches(directory, form)
        if not (directory / "index.json").exists():
            record = {"schema": SCHEMA, "form": dict(form)}
            write_bytes(directory / "index.json", canonical(record) + b"\n")
        (directory / "batches").mkdir(exist_ok=True)
    except OSError as error:
        raise IndexUnusable(f"{directory}: cannot be written: {error.strerror}") from None
    return known


def publish(
    directory: Path,
    form: Mapping[str, Any],
    name: str,
    origin: str,
    files: Sequence[InputFile],
    reads: Sequence[str],
    arrays: Mapping[str, Sequence[tuple[Path, Output]]],
) -> Batch:
    """Adds what a run has made to an index, once. `arrays`: where each lies, and its receipt's
    output. Raises IndexUnusable where the same run has added something else before."""
    known = open_or_make(directory, form)
    digests = {array: [o.digest for _, o in outputs] for array, outputs in arrays.items()}
    for batch in known:
        if batch.origin == origin:
            if batch.digest != digest_of(digests):
                raise IndexUnusable(
                    f"{directory}: batch {batch.name} of this very run holds other documents "
                    "(units were incomplete then); an index is never rewritten"
                )
            return batch
    folder = directory / "batches"
    temporary = folder / f".{name}.{uuid.uuid4().hex[:12]}.tmp"
    temporary.mkdir()
    try:
        stored: dict[str, list[Any]] = {}
        for array, outputs in sorted(arrays.items()):
            for number, (source, output) in enumerate(outputs):
                target = temporary / f"{array}-{number:05d}.npy"
                _copy(source, target, output)
                stored.setdefault(array, []).append({**asdict(output), "path": target.name})
        record = {
            "schema": SCHEMA,
            "origin": origin,
            "inputs": sorted(identity(file) for file in files),
            "reads": list(reads),
            "files": stored,
        }
        write_bytes(temporary / "batch.json", canonical(record) + b"\n")
        number = max([0, *(int(batch.name[:5]) for batch in known)])
        while True:
            number += 1
            if any(folder.glob(f"{number:05d}-*")):
                continue
            target = folder / f"{number:05d}-{name}-{origin[:12]}"
            os.rename(temporary, target)
            return Batch.load(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def bury(directory: Path, ids: np.ndarray) -> int:
    """Adds tombstones for the documents with these ids (documents, 2), as records have them; how
    many there are. Raises IndexUnusable."""
    form = _form(directory)
    wanted = np.unique(_as_one(ids))
    found = [np.empty(0, TOMBSTONE)]
    for batch in batches(directory, form):
        for number, output in enumerate(batch.files.get("records", ())):
            if not output.rows:
                continue
            records = np.load(batch.path / output.path, mmap_mode="r")
            [at] = np.nonzero(np.isin(_as_one(records["id"]), wanted))
            tombs = np.zeros(len(at), TOMBSTONE)
            tombs["batch"], tombs["file"], tombs["doc"] = int(batch.name[:5]), number, at
            found.append(tombs)
    tombs = np.concatenate(found)
    if not len(tombs):
        return 0
    with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
        path = Path(folder) / "tombstones.npy"
        np.save(path, tombs)
        digest, size = file_digest(path)
        arrays = {"tombstones": [(path, Output(path.name, size, len(tombs), digest))]}
        publish(directory, form, "takedown", digest_of(["takedown", digest]), [], [], arrays)
    return len(tombs)


def _form(directory: Path) -> dict[str, Any]:
    """What an index says that its arrays are made with; nothing where none lies."""
    try:
        return dict(json.loads((directory / "index.json").read_bytes())["form"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError):
        raise IndexUnusable(f"{directory / 'index.json'}: damaged") from None


def _as_one(ids: np.ndarray) -> np.ndarray:
    """Ids of two uint64 as one value each."""
    return np.ascontiguousarray(ids, "<u8").view("V16").reshape(-1)


def _copy(source: Path, target: Path, output: Output) -> None:
    """A copy that is held against the receipt. Raises IndexUnusable."""
    shutil.copyfile(source, target)
    if file_digest(target) != (output.digest, output.bytes):
        raise IndexUnusable(f"{source}: its bytes are not those of the receipt")
    with target.open("rb+") as file:
        os.fsync(file.fileno())


def load(
    directory: Path, names: Sequence[str], array: str, check: bool
) -> Iterator[tuple[int, np.ndarray]]:
    """The arrays of these batches, memory-mapped, each with the place of its batch in `names`.

    `check`: as in `Batch.arrays`. Raises IndexUnusable.
    """
    for place, name in enumerate(names):
        for path in Batch.load(directory / "batches" / name).arrays(array, check):
            yield place, np.load(path, mmap_mode="r")
