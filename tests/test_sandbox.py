"""The extraction sandbox: what one page does to its process costs that page and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from curation.extract.child import Outcome, Settings
from curation.extract.sandbox import EXCHANGE_PAGES, Page, Sandbox, SandboxError, sandbox

POISON = """
import ctypes, os, signal, sys, time

def engine(html):
    if "segfault" in html:
        ctypes.string_at(0)
    if "killed" in html:
        os.kill(os.getpid(), signal.SIGKILL)
    if "spin" in html:
        while True:
            pass
    if "sleep" in html:
        time.sleep(3600)
    if "eat" in html:
        hoard = [bytes(1 << 24) for _ in range(1 << 20)]
    if "raise" in html:
        raise ValueError("no")
    if "print" in html:
        print("noise"); os.write(1, b"noise"); os.write(2, b"noise")
    if "once" in html and not os.path.exists(html):
        open(html, "w").close()
        os.abort()
    if "leak" in html:
        engine.hoard = getattr(engine, "hoard", []) + [bytearray(1 << 24)]
    return html.upper()
"""


@pytest.fixture(scope="module")
def poison(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("engine")
    (directory / "poison_engine.py").write_text(POISON)
    sys.path.insert(0, str(directory))
    yield "poison_engine:engine"
    sys.path.remove(str(directory))


@pytest.fixture
def box(poison: str) -> Iterator[Sandbox]:
    sandbox = Sandbox(Settings(poison, cpu_seconds=0.3, wall_seconds=1.0, memory_mib=256))
    yield sandbox
    sandbox.close()


def page(text: str) -> Page:
    return Page(text.encode())


def texts(outcomes: list[Outcome]) -> list[str | None]:
    return [outcome.failure or (outcome.text or b"").decode() for outcome in outcomes]


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("segfault", "crash"),
        ("killed", "memory"),  # SIGKILL: as by the kernel when memory runs out
        ("spin", "timeout"),
        ("sleep", "timeout"),
        ("eat", "memory"),
        ("raise", "extractor_error"),
    ],
)
def test_a_poison_page_costs_that_page(box: Sandbox, text: str, failure: str) -> None:
    outcomes = box.extract([page("a"), page("b"), page(text), page("c"), page("d")])
    assert texts(outcomes) == ["A", "B", failure, "C", "D"]
    assert texts(box.extract([page("e")])) == ["E"]


def test_many_poison_pages_among_many_exchanges(box: Sandbox) -> None:
    pages = [f"page {index}" for index in range(5 * EXCHANGE_PAGES)]
    for index in (0, 1, 70, EXCHANGE_PAGES * 2 - 1, len(pages) - 1):
        pages[index] = "segfault"
    expected = ["crash" if text == "segfault" else text.upper() for text in pages]
    assert texts(box.extract([page(text) for text in pages])) == expected


def test_a_page_that_dies_once_is_tried_again(box: Sandbox, tmp_path: Path) -> None:
    mark = str(tmp_path / "once")
    assert texts(box.extract([page("a"), page(mark), page("b")])) == ["A", mark.upper(), "B"]


def test_what_an_engine_prints_reaches_nobody(
    box: Sandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    assert texts(box.extract([page("print"), page("a")])) == ["PRINT", "A"]
    assert capfd.readouterr() == ("", "")


def test_a_leaking_engine_is_renewed_and_no_page_fails(box: Sandbox) -> None:
    pages = [f"leak {index}" for index in range(60)]  # 16 MiB each, of 256
    outcomes = [texts(box.extract([page(text)]))[0] for text in pages]
    assert outcomes == [text.upper() for text in pages]


def test_batches_overlap_and_come_out_in_order(box: Sandbox) -> None:
    taken = []

    def batches() -> Iterator[list[Page]]:
        for index in range(4):
            taken.append(index)
            yield [page(f"{index} {number}") for number in range(index * 50)]

    results = box.extract_many(batches())
    assert texts(next(results)) == []
    assert taken == [0, 1]  # the child has batch 1 while the caller has batch 0
    other = texts(box.extract([page("between")]))
    assert other == ["BETWEEN"]
    for index, outcomes in enumerate(results, start=1):
        assert texts(outcomes) == [f"{index} {number}" for number in range(index * 50)]
    assert index == 3


def test_an_abandoned_generator_disturbs_nothing(box: Sandbox) -> None:
    results = box.extract_many([page(f"{i}")] for i in range(5))
    next(results)
    results.close()
    assert texts(box.extract([page("a")])) == ["A"]


def test_pages_too_large_never_reach_the_engine(poison: str) -> None:
    box = Sandbox(Settings(poison, max_bytes=10))
    assert texts(box.extract([page("x" * 10), page("x" * 11)])) == ["X" * 10, "too_large"]
    box.close()


def test_an_engine_that_cannot_be_imported_is_no_page_s_fault() -> None:
    with pytest.raises(SandboxError, match="No module named 'no_such_module'"):
        Sandbox(Settings("no_such_module:engine")).extract([page("a")])


def test_one_sandbox_per_thread_and_settings() -> None:
    assert sandbox(Settings()) is sandbox(Settings())
    assert sandbox(Settings()) is not sandbox(Settings(max_depth=3))


def test_the_child_dies_with_its_parent(poison: str) -> None:
    code = f"""
        import os, sys
        sys.path[:0] = {sys.path!r}
        from curation.extract.sandbox import *
        from curation.extract.child import Settings
        box = Sandbox(Settings({poison!r}))
        box.extract([Page(b"a")])
        box.submit([Page(b"sleep")])
        print(box._child._process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    parent = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, check=False
    )
    assert parent.returncode == -signal.SIGKILL
    child = int(parent.stdout)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _alive(child):
        time.sleep(0.02)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
