"""What the kernels of URLs mean, in plain Python: tests hold the two together.

What may live here: one function per kernel, slow and clear. The registrable domain's reference is
the package `publicsuffixlist` itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?=//)", re.IGNORECASE | re.ASCII)
_BLANK = "".join(map(chr, range(0x21)))  # C0 controls and the space
_FORBIDDEN = set(_BLANK + "<>[\\]^|\x7f")
_ADDRESS = re.compile(r"[0-9.]+|(?=.*:)[0-9a-fA-F.:]+")  # as lines of hosts files begin


def entries(text: str) -> list[str]:
    """The entries of a list, one a line."""
    found = []
    for line in re.split(r"[\n\r]", text):
        line = re.sub(rf"(^|[{_BLANK}])#.*", "", line, flags=re.DOTALL).strip(_BLANK)
        first, *names = re.split(rf"[{_BLANK}]+", line)
        if names and _ADDRESS.fullmatch(first):
            found += names
        elif line:
            found.append(line[1:] if line.startswith("*.") else line)
    return found


def locate(url: str) -> tuple[str, str] | None:
    """The host of a URL, as it is written, and what follows host and port without the fragment.

    None where there is no host. Without `//` an address begins with its host, as `name/path` does.
    """
    url = url.strip(_BLANK)
    scheme = _SCHEME.match(url)
    url = url[scheme.end() :] if scheme else url
    slashes = url.startswith("//")
    url = url[2:] if slashes else url
    authority = re.split(r"[/\\?#]", url, maxsplit=1)[0]
    rest = url[len(authority) :].split("#")[0]
    if not slashes and "@" in authority:
        return None
    authority = authority.rpartition("@")[2]
    if authority.startswith("["):
        host = authority.partition("]")[0]
        return (f"{host}]", rest) if host != authority else None
    host, colon, port = authority.partition(":")
    if not slashes and colon and not (port.isascii() and port.isdigit()):
        return None
    host = host.rstrip(".")
    if not host or set(host) & _FORBIDDEN:
        return None
    if len(host) > 255 and host.isascii() and "%" not in host:
        return None
    return host, rest


def plain(host: str) -> str:
    """A host without its `www.`, where a dot follows that."""
    host = host.lower()
    return host[4:] if host.startswith("www.") and "." in host[4:] else host


def falls_under(host: str, rest: str, registrable: str | None, listed: Iterable[str]) -> str | None:
    """The most specific entry that an address falls under; hosts are ASCII.

    `registrable`: the registrable domain of the host, None where it has none.
    """
    names, paths = _parse(listed)
    host = plain(host)
    path = rest.lower().replace("\\", "/")
    ends = [i for i in range(len(path), 1, -1) if i == len(path) or path[i] in "/?&;"]
    for end in ends:
        if host + path[:end] in paths:
            return host + path[:end]
    labels = host.split(".")
    for i in range(len(labels)):
        parent = ".".join(labels[i:])
        own = i == 0 or (registrable is not None and len(parent) >= len(registrable))
        if (parent if own else f".{parent}") in names:
            return parent
    return None


def _parse(listed: Iterable[str]) -> tuple[Set[str], Set[str]]:
    names, paths = set(), set()
    for entry in listed:
        address = locate(entry)
        if address is None:
            continue
        host, rest = address
        host = host.lower() if host.startswith(".") else plain(host)
        rest = rest.lower().replace("\\", "/").rstrip("/")
        if rest:
            paths.add(host.removeprefix(".") + rest)
        else:
            names |= {host, host.removeprefix(".")}
    return names, paths


def count_words(url: str, strict: Set[str], hard: Set[str], soft: Set[str]) -> tuple[int, int, int]:
    """How many strict words occur in the letters and digits of a URL taken together, how many hard
    and soft ones between other characters. Words are a-z and 0-9."""
    words = set(re.split("[^a-z0-9]+", _lower(url)))
    together = re.sub("[^a-z0-9]", "", _lower(url))
    return sum(word in together for word in strict), len(words & hard), len(words & soft)


def _lower(text: str) -> str:
    """In lower case, of ASCII letters alone: the Kelvin sign is no k."""
    return re.sub("[A-Z]+", lambda letters: letters[0].lower(), text)
