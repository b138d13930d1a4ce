"""Loading fastText's files, safely.

What may live here: `load`, and what is known of the format. fastText does not notice that a file is
cut short (a copy that was interrupted, a full disk): it loops for ever, dies by a signal, or takes
for weights whatever its memory held. So the length that a file's header asks for is held against
the one it has, before fastText sees it.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

#: As fastText writes and reads them (`FastText::signModel`, `checkModel`).
_MAGIC, _VERSIONS = 793712314, (11, 12)
_ARGUMENTS = 12 * 4 + 8  # bytes: twelve int32 and a double
_ENTRY = 9  # bytes of a word's count and type, after its end
_CENTROIDS = 256 * 4  # bytes of a quantiser for each dimension


class DamagedModel(ValueError):
    """A file that is none of fastText's, or not all of it; the message is one line."""


def load(path: Path) -> Any:
    """The model of a file (.bin or .ftz). Raises DamagedModel."""
    from fasttext.FastText import load_model

    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            wanted, found = _Reader(data).length(), len(data)
        if wanted == found:
            return load_model(str(path))
    except (ValueError, struct.error):  # an empty file, another format, a header cut short
        raise DamagedModel(f"{path}: no fastText model, or not all of one") from None
    raise DamagedModel(f"{path}: {found:,} bytes, where its header asks for {wanted:,}")


class _Reader:
    """The parts of a file one after the other (`FastText::saveModel`), without their contents."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at = data, 0

    def length(self) -> int:
        """Bytes of the whole file by what it says itself. Raises ValueError, struct.error."""
        magic, version = self._read("2i")
        if magic != _MAGIC or version not in _VERSIONS:
            raise ValueError
        self._at += _ARGUMENTS
        words, _, _ = self._read("3i")
        _, pruned = self._read("2q")
        for _ in range(words):
            end = self._data.find(b"\0", self._at)
            if end < 0:
                raise ValueError
            self._at = end + 1 + _ENTRY
        self._at += max(pruned, 0) * 8
        [quantised] = self._read("?")
        self._quantised() if quantised else self._dense()
        [output] = self._read("?")
        self._quantised() if quantised and output else self._dense()
        return self._at

    def _read(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self._data, self._at)
        self._at += struct.calcsize(f"<{form}")
        return found

    def _dense(self) -> None:
        rows, columns = self._read("2q")
        self._at += rows * columns * 4

    def _quantised(self) -> None:
        norms, rows, _, codes = self._read("?2qi")
        self._at += codes
        self._quantiser()
        if norms:
            self._at += rows
            self._quantiser()

    def _quantiser(self) -> None:
        dimensions, _, _, _ = self._read("4i")
        self._at += dimensions * _CENTROIDS
