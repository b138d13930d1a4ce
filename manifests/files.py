"""Files that are whole or absent: written beside their place, synced, then renamed.

What may live here: atomic writes and digests of files on a local or shared file system.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from io import RawIOBase
from pathlib import Path
from typing import Any, Self

_CHUNK = 1 << 20  # bytes


def write_bytes(path: Path, data: bytes) -> None:
    """Replaces `path` by `data`, or leaves it as it was."""
    with AtomicFile(path) as file:
        file.write(data)


def file_digest(path: Path) -> tuple[str, int]:
    """BLAKE2b-128 (hex) and size (bytes) of a file, read once."""
    state, size = hashlib.blake2b(digest_size=16), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            state.update(chunk)
            size += len(chunk)
    return state.hexdigest(), size


def sha256(path: str | Path) -> str:
    """SHA-256 (hex) of a file, as others publish it."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class AtomicFile(RawIOBase):
    """A file to write once, in order; it appears under its name when closed without an error.

    `digest` and `size` hold for what was written. The temporary name starts with a dot, so that no
    pattern such as `part-*.parquet` sees an unfinished file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = path.parent / f".{path.name}.{uuid.uuid4().hex[:12]}.tmp"
        self._file = self._temporary.open("wb")
        self._state = hashlib.blake2b(digest_size=16)
        self.size = 0

    @property
    def digest(self) -> str:
        return self._state.hexdigest()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        written = len(memoryview(data).cast("B"))
        self._file.write(data)
        self._state.update(data)
        self.size += written
        return written

    def commit(self) -> None:
        """Makes the file durable and visible."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self.path)

    def discard(self) -> None:
        try:
            self._file.close()
        except OSError:
            pass  # what it still held does not fit the disk; it is not wanted any more
        finally:
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.discard()
