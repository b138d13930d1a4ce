"""Where model files and lists come from.

What may live here: finding them on this machine and digesting them (this file), the card of a model
that is more than one file (`card.py`), the table of those that are known and how they are fetched,
and, in modules of their own, loading and training models. A stage names what it reads (`files`);
the engine puts the digests into its key and into the record of the run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from curation.models import card, table
from manifests.files import sha256

#: Where the models of this package lie.
SHIPPED = Path(__file__).parent / "shipped"

#: What trains a model whose name begins so, where none is published under it.
_TRAINED = {
    "kenlm": "curation models train-kenlm --language {language} --input TEXTS --output {name}",
    "quality": "curation models train-classifier --positive GOOD --negative BAD --output {name}",
}


class ModelNotFound(FileNotFoundError):
    """A model is not on this machine; the message is one line and says what to do: `command`."""

    def __init__(self, message: str, command: str = "") -> None:  # exceptions travel by `args`
        super().__init__(message)
        self.command = command


def directories() -> list[Path]:
    """Where models are looked for by name: GRISTMILL_MODELS (a search path), then the cache.

    What is fetched or trained goes into the first of them unless said otherwise.
    """
    named = os.environ.get("GRISTMILL_MODELS", "").split(os.pathsep)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [*(Path(part) for part in named if part), cache / "gristmill" / "models"]


def find(name: str | Path) -> Path:
    """The file or directory of a model given by path or by name.

    A path that exists is taken as it is; a name is looked for in `directories()`, then in the
    package that carries it, this one last. Raises ModelNotFound.
    """
    path = Path(name)
    if not str(name):
        raise ModelNotFound("a model without a name", "curation models list")
    if path.exists():
        if not (path.is_file() or path.is_dir()):  # a pipe or device, of which none sees an end
            raise ModelNotFound(f"model {name} is neither a file nor a directory")
        return path
    if not path.is_absolute():
        for directory in directories():
            if (directory / path).exists():
                return directory / path
    known = table.get(str(name))
    for place in _in_packages(known) if known else ():
        if place.exists():
            return place
    raise ModelNotFound(*_missing(str(name), known))


def _in_packages(entry: table.Entry) -> Iterator[Path]:
    """Where a model lies that an installed package carries, or this one."""
    if entry.package:
        spec = find_spec(entry.package.module)
        for root in (spec and spec.submodule_search_locations) or ():
            yield Path(root) / entry.package.path
    if entry.shipped:
        yield SHIPPED / entry.name


def _missing(name: str, known: table.Entry | None) -> tuple[str, str]:
    """What is said of a model that is not here, and the command that brings it."""
    kind, _, last = name.partition("/")
    if known:
        command = known.command
    elif kind in _TRAINED:
        language = last if 2 <= len(last) <= 3 else "TAG"
        command = _TRAINED[kind].format(language=language, name=name)
    else:
        place = f"put it into {directories()[0]}"
        where = "no such file in the working directory, no such name"
        return f"model {name} not found: {where}{table.nearest(name)}, or {place}", place
    return f"model {name} not found: {command}", command


def digest(path: str | Path) -> str:
    """SHA-256 of a file, in hex; of a directory that of its card, which names those of its files;
    of one without a card (lists) that of what `sha256sum` would say of all files in it.

    Remembered while size and modification time stay. Raises CardError for a directory whose files
    are not those of its card.
    """
    path = Path(path)
    if not path.is_dir():
        return _digest(path)
    if not (path / card.NAME).is_file():
        said = (f"{_digest(path / name)}  {name}\n" for name in _files(path))
        return hashlib.sha256("".join(said).encode("utf-8", "surrogateescape")).hexdigest()
    for name, wanted in card.read(path).files.items():
        if not (path / name).is_file():
            raise card.CardError(f"{path / name}: no such file, which {card.NAME} names")
        if _digest(path / name) != wanted:
            raise card.CardError(f"{path / name}: not the file that {card.NAME} names")
    return _digest(path / card.NAME)


def size(path: str | Path) -> int:
    """Bytes of a file, or of all files of a model or a folder of lists."""
    path = Path(path)
    files = [path / name for name in _files(path)] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _files(directory: Path) -> list[str]:
    """What belongs to a directory: the files of its card, else all."""
    if (directory / card.NAME).is_file():
        return list(card.read(directory).files)
    return sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file())


def _digest(path: Path) -> str:
    status = path.stat()
    return _digest_once(os.fspath(path), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest_once(path: str, size: int, mtime_ns: int) -> str:
    return sha256(path)
