"""A recipe as a job of a Ray cluster: `submit`, and `follow` for who waits.

What may live here: what is sent to the cluster's job server and what its answers mean. The job
itself is the command `run` on the cluster; nothing of the run happens here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

import yaml

from curation.engine.plan import absolute, home
from curation.engine.ray_auth import ray_environment
from curation.engine.recipe import CommonCrawlInput, Input, Recipe, RecipeError, load

CONNECT = 10.0  # seconds in which the job server must accept a connection
ANSWER = 60.0  # seconds in which it must answer
PATIENCE = 90.0  # seconds for which a submission is tried again, and a lost log is looked for
SILENCE = 30.0  # seconds without a line of the log after which the job's state is asked for
PAUSE = 1.0  # seconds before the first new try; doubled each time
SAMPLE = "sample"  # as an input: the embedded crawl

_STOPPED = 75


class SubmitFailed(RuntimeError):
    """The cluster cannot be reached or does not take the job: one line."""


@dataclass(frozen=True)
class Submission:
    """What a cluster is asked to do: the command, and the files that it needs."""

    recipe: Recipe
    output: str
    options: tuple[str, ...]  # of `run`, beside the recipe, its output and the address
    sample: bool = False  # whether the job writes the embedded crawl first

    @property
    def name(self) -> str:
        """The base name of the run directory, as a submission id may have it."""
        return re.sub(r"[^A-Za-z0-9_.-]+", "_", self.output.rstrip("/").rpartition("/")[2])

    def document(self) -> str:
        """The resolved recipe as YAML, input paths included."""
        plain = self.recipe.resolved()
        plain["input"] = self.recipe.settings.model_dump(mode="json")["input"]
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)

    def command(self, python: str, recipe: str) -> str:
        """The shell command of the job; `recipe` as the shell is to see it.

        `exec`: a job is stopped by ending its shell, and what that had started would live on.
        """
        after = ["--address", "auto", "--output", self.output, *self.options]
        run = f"exec {shlex.quote(python)} -m curation run {recipe} {shlex.join(after)}"
        if not self.sample:
            return run
        path = shlex.quote(sample_path(self.output))
        return f"{{ test -e {path} || {shlex.quote(python)} -m curation.sample {path}; }} && {run}"

    def package(self, directory: Path) -> None:
        """Writes what the job's working directory holds: the recipe and the user's own stages."""
        (directory / "recipe.yaml").write_text(self.document(), encoding="utf-8")
        for source, target in self.own_files():
            place = directory / target
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)

    def own_files(self) -> list[tuple[Path, Path]]:
        """The Python files of the user's stages, and where each lies in the working directory:
        a module by itself, a package with all its Python files."""
        found: dict[Path, Path] = {}
        for spec in self.recipe.stages:
            if spec.users is None:
                continue
            root = Path(home(spec.users))
            file = Path(inspect.getfile(spec.users)).resolve()
            if "site-packages" in root.parts:
                continue  # installed, here and there
            if file.parent == root:
                found[file] = file.relative_to(root)
            else:
                top = root / file.relative_to(root).parts[0]
                for path in sorted(top.rglob("*.py")):
                    found[path] = path.relative_to(root)
        return sorted(found.items())


def sample_path(output: str) -> str:
    """Where a job writes the embedded sample crawl: beside its run, where all nodes see it."""
    return output.rstrip("/") + ".sample.warc.gz"


def prepare(
    recipe: str | Path,
    *,
    output: str,
    inputs: Sequence[str] = (),
    settings: Iterable[str] = (),
    limit: int | None = None,
    base: str | None = None,
    accept_collapse: bool = False,
    index: str | None = None,
) -> Submission:
    """A validated submission. Paths become absolute; that they are there is not looked at: inputs
    and output lie on storage that the nodes see, and this machine need not. Raises RecipeError."""
    output = absolute(output)
    with contextlib.redirect_stdout(sys.stderr):  # what a user's module prints is no result
        found = load(recipe, inputs, settings)
        sample = sample_path(output) if SAMPLE in inputs else absolute(SAMPLE)
        given = [_placed(one, sample) for one in found.settings.inputs]
        whole = tuple(given) if found.settings.listed else given[0]
        found = replace(found, settings=found.settings.model_copy(update={"input": whole}))
    for warning in found.warnings:
        print(f"curation: {warning}", file=sys.stderr)
    options = ["--limit", str(limit)] if limit is not None else []
    options += ["--base", absolute(base)] if base is not None else []
    options += ["--accept-collapse"] if accept_collapse else []
    options += ["--index", absolute(index)] if index is not None else []
    return Submission(found, output, tuple(options), SAMPLE in inputs)


def _placed(given: Input, sample: str) -> Input:
    """An input whose paths are absolute; that of the sample is given. Raises RecipeError."""
    if isinstance(given, CommonCrawlInput):
        return given
    if not given.paths:
        raise RecipeError("input.paths: no input given (name files, globs, URLs)")
    paths = tuple(sample if path == SAMPLE else absolute(path) for path in given.paths)
    return given.model_copy(update={"paths": paths})


# ---------------------------------------------------------------- the job server


def connect(address: str) -> Any:
    """A client of the job server at `http://HOST:PORT`. Raises RecipeError or SubmitFailed."""
    parts = urlsplit(address)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port:
        raise RecipeError(
            f"--address {address}: the job server's URL is wanted, as http://HOST:8265"
        )
    try:
        socket.create_connection((parts.hostname, port), CONNECT).close()
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise SubmitFailed(f"{address}: cannot reach the job server: {reason}") from None
    ray_environment()
    with contextlib.redirect_stdout(sys.stderr), _without("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        from ray.job_submission import JobSubmissionClient

        class Client(JobSubmissionClient):
            """Ray's client, which would wait for an answer for ever."""

            def _do_request(self, *arguments: Any, **options: Any) -> Any:
                return super()._do_request(*arguments, **{"timeout": ANSWER, **options})

        try:
            return Client(address)
        except Exception as error:  # whatever a server that is none, or another one, makes it raise
            raise SubmitFailed(f"{address}: {_reason(error)}") from None


