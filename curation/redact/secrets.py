"""Keys and passwords.

What may live here: the forms of keys that services give out, private keys, and values that are
assigned to a name such as `api_key`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import log2

#: Published forms of keys, each from the documentation of the service (their prefixes are made to
#: be scanned for; GitHub: "Behind GitHub's new authentication token formats", 2021).
FORMS = {
    "aws": r"(?:AKIA|ASIA)[A-Z2-7]{16}",
    "github": r"gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{82}",
    "gitlab": r"glpat-[A-Za-z0-9_-]{20,64}",
    "slack": r"xox[abeoprs]-[A-Za-z0-9-]{20,255}|xapp-[A-Za-z0-9-]{20,255}",
    "slack_webhook": r"hooks\.slack\.com/services/T[A-Z0-9]{8,12}/B[A-Z0-9]{8,12}/[A-Za-z0-9]{24}",
    "google": r"AIza[A-Za-z0-9_-]{35}|GOCSPX-[A-Za-z0-9_-]{28}",
    "stripe": r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,247}|whsec_[A-Za-z0-9]{32,64}",
    "openai": r"sk-[A-Za-z0-9]{32,128}|sk-(?:proj|svcacct|admin|ant|or)-[A-Za-z0-9_-]{20,255}",
    "huggingface": r"hf_[A-Za-z0-9]{34}",
    "npm": r"npm_[A-Za-z0-9]{36}",
    "pypi": r"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,255}",
    "sendgrid": r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
    "jwt": r"eyJ[A-Za-z0-9_-]{10,4096}\.eyJ[A-Za-z0-9_-]{10,4096}\.[A-Za-z0-9_-]{10,4096}",
}
_FORM = re.compile(f"(?<![A-Za-z0-9_-])(?:{'|'.join(FORMS.values())})(?![A-Za-z0-9_-])")
_PEM_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?)-----")
#: Code points of a private key between its lines: one of 16,384 bits has some 12,500.
_PEM_SIZE = 20_000
_PEM_LINE = re.compile("[A-Za-z0-9+/=]{40}")
_NAMES = ("key", "secret", "token", "passwd", "password", "credential")
#: In three cases, as `re` finds fast what begins with one of a few letters.
_ASSIGNED = re.compile(
    "(?:" + "|".join(case for n in _NAMES for case in (n, n.title(), n.upper())) + ")"
    r"[sS]?[\"']?\s{0,4}(?:=>|:=|=|:)\s{0,4}"
    r"([\"'])([A-Za-z0-9+/=_.!@#$%^&*-]{16,256})\1"
)
#: Bits per character (Shannon) of an assigned value; random hexadecimal digits have up to 4, random
#: letters and digits of 20 characters about 4.1, identifiers in words 3 to 3.6.
MIN_ENTROPY = 3.5
#: Found in what documentation shows in place of a key, as in AWS's AKIAIOSFODNN7EXAMPLE.
_SHOWN = re.compile(r"example|xxxx|\*\*\*\*|your|1234567890|changeme|placeholder", re.IGNORECASE)

#: What every secret has, in the syntax of RE2.
HINT = (
    r"AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|xapp-|hooks\.slack|AIza|GOCSPX-"
    r"|[rs]k_live_|[rs]k_test_|whsec_|sk-[A-Za-z0-9]|hf_[A-Za-z0-9]{34}|npm_[A-Za-z0-9]{36}"
    r"|pypi-Ag|SG\.|eyJ|PRIVATE KEY"
    r"|(?i:key|secret|token|passwd|password|credential)(?i:s)?[\"']?[\s\pZ\pC]{0,4}"
    r"(?:=>|:=|=|:)[\s\pZ\pC]{0,4}[\"']"  # \s of RE2 is of ASCII
)


def secrets(text: str) -> Iterator[tuple[int, int]]:
    """Keys by their published form, private keys (PEM) with their lines, and assigned values.

    A value in quotes that is assigned to a name of a key or password counts where it has letters,
    digits and at least `MIN_ENTROPY`; only the value is found. What documentation shows in place of
    a key ("EXAMPLE", "your-key") stays, also in a published form.
    """
    for match in _FORM.finditer(text):
        if not _SHOWN.search(match[0]):
            yield match.span()
    for match in _PEM_BEGIN.finditer(text):
        end = f"-----END {match[1]}-----"
        at = text.find(end, match.end(), match.end() + _PEM_SIZE)
        if at >= 0 and _PEM_LINE.search(text, match.end(), at):
            yield match.start(), at + len(end)
    for match in _ASSIGNED.finditer(text):
        value = match[2]
        mixed = re.search("[0-9]", value) and re.search("[A-Za-z]", value)
        if mixed and entropy(value) >= MIN_ENTROPY and not _SHOWN.search(value):
            yield match.span(2)


def entropy(value: str) -> float:
    """Shannon's entropy of the characters, in bits per character."""
    counts = Counter(value).values()
    return -sum(n / len(value) * log2(n / len(value)) for n in counts)
