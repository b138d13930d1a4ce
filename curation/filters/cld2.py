"""A second opinion on languages: Compact Language Detector 2, an extra (`gristmill[lid]`).

What may live here: the door to the package `pycld2`, and its codes as tags.

CLD2 (github.com/CLD2Owners/cld2) is a naive Bayes classifier of four-letter sequences (of single
letters for Chinese, Japanese and Korean), trained apart from fastText's models: what both agree on
is seldom wrong. Unlike them it may say that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec

from curation.filters.languages import macrolanguage

NAME = "cld2"
UNKNOWN = "und"  # BCP-47's undetermined

#: CLD2's codes that are not BCP-47's preferred ones; `xx-Goth` and so on are texts in a script that
#: no language of its has, and it knows two jokes.
_TAGS = {"iw": "he", "jw": "jv", "un": UNKNOWN, "xxx": UNKNOWN, "zzp": UNKNOWN, "tlh": UNKNOWN}

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


def check() -> None:
    """Raises ValueError where the package is not installed."""
    if find_spec("pycld2") is None:
        raise ValueError("pycld2 is not installed: pip install 'gristmill[lid]'")


def version() -> dict[str, str]:
    """Of the package, whose tables it contains."""
    return {"pycld2": metadata.version("pycld2")}


def ask(text: str) -> Opinion | None:
    """CLD2's opinion of a text that is not HTML; None where it refuses it."""
    detect, refusal = _door()
    try:
        _, _, found = detect(_REFUSED.sub(" ", text), isPlainText=True)
    except refusal:
        return None
    tags = [(_tag(code), percent) for _, code, percent, _ in found]
    shares: dict[str, float] = {}
    for tag, percent in tags:
        if tag != UNKNOWN:
            language = macrolanguage(tag)
            shares[language] = shares.get(language, 0.0) + percent / 100
    return Opinion(tags[0][0], shares)


@cache
def _door() -> tuple[Callable[..., tuple[bool, int, tuple]], type[Exception]]:  # type: ignore[type-arg]
    import pycld2

    return pycld2.detect, pycld2.error


@cache
def _known() -> frozenset[str]:
    """The (macro)languages that CLD2 can find."""
    import pycld2

    codes = dict(pycld2.LANGUAGES)
    tags = {_tag(codes[name]) for name in pycld2.DETECTED_LANGUAGES}
    return frozenset(macrolanguage(tag) for tag in tags - {UNKNOWN})


def _tag(code: str) -> str:
    return UNKNOWN if code.startswith("xx-") else _TAGS.get(code, code)
