"""Phrases in plain Python: what the kernel must count.

What may live here: one plain function per kernel, on `str` and `re` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from curation.text.reference import fold


def count_phrases(text: str, phrases: Iterable[str], bounded: bool) -> tuple[int, int]:
    """How often phrases occur in a text, and how many different ones."""
    folded = sorted({"".join(map(fold, phrase)) for phrase in phrases}, key=len, reverse=True)
    if not folded:
        return 0, 0
    either = "|".join(map(re.escape, folded))
    pattern = rf"(?<!\w)(?:{either})(?!\w)" if bounded else either
    found = re.findall(pattern, "".join(map(fold, text)))
    return len(found), len(set(found))
