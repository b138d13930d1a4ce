"""Addresses of people and of machines: e-mail, IP, MAC.

What may live here: their finders, and those of FineWeb beside ours. A finder takes a text and
yields (start, stop) in code points, in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address, IPv6Network
from string import hexdigits

from publicsuffixlist import PublicSuffixList

from curation.redact.spans import follows

Found = Iterator[tuple[int, int]]

# --- e-mail -------------------------------------------------------------------------------------

#: Lengths of RFC 5321, section 4.5.3.1, in characters.
LOCAL, DOMAIN = 64, 255
#: Top-level names that are no public ones, yet are written as addresses (RFC 2606, RFC 6761).
RESERVED = frozenset({"example", "test", "invalid", "localhost"})

#: Latin letters beyond ASCII too; not those of scripts without spaces, where the word before an
#: address would be taken for a part of it. "=", "/", "?" and "&", which RFC 5322 allows, stand
#: between an address and the rest of a URL far more often.
_LETTER = "A-Za-z0-9\u00c0-\u024f"
_LOCAL_REVERSED = re.compile(f"[{_LETTER}_+'%~-]+(?:\\.[{_LETTER}_+'%~-]+)*")
_LABEL = f"[{_LETTER}](?:[{_LETTER}-]{{0,61}}[{_LETTER}])?"
_DOMAIN = re.compile(
    f"(?:{_LABEL}\\.)+([A-Za-z]{{2,63}}|xn--[A-Za-z0-9-]{{2,59}})(?![{_LETTER}]|[-_][{_LETTER}])"
)


def emails(text: str) -> Found:
    """E-mail addresses below a top-level name that exists (Public Suffix List) or is reserved.

    Not found: `icon@2x.png` and other file names, hosts of one label, the `git@host:path` of
    repositories, quoted local parts and addresses in brackets.
    """
    at, end = text.find("@"), 0
    while at >= 0:
        before = text[max(end, at - LOCAL) : at][::-1]
        local = _LOCAL_REVERSED.match(before)
        domain = _DOMAIN.match(text, at + 1, at + 1 + DOMAIN) if local else None
        if local and domain and _is_top_level(domain[1].lower()):
            name = local[0].rstrip("'-%~")  # reversed: what stands before the address
            stop = domain.end()
            if name and not (name == "tig" and text[stop : stop + 1] in (":", "/")):
                yield at - len(name), stop
                end = stop
        at = text.find("@", max(at + 1, end))


@lru_cache(maxsize=4096)
def _is_top_level(name: str) -> bool:
    return name in RESERVED or _suffixes().publicsuffix(name) is not None


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList(accept_unknown=False)


# --- IP -----------------------------------------------------------------------------------------

#: What is looked for first, as `re` finds a leading dot or colon much faster.
_V4_INSIDE = re.compile(r"\.[0-9]{1,3}\.[0-9]{1,3}\.")
_V6_INSIDE = re.compile(":[0-9A-Fa-f]{0,4}:")
_V4 = re.compile(
    r"(?<![0-9A-Za-z_.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9A-Za-z_]|\.[0-9a-z]|-[A-Za-z])"
)
_V6 = re.compile(
    r"(?<![0-9A-Za-z_:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,8}(?:\.[0-9]{1,3}){0,3}"
    r"(?![0-9A-Za-z_:])"
)
#: What numbers with three dots mostly are: versions, object identifiers, sections.
_NUMBERED = re.compile(
    r"(?:\b(?:v|ver|version|versions|release|build|firmware|driver|update|kernel|sdk|api|oid"
    r"|section|sections|chapter|clause|paragraph|article|rule|table|figure|fig|item|annex)"
    r"|\u00a7)[\s.:=#v]*$"
    r"|(?:^|[\s(;\"'])[A-Za-z][A-Za-z0-9_-]*/$",  # the product tokens of a user agent
    re.IGNORECASE,
)
_NETWORK = re.compile(
    r"(?:\b(?:ip|ipv4|address|addresses|host|server|ping|dns|nslookup|resolver|nameserver)\b|://)"
    r"[^\n]*$",
    re.IGNORECASE,
)
#: The last three numbers of sections and of versions are hardly ever this high; of one address in
#: 512 they are not either.
_HIGH = 32
#: All that IANA has given out of IPv6.
_UNICAST = IPv6Network("2000::/3")


def ips(text: str) -> Found:
    """IPv4 and IPv6 addresses that are global (`ipaddress`, of the IANA registries), no multicast.

    A number such as 1.2.3.4 after "version" or "section", in the product token of a user agent, or
    under the object identifier 1.3.6.1 stays; so does one whose last three numbers are below 32,
    unless a word about networks stands before it in its line. An IPv6 address is written in all its
    eight groups (though not all of two digits: those are hardware addresses and fingerprints), or
    in at least three of 2000::/3: `dead::`, `std::`, `2002::/16` and times are none.
    """
    for match in _around(text, _V4_INSIDE, "0123456789", 3, _V4):
        start, found = match.start(), match[0]
        if not _is_global_v4(found) or follows(text, start, _NUMBERED, 24) or found == "1.3.6.1":
            continue
        if max(map(int, found.split(".")[1:])) >= _HIGH or follows(text, start, _NETWORK):
            yield match.span()
    for match in _around(text, _V6_INSIDE, hexdigits, 4, _V6):
        if _is_global_v6(match[0]):
            yield match.span()


def _around(
    text: str, inside: re.Pattern[str], digits: str, most: int, whole: re.Pattern[str]
) -> Iterator[re.Match[str]]:
    """Matches of `whole` that have `inside` after at most so many digits."""
    end = 0
    for hit in inside.finditer(text):
        start = hit.start()
        if start < end:
            continue
        first = text[max(0, start - most) : start]
        match = whole.match(text, start - len(first) + len(first.rstrip(digits)))
        if match:
            end = match.end()
            yield match


def _is_global_v4(found: str) -> bool:
    try:
        address = IPv4Address(found)
    except AddressValueError:  # also leading zeros: may be octal
        return False
    return address.is_global and not address.is_multicast


def _is_global_v6(found: str) -> bool:
    try:
        address = IPv6Address(found)
    except AddressValueError:
        return False
    groups = found.split(":")
    whole = "::" not in found and not all(len(group) == 2 for group in groups)
    some = sum(map(bool, groups)) >= 3 and address in _UNICAST
    return address.is_global and not address.is_multicast and (whole or some)


# --- MAC ----------------------------------------------------------------------------------------

_MAC = re.compile(
    r"(?<![0-9A-Za-z:.-])(?:[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}"
    r"|[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4})(?![0-9A-Za-z]|[:.-][0-9A-Za-z])"
)


def macs(text: str) -> Found:
    """Hardware addresses, but for all zeros, the broadcast and documentation (RFC 7042, 2.1.2)."""
    for match in _MAC.finditer(text):
        digits = re.sub("[:.-]", "", match[0]).lower()
        if digits not in ("0" * 12, "f" * 12) and not digits.startswith("00005e0053"):
            yield match.span()


# --- as FineWeb ---------------------------------------------------------------------------------

_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_ATOMS_REVERSED = re.compile(f"{_ATOM}+(?:\\.{_ATOM}+)*")
_ATOM_START = re.compile(f"\\b{_ATOM}")
_HOST_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)"
_HOST = re.compile(
    f"(?:{_HOST_LABEL}\\.)+{_HOST_LABEL}"
    f"|\\[(?:{_OCTET}\\.){{3}}(?:{_OCTET}|[A-Za-z0-9-]*[A-Za-z0-9]:)\\]"
)
_QUAD = re.compile(f"(?:{_OCTET}\\.){{3}}{_OCTET}")


def fineweb_emails(text: str) -> Found:
    """The addresses that datatrove's `PIIFormatter` replaces: from a word border, any domain.

    The same matches in linear time: from each "@" back to the earliest word border.
    """
    backwards, end, at = text[::-1], 0, text.find("@")
    while at >= 0:
        local = _ATOMS_REVERSED.match(backwards, len(text) - at, len(text) - end)
        start = _ATOM_START.search(text, at - len(local[0]), at) if local else None
        host = _HOST.match(text, at + 1) if start else None
        if start and host:
            yield start.start(), host.end()
            end = host.end()
        at = text.find("@", max(at + 1, end))


def fineweb_ips(text: str) -> Found:
    """The addresses that datatrove's `PIIFormatter` replaces: IPv4, without borders, public."""
    for match in _QUAD.finditer(text):
        try:
            if IPv4Address(match[0]).is_global:
                yield match.span()
        except AddressValueError:
            continue