@contextlib.contextmanager
def _without(*names: str) -> Iterator[None]:
    """Without some environment variables for a while: to Ray they are stronger than an argument."""
    saved = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(saved)


def _reason(error: BaseException) -> str:
    """What an error of Ray's client says, in one line: the last one of a traceback."""
    text = str(error).strip()
    if type(error).__name__ == "AuthenticationError":
        mode = os.environ.get("RAY_AUTH_MODE")
        return (
            f"the cluster wants another token (RAY_AUTH_MODE is {mode} here; set RAY_AUTH_TOKEN or "
            "RAY_AUTH_TOKEN_PATH, or RAY_AUTH_MODE=token for the token in ~/.ray/auth_token)"
        )
    return _last_line(text) or type(error).__name__


def _last_line(text: str) -> str:
    """The last line that says something, such as the error below a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" .'\"}")]
    return lines[-1][:400] if lines else ""


def submit(
    client: Any, submission: Submission, python: str | None = None, image: str | None = None
) -> str:
    """Hands a submission to the cluster; the job's id, `<run>-<attempt>`. Raises SubmitFailed.

    A head that has just started has no agent for jobs yet, and answers that for a while; a used id
    is an attempt that was made before. Where an answer was lost, the job is recognised by a mark.
    """
    mark = uuid.uuid4().hex
    metadata = {
        "run": submission.output,
        "recipe": submission.recipe.settings.name,
        "gristmill": version("gristmill"),
        "mark": mark,
    }
    with tempfile.TemporaryDirectory(prefix="gristmill-submit-") as directory:
        request = _request(submission, Path(directory), python, image)
        deadline, pause, attempt = time.monotonic() + PATIENCE, PAUSE, 1
        while True:
            name = f"{submission.name}-{attempt}"
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    client.submit_job(submission_id=name, metadata=dict(metadata), **request)
                return name
            except Exception as error:
                text = str(error)
                if "already exists" in text:
                    if _mark(client, name) == mark:
                        return name
                    attempt += 1
                    continue
                if not _passes(error) or time.monotonic() + pause > deadline:
                    raise SubmitFailed(
                        f"the job server does not take the job: {_reason(error)}"
                    ) from None
                print(f"curation: {_reason(error)}; trying again", file=sys.stderr)
            time.sleep(pause)
            pause = min(2 * pause, 15.0)


def _passes(error: Exception) -> bool:
    """Whether an error may pass: no agent yet, or no answer."""
    import requests

    return "No available agent" in str(error) or isinstance(
        error, (requests.ConnectionError, requests.Timeout)
    )


def _mark(client: Any, name: str) -> str | None:
    """The mark of a job that is there."""
    try:
        return (client.get_job_info(name).metadata or {}).get("mark")
    except Exception:
        return None


def _request(
    submission: Submission, directory: Path, python: str | None, image: str | None
) -> dict[str, Any]:
    """Entry point and runtime environment. In an image Ray allows no working directory: the recipe
    travels in the command there."""
    if image is None:
        submission.package(directory)
        interpreter = python or sys.executable
        environment = {"working_dir": str(directory), "py_executable": shlex.quote(interpreter)}
        return {
            "entrypoint": submission.command(interpreter, "recipe.yaml"),
            "runtime_env": environment,
        }
    if own := submission.own_files():
        raise RecipeError(f"--image: {own[0][1]} must be installed in the image")
    text = base64.b64encode(submission.document().encode()).decode()
    unpack = f'd=$(mktemp -d) && echo {text} | base64 -d > "$d/recipe.yaml"'
    run = submission.command(python or "python", '"$d/recipe.yaml"')
    return {"entrypoint": f"{unpack} && {run}", "runtime_env": {"image_uri": image}}


# ---------------------------------------------------------------- following


def follow(client: Any, job: str, out: TextIO) -> int:
    """Copies the job's log to `out` as it comes, until the job has ended; its exit code.

    75 where it was stopped; 1 where it failed without a code of its own. Raises SubmitFailed where
    contact is lost for good: the job may go on.
    """
    return asyncio.run(_follow(client, job, out))


async def _follow(client: Any, job: str, out: TextIO) -> int:
    shown = 0  # characters of the log
    heard, pause = time.monotonic(), PAUSE
    while True:
        try:
            seen = 0  # characters, from the start again at each new contact
            async for text in _chunks(client, job):
                seen += len(text)
                out.write(text[len(text) - max(0, min(len(text), seen - shown)) :])
                out.flush()
                shown = max(shown, seen)
                heard, pause = time.monotonic(), PAUSE
            info = client.get_job_info(job)
            if info.status.is_terminal():
                return _ended(job, info, out)
            heard = time.monotonic()
        except BrokenPipeError:
            raise  # nobody reads the log any more
        except Exception as error:
            if time.monotonic() - heard > PATIENCE:
                raise SubmitFailed(
                    f"job {job}: contact is lost ({_reason(error)}); it may go on"
                ) from None
        await asyncio.sleep(pause)
        pause = min(2 * pause, 15.0)


async def _chunks(client: Any, job: str) -> AsyncIterator[str]:
    """Pieces of the log from its start; ends with the job, even where nobody says so."""
    pieces = client.tail_job_logs(job)
    waiting: asyncio.Future[str] | None = None
    try:
        while True:
            waiting = asyncio.ensure_future(anext(pieces, ""))
            while not (await asyncio.wait({waiting}, timeout=SILENCE))[0]:
                if client.get_job_info(job).status.is_terminal():
                    return
            if not waiting.result():
                return
            yield waiting.result()
    finally:
        if waiting is not None:
            waiting.cancel()


def _ended(job: str, info: Any, out: TextIO) -> int:
    status, code = str(info.status), info.driver_exit_code
    if status == "STOPPED":
        print(f"curation: job {job} was stopped", file=out)
        return _STOPPED
    if status == "FAILED" and (code is None or code <= 0):
        print(f"curation: job {job} failed: {_last_line(info.message or '')}", file=out)
        return 1
    return int(code or 0)
