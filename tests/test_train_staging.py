"""Room for copies: of the same form, whole before it is read, untouched by what comes after."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from tests.ranks import run_ranks
from training import staging
from training.staging import Staging, local

CPU = torch.device("cpu")


def test_a_copy_has_the_form_of_the_tree_and_is_not_changed_with_it() -> None:
    tree: dict[str, Any] = {"a": torch.arange(6.0).view(2, 3), "b": {"c": torch.tensor(7), "n": 3}}
    staged = Staging(CPU)
    room = staged.room(tree)
    staged.copy(tree, room)
    staged.settle()
    tree["a"].zero_()
    tree["b"]["c"].zero_()
    staged.wait()
    assert torch.equal(room["a"], torch.arange(6.0).view(2, 3))
    assert (room["b"]["c"], room["b"]["n"]) == (7, 3)
    staged.copy(tree, room)  # the same room again
    assert not room["a"].any() and room["b"]["c"] == 0


def divided() -> tuple[bool, list[Any], list[float]]:
    """A divided tensor and its copy."""
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    tensor = DTensor.from_local(torch.full((2, 3), 1.0 + mesh.get_rank()), mesh, [Shard(0)])
    staged = Staging(CPU)
    room = staged.room({"x": tensor})
    staged.copy({"x": tensor}, room)
    copy = room["x"]
    mine = local(tensor).data_ptr() == local(copy).data_ptr()
    whole = copy.full_tensor()
    torch.distributed.destroy_process_group()
    return mine, [type(copy).__name__, tuple(copy.shape), copy.placements], whole.tolist()


def test_divided_tensors_stay_divided() -> None:
    for mine, form, whole in run_ranks(2, divided):
        assert not mine
        assert form == ["DTensor", (4, 3), (Shard(0),)]
        assert whole == [[1.0] * 3] * 2 + [[2.0] * 3] * 2


@pytest.mark.gpu
def test_what_a_gpu_does_next_waits_for_the_copy_and_the_reader_too() -> None:
    device = torch.device("cuda")
    staged = Staging(device)
    tree = {str(n): torch.zeros(1 << 27, device=device) for n in range(4)}  # 0.5 GB each
    room = staged.room(tree)
    assert all(isinstance(copy, Tensor) and copy.is_pinned() for copy in room.values())
    for value in range(3):
        staged.copy(tree, room)
        staged.settle()
        for tensor in tree.values():
            tensor += 1
        staged.wait()
        assert {float(x) for copy in room.values() for x in copy.aminmax()} == {value}


def test_without_a_gpu_there_is_nothing_to_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging.torch.cuda, "current_stream", lambda: 1 / 0)
    staged = Staging(CPU)
    staged.copy({"x": torch.ones(1)}, staged.room({"x": torch.ones(1)}))
    staged.settle()
    staged.wait()
