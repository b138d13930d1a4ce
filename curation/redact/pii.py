"""Personal data replaced.

What may live here: the editor `pii` and the table of its kinds.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import metadata
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from curation.document import Documents
from curation.filters.parameters import ByLanguage, Count
from curation.redact import addresses, fakes, numbers, phones, secrets
from curation.redact.spans import Span, merge, replace
from curation.stage import Edited, Editor, Rule

Find = Callable[[str], Iterable[tuple[int, int]]]
KindName = Literal[
    "email", "phone", "ip", "card", "iban", "ssn", "wallet", "secret", "mac", "nhs", "nif"
]

#: Passes after which a text is given up that changes with every one.
PASSES = 16


@dataclass(frozen=True)
class Kind:
    """A kind of personal data: what its placeholder is called, and who finds it.

    `hint` is an expression of RE2 that every text has in which `find` finds something.
    """

    label: str
    hint: str
    find: Find


#: Labels are Dolma's where it has one (Soldaini et al. 2024), else Presidio's. Of equally long
#: finds the first here is taken: telephone numbers, which have no checksum, come last.
KINDS: dict[str, Kind] = {
    "email": Kind("EMAIL_ADDRESS", "@", addresses.emails),
    "ip": Kind(
        "IP_ADDRESS",
        r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|[0-9A-Fa-f]:[0-9A-Fa-f]{0,4}:",
        addresses.ips,
    ),
    "card": Kind("CREDIT_CARD", "[0-9](?:[ -]?[0-9]){11}", numbers.cards),
    "iban": Kind("IBAN_CODE", "[A-Z]{2}[0-9]{2}(?:[ -]?[0-9A-Z]){11}", numbers.ibans),
    "ssn": Kind("US_SSN", "[0-9]{3}[- .]?[0-9]{2}[- .]?[0-9]{4}", numbers.ssns),
    "wallet": Kind("CRYPTO", "[13][1-9A-HJ-NP-Za-km-z]{25}|(?i:bc1[a-z0-9]{11})", numbers.wallets),
    "secret": Kind("SECRET", secrets.HINT, secrets.secrets),
    "mac": Kind(
        "MAC_ADDRESS",
        r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}|(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}",
        addresses.macs,
    ),
    "nhs": Kind("UK_NHS", "[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{4}", numbers.nhs_numbers),
    "nif": Kind("ES_NIF", "[0-9]{7}-?[A-Za-z]", numbers.nifs),
    "phone": Kind(
        "PHONE_NUMBER",
        r"[0-9](?:[ \t\x{a0}.()/\x{2010}-\x{2015}-]{0,3}[0-9]){6}",
        partial(phones.phones, regions=("US",)),
    ),
}
FINEWEB: dict[str, Kind] = {
    "email": Kind("EMAIL_ADDRESS", "@", addresses.fineweb_emails),
    "ip": Kind("IP_ADDRESS", r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]", addresses.fineweb_ips),
}
#: In the order of `KINDS`.
DEFAULT: tuple[KindName, ...] = (
    *("email", "ip", "card", "iban"),
    *("ssn", "wallet", "secret", "phone"),
)


class Pii(Editor):
    """Replace what would identify a person or open an account.

    The kinds, and what tells each from other numbers (the docstrings of the finders say all):

    - `email`; `ip`: global IPv4 and IPv6, not versions and sections; `phone`: what `phonenumbers`
      calls valid; `card`: Luhn's check and an issuer; `iban`: modulo 97; `ssn`: US social security
      numbers and ITINs; `wallet`: Bitcoin addresses, by checksum; `secret`: keys by the forms that
      services publish, private keys, quoted values assigned to names such as `api_key`.
    - Off by default: `mac`, which identifies a device (and stands on the web mostly in manuals);
      `nhs` (British) and `nif` (Spanish), whose checksums of one digit or letter also hold for one
      in 11 or 23 of other numbers in the same form.

    `replace` says what comes in their place:

    - `placeholder`: `|||EMAIL_ADDRESS|||` and so on, as Dolma (Soldaini et al. 2024).
      The default: a reader of the data sees that something was there, and a model learns no wrong
      addresses.
    - `fake`: a value that is nobody's (`curation.redact.fakes`), the same for equal values. Those
      in reserved domains and numbers stay as they are.
    - `fineweb`: e-mail and public IPv4 by the expressions of datatrove's `PIIFormatter`, and its
      replacements. It takes them in turn, over documents; here the value decides. FineWeb drops
      nothing for what was found: `max_spans: null`.

    Overlapping spans are merged first, then all are replaced at once; everything else stays byte by
    byte. As a replacement may bring a word near a number, or take one away, a text that changed is
    looked at again until nothing is found; so a second run changes nothing. `action: annotate`
    only counts: it changes nothing, and drops nothing unless `max_spans` is given.

    Only ASCII digits and addresses as they are typed: no "bob at x dot org", no characters of zero
    width inside.

    Dolma drops a document with 6 or more spans: lists of contacts. All kinds count, each span once.
    """

    version: ClassVar[int] = 2
    rules: ClassVar[tuple[Rule, ...]] = (Rule("many_spans", signal="spans", above="max_spans"),)

    kinds: Annotated[tuple[KindName, ...] | None, Field(strict=False)] = None
    """Kinds looked for; null: those of the default, or the two of FineWeb."""
    regions: Annotated[tuple[str, ...], Field(strict=False)] = ("US",)
    """Where telephone numbers without a country code may be from (ISO 3166, as US, DE)."""
    replace: Literal["placeholder", "fake", "fineweb"] = "placeholder"
    """What is put in place of a span."""
    action: Literal["replace", "annotate"] = "replace"
    """Whether texts are changed, or spans only counted."""
    max_spans: ByLanguage[Count] = 5
    """Spans of a document (Dolma: 5)."""

    @model_validator(mode="before")
    @classmethod
    def _annotation_drops_nothing(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("action") == "annotate":
            return {"max_spans": None, **given}
        return given

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.kinds is not None:
            if not self.kinds:
                raise ValueError("kinds: an empty list finds nothing; leave the stage out")
            for kind in self.kinds:
                if self.replace == "fineweb" and kind not in FINEWEB:
                    raise ValueError(f"kinds: FineWeb has no {kind}; replace: placeholder has it")
        from phonenumbers import SUPPORTED_REGIONS

        for region in self.regions:
            if region not in SUPPORTED_REGIONS:
                raise ValueError(f"regions: {region!r} is none of phonenumbers (as US, DE)")
        return self

    @cached_property
    def finders(self) -> dict[str, Kind]:
        """The kinds that are looked for, by name."""
        if self.replace == "fineweb":
            return {name: kind for name, kind in FINEWEB.items() if name in (self.kinds or FINEWEB)}
        kinds: tuple[str, ...] = self.kinds or DEFAULT
        chosen = {name: kind for name, kind in KINDS.items() if name in kinds}
        if "phone" in chosen:
            find = partial(phones.phones, regions=self.regions)
            chosen["phone"] = Kind(KINDS["phone"].label, KINDS["phone"].hint, find)
        return chosen

    def depends(self) -> dict[str, str]:
        """The libraries with the tables of telephone numbers, top-level names and IP networks."""
        found = {}
        if "phone" in self.finders:
            found["phonenumbers"] = metadata.version("phonenumbers")
        if "email" in self.finders and self.replace != "fineweb":
            found["publicsuffixlist"] = metadata.version("publicsuffixlist")
        if "ip" in self.finders:
            found["python"] = platform.python_version()  # its ipaddress
        return found

    def edit(self, docs: Documents) -> Edited:
        """The texts; int64: `spans`, and how many of each kind. One that does not settle fails."""
        counts = {name: np.zeros(len(docs), np.int64) for name in self.finders}
        texts: dict[int, str] = {}
        column, places = docs.text, list(range(len(docs)))
        for _ in range(PASSES):
            changed = []
            for index, kinds in self.candidates(column):
                text, place = column[index].as_py(), places[index]
                spans = self.find(text, kinds)
                for kind, number in Counter(span.kind for span in spans).items():
                    counts[kind][place] += number
                if spans:
                    texts[place] = replace(text, spans, self._replacement)
                    changed.append(place)
            if not changed:
                break
            places = changed
            column = pa.array([texts[place] for place in places], pa.large_string())
        signals = {"spans": np.sum(list(counts.values()), axis=0), **counts}
        failures = dict.fromkeys(changed, "unstable")
        if self.action == "annotate" or not texts:
            return Edited(docs.text, signals, failures)
        return Edited(_with(docs.text, texts), signals, failures)

    def candidates(self, column: pa.LargeStringArray) -> Iterable[tuple[int, list[str]]]:
        """Which texts may have something, by their place, and of what kinds."""
        hinted: dict[int, list[str]] = {}
        for name, kind in self.finders.items():
            for index in np.flatnonzero(np.asarray(pc.match_substring_regex(column, kind.hint))):
                hinted.setdefault(int(index), []).append(name)
        return hinted.items()

    def find(self, text: str, kinds: Iterable[str] | None = None) -> list[Span]:
        """What would be replaced in a text, disjoint and in order; of all kinds, or of these."""
        found = merge(
            Span(start, stop, kind)
            for kind in (self.finders if kinds is None else kinds)
            for start, stop in self.finders[kind].find(text)
        )
        if self.replace == "placeholder":
            return found
        return [span for span in found if not self._stays(span.kind, text[span.start : span.stop])]

    def _stays(self, kind: str, found: str) -> bool:
        if self.replace == "fineweb":
            return found in fakes.FINEWEB[kind]
        return fakes.is_fake(kind, found)

    def _replacement(self, kind: str, found: str) -> str:
        if self.replace == "placeholder":
            return f"|||{KINDS[kind].label}|||"
        return fakes.fineweb(kind, found) if self.replace == "fineweb" else fakes.fake(kind, found)


def _with(column: pa.LargeStringArray, texts: dict[int, str]) -> pa.LargeStringArray:
    """The column with other texts at these places."""
    mask = np.zeros(len(column), dtype=bool)
    mask[list(texts)] = True
    new = pa.array([texts[place] for place in sorted(texts)], pa.large_string())
    return pc.replace_with_mask(column, pa.array(mask), new)
