"""Numbers of persons and of accounts, told by their checksums.

What may live here: their finders, each with its checksum and its source. A finder takes a text and
yields (start, stop) in code points, in linear time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from curation.redact.spans import near

Found = Iterator[tuple[int, int]]

# --- cards --------------------------------------------------------------------------------------

_CARD = re.compile(r"[0-9](?<![\w.+=/-].)(?:[ -]?[0-9]){11,18}(?![\w=/-]|[.,][0-9])")
_CARD_WORDS = re.compile(
    r"\b(?:cards?|cc|visa|mastercard|maestro|amex|american express|discover|diners|jcb|credit"
    r"|debit|karte|kreditkarte|carte|tarjeta|carta)\b",
    re.IGNORECASE,
)
#: Issuers as (first number range, lengths) of the leading digits (ISO/IEC 7812; the issuers' own
#: tables): the numbers that are taken for cards without a word about cards nearby.
_ISSUERS = (
    ("4", "4", (16,)),  # Visa
    ("51", "55", (16,)),  # Mastercard
    ("2221", "2720", (16,)),  # Mastercard, since 2017
    ("34", "34", (15,)),  # American Express
    ("37", "37", (15,)),
    ("6011", "6011", (16,)),  # Discover
    ("644", "659", (16,)),
    ("3528", "3589", (16,)),  # JCB
    ("5019", "5019", (16,)),  # Dankort
)
#: The others: too short, or too wide a range, for a checksum of one digit.
_RARE = (
    ("4", "4", (13, 19)),
    ("300", "305", (14,)),  # Diners Club
    ("36", "36", (14,)),
    ("38", "39", (14,)),
    ("62", "62", (16, 17, 18, 19)),  # UnionPay
    ("50", "50", (12, 13, 14, 15, 16, 17, 18, 19)),  # Maestro
    ("56", "69", (12, 13, 14, 15, 16, 17, 18, 19)),
    ("1", "1", (15,)),  # UATP
    ("1800", "1800", (15,)),  # JCB, before 1989
    ("2131", "2131", (15,)),
)


def cards(text: str) -> Found:
    """Payment cards: digits that pass Luhn's check (ISO/IEC 7812), of an issuer's prefix, length.

    In one run or in groups of at least three with one separator. The rarer issuers need a word
    about cards within 40 code points.
    """
    for match in _CARD.finditer(text):
        separators = set(match[0]) - set("0123456789")
        groups = re.split("[ -]", match[0])
        if len(separators) > 1 or (len(groups) > 1 and min(map(len, groups)) < 3):
            continue
        digits = "".join(groups)
        common, rare = _issued(digits, _ISSUERS), _issued(digits, _RARE)
        if (common or (rare and near(text, *match.span(), _CARD_WORDS))) and luhn(digits):
            yield match.span()


def _issued(digits: str, issuers: tuple[tuple[str, str, tuple[int, ...]], ...]) -> bool:
    return any(
        low <= digits[: len(low)] <= high and len(digits) in lengths
        for low, high, lengths in issuers
    )


def luhn(digits: str) -> bool:
    """Luhn's check: the sum with every second digit from the right doubled is a multiple of 10."""
    doubled = [sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2]]
    return len(set(digits)) > 1 and (sum(doubled) + sum(map(int, digits[::-2]))) % 10 == 0


# --- IBAN ---------------------------------------------------------------------------------------

#: Lengths by country, in characters (SWIFT's IBAN registry).
IBAN_LENGTHS = {
    country: int(length)
    for length, countries in {
        "15": "NO",
        "16": "BE",
        "18": "DK FI FK FO GL NL SD",
        "19": "MK SI",
        "20": "AT BA EE KZ LT LU MN XK",
        "21": "CH HR LI LV",
        "22": "BG BH CR DE GB GE IE ME RS VA",
        "23": "AE GI IL IQ OM SO TL",
        "24": "AD CZ ES MD PK RO SA SE SK TN VG",
        "25": "LY PT ST",
        "26": "IS TR",
        "27": "BI DJ FR GR IT MC MR SM",
        "28": "AL AZ BY CY DO GT HU LB NI PL SV",
        "29": "BR EG PS QA UA",
        "30": "JO KW MU",
        "31": "MT SC",
        "32": "LC",
        "33": "RU",
    }.items()
    for country in countries.split()
}
_IBAN = re.compile(r"(?<![0-9A-Za-z])[A-Z]{2}[0-9]{2}(?:[ -]?[0-9A-Z]){11,29}")


def ibans(text: str) -> Found:
    """International bank account numbers (ISO 13616) of their country's length, modulo 97 being 1.

    In one run or with blanks or hyphens between groups; in capitals.
    """
    for match in _IBAN.finditer(text):
        length = IBAN_LENGTHS.get(match[0][:2], 0)
        places = [i for i, c in enumerate(match[0]) if c.isalnum()]
        if not length or len(places) < length:
            continue
        stop = places[length - 1] + 1
        number = "".join(match[0][i] for i in places[:length])
        after = text[match.start() + stop : match.start() + stop + 1]
        if not (after.isascii() and after.isalnum()) and mod97(number) == 1:
            yield match.start(), match.start() + stop


