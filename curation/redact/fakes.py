"""What stands in place of personal data: made-up values that are nobody's.

What may live here: the lists that fakes are taken from, each reserved by somebody for that purpose,
and how one is chosen. A fake depends on nothing but what it replaces: equal addresses become equal
fakes, on any machine and in any order.
"""

from __future__ import annotations

import re
from hashlib import blake2b

_FIRST = str.split(
    "alder amber aspen birch brook cedar clover coral dale elm fern flint glen hazel heath holly "
    "iris ivy juniper laurel linden maple marsh moss olive reed robin rowan sage thorn willow wren"
)
_LAST = str.split(
    "barley beacon bridge cairn cliff copse cove croft dell dune fell field ford gate grove hill "
    "lake lane mead mill moor orchard pond quarry ridge shore spring stone vale weir wharf wood"
)
#: Second-level names that are nobody's (RFC 2606, section 3).
DOMAINS = ("example.com", "example.net", "example.org")
#: Area codes of large cities; in each, 555-0100 to 555-0199 are kept for fiction (NANPA).
_AREAS = ("202", "206", "212", "303", "312", "404", "415", "503", "617", "713")
#: Numbers that payment services publish for tests; no card has them.
CARDS = (
    "4111111111111111",
    "4242424242424242",
    "5555555555554444",
    "5105105105105100",
    "378282246310005",
    "371449635398431",
    "6011111111111117",
    "3530111333300000",
)
#: The examples of SWIFT's IBAN registry.
IBANS = (
    "AT611904300234573201",
    "BE68539007547034",
    "CH9300762011623852957",
    "DE89370400440532013000",
    "ES9121000418450200051332",
    "GB29NWBK60161331926819",
    "NL91ABNA0417164300",
)
#: The examples of BIP 173.
WALLETS = (
    "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
    "bc1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qccfmv3",
)
#: What FineWeb has in place of addresses (datatrove's `PIIFormatter`).
FINEWEB = {
    "email": ("email@example.com", "firstname.lastname@example.org"),
    "ip": (
        "22.214.171.124",
        "126.96.36.199",
        "188.8.131.52",
        "184.108.40.206",
        "220.127.116.11",
        "18.104.22.168",
    ),
}

_RESERVED_HOST = re.compile(r"@(?:.*\.)?example\.(?:com|net|org)$", re.IGNORECASE)
_FICTION = re.compile(r"(?:^|[^0-9])555[^0-9]?01[0-9]{2}(?![0-9])")


def fake(kind: str, found: str) -> str:
    """A value of this kind in place of the one found."""
    number = keyed(kind, found)
    if kind == "email":
        first, rest = _FIRST[number % 32], number // 32
        return f"{first}.{_LAST[rest % 32]}@{DOMAINS[rest // 32 % 3]}"
    if kind == "phone":
        return f"({_AREAS[number % 10]}) 555-01{number // 10 % 100:02}"
    if kind == "ip" and ":" in found:
        return f"2001:db8::{number % 0xFFFF + 1:x}"  # RFC 3849
    if kind == "ip":  # RFC 5737
        return f"{('192.0.2', '198.51.100', '203.0.113')[number % 3]}.{number // 3 % 254 + 1}"
    if kind == "mac":
        return f"00:00:5E:00:53:{number % 256:02X}"  # RFC 7042, section 2.1.2
    if kind == "ssn":
        return f"987-65-432{number % 10}"  # Social Security Administration: for advertisements
    if kind == "nhs":
        return f"999 000 {number % 10_000:04}"  # NHS Digital: for tests
    if kind == "nif":
        return "00000000T"
    if kind == "secret":
        return f"EXAMPLE-SECRET-{number % 256:02X}"
    values = {"card": CARDS, "iban": IBANS, "wallet": WALLETS}[kind]
    return values[number % len(values)]


def is_fake(kind: str, found: str) -> bool:
    """Whether a found value is of the form of our fakes, or as little anybody's as they are.

    Of the kinds that are not asked for here, no finder finds a fake.
    """
    if kind == "email":
        return _RESERVED_HOST.search(found) is not None
    if kind == "phone":
        return _FICTION.search(found) is not None
    values = {"card": CARDS, "iban": IBANS, "wallet": WALLETS}.get(kind, ())
    return found in values


def fineweb(kind: str, found: str) -> str:
    """One of FineWeb's replacements; datatrove takes them in turn over all documents."""
    values = FINEWEB[kind]
    return values[keyed(kind, found) % len(values)]


def keyed(kind: str, found: str) -> int:
    """64 bits that depend on a value and its kind alone."""
    digest = blake2b(found.encode(), key=kind.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
