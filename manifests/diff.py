"""What is different between two manifests.

What may live here: two records laid side by side. Lists whose entries have a name are compared by
name, files by their SHA-256.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from manifests.tokens import Manifest

NONE = "-"  # where one of the two has nothing


@dataclass(frozen=True)
class Difference:
    """A place in the manifest, such as `sources.web.weight`, and what both have there; None where
    one has no such place."""

    path: str
    a: Any
    b: Any


def diff(a: Manifest, b: Manifest) -> list[Difference]:
    """Every place that differs, in the order of the paths; empty for manifests of one digest."""
    one, other = (dict(_leaves("", _content(manifest))) for manifest in (a, b))
    return [
        Difference(path, one.get(path), other.get(path))
        for path in sorted(one.keys() | other.keys())
        if one.get(path) != other.get(path) or (path in one) != (path in other)
    ]


def render(differences: list[Difference]) -> str:
    """The differences as an aligned table."""
    if not differences:
        return "no difference"
    table = [("", "A", "B"), *((d.path, _shown(d.a), _shown(d.b)) for d in differences)]
    widths = [max(len(line[column]) for line in table) for column in range(2)]
    return "\n".join(f"{path:<{widths[0]}}  {a:<{widths[1]}}  {b}".rstrip() for path, a, b in table)


def _content(manifest: Manifest) -> dict[str, Any]:
    return {key: value for key, value in manifest.record().items() if key != "digest"}


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Paths and plain values below a value; an empty object or list is a value."""
    if isinstance(value, Mapping) and "sha256" in value and "rows" in value:
        yield path, value["sha256"]
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, item)
    elif isinstance(value, list) and value and all(_name(item) for item in value):
        for item in value:
            yield from _leaves(f"{path}.{_name(item)}", item)
    else:
        yield path, value


def _name(item: Any) -> str | None:
    """By what an entry of a list is known: its name, its file, the sample that it begins with."""
    if not isinstance(item, Mapping):
        return None
    if "from_sample" in item:
        return str(item["from_sample"])
    name = item.get("name", item.get("path"))
    return name if isinstance(name, str) else None


def _shown(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
