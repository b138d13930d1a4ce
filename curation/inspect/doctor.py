"""What a machine lacks for a run, and the command that mends it.

What may live here: the checks behind `curation doctor`. Each looks at one thing and is quick; what
cannot be found out is said, never guessed.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from pydantic import ValidationError

from curation import models
from curation.engine import resources
from curation.engine.plan import stage_key
from curation.engine.ray_auth import ray_environment
from curation.engine.recipe import RecipeError, StageSpec, load
from curation.engine.tokens.recipe import is_tokens
from curation.engine.tokens.recipe import load as load_tokens
from curation.stages import STAGES

State = Literal["ok", "warn", "missing"]

GB, MB = 10**9, 10**6
DISK = 10 * GB  # bytes free below which a run of any size is in danger
SHM = 128 * MB  # bytes of shared memory that Ray's store needs at the least
FILES = 1024  # open files that a process may need
FILES_RAY = 8192  # and that a driver of a large cluster may


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `fix`: what to type or do; empty where all is well."""

    what: str
    state: State
    found: str
    fix: str = ""


def examine(recipe: str | None, output: Path) -> list[Finding]:
    """All findings; with a recipe also what its stages need. Raises RecipeError for a wrong one."""
    checks = [_python(), *_libraries(), *_extras(), *_ray(), _compiler(), _kernels()]
    stages, without = _stages(recipe)
    checks += [*without, *_machine(resources.needed_by(stages)), _shared_memory(), _open_files()]
    return [*checks, *_storage(output)]


def healthy(findings: list[Finding]) -> bool:
    """Whether nothing that is needed is missing."""
    return all(finding.state != "missing" for finding in findings)


# ---------------------------------------------------------------- software


def _python() -> Finding:
    found = f"{platform.python_version()} ({sys.executable})"
    wanted = metadata("gristmill")["Requires-Python"]
    if SpecifierSet(wanted).contains(platform.python_version(), prereleases=True):
        return Finding("Python", "ok", found)
    return Finding("Python", "missing", f"{found}, {wanted} is wanted", "make setup PYTHON=...")


def _libraries() -> Iterator[Finding]:
    """Every library that the package requires, in a version that it accepts."""
    wanted = [Requirement(line) for line in requires("gristmill") or ()]
    needed = [w for w in wanted if w.marker is None or w.marker.evaluate({"extra": ""})]
    good = 0
    for requirement in needed:
        finding = _library(requirement)
        good += finding is None
        if finding is not None:
            yield finding
    yield Finding("libraries", "ok", f"gristmill {version('gristmill')}, {good} of {len(needed)}")


def _library(requirement: Requirement) -> Finding | None:
    name, fix = requirement.name, f"pip install -c constraints.txt '{requirement}'"
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, "missing", "not installed", fix)
    if requirement.specifier.contains(found, prereleases=True):
        return None
    return Finding(name, "missing", f"{found}, {requirement.specifier} is wanted", fix)


def _extras() -> Iterator[Finding]:
    for module, purpose in (("s3fs", "s3:// inputs"), ("gcsfs", "gs:// inputs")):
        if find_spec(module):
            yield Finding(module, "ok", version(module))
        else:
            yield Finding(module, "warn", f"not installed: no {purpose}", f"pip install {module}")


def _ray() -> Iterator[Finding]:
    """Ray itself, and how it will authenticate."""
    explicit = "RAY_AUTH_MODE" in os.environ
    mode = ray_environment()
    try:
        import_module("ray")
        yield Finding("Ray", "ok", version("ray"))
    except (ImportError, OSError) as error:
        yield Finding("Ray", "missing", str(error), "pip install -c constraints.txt ray")
    token = Path.home() / ".ray" / "auth_token"
    there = token.is_file()
    found = f"mode {mode}{'' if explicit else ' (by default)'}, {token} " + (
        "exists" if there else "does not exist"
    )
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    if mode == "token" and not there and not named:
        yield Finding("Ray token", "missing", found, "export RAY_AUTH_TOKEN_PATH=FILE")
    elif mode != "token" and there and not explicit:
        fix = "export RAY_AUTH_MODE=token, for a cluster that wants it"
        yield Finding("Ray token", "warn", found, fix)
    else:
        yield Finding("Ray token", "ok", found)


def _compiler() -> Finding:
    """Needed where a library has no wheel for this machine."""
    names = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found:
        return Finding("C compiler", "ok", found)
    return Finding("C compiler", "warn", "none: only needed to install", "apt-get install gcc")


