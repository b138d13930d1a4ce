"""The types of parameters that filters share.

What may live here: annotated types with their bounds, and checks that concern several parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Discriminator, Field, Tag

from curation.stage import OTHER, Stage, by_language, for_language

#: A number of things: what 64 bits hold.
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
#: A finite number.
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
#: A part of a whole: 0 to 1.
Share = Annotated[float, Field(ge=0, le=1)]


#: Forms of a parameter that may be one thing or another, as pydantic names them in errors.
SINGLE, LIST, MAPPING = "<single>", "<list>", "<mapping>"


def _tag(key: str) -> str:
    subtags = key.split("-")
    if key != OTHER and not (
        2 <= len(subtags[0]) <= 3
        and subtags[0].islower()
        and all(subtag.isascii() and subtag.isalnum() for subtag in subtags)
    ):
        hint = '; Norwegian is "no", in quotes' if key == "false" else ""  # YAML's no
        raise ValueError(
            f"{key!r} is neither a language (BCP-47, as de or zh-Hant) nor other{hint}"
        )
    return key


def _form(value: Any) -> str:
    return MAPPING if isinstance(value, Mapping) else SINGLE


#: A key of what is said by language: a language, as documents have it, or `other`.
LanguageKey = Annotated[str, AfterValidator(_tag)]

_T = TypeVar("_T")

#: A threshold: a number; None, which switches the rule off; or a mapping from languages, as
#: documents have them, to numbers or None. `zh-Hant` falls back to `zh`, languages that are not
#: named to the key `other`; without it the rule is off for them (`curation.stage.for_language`).
ByLanguage = Annotated[
    Annotated[_T | None, Tag(SINGLE)] | Annotated[dict[LanguageKey, _T | None], Tag(MAPPING)],
    Discriminator(_form),
]


def refuse_empty_range(stage: Stage, low: str, high: str) -> None:
    """Raises ValueError where the threshold `low` is above the threshold `high`."""
    limits = getattr(stage, low), getattr(stage, high)
    for language in sorted({OTHER}.union(*map(by_language, limits))):
        least, most = (for_language(limit, language) for limit in limits)
        if least is not None and most is not None and least > most:
            where = "" if language == OTHER else f" for {language}"
            raise ValueError(
                f"{low} ({least}) is above {high} ({most}){where}: nothing would be kept"
            )
