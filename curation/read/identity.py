"""Identity of documents that come without a WARC record: from origin, never from arrival.

What may live here: ids of rows, and of files in archives and directories.
"""

from __future__ import annotations

import hashlib


def of_native(source: str | None, native: str) -> str:
    """32 hex digits of (source, native id)."""
    return _digest("native", source or "", native)


def of_row(path: str, row: int) -> str:
    """32 hex digits of (path, row): for documents that have no id of their own."""
    return _digest("row", path, str(row))


def of_file(path: str, name: str) -> str:
    """32 hex digits of (path of the archive or directory, path of the file in it)."""
    return _digest("file", path, name)


def _digest(*parts: str) -> str:
    data = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).hexdigest()
