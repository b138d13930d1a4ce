"""Gristmill's curation side: from raw crawl to clean, deduplicated text with a true ledger.

from curation import run
result = run("pipelines/crawl-filter.yaml", inputs=["some.warc.gz"], output="runs/mine")
print(result.table())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curation.api import Result, run
    from curation.document import Documents
    from curation.filters.parameters import ByLanguage
    from curation.stage import Edited, Editor, Filter, Rule, Signals

__all__ = [
    "ByLanguage",
    "Documents",
    "Edited",
    "Editor",
    "Filter",
    "Result",
    "Rule",
    "Signals",
    "run",
]

_HOMES = {
    "ByLanguage": "curation.filters.parameters",
    "Documents": "curation.document",
    "Result": "curation.api",
    "run": "curation.api",
    **dict.fromkeys(["Edited", "Editor", "Filter", "Rule", "Signals"], "curation.stage"),
}


def __getattr__(name: str) -> Any:
    """Loads what is asked for: the extraction child imports this package and must start fast."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
