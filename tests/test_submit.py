"""Submitting a recipe: what the job server is asked, and what its answers mean.

A small job server on the loopback stands for the head of a cluster.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from curation import cli, submit
from curation.engine.ray_auth import ray_environment
from curation.engine.recipe import RecipeError

ROOT = Path(__file__).resolve().parent.parent
RECIPE = str(ROOT / "pipelines" / "crawl-filter.yaml")


class JobServer:
    """Answers as Ray's job server does. `refusals` are the texts of errors 500 that come first."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.lost: list[bool] = []  # whether the answer to a submission never comes
        self.used: set[str] = set()
        self.jobs: dict[str, dict[str, Any]] = {}
        self.posts: list[str] = []
        self.packages: dict[str, bytes] = {}
        self.authorizations: set[str | None] = set()
        self.log = ["first\n", "second\n"]
        self.cuts = 0  # connections to the log that break after its first piece
        self.end: dict[str, Any] = {"status": "SUCCEEDED", "driver_exit_code": 0}
        self.holds = False  # whether the job goes on for ever
        self.token: str | None = None
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        started.wait()

    def _serve(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        application = web.Application(middlewares=[self._authorize], client_max_size=1 << 30)
        application.router.add_get("/api/version", self._version)
        application.router.add_get("/api/packages/gcs/{name}", self._package)
        application.router.add_put("/api/packages/gcs/{name}", self._upload)
        application.router.add_post("/api/jobs/", self._submit)
        application.router.add_get("/api/jobs/{name}", self._job)
        application.router.add_get("/api/jobs/{name}/logs/tail", self._tail)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        self._loop.run_until_complete(self._runner.setup())
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        started.set()
        self._loop.run_forever()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Any) -> Any:
        found = request.headers.get("Authorization")
        self.authorizations.add(found)
        if self.token and found != f"Bearer {self.token}":
            return web.Response(status=403 if found else 401, text="Unauthorized")
        return await handler(request)

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "4", "ray_version": "2.60.0", "ray_commit": "x"})

    async def _package(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if request.match_info["name"] in self.packages else 404)

    async def _upload(self, request: web.Request) -> web.Response:
        self.packages[request.match_info["name"]] = await request.read()
        return web.Response()

    async def _submit(self, request: web.Request) -> web.Response:
        asked = await request.json()
        name = asked["submission_id"]
        self.posts.append(name)
        if self.refusals:
            return web.Response(status=500, text=self.refusals.pop(0))
        if name in self.used or name in self.jobs:
            trace = f"Traceback ...\nValueError: Job with submission_id {name} already exists.\n"
            return web.Response(status=500, text=trace)
        self.jobs[name] = asked
        if self.lost and self.lost.pop():
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"job_id": name, "submission_id": name})

    async def _job(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.jobs:
            return web.Response(status=404)
        asked = self.jobs[name]
        shown = {"type": "SUBMISSION", "submission_id": name, "entrypoint": asked["entrypoint"]}
        state = {"status": "RUNNING"} if self.holds else self.end
        return web.json_response({**shown, "metadata": asked["metadata"], **state})

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for piece in self.log:
            await socket.send_str(piece)
            if self.cuts:
                self.cuts -= 1
                assert request.transport is not None
                request.transport.close()
                return socket
        while self.holds:
            await asyncio.sleep(0.05)
        return socket


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobServer]:
    monkeypatch.setattr(submit, "PAUSE", 0.01)
    found = JobServer()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """The command runs in this process: what it sets for the process is set back."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)
    logging.disable(logging.NOTSET)


def curation(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def submitted(server: JobServer, *more: object, output: str = "/shared/runs/big") -> int:
    return curation(
        "submit", RECIPE, "--input", "/shared/crawl", "--output", output,
        "--address", server.address, *more,
    )  # fmt: skip


def unpacked(server: JobServer) -> dict[str, str]:
    [package] = server.packages.values()
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_job_is_the_command_run_on_the_cluster(
    server: JobServer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert submitted(server, "--limit", 3, "--base", "/shared/runs/old") == 0
    assert capfd.readouterr().out == "job  big-1\nrun  /shared/runs/big\n"
    job = server.jobs["big-1"]
    assert shlex.split(job["entrypoint"]) == [
        "exec", sys.executable, "-m", "curation", "run", "recipe.yaml", "--address", "auto",
        "--output", "/shared/runs/big", "--limit", "3", "--base", "/shared/runs/old",
    ]  # fmt: skip
    assert job["metadata"]["run"] == "/shared/runs/big"
    assert job["metadata"]["recipe"] == "crawl-filter"
    assert list(unpacked(server)) == ["recipe.yaml"]


def test_the_recipe_travels_resolved_and_its_paths_absolute(
    server: JobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = curation(
        "submit", RECIPE, "--input", "in/*.warc.gz", "https://a.example/b.warc.gz",
        "--set", "language.keep=[de]", "--output", "runs/a b", "--address", server.address,
        "--json",
    )  # fmt: skip
    assert code == 0
    [name] = server.jobs
    assert name == "a_b-1"
    assert f"--output '{tmp_path}/runs/a b'" in server.jobs[name]["entrypoint"]
    sent = yaml.safe_load(unpacked(server)["recipe.yaml"])
    assert sent["input"]["paths"] == [f"{tmp_path}/in/*.warc.gz", "https://a.example/b.warc.gz"]
    [language] = [stage["language"] for stage in sent["stages"] if "language" in stage]
    assert language["keep"] == ["de"]
    assert submit.prepare(sent, output="x").recipe.resolved() == {
        **sent, "input": {k: v for k, v in sent["input"].items() if k != "paths"}
    }  # fmt: skip


def test_the_sample_is_written_beside_the_run_by_the_job(server: JobServer) -> None:
    assert curation(
        "submit", RECIPE, "--input", "sample", "--output", "/s/r", "--address", server.address,
        "--python", "python",
    ) == 0  # fmt: skip
    command = server.jobs["r-1"]["entrypoint"]
    assert command.startswith("{ test -e /s/r.sample.warc.gz || python -m curation.sample /s/r.s")
    assert " && exec python -m curation run recipe.yaml " in command
    assert yaml.safe_load(unpacked(server)["recipe.yaml"])["input"]["paths"] == [
        "/s/r.sample.warc.gz"
    ]


def test_only_the_users_own_files_travel_with_the_recipe(server: JobServer, tmp_path: Path) -> None:
    filters = (
        "from curation.starter.my_filter import Shouting as S\nclass Own(S):\n    version = 1\n"
    )
    (tmp_path / "submit_own.py").write_text(filters)
    (tmp_path / "submit_pack").mkdir()
    (tmp_path / "submit_pack" / "__init__.py").write_text("")
    (tmp_path / "submit_pack" / "inner.py").write_text(filters)
    (tmp_path / "submit_pack" / "data.bin").write_text("not Python")
    (tmp_path / "secret.env").write_text("not for the cluster")
    stages = ["gopher_quality", "submit_own:Own", {"submit_pack.inner:Own": {"as": "second"}}]
    recipe = {"kind": "documents", "name": "own", "input": {"kind": "jsonl"}, "stages": stages}
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    more = ["--input", "/s/a.jsonl", "--output", "/s/own", "--address", server.address]
    assert curation("submit", tmp_path / "r.yaml", *more) == 0
    assert sorted(unpacked(server)) == [
        "recipe.yaml", "submit_own.py", "submit_pack/__init__.py", "submit_pack/inner.py",
    ]  # fmt: skip
    assert curation("submit", tmp_path / "r.yaml", *more, "--image", "registry/image") == 2


def test_within_an_image_the_recipe_travels_in_the_command(
    server: JobServer, tmp_path: Path
) -> None:
    assert submitted(server, "--image", "registry.example/gristmill:1") == 0
    job = server.jobs["big-1"]
    assert job["runtime_env"].keys() >= {"image_uri"} and "working_dir" not in job["runtime_env"]
    # The shell sees what is to be run: with `python` a script that shows its arguments.
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncat "$4"\necho "$@"\n')
    python.chmod(0o755)
    shell = subprocess.run(
        ["sh", "-c", job["entrypoint"]],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    text, arguments = re.fullmatch(r"(?s)(.*\n)(-m .*)\n", shell.stdout).groups()  # type: ignore[union-attr]
    assert yaml.safe_load(text)["input"]["paths"] == ["/shared/crawl"]
    assert arguments.endswith("recipe.yaml --address auto --output /shared/runs/big")
    encoded = re.search(r"echo (\S+) \| base64", job["entrypoint"])
    assert encoded and base64.b64decode(encoded[1]).decode() == text


def test_attempts_count_up_where_an_id_is_used(server: JobServer) -> None:
    server.used = {"big-1", "big-2"}
    assert submitted(server) == 0
    assert list(server.jobs) == ["big-3"]


def test_a_head_that_is_not_ready_is_asked_again(
    server: JobServer, capfd: pytest.CaptureFixture[str]
) -> None:
    server.refusals = ["No available agent to submit job, please try again later."] * 3
    assert submitted(server) == 0
    assert server.posts == ["big-1"] * 4
    assert capfd.readouterr().err.count("No available agent") == 3


def test_what_does_not_pass_is_said_at_once(
    server: JobServer, capfd: pytest.CaptureFixture[str]
) -> None:
    server.refusals = ["Traceback\n  File x\nKeyError: 'broken'\n"]
    assert submitted(server) == 1
    assert server.posts == ["big-1"]
    assert "KeyError: 'broken'" in capfd.readouterr().err


def test_patience_ends(server: JobServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "PATIENCE", 0.1)
    server.refusals = ["No available agent"] * 1000
    assert submitted(server) == 1


def test_a_lost_answer_does_not_make_a_second_job(server: JobServer) -> None:
    server.lost = [True]
    assert submitted(server) == 0
    assert list(server.jobs) == ["big-1"] and server.posts == ["big-1", "big-1"]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"status": "SUCCEEDED", "driver_exit_code": 0}, 0),
        ({"status": "FAILED", "driver_exit_code": 3}, 3),
        ({"status": "FAILED", "driver_exit_code": 75}, 75),
        ({"status": "FAILED", "driver_exit_code": -9, "message": "killed"}, 1),
        ({"status": "FAILED", "message": "no environment"}, 1),
        ({"status": "STOPPED"}, 75),
    ],
)
def test_follow_ends_with_the_exit_code_of_the_job(
    server: JobServer, capfd: pytest.CaptureFixture[str], end: dict[str, Any], code: int
) -> None:
    server.end = end
    assert submitted(server, "--follow", "--json") == code
    out, err = capfd.readouterr()
    assert json.loads(out) == {"job": "big-1", "run": "/shared/runs/big", "address": server.address}
    assert err.startswith("first\nsecond\n") and end.get("message", "") in err


def test_a_broken_connection_repeats_no_line_of_the_log(
    server: JobServer, capfd: pytest.CaptureFixture[str]
) -> None:
    server.cuts = 2
    assert submitted(server, "--follow") == 0
    assert capfd.readouterr().err == "first\nsecond\n"


def test_lost_contact_is_said(
    server: JobServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submit, "PATIENCE", 0.2)
    server.cuts = 10_000
    monkeypatch.setattr(submit, "ANSWER", 0.2)
    client = submit.connect(server.address)
    server.close()
    with pytest.raises(submit.SubmitFailed, match="contact is lost"):
        submit.follow(client, "big-1", io.StringIO())
    server.__init__()  # type: ignore[misc]  # for the fixture to close


def test_an_interrupt_detaches_and_says_how_to_follow(server: JobServer) -> None:
    server.holds = True
    process = subprocess.Popen(
        [sys.executable, "-m", "curation", "submit", RECIPE, "--input", "/s", "--output", "/s/r",
         "--address", server.address, "--follow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stderr is not None and process.stderr.readline() == "first\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (75, "job  r-1\nrun  /s/r\n")
    assert "the job goes on" in err and err.rstrip().endswith(f"{server.address} r-1")


def test_an_address_where_nobody_listens_is_one_line_and_exit_1(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as held:  # bound, so that nobody else has the port; it does not listen
        held.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{held.getsockname()[1]}"
        code = curation("submit", RECIPE, "--input", "/s", "--output", "/r", "--address", address)
    err = capfd.readouterr().err
    assert code == 1 and len(err.splitlines()) == 1 and address in err


def test_a_server_that_never_answers_is_left(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submit, "ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert (
            curation("submit", RECIPE, "--input", "/s", "--output", "/r", "--address", address) == 1
        )
    assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8265", "ray://h:1", "http://", "http://h:x", "auto"]
)
def test_an_address_that_is_none_is_wrong_usage(address: str) -> None:
    assert curation("submit", RECIPE, "--input", "/s", "--output", "/r", "--address", address) == 2


def test_a_wrong_recipe_is_said_before_any_contact(server: JobServer, tmp_path: Path) -> None:
    assert submitted(server, "--set", "language.kep=[en]") == 2
    assert curation("submit", RECIPE, "--output", "/r", "--address", server.address) == 2
    with pytest.raises(SystemExit, match="2"):  # no run directory
        curation("submit", RECIPE, "--input", "/s", "--address", server.address)
    assert not server.authorizations  # no request came
    with pytest.raises(RecipeError):
        submit.prepare(tmp_path / "none.yaml", output="/r", inputs=["/s"])


def test_the_address_is_stronger_than_the_environment(
    server: JobServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")
    assert submitted(server) == 0
    assert os.environ["RAY_ADDRESS"] == "http://127.0.0.1:9"


def test_authentication_is_decided_by_what_the_user_has_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert ray_environment() == "disabled" == os.environ["RAY_AUTH_MODE"]
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/a/file")
    assert ray_environment() == "token" == os.environ["RAY_AUTH_MODE"]
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert ray_environment() == "disabled"


def test_the_token_is_sent_and_a_wrong_one_is_said(server: JobServer) -> None:
    """In processes of their own: Ray reads the mode when it is imported."""
    server.token = "right-token-of-enough-letters"
    command = [sys.executable, "-m", "curation", "submit", RECIPE, "--input", "/s", "--output",
               "/s/r", "--address", server.address, "--follow"]  # fmt: skip
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}

    def run(**extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env={**clean, **extra}, cwd=ROOT, capture_output=True, text=True, check=False
        )

    right = run(RAY_AUTH_TOKEN=server.token)
    assert (right.returncode, right.stderr) == (0, "first\nsecond\n")
    for wrong in (run(RAY_AUTH_TOKEN="another-token-of-letters"), run()):
        assert wrong.returncode == 1 and wrong.stdout == ""
        assert len(wrong.stderr.splitlines()) == 1 and "RAY_AUTH_TOKEN" in wrong.stderr
    assert {None, f"Bearer {server.token}"} <= server.authorizations


def test_the_log_may_be_silent_for_long(server: JobServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that ends while its log hangs is noticed."""
    monkeypatch.setattr(submit, "SILENCE", 0.05)
    server.holds = True
    out = io.StringIO()
    codes: list[int] = []
    client = submit.connect(server.address)
    job = submit.submit(client, submit.prepare(RECIPE, output="/r", inputs=["/s"]))
    thread = threading.Thread(target=lambda: codes.append(submit.follow(client, job, out)))
    thread.start()
    while out.getvalue() != "first\nsecond\n":
        time.sleep(0.01)
    server.log, server.end = [], {"status": "FAILED", "driver_exit_code": 3}
    server.holds = False
    thread.join(20)
    assert codes == [3]
