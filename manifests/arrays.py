"""Arrays on disk: .npy files that are whole or absent, and that are read memory-mapped.

What may live here: writing and reading numpy arrays of a run, at once or by and by.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from manifests.files import AtomicFile
from manifests.records import Output


def save_array(path: Path, array: np.ndarray, run: Path) -> Output:
    """Stores an array as .npy; its facts, with the path relative to `run`."""
    return save_chunks(path, array.dtype, array.shape, [array], run)


def save_chunks(
    path: Path, dtype: np.dtype, shape: tuple[int, ...], chunks: Iterable[np.ndarray], run: Path
) -> Output:
    """The same of an array of which only a chunk (some of its rows) is in memory at a time."""
    header = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_2_0(
        header, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    with AtomicFile(path) as file:
        file.write(header.getvalue())
        for chunk in chunks:
            if chunk.size:
                file.write(np.ascontiguousarray(chunk).view(np.uint8).reshape(-1).data)
    return Output(str(path.relative_to(run)), file.size, shape[0], file.digest)


def load_array(path: Path) -> np.ndarray:
    """A stored array, memory-mapped where it has rows."""
    try:
        array: np.ndarray = np.load(path, mmap_mode="r")
    except ValueError:  # no rows: an empty range cannot be mapped
        array = np.load(path)
    return array
