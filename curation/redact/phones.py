"""Telephone numbers.

What may live here: their finder, the words that go with them, and the question to `phonenumbers`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from curation.redact.spans import follows

#: Seven to seventeen digits, at most three separators between two; what stands before it is looked
#: at after its first digit, which `re` finds fast.
_CANDIDATE = re.compile(
    r"[0-9](?<![\w/=#$\u20ac\u00a3&@-].)(?<![0-9][.,].)"
    r"(?:[ \t\xa0.()/\u2010-\u2015-]{0,3}[0-9]){6,16}(?![0-9A-Za-wyz_@%])"
)
_PREFIX = re.compile(r"\+ ?\(?$|\(\+?$")
#: Ranges of years, and decimal fractions.
_NO_PHONE = re.compile(r"(?:1[0-9]|20)[0-9]{2}.{1,3}(?:1[0-9]|20)[0-9]{2}|[0-9]+\.[0-9]{5,}")
#: Dates, with the day, the month or the year first; a time may follow.
_DATE = re.compile(
    r"(?:[0-3]?[0-9][./-][0-3]?[0-9][./-](?:19|20)[0-9]{2}"
    r"|(?:19|20)[0-9]{2}[ ./-][01]?[0-9][ ./-][0-3]?[0-9])(?![0-9])"
)
#: Code points after a candidate in which its extension may stand.
_EXTENSION = 16
#: A number within an area, as written in North America.
_LOCAL = re.compile(r"[2-9][0-9]{2}[-. ][0-9]{4}")

_WORDS = (
    r"\b(?:phones?|telephones?|tel|call|calls|calling|dial|fax|mobile|cell|cellphone|ring|sms"
    r"|whatsapp|hotline|helpline|answering"
    r"|telefon|telefax|handy|mobil|t\xe9l\xe9phone|t\xe9l|portable|tel\xe9fono|m\xf3vil|celular"
    r"|telefono|cellulare|telefone|telefoon|mobiel)\b"
)
_BEFORE = re.compile(_WORDS + r"[^\n0-9]{0,32}$|\bdesk:[ \t]*$", re.IGNORECASE)
_AFTER = re.compile(r"[ \t(-]{1,3}(?:office|fax|mobile|cell|phone|desk|tel)\b", re.IGNORECASE)
#: What numbers that look like those of telephones mostly are.
_NUMBERED = re.compile(
    r"\b(?:isbn(?:-1[03])?|issn|ean|upc|doi|order|invoice|ticket|ref|reference|id|sku|serial|model"
    r"|part|item|case|account|acct|patent|tracking|vat|pmid|oclc|lccn|barcode|version|bug|issue)"
    r"(?:[\s:.#]|\b(?:no|nr|number|code|id)\b)*$"
    r"|\b10\.[0-9]{4,9}/\S*$",  # DOI
    re.IGNORECASE,
)


def phones(text: str, regions: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Numbers that `phonenumbers` calls valid: international ones, and those of `regions`.

    Without a word such as "call" or "fax" beside it, a national number has to be in groups, and in
    the usual ones of its region (leniency STRICT_GROUPING; otherwise VALID): ten digits in a row
    are an order number, four and four two years. After "order", "ISBN" and the like nothing is
    found. Where US or CA is one of the regions, seven digits (555-0142) are a number after such a
    word. Only digits of ASCII.
    """
    north_america = "US" in regions or "CA" in regions
    position = 0
    while match := _CANDIDATE.search(text, position):
        start, stop = match.span()
        if date := _DATE.match(text, start):
            position = date.end()
            continue
        position = stop
        if prefix := _PREFIX.search(text, max(0, start - 3), start):
            start = prefix.start()
        said = follows(text, start, _BEFORE) or _AFTER.match(text, stop) is not None
        if not said and (_NO_PHONE.fullmatch(match[0]) or follows(text, start, _NUMBERED, 24)):
            continue
        if said and north_america and _LOCAL.fullmatch(match[0]):
            yield match.span()
        else:
            yield from _ask(text, start, stop, regions, said)


def _ask(
    text: str, start: int, stop: int, regions: tuple[str, ...], said: bool
) -> Iterator[tuple[int, int]]:
    """What the library finds that begins in [start, stop)."""
    from phonenumbers import Leniency, PhoneNumberMatcher

    if not said and text[start:stop].isdigit():
        return
    window = text[start : stop + _EXTENSION].partition("\n")[0]
    if dialled := window.startswith("00"):  # as in most of the world; the library asks the region
        window = " +" + window[2:]
    international = dialled or "+" in window[:2]
    if not international and sum(map(str.isdigit, text[start:stop])) < _fewest_digits(regions):
        return
    leniency: Any = Leniency.VALID if said or international else Leniency.STRICT_GROUPING
    for region in (None,) if international else regions:
        for match in PhoneNumberMatcher(window, region, leniency=leniency, max_tries=2):
            if match.start >= stop - start or window[match.start - 1 : match.start] in (".", ","):
                break
            if said or not match.raw_string.strip("()").isdigit():
                yield start + match.start - dialled, start + match.end
                return


@lru_cache(maxsize=16)
def _fewest_digits(regions: tuple[str, ...]) -> int:
    """Digits of the shortest national number of these regions, but for those within an area."""
    from phonenumbers import PhoneMetadata

    known: list[Any] = [PhoneMetadata.metadata_for_region(region) for region in regions]
    return min((n for one in known for n in one.general_desc.possible_length), default=0)