def mod97(number: str) -> int:
    """The remainder of ISO 7064 modulo 97-10, the first four characters moved to the end."""
    return int("".join(str(int(c, 36)) for c in number[4:] + number[:4])) % 97


# --- US social security -------------------------------------------------------------------------

_SSN = re.compile(r"([0-9]{3})(?<![\w.+/=-]...)([- .]?)([0-9]{2})\2([0-9]{4})(?![\w/=-]|[.,][0-9])")
_SSN_WORDS = re.compile(r"\b(?:ssn|ssns|social security|itin|tax(?:payer)? id)\b", re.IGNORECASE)
#: Groups that the Internal Revenue Service gives to taxpayers without an SSN.
_ITIN = frozenset([*range(50, 66), *range(70, 89), *range(90, 93), *range(94, 100)])
#: Published in advertisements, and never a person's again (Social Security Administration).
_VOID = frozenset({"078051120", "219099999"})


def ssns(text: str) -> Found:
    """US social security numbers that can exist, and ITINs: AAA-GG-SSSS, AAA not 000 or 666.

    With AAA above 899 only those of an ITIN; GG and SSSS not all zeros (SSA, "Social Security
    Number Randomization", since 2011). With other separators than hyphens, or none, only where a
    word about them is near. 987-65-4320 to -4329 are nobody's.
    """
    for match in _SSN.finditer(text):
        area, separator, group, serial = match.groups()
        number = area + group + serial
        if area in ("000", "666") or group == "00" or serial == "0000" or number in _VOID:
            continue
        if (area >= "900" and int(group) not in _ITIN) or number.startswith("98765432"):
            continue
        if separator == "-" or near(text, *match.span(), _SSN_WORDS):
            yield match.span()


# --- national numbers ---------------------------------------------------------------------------

_NHS = re.compile(r"[0-9]{3}(?<![\w.+/=-]...)[ -]?[0-9]{3}[ -]?[0-9]{4}(?![\w/=-]|[.,][0-9])")
_NHS_WORDS = re.compile(r"\b(?:nhs|patient)\b", re.IGNORECASE)


def nhs_numbers(text: str) -> Found:
    """Numbers of the British NHS, by their modulo 11 (NHS Data Dictionary), near "NHS", "patient".

    Those that begin with 999 are for tests.
    """
    for match in _NHS.finditer(text):
        digits = re.sub("[ -]", "", match[0])
        rest = sum(int(d) * weight for d, weight in zip(digits, range(10, 0, -1), strict=True)) % 11
        if rest == 0 and not digits.startswith("999") and near(text, *match.span(), _NHS_WORDS):
            yield match.span()


_NIF = re.compile(r"(?<![\w-])(?:[0-9]{7,8}|[XYZxyz][0-9]{7})-?[A-Za-z](?![\w-])")


def nifs(text: str) -> Found:
    """Spanish NIF and NIE, by their letter of modulo 23 (Real Decreto 1553/2005); 0 is nobody's."""
    for match in _NIF.finditer(text):
        number = match[0][:-1].rstrip("-").upper()
        value = int(number.replace("X", "0").replace("Y", "1").replace("Z", "2"))
        if value and "TRWAGMYFPDXBNJZSQVHLCKE"[value % 23] == match[0][-1].upper():
            yield match.span()


# --- wallets ------------------------------------------------------------------------------------

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_WALLET = re.compile(
    f"(?<![0-9A-Za-z])(?:[13][{_BASE58}]{{25,34}}|bc1[{_BECH32}]{{11,71}}"
    f"|BC1[{_BECH32.upper()}]{{11,71}})(?![0-9A-Za-z])"
)


def wallets(text: str) -> Found:
    """Bitcoin addresses: Base58Check (legacy), Bech32 and Bech32m (BIP 173, BIP 350)."""
    for match in _WALLET.finditer(text):
        checks = bech32 if match[0][:3].lower() == "bc1" else base58
        if checks(match[0]):
            yield match.span()


def base58(address: str) -> bool:
    """Whether an address decodes to 25 bytes whose last four begin the double SHA-256 of others."""
    value = 0
    for character in address:
        value = value * 58 + _BASE58.index(character)
    if value >> 200:
        return False
    data = value.to_bytes(25, "big")
    return hashlib.sha256(hashlib.sha256(data[:21]).digest()).digest()[:4] == data[21:]


def bech32(address: str) -> bool:
    """Whether the checksum of an address in the human-readable part "bc" holds."""
    state = 1
    expanded = [3, 3, 0, 2, 3]  # "bc": the high bits, zero, the low bits
    for value in [*expanded, *(_BECH32.index(c) for c in address[3:].lower())]:
        top, state = state >> 25, (state & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(
            (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
        ):
            state ^= generator if top >> bit & 1 else 0
    return state in (1, 0x2BC830A3)