def _kernels() -> Finding:
    from curation.text.cache import directory

    found = directory()
    if found is not None:
        return Finding("kernel cache", "ok", str(found))
    return Finding(
        "kernel cache",
        "warn",
        "not writable: every process compiles its kernels anew",
        "export NUMBA_CACHE_DIR=DIR",
    )


def _stages(recipe: str | None) -> tuple[list[StageSpec], list[Finding]]:
    """Stages whose models and lists are there, and findings about all: those of a recipe, else all
    that have defaults."""
    specs = _with_defaults() if recipe is None else _specs(recipe)
    good: list[StageSpec] = []
    findings = []
    for spec in specs:
        try:
            stage_key(spec)
            good.append(spec)
        except RecipeError as error:
            state: State = "missing" if recipe is not None else "warn"
            why = error.__cause__
            fix = why.command if isinstance(why, models.ModelNotFound) else "see docs/models.md"
            findings.append(Finding(spec.name, state, str(error), fix))
    names = ", ".join(spec.name for spec in good)
    return good, [*findings, Finding("stages", "ok", f"models and lists are there: {names}")]


def _specs(recipe: str) -> tuple[StageSpec, ...]:
    """The stages of a recipe; of one for tokens those of its corpus."""
    return load(load_tokens(recipe).corpus() if is_tokens(recipe) else recipe).stages


def _with_defaults() -> Iterator[StageSpec]:
    """The stages that need no parameters to be named."""
    for name, kind in STAGES.items():
        with suppress(ValidationError):
            yield StageSpec(name, name, kind())


# ---------------------------------------------------------------- the machine


def _machine(task: int) -> Iterator[Finding]:
    """`task`: bytes of memory that a task takes."""
    cores, memory = resources.cores(), resources.memory_of_machine()
    yield Finding("cores", "ok", f"{cores:g}")
    found = f"{memory / GB:,.1f} GB, a task takes about {task / GB:.1f}"
    if memory < task:
        yield Finding("memory", "missing", found, "use a larger machine")
    elif memory < task * cores:
        yield Finding("memory", "warn", found, f"--workers {max(1, memory // task)}")
    else:
        yield Finding("memory", "ok", found)


def _shared_memory() -> Finding:
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        return Finding("/dev/shm", "warn", "not there", "mount it, for Ray")
    found = f"{free / MB:,.0f} MB free"
    if free >= SHM:
        return Finding("/dev/shm", "ok", found)
    return Finding("/dev/shm", "warn", found + ": too little for Ray", "docker run --shm-size=1g")


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{soft:,} (at most {hard:,})"
    if soft < FILES:
        return Finding("open files", "missing", found, f"ulimit -n {min(hard, FILES_RAY)}")
    if soft < FILES_RAY:
        fix = f"ulimit -n {min(hard, 65_536)}, to drive a large Ray cluster from here"
        return Finding("open files", "warn", found, fix)
    return Finding("open files", "ok", found)


def _storage(output: Path) -> Iterator[Finding]:
    """Room, and whether files appear whole, where the output is to lie."""
    place = Path(os.path.abspath(output))
    while not place.is_dir():
        place = place.parent
    free = shutil.disk_usage(place).free
    state: State = "ok" if free >= DISK else "warn"
    fix = "" if free >= DISK else "free some, or choose another --output"
    yield Finding("disk", state, f"{free / GB:,.1f} GB free at {place}", fix)
    try:
        with tempfile.TemporaryDirectory(prefix=".gristmill-doctor-", dir=place) as directory:
            old, new = Path(directory, "old"), Path(directory, "new")
            for path in (old, new):
                with path.open("w") as file:
                    file.write(path.name)
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(new, old)
            whole = old.read_text() == "new" and not new.exists()
    except OSError as error:
        yield Finding("atomic files", "missing", f"{place}: {error.strerror}", "another --output")
        return
    if whole:
        yield Finding("atomic files", "ok", f"written, synced and renamed at {place}")
    else:
        yield Finding("atomic files", "missing", f"rename fails at {place}", "another --output")


# ---------------------------------------------------------------- views


def plain(findings: list[Finding]) -> dict[str, Any]:
    """The findings as JSON has them."""
    return {"healthy": healthy(findings), "findings": [asdict(f) for f in findings]}


def render(findings: list[Finding]) -> str:
    """An aligned table, with the way out below what needs one."""
    width = max(len(finding.what) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<8} {finding.what:<{width}}  {finding.found}")
        if finding.fix:
            lines.append(f"{'':<8} {'':<{width}}  -> {finding.fix}")
    return "\n".join(lines)
