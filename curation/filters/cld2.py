"""A second opinion on languages: Compact Language Detector 2, an extra (`gristmill[lid]`).

What may live here: the door to the package `pycld2`, and its codes as tags.

CLD2 (github.com/CLD2Owners/cld2) is a naive Bayes classifier of four-letter sequences (of single
letters for Chinese, Japanese and Korean), trained apart from fastText's models: what both agree on
is seldom wrong. Unlike them it may say that it does not know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from curation.filters.languages import macrolanguage

NAME = "cld2"
UNKNOWN = "und"  # BCP-47's undetermined

#: CLD2's codes that are not the tags of what they stand for. Its Kurdish is Sorani: of NTREX's
#: Kurmanji, which lid.176 calls `ku`, it finds nothing. `xx-Goth` and so on are texts in a script
#: of none of its languages, and two languages are jokes.
_TAGS = {
    **{"iw": "he", "jw": "jv", "ku": "ckb"},
    **{"un": UNKNOWN, "xxx": UNKNOWN, "zzp": UNKNOWN, "tlh": UNKNOWN},
}

#: What CLD2 refuses as no text for interchange (RFC 5198): control characters but for tabs and
#: ends of lines, and noncharacters.
_REFUSED = re.compile(
    "[\0-\x08\x0b\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
    + "]"
)


@dataclass(frozen=True, slots=True)
class Opinion:
    """What CLD2 says of a text: the first of its languages, and shares (0 to 1) of the bytes."""

    label: str  # BCP-47; UNKNOWN where it cannot tell
    shares: dict[str, float]  # macrolanguage -> share: up to three, unknown ones left out

    def share(self, tag: str) -> float | None:
        """The share in the (macro)language of a tag; None where CLD2 does not know it."""
        wanted = macrolanguage(tag)
        return self.shares.get(wanted, 0.0) if wanted in _known() else None


def version() -> dict[str, str]:
    """Of the package, whose tables it contains. Raises ValueError where it is not installed."""
    try:
        return {"pycld2": metadata.version("pycld2")}
    except metadata.PackageNotFoundError:
        raise ValueError("pycld2 is not installed: pip install 'gristmill[lid]'") from None


def ask(text: str) -> Opinion | None:
    """CLD2's opinion of a text that is not HTML; None where it refuses it."""
    found = _detect(text) or _detect(_REFUSED.sub(" ", text))
    if found is None:
        return None
    tags = [(_tag(code), percent) for _, code, percent, _ in found]
    shares: dict[str, float] = {}
    for tag, percent in tags:
        if tag != UNKNOWN:
            language = macrolanguage(tag)
            shares[language] = shares.get(language, 0.0) + percent / 100
    return Opinion(tags[0][0], shares)


def _detect(text: str) -> tuple[tuple[str, str, int, float], ...] | None:
    """Name, code, percent and score of three languages; None where the text is refused."""
    import pycld2

    try:
        return pycld2.detect(text, isPlainText=True)[2]  # type: ignore[no-any-return]
    except pycld2.error:
        return None


@cache
def _known() -> frozenset[str]:
    """The (macro)languages that CLD2 can find."""
    import pycld2

    codes = dict(pycld2.LANGUAGES)
    tags = {_tag(codes[name]) for name in pycld2.DETECTED_LANGUAGES}
    return frozenset(macrolanguage(tag) for tag in tags - {UNKNOWN})


def _tag(code: str) -> str:
    return UNKNOWN if code.startswith("xx-") else _TAGS.get(code, code)
