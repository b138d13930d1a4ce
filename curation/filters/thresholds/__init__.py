"""Tables of thresholds by language, and their reader.

What may live here: one YAML file per table, of which a recipe names one as `thresholds:`, and how
a table becomes parameters of stages. A file has

- `scores_of` (may be missing): the language model whose scores `language.min_score` is about;
- `columns`: the parameters, as STAGE.PARAMETER;
- `rows`: for each language (BCP-47) a value per column: a number, null (the rule is off), or
  `default` (as for a language without a row: what the stage has without a table).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

DEFAULT = "default"


@dataclass(frozen=True)
class Table:
    """A table as read: stage -> parameter -> language -> threshold."""

    name: str
    scores_of: str | None
    stages: dict[str, dict[str, dict[str, Any]]]


def read(name: str) -> Table:
    """The table of this name in the package, else the user's file at this path.

    Raises ValueError in one line, which names file, language and key.
    """
    packaged = files(__name__).joinpath(f"{name}.yaml")
    source = packaged if packaged.is_file() else Path(name)
    try:
        raw = yaml.safe_load(source.read_text(encoding="utf-8"))
    except OSError as error:
        known = sorted(f.name[:-5] for f in files(__name__).iterdir() if f.name.endswith(".yaml"))
        raise ValueError(f"{name}: {error.strerror}; tables here: {', '.join(known)}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{name}: {' '.join(str(error).split())}") from None
    unknown = set(raw) - {"scores_of", "columns", "rows"} if isinstance(raw, dict) else {"?"}
    columns, rows = (raw.get("columns"), raw.get("rows")) if not unknown else (None, None)
    if not isinstance(columns, list) or not isinstance(rows, dict):
        raise ValueError(f"{name}: a mapping with the keys columns and rows is wanted")
    for column in columns:
        if not isinstance(column, str) or not all(column.partition(".")):
            raise ValueError(f"{name}: columns: {column!r} is not STAGE.PARAMETER")
    stages: defaultdict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for place, column in enumerate(columns):
        stage, _, parameter = column.rpartition(".")
        stages[stage][parameter] = {
            language: row[place]
            for language, row in _rows(name, columns, rows)
            if row[place] != DEFAULT
        }
    return Table(name, raw.get("scores_of"), dict(stages))


def _rows(name: str, columns: list[str], rows: dict[Any, Any]) -> list[tuple[str, list[Any]]]:
    found = []
    for key, row in rows.items():
        language = str(key).lower() if isinstance(key, bool) else key  # YAML's no
        if not isinstance(language, str):
            raise ValueError(f"{name}: {language!r} is no language")
        if not isinstance(row, list) or len(row) != len(columns):
            size = len(row) if isinstance(row, list) else "no list of"
            raise ValueError(f"{name}: {language}: {size} values for {len(columns)} columns")
        for column, value in zip(columns, row, strict=True):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number and value not in (None, DEFAULT):
                raise ValueError(
                    f"{name}: {language}: {column}: {value!r} is no number, null or {DEFAULT}"
                )
        found.append((language, row))
    return found
