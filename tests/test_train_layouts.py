"""One run, however it is divided among ranks, micro-batches and accumulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ranks import run_ranks
from tests.trainers import config, lines, train


@pytest.mark.parametrize(("ranks", "micro_batch"), [(1, 4), (2, 2), (2, 4)])
def test_losses_and_digests_do_not_depend_on_the_division(
    toy_manifest: Path, tmp_path: Path, ranks: int, micro_batch: int
) -> None:
    """(world, micro-batch, accumulation) = (1,8,1) against (1,4,2), (2,2,2), (2,4,1)."""
    run_ranks(1, train, config(toy_manifest, tmp_path / "one"))
    other = config(toy_manifest, tmp_path / "other", f"train.micro_batch={micro_batch}")
    run_ranks(ranks, train, other)
    first, second = (lines(tmp_path / name, "health") for name in ("one", "other"))
    assert [line["step"] for line in first] == list(range(1, 7))
    assert [line["loss"] for line in second] == pytest.approx(
        [line["loss"] for line in first], rel=1e-6
    )
    batches = [
        [line["digest"] for line in lines(tmp_path / name, "batches")] for name in ("one", "other")
    ]
    assert batches[0] == batches[1]
    assert len(set(batches[0])) == 6
