"""Megatron-LM's indexed data set: `.bin`, the tokens, and `.idx`, where each document lies.

What may live here: this one format. Facts from its reader, `megatron.core.datasets.indexed_dataset`
(version 1 of the index): magic, version (uint64), code of the dtype (uint8), number of sequences
(uint64), number of document bounds (uint64); then the length of each sequence (int32), its place in
`.bin` in bytes (int64), and the sequence with which each document begins (int64), with the number
of sequences as the last one. All little-endian.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from manifests.files import AtomicFile

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
#: The dtype that Megatron reads for ours, and its code. It knows no uint32, and ids of tokens are
#: far below 2**31.
DTYPES = {"uint16": ("<u2", 8), "uint32": ("<i4", 4)}
_CHUNK = 1 << 20  # documents whose index entries are made at once


def write(prefix: Path, parts: Iterable[tuple[np.ndarray, np.ndarray]], dtype: str) -> None:
    """Writes `prefix`.bin and `prefix`.idx, a sequence per document.

    `parts`: tokens and lengths of documents, some at a time; `dtype`: that of the manifest. The
    index appears last: where it is, the pair is whole. Memory is bounded by a part.
    """
    prefix.parent.mkdir(parents=True, exist_ok=True)
    code, number = DTYPES[dtype]
    # The index wants all lengths before the first place: they are noted meanwhile.
    with tempfile.TemporaryFile(dir=prefix.parent) as noted:
        with AtomicFile(prefix.with_name(prefix.name + ".bin")) as file:
            for tokens, lengths in parts:
                file.write(np.ascontiguousarray(tokens, dtype=code).view(np.uint8).data)
                noted.write(lengths.astype("<i4").tobytes())
        with AtomicFile(prefix.with_name(prefix.name + ".idx")) as index:
            count = noted.tell() // 4
            index.write(MAGIC + struct.pack("<QBQQ", VERSION, number, count, count + 1))
            for lengths in _again(noted):
                index.write(lengths.tobytes())
            place = 0
            for lengths in _again(noted):
                ends = place + np.cumsum(lengths, dtype="<i8") * np.dtype(code).itemsize
                index.write(np.concatenate([[place], ends[:-1]]).astype("<i8").tobytes())
                place = int(ends[-1])
            for first in range(0, count + 1, _CHUNK):
                index.write(np.arange(first, min(first + _CHUNK, count + 1), dtype="<i8").tobytes())


def _again(noted: BinaryIO) -> Iterator[np.ndarray]:
    noted.seek(0)
    while data := noted.read(4 * _CHUNK):
        yield np.frombuffer(data, dtype="<i4")
