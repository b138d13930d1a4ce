"""URLs: their hosts and registrable domains, lists of domains, words in URLs.

What may live here: `Addresses`, a batch of URLs taken apart (this file); lists of domains
(`lists.py`); words (`words.py`, and ours in `built_in/`); the kernels of all three and their
references. No stage: `curation.filters.url_filter` is the judge.
"""

from __future__ import annotations

import ipaddress
from functools import cached_property, lru_cache
from importlib import metadata
from urllib.parse import unquote_to_bytes

import idna
import numpy as np
import publicsuffixlist
import pyarrow as pa
from numpy.typing import NDArray

from curation.filters.urls import kernels

#: Packages whose versions decide what an address is.
PACKAGES = ("idna", "publicsuffixlist")


def versions() -> dict[str, str]:
    """Of the packages: other ones may have other domains."""
    return {package: metadata.version(package) for package in PACKAGES}


class Addresses:
    """URLs taken apart as browsers do, near enough (WHATWG URL; RFC 3986).

    Case, user, port, fragment and a dot at the end of the host do not count; hosts beyond ASCII are
    compared as IDNA has them (UTS 46); without `//` an address begins with its host. What has no
    host (`javascript:`, `mailto:`), or one with characters that none has, is no address.
    """

    def __init__(
        self, data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        self.data, self.begins, self.ends = data, begins, ends
        self.spans = np.zeros(4 * len(begins), np.int64)
        odd = np.zeros(len(begins), bool)
        kernels.locate(data, begins, ends, self.spans, odd)
        if odd.any():
            self._rewrite(np.flatnonzero(odd))

    @classmethod
    def of(cls, column: pa.Array) -> Addresses:
        """Those of a column of strings; null is no address."""
        column = column.cast(pa.large_string()).fill_null("")
        _, offsets, data = column.buffers()
        bounds = np.frombuffer(offsets, np.int64)[column.offset :][: len(column) + 1]
        content = np.frombuffer(data or b"", np.uint8)
        return cls(content, bounds[:-1].copy(), bounds[1:].copy())

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def found(self) -> NDArray[np.bool_]:
        """Which of them have a host."""
        return self.spans[::4] >= 0

    @cached_property
    def registrable(self) -> NDArray[np.int64]:
        """Where the registrable domain of each host begins in `data`; -1 of those without.

        It is one label more than the public suffix, of whose list both parts count: a site on
        `github.io` has a domain of its own.
        """
        starts = np.zeros(len(self), np.int64)
        kernels.find_registrable(self.data, self.spans, *_public_suffixes(), starts)
        return starts

    def domains(self) -> pa.Array:
        """The registrable domains (strings, in lower case), null of those without."""
        there = self.registrable >= 0
        begins, ends = self.registrable[there], self.spans[1::4][there]
        sizes = np.zeros(len(self), np.int64)
        sizes[there] = ends - begins
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        target = np.empty(bounds[-1], np.uint8)
        kernels.copy_lower(self.data, begins, ends, target)
        buffers = [pa.array(there).buffers()[1], pa.py_buffer(bounds), pa.py_buffer(target)]
        strings = pa.Array.from_buffers(pa.large_string(), len(self), buffers)
        return strings.cast(pa.string())

    def _rewrite(self, rows: NDArray[np.int64]) -> None:
        """Takes those with odd hosts apart again, rewritten, from copies at the end of `data`."""
        copies = []
        for row in rows.tolist():
            begin, end, rest, stop = self.spans[4 * row : 4 * row + 4].tolist()
            host = _comparable(self.data[begin:end].tobytes())
            copies.append(b"//" + host + self.data[rest:stop].tobytes() if host else b"")
        bounds = np.cumsum([len(self.data), *map(len, copies)])
        self.data = np.concatenate([self.data, np.frombuffer(b"".join(copies), np.uint8)])
        self.data.flags.writeable = False  # one type for kernels, rewritten or not
        spans = np.zeros(4 * len(rows), np.int64)
        kernels.locate(self.data, bounds[:-1], bounds[1:], spans, np.zeros(len(rows), bool))
        self.spans.reshape(-1, 4)[rows] = spans.reshape(-1, 4)


@lru_cache(maxsize=4096)
def _comparable(host: bytes) -> bytes:
    """A host beyond ASCII, with escapes or in brackets as it is compared; empty: it is none.

    Of an IPv6 address these are all its digits, with hyphens: a name without parents.
    """
    if len(host) > 4 * kernels.LONGEST_HOST:
        return b""
    try:
        if host.startswith(b"["):
            return ipaddress.IPv6Address(host[1:-1].decode()).packed.hex("-", 2).encode()
        name = unquote_to_bytes(host).decode("utf-8")
        return idna.encode(name, uts46=True, transitional=False)
    except ValueError:  # of UTF-8, of idna, of ipaddress
        return b""


@lru_cache(maxsize=1)
def _public_suffixes() -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """The rules of the public suffix list (publicsuffix.org): keys, ascending, and their kinds."""
    kinds: dict[bytes, int] = {}
    with open(publicsuffixlist.PSLFILE, encoding="utf-8") as lines:
        for line in lines:
            rule = line.split("//")[0].split()
            if not rule:
                continue
            [name] = rule
            kind = kernels.SUFFIX
            if name.startswith("!"):
                name, kind = name[1:], kernels.EXCEPTION
            elif name.startswith("*."):
                name, kind = (
                    name[2:],
                    kernels.WILDCARD | kernels.SUFFIX,
                )  # as the list's test has it
            key = name.encode("ascii") if name.isascii() else name.encode("idna")
            kinds[key] = kinds.get(key, 0) | kind
    names = sorted(kinds)
    spans = np.zeros((len(names), 4), np.int64)
    spans[:, 1] = np.cumsum([len(name) for name in names])
    spans[1:, 0] = spans[:-1, 1]
    keys = np.zeros(len(names), np.uint64)
    kernels.hash_entries(np.frombuffer(b"".join(names), np.uint8), spans.ravel(), keys)
    order = np.argsort(keys)
    return keys[order], np.array([kinds[name] for name in names], np.uint8)[order]
