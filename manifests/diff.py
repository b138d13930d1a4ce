"""What is different between two manifests, or any two records.

What may live here: records laid side by side. Lists whose entries have a name are compared by
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
    return differences(_content(a), _content(b))


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Every place of two records that differs, in the order of the paths."""
    one, other = (dict(_leaves("", record)) for record in (a, b))
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
        yield path, str(value["sha256"])[:16]
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, item)
    elif isinstance(value, list) and value and all(_named(item) for item in value):
        named = [pair for item in value for pair in [_named(item)] if pair]
        if not isinstance(value[0], Mapping) or "sha256" not in value[0]:
            yield f"{path}[]", ", ".join(name for name, _ in named)  # their order, too
        for name, item in named:
            yield from _leaves(f"{path}.{name}", item)
    else:
        yield path, value


def _named(item: Any) -> tuple[str, Any] | None:
    """An entry of a list by what it is known: its name, its file, the sample that it begins with;
    a stage of a recipe, which is an object of one key, by what it is called."""
    if not isinstance(item, Mapping):
        return None
    if len(item) == 1 and isinstance(inner := next(iter(item.values())), Mapping):
        return str(inner.get("as", next(iter(item)))), inner
    name = item.get("name", item.get("path", item.get("from_sample")))
    return None if name is None else (str(name), item)


def _shown(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
