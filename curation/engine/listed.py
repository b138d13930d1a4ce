"""Lists of documents that are to be taken down: ids and URLs.

What may live here: reading such a list, and telling whether a document is on it. A run must not
say what was taken out of it, so `run.json` keeps a list as digests of its entries (`Sealed`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from curation.dedup.exact import canonical_url

_ID = re.compile(r"[0-9a-fA-F]{32}")
_COMMENT = re.compile(r"(^|\s)#.*")


class ListError(ValueError):
    """A list that cannot be used; the message says why, in one line."""


def address(url: str) -> str:
    """What a URL is compared as: its canonical form, or itself where it has none."""
    return canonical_url(url) or url


@dataclass(frozen=True)
class Listed:
    """Ids (32 hex digits) and URLs; these match in every form that leads to the same page: another
    scheme, `www.`, fragment, tracking parameters (`canonical_url`)."""

    ids: frozenset[str] = frozenset()
    urls: frozenset[str] = frozenset()  # as they were written

    @cached_property
    def _addresses(self) -> dict[str, list[str]]:
        """The URLs by what they are compared as."""
        found: dict[str, list[str]] = {}
        for url in sorted(self.urls):
            found.setdefault(address(url), []).append(url)
        return found

    def holds(self, id: str, url: str | None) -> bool:
        """Whether a document is listed."""
        return id in self.ids or bool(url and self._addresses and address(url) in self._addresses)

    def entries(self, id: str, url: str | None) -> list[str]:
        """The entries, as they were written, that a document is listed by."""
        return [*({id} & self.ids), *(self._addresses.get(address(url), []) if url else [])]

    def sealed(self) -> Sealed:
        """The list as digests."""
        return Sealed(frozenset(map(_seal, [*self.ids, *self._addresses])))


@dataclass(frozen=True)
class Sealed:
    """A list whose entries nobody can read, only recognise: BLAKE2b-128 of ids and addresses."""

    digests: frozenset[str]

    def holds(self, id: str, url: str | None) -> bool:
        """Whether a document is listed."""
        return _seal(id) in self.digests or bool(url and _seal(address(url)) in self.digests)

    def plain(self) -> list[str]:
        return sorted(self.digests)


def _seal(entry: str) -> str:
    data = entry.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16, person=b"takedown").hexdigest()


def mask(listed: Listed | Sealed, ids: Iterable[str], urls: Iterable[str | None]) -> np.ndarray:
    """Which documents are listed, as booleans."""
    return np.fromiter(map(listed.holds, ids, urls), dtype=bool)


def mask_of(listed: Listed | Sealed, table: pa.Table) -> np.ndarray:
    """Which rows of a table with the columns id and url are listed."""
    return mask(listed, table["id"].to_pylist(), table["url"].to_pylist())


def read_list(path: str | Path) -> Listed:
    """A list of documents: a UTF-8 file with an id (32 hex digits) or a URL in each line.

    Blank lines say nothing, nor does what follows a `#` that begins a line or comes after white
    space. Raises ListError for anything else, and for a list that names nothing.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        wrong = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        reason = error.strerror if isinstance(error, OSError) else wrong
        raise ListError(f"{path}: cannot read the list: {reason}") from None
    ids, urls = set[str](), set[str]()
    for number, line in enumerate(text.split("\n"), 1):
        entry = _COMMENT.sub("", line).strip()
        if _ID.fullmatch(entry):
            ids.add(entry.lower())
        elif canonical_url(entry) is not None:
            urls.add(entry)
        elif entry:
            shown = entry if len(entry) <= 60 else entry[:60] + "..."
            raise ListError(
                f"{path}:{number}: {shown!r} is neither an id (32 hex digits) nor a URL"
            )
    if not ids and not urls:
        raise ListError(f"{path}: the list names no document")
    return Listed(frozenset(ids), frozenset(urls))
