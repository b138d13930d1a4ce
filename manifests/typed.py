"""Dataclasses out of JSON, checked by their own annotations, and the JSON Schema that these make.

What may live here: the one reading of annotations (str, int, float, bool, Any, Literal, `X | None`,
tuples of one type, mappings from str, dataclasses). A fault is said by its place in the file.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_PLAIN: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "string"),
    int: ((int,), "integer"),
    float: ((int, float), "number"),
    bool: ((bool,), "boolean"),
    type(None): ((type(None),), "null"),
}


def build(kind: type[T], value: Any, where: str = "") -> T:
    """A dataclass from JSON. Raises ValueError that names the place: `sources[0].name: ...`."""
    built: T = _build(kind, value, where)
    return built


def _build(kind: Any, value: Any, where: str) -> Any:
    if is_dataclass(kind):
        return _fields(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        return _build(next(k for k in inner if k is not type(None)), value, where)
    if origin is Literal:
        return value if value in inner else _wrong(where, " or ".join(map(repr, inner)), value)
    if origin is tuple:
        if not isinstance(value, list):
            _wrong(where, "a list", value)
        return tuple(_build(inner[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            _wrong(where, "an object", value)
        return {key: _build(inner[1], item, _below(where, key)) for key, item in value.items()}
    allowed, name = _PLAIN[kind]
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        _wrong(where, f"a value of type {name}", value)
    return value


def _fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        _wrong(where, "an object", value)
    hints, known = get_type_hints(kind), stored(kind)
    for name in value:
        if name not in {field.name for field in known}:
            raise ValueError(f"{_below(where, name)}: an unknown field")
    given = {}
    for field in known:
        if field.name in value:
            place = _below(where, field.name)
            given[field.name] = _build(hints[field.name], value[field.name], place)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{_below(where, field.name)}: missing")
    return kind(**given)


def stored(kind: Any) -> list[Any]:
    """The fields of a dataclass that stand in the file: those that count when it is compared."""
    return [field for field in fields(kind) if field.compare]


def plain(value: Any) -> Any:
    """The JSON that `build` makes the same dataclass of."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in stored(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def json_schema(kind: Any) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a dataclass; its docstring, and those of the ones inside, are
    the descriptions."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        needed = [f.name for f in stored(kind) if f.default is f.default_factory is MISSING]
        return {
            "type": "object",
            "description": " ".join((kind.__doc__ or "").split()),
            "properties": {f.name: json_schema(hints[f.name]) for f in stored(kind)},
            "required": needed,
            "additionalProperties": False,
        }
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if origin in (Union, types.UnionType):
        return {"anyOf": [json_schema(one) for one in inner]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": json_schema(inner[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": json_schema(inner[1])}
    return {"type": _PLAIN[kind][1]}


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _wrong(where: str, wanted: str, value: Any) -> Any:
    raise ValueError(f"{where or 'the file'}: {wanted} is wanted, not {value!r:.80}")
