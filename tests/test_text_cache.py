"""Where compiled kernels are kept: written once, shared, and done without if need be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNT = """
import pyarrow as pa
from curation.text.view import TextView
print(TextView(pa.array(["two words"], pa.large_string())).word_counts()[0])
"""


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out.strip()


def test_processes_that_start_together_share_one_cache(tmp_path: Path) -> None:
    both = [start(COUNT, XDG_CACHE_HOME=str(tmp_path)) for _ in range(2)]
    assert [answer(process) for process in both] == ["2", "2"]
    (directory,) = (tmp_path / "gristmill" / "kernels").iterdir()
    code = {path: path.stat().st_mtime_ns for path in directory.rglob("*.nbc")}
    assert [path.name.split(".")[1].split("-")[0] for path in code] == ["find_word_hashes"]
    assert answer(start(COUNT, XDG_CACHE_HOME=str(tmp_path))) == "2"
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*.nbc")} == code


def test_without_a_writable_directory_kernels_run_uncached(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert answer(start(COUNT, XDG_CACHE_HOME=str(tmp_path / "file"))) == "2"


def test_importing_the_view_does_not_import_numba() -> None:
    code = "import sys, curation.text.view; print('numba' in sys.modules)"
    assert answer(start(code)) == "False"
