"""How the trainer's commands end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from training.commands import leave


def test_who_has_seen_enough_sees_no_traceback(tmp_path: Path) -> None:
    said = "from training.commands import leave; leave(lambda: print(str(10**4000) * 100) or 0)"
    command = f"{sys.executable} -c {said!r} 2>{tmp_path / 'stderr'} | head -c 1"
    subprocess.run(["bash", "-c", command], cwd=ROOT, check=True, timeout=60)
    assert (tmp_path / "stderr").read_text() == ""


def test_an_interrupt_is_an_exit_code() -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        leave(interrupted)
    assert ended.value.code == 130
