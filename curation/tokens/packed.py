"""Files of a manifest, read against what it says of them, and those that take their place.

What may live here: rows and tables by way of their `File`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curation.tokens.sharding import read_rows
from manifests.files import AtomicFile, sha256
from manifests.reader import changed
from manifests.rows import Rows
from manifests.tokens import File, Manifest, ManifestError


def whole(manifest: Manifest, file: File) -> Path:
    """Where a file lies, after its bytes were held against its SHA-256. Raises ManifestError."""
    if problem := changed(manifest.directory, file, digests=True):
        raise ManifestError(f"{manifest.directory}/{problem}")
    return manifest.directory / file.path


def batches(manifest: Manifest, file: File) -> Iterator[Rows]:
    """The rows of a packed file or shard, some at a time. Raises ManifestError."""
    try:
        yield from read_rows(whole(manifest, file), manifest.names)
    except (ValueError, pa.ArrowException) as error:  # names the file
        raise ManifestError(str(error)) from None


def read_table(manifest: Manifest, file: File, columns: Sequence[str] | None = None) -> pa.Table:
    """A file of provenance, or some columns of it. Raises ManifestError."""
    path = whole(manifest, file)
    try:
        return pq.read_table(path, columns=columns, partitioning=None)
    except (ValueError, pa.ArrowException) as error:
        raise ManifestError(f"{path}: {error}") from None


def write_table(directory: Path, path: str, table: pa.Table) -> File:
    """Writes a file of provenance."""
    with AtomicFile(directory / path) as file:
        pq.write_table(table, pa.PythonFile(file, mode="w"), compression="zstd")
    return File(path, len(table), file.size, sha256(directory / path))
