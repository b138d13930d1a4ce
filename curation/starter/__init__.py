"""What `curation init` writes: a recipe with everything explained, and a filter of one's own.

What may live here: the example filter, and how the recipe is put together from the models of stages
and inputs. Names, defaults and explanations are read from them, so that none can become stale.
"""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from curation.engine.recipe import INPUTS, OutputModel, RecipeError, RecipeModel
from curation.stages import STAGES

RECIPE, FILTER = "recipe.yaml", "my_filter.py"

#: The stages that the starter runs, with what differs from the defaults; the others are shown.
_RUNS: dict[str, dict[str, object]] = {
    "extract": {},
    "language": {"keep": ["en"]},
    "gopher_quality": {},
    "exact_dedup": {},
    "minhash_dedup": {},
}
_OWN = "my_filter:Shouting"
_BEFORE_OWN = "gopher_quality"
_WIDTH = 96


def write(directory: Path) -> Path:
    """Writes the starter into a directory, made if need be; the path of the recipe.

    Raises RecipeError, and writes nothing, where one of its files is there already.
    """
    texts = {RECIPE: recipe(), FILTER: files("curation.starter").joinpath(FILTER).read_text()}
    for name in texts:
        if (directory / name).exists():
            raise RecipeError(f"{directory / name} is there already; nothing was written")
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with open(directory / name, "x", encoding="utf-8") as file:
            file.write(text)
    return directory / RECIPE


def recipe() -> str:
    """The commented recipe."""
    lines = ["# A recipe: `curation run recipe.yaml --input crawl/` runs it.", "# Lines that begin"]
    lines[-1] += " with `# NAME: VALUE` show the defaults."
    lines += ["kind: documents", "name: starter"]
    lines += _parameters(RecipeModel, "", skip={"kind", "name", "input", "stages", "output"})
    lines += ["", "input:", "  kind: warc"]
    for model in INPUTS:
        kind = _kind(model)
        lines += _comment(f"kind {kind}: {_first(model)}", "  ")
        lines += _parameters(model, "  ", skip={"kind", *_explained(model)})
    lines += ["", "stages:"]
    for name in STAGES:
        lines += _stage(name)
        if name == _BEFORE_OWN:
            lines += [
                "",
                *_comment("A filter of your own, in my_filter.py beside this file.", "  "),
            ]
            lines += [f"  - {_OWN}: {{max_upper: 0.5}}"]
    lines += ["", "output:", "  kind: parquet"]
    lines += _parameters(OutputModel, "  ", skip={"kind"})
    return "\n".join(lines) + "\n"


def _explained(model: type[BaseModel]) -> set[str]:
    """Fields of an input that the first one has, too: they are explained there."""
    first = {} if model is INPUTS[0] else INPUTS[0].model_fields
    return {
        name
        for name, field in model.model_fields.items()
        if name in first and field.annotation == first[name].annotation
    }


def _kind(model: type[BaseModel]) -> str:
    [kind] = model.model_fields["kind"].annotation.__args__  # type: ignore[union-attr]
    return str(kind)


def _stage(name: str) -> list[str]:
    """A stage with its parameters: as the starter runs it, else as a comment."""
    model = STAGES[name]
    own = _RUNS.get(name)
    lines = ["", *_comment(_first(model), "  ")]
    if own is None:
        return [*lines, f"  # - {name}:", *_parameters(model, "  #     ", skip=set())]
    lines.append(f"  - {name}:")
    lines += [f"      {key}: {_value(value)}" for key, value in own.items()]
    return lines + _parameters(model, "      ", skip=set(own))


def _parameters(model: type[BaseModel], indent: str, skip: set[str]) -> list[str]:
    """A commented line per parameter: its default, and what it means."""
    notes = _notes(model)
    lines = []
    for name, field in model.model_fields.items():
        if name in skip:
            continue
        shown = "..." if field.is_required() else _default(model, name)
        line = f"{indent}# {name}: {shown}"
        note = _choices(field) + notes.get(name, "")
        if note and len(line) + len(note) + 4 <= _WIDTH:
            lines.append(f"{line}  # {note.removesuffix(': ')}")
        else:
            lines += [*_comment(note.removesuffix(": "), indent), line]
    return lines


def _default(model: type[BaseModel], name: str) -> str:
    default = model.model_fields[name].get_default(call_default_factory=True)
    plain = model.model_construct(**{name: default}).model_dump(mode="json", include={name})
    return _value(plain[name])


def _choices(field: FieldInfo) -> str:
    """`a, b or c: ` where a parameter is one of a few words."""
    if get_origin(field.annotation) is not Literal:
        return ""
    *others, last = map(str, get_args(field.annotation))
    return f"{', '.join(others)} or {last}: " if others else ""


def _value(value: object) -> str:
    """A value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _comment(text: str, indent: str) -> list[str]:
    wrapped = textwrap.wrap(text, _WIDTH - len(indent) - 2, break_on_hyphens=False)
    return [f"{indent}# {line}" for line in wrapped]


def _first(model: type[BaseModel]) -> str:
    """The first paragraph of a model's docstring."""
    return " ".join((inspect.getdoc(model) or "").partition("\n\n")[0].split())


def _notes(model: type[BaseModel]) -> dict[str, str]:
    """What the source says of each field: the string below it, else the comment beside it."""
    notes: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if owner in (BaseModel, object) or not issubclass(owner, BaseModel):
            continue
        source = textwrap.dedent(inspect.getsource(owner))
        comments = {
            token.start[0]: token.string.lstrip("# ")
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        }
        [definition] = ast.parse(source).body
        assert isinstance(definition, ast.ClassDef)
        following = [*definition.body[1:], None]
        for node, after in zip(definition.body, following, strict=True):
            if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
                continue
            note = comments.get(node.end_lineno or 0, "")
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                note = str(after.value.value)
            notes[node.target.id] = " ".join(note.split())
    return notes
