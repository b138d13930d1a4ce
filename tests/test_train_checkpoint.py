"""Checkpoints: whole or not at all, the same tensors on any layout, nothing of later steps."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.ranks import run_ranks
from tests.trainers import config, lines, train
from training import checkpoint, loop, world
from training.checkpoint import CheckpointError, check, complete, place_of
from training.config import Config, ConfigError
from training.weights import chosen, weights

Tensors = dict[str, np.ndarray]


def on_trainer(config: Config, work: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives of a trainer of this rank."""
    here = world.join(config)
    trainer = loop.Trainer(config, here)
    try:
        return work(trainer, *arguments)
    finally:
        trainer.checkpoints.close()
        trainer.loader.close()
        world.leave()


def shown(trainer: loop.Trainer) -> Tensors:
    """Whole parameters and moments, by their names."""
    found = {}
    for name, parameter in trainer.model.named_parameters():
        own = {"": parameter, **trainer.optimizer.state[parameter]}
        for kind, tensor in own.items():
            whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            found[f"{name} {kind}"] = whole.detach().numpy().copy()
    return found


def same(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


# ---------------------------------------------------------------- layouts


def trained(trainer: loop.Trainer) -> Tensors:
    trainer.train()
    return shown(trainer)


def restored(trainer: loop.Trainer) -> Tensors:
    assert trainer.step == 0
    trainer.resume()
    return shown(trainer)


@pytest.mark.parametrize(
    ("tied", "first", "others"),
    [(False, (2,), [(1,), (2, "parallel.replicate=2")]), (True, (1,), [(2,)])],
)
def test_parameters_and_moments_are_the_same_on_another_layout(
    toy_manifest: Path, tmp_path: Path, tied: bool, first: tuple[int], others: list[Any]
) -> None:
    """The vocabulary of 258 is no multiple of anything here."""
    small = ("train.steps=2", "train.micro_batch=4", f"model.tied={str(tied).lower()}")
    made = config(toy_manifest, tmp_path, *small)
    saved = run_ranks(*first, on_trainer, made, trained)[0]
    assert any(name.endswith("exp_avg_sq") and values.any() for name, values in saved.items())
    for ranks, *overrides in others:
        again = config(toy_manifest, tmp_path, *small, *overrides)
        for found in run_ranks(ranks, on_trainer, again, restored):
            assert same(found, saved)
    alone = weights(tmp_path)
    names = {name.removesuffix(" ") for name in saved if name.endswith(" ")}
    assert names | {"head.out.weight"} == set(alone)
    assert all(np.array_equal(alone[name].numpy(), saved[f"{name} "]) for name in names)


# ---------------------------------------------------------------- in the background


def overtaken(trainer: loop.Trainer) -> tuple[bool, Tensors, Tensors]:
    """A save that is held up while two more steps are made."""
    held, real = threading.Event(), checkpoint.dcp_save

    def slow(*arguments: Any, **named: Any) -> Any:
        held.wait()
        return real(*arguments, **named)

    checkpoint.dcp_save = slow  # type: ignore[assignment]
    finished = []
    for step in range(2):  # the second copy goes into the memory of the first
        trainer.one(step)
        trainer.step += 1
        before = shown(trainer)
        trainer.save()
        finished += complete(trainer.checkpoints.directory)[step:]
        trainer.one(trainer.step)
        held.set()
        trainer.checkpoints.wait()
        held.clear()
    assert not same(shown(trainer), before)
    held.set()
    trainer.restore(2)
    return bool(finished), before, shown(trainer)


def test_what_is_written_is_not_changed_by_later_steps(toy_manifest: Path, tmp_path: Path) -> None:
    """pytorch #144657: memory of the CPU has to be copied, too."""
    [(finished, before, after)] = run_ranks(
        1, on_trainer, config(toy_manifest, tmp_path), overtaken
    )
    assert not finished, "saving went on in the background"
    assert same(before, after)


def full_disk(trainer: loop.Trainer) -> tuple[list[int], str, list[int]]:
    """Rank 1 cannot write its second checkpoint."""
    trainer.one(0)
    trainer.step = 1
    trainer.save()
    before = trainer.checkpoints.steps()
    if trainer.world.rank == 1:

        def write_data(*_: Any) -> Any:
            raise OSError(28, "No space left on device", "somewhere")

        checkpoint.FileSystemWriter.write_data = write_data  # type: ignore[method-assign]
    trainer.step = 2
    trainer.save()
    try:
        trainer.save()
    except CheckpointError as error:
        return before, str(error), trainer.checkpoints.steps()
    raise AssertionError("nothing was said")


def test_an_error_of_one_rank_in_the_background_is_raised_on_all_at_the_next_call(
    toy_manifest: Path, tmp_path: Path
) -> None:
    made = config(toy_manifest, tmp_path, "train.micro_batch=4")
    for before, said, after in run_ranks(2, on_trainer, made, full_disk):
        assert before == after == [1]
        assert "rank 1: somewhere: No space left on device" in said
        assert "\n" not in said
    check(place_of(tmp_path / "checkpoints", 1))


# ---------------------------------------------------------------- cut off


_WRITES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}


def snapshots(trainer: loop.Trainer, into: Path) -> None:
    """What is on disk before every change of a file while the second checkpoint is saved and the
    first one removed: what kill -9 would leave there."""
    trainer.one(0)
    trainer.step = 2
    trainer.save()
    trainer.checkpoints.wait()
    within, taken, inside = str(trainer.checkpoints.directory), [0], [False]
    lock = threading.RLock()  # other threads wait at their next change while a copy is made

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _WRITES:
            return
        path = str(arguments[0])
        if event in ("os.remove", "os.rmdir") and arguments[1] >= 0:  # as shutil.rmtree does
            path = os.path.join(os.readlink(f"/proc/self/fd/{arguments[1]}"), path)
        if not path.startswith(within):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        with lock:
            if not inside[0]:
                inside[0] = True
                shutil.copytree(within, into / f"{taken[0]:03d}")
                taken[0] += 1
                inside[0] = False

    sys.addaudithook(hook)
    trainer.step = 4
    trainer.save()
    trainer.checkpoints.wait()
    inside[0] = True


def test_a_kill_at_any_moment_of_a_save_leaves_a_sound_checkpoint(
    toy_manifest: Path, tmp_path: Path
) -> None:
    made = config(toy_manifest, tmp_path / "run", "checkpoint.keep=1")
    (tmp_path / "cut").mkdir()
    run_ranks(1, on_trainer, made, snapshots, tmp_path / "cut")
    cuts = sorted((tmp_path / "cut").iterdir())
    assert len(cuts) > 10
    newest = []
    for cut in cuts:
        steps = complete(cut)
        assert [check(place_of(cut, step))["step"] for step in steps] == steps
        assert cut.joinpath("latest").read_text().strip() in [
            place_of(cut, step).name for step in (2, 4) if step in steps
        ]
        newest.append(steps[-1])
    assert newest == sorted(newest) and set(newest) == {2, 4}
    assert complete(tmp_path / "run" / "checkpoints") == [4]
    assert [place.name for place in (tmp_path / "run" / "checkpoints").glob("step-*")] == [
        "step-00000004"
    ]


def killed(config: Config, write: int) -> None:
    """Dies by SIGKILL at a write of the second checkpoint."""
    left = [write]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and "step-00000004" in str(arguments[1]):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    train(config)


def test_a_killed_run_goes_on_with_the_same_losses_to_the_last_bit(
    toy_manifest: Path, tmp_path: Path
) -> None:
    def made(name: str) -> Config:
        return config(toy_manifest, tmp_path / name, "checkpoint.every=2", "train.micro_batch=4")

    run_ranks(2, train, made("whole"))
    with pytest.raises(RuntimeError, match="rank"):
        run_ranks(2, killed, made("cut"), 3)  # .metadata and state.json are there, no marker
    assert complete(tmp_path / "cut" / "checkpoints") == [2]
    assert (place_of(tmp_path / "cut" / "checkpoints", 4) / ".metadata").exists()
    run_ranks(2, train, made("cut"))
    whole, cut = (
        {line["step"]: line["loss"] for line in lines(tmp_path / name, "health")}
        for name in ("whole", "cut")
    )
    assert cut == whole and sorted(cut) == [1, 2, 3, 4, 5, 6]
    one, other = (weights(tmp_path / name) for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


# ---------------------------------------------------------------- damage, what is kept


@pytest.fixture(scope="module")
def finished(toy_manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6 steps with checkpoints of 2, 4 and 6."""
    run = tmp_path_factory.mktemp("finished")
    run_ranks(1, train, config(toy_manifest, run, "checkpoint.every=2"))
    return run


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("__0_0.distcp", flip),
        ("__0_0.distcp", lambda path: path.write_bytes(path.read_bytes()[:-1])),
        ("__0_0.distcp", Path.unlink),
        (".metadata", flip),
        ("state.json", flip),
        ("COMPLETE", lambda path: path.write_bytes(b"{}")),
        ("COMPLETE", lambda path: path.write_bytes(b"")),
    ],
)
def test_damage_is_found_and_named(
    finished: Path, tmp_path: Path, name: str, change: Callable[[Path], Any]
) -> None:
    place = shutil.copytree(place_of(finished / "checkpoints", 6), tmp_path / "copy")
    assert check(place)["step"] == 6
    change(place / name)
    with pytest.raises(CheckpointError) as raised:
        check(place)
    assert str(raised.value).startswith(f"{place / name}: ") and "\n" not in str(raised.value)


def went_back(trainer: loop.Trainer) -> tuple[int, list[int], Tensors, str]:
    """Starts where the newest checkpoint is damaged; then loads it for another optimiser, and goes
    back further and further."""
    trainer.resume()
    began, steps, found = trainer.step, trainer.checkpoints.steps(), shown(trainer)
    other = torch.optim.SGD(trainer.model.parameters(), momentum=0.9)
    try:
        trainer.checkpoints.load(4, trainer.model, other)
    except ConfigError as error:
        said = str(error)
    else:
        raise AssertionError("another optimiser was taken")
    trainer.restore(2)
    assert trainer.checkpoints.steps() == [2]
    trainer.checkpoints.forget(0)
    assert trainer.checkpoints.steps() == []
    assert not (trainer.checkpoints.directory / "latest").exists()
    return began, steps, found, said


def test_the_checkpoint_before_a_damaged_one_is_taken(
    toy_manifest: Path, finished: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    damaged = place_of(run / "checkpoints", 6) / "__0_0.distcp"
    flip(damaged)
    made = config(toy_manifest, run, "checkpoint.every=2")
    [(began, steps, found, said)] = run_ranks(1, on_trainer, made, went_back)
    assert began == 4 and steps == [2, 4]
    expected = weights(finished, 4)
    assert all(np.array_equal(found[f"{name} "], expected[name].numpy()) for name in expected)
    [event] = [line for line in lines(run, "events") if line["event"] == "damaged"]
    assert event["step"] == 6 and str(damaged) in event["problem"]
    assert said.startswith("optimizer.kind: ") and "\n" not in said


def test_the_newest_and_the_permanent_ones_are_kept(toy_manifest: Path, tmp_path: Path) -> None:
    """Written while training waits, too."""
    knobs = ("checkpoint.every=1", "checkpoint.keep=2", "checkpoint.permanent=3")
    run_ranks(1, train, config(toy_manifest, tmp_path, *knobs, "checkpoint.asynchronous=false"))
    directory = tmp_path / "checkpoints"
    assert complete(directory) == [3, 5, 6]
    assert {place.name for place in directory.iterdir()} == {
        *(place_of(directory, step).name for step in (3, 5, 6)),
        "latest",
    }
    assert (directory / "latest").read_text() == "step-00000006\n"


def test_the_state_beside_says_what_it_is_of(finished: Path, toy_manifest: Path) -> None:
    state = json.loads((place_of(finished / "checkpoints", 4) / "state.json").read_text())
    manifest = json.loads((toy_manifest / "manifest.json").read_text())
    assert (state["step"], state["samples"]) == (4, 32)
    assert state["manifest"] == manifest["digest"]
    assert state["tokenizer"] == manifest["tokenizer"]["sha256"]
    assert state["ranks"] == {"pipeline": 1, "replicate": 1, "shard": 1, "tensor": 1}
    assert state["torch"] == torch.__version__


# ---------------------------------------------------------------- without the run


def test_the_mean_of_the_last_ones(finished: Path) -> None:
    one, two, three = (weights(finished, step) for step in (2, 4, 6))
    mean, newest = weights(finished, average=3), weights(finished)
    for name in one:
        stacked = torch.stack([one[name], two[name], three[name]]).double()
        torch.testing.assert_close(mean[name].double(), stacked.mean(0))
        assert torch.equal(newest[name], three[name])
    assert not torch.equal(one["embed.weight"], three["embed.weight"])
    assert [place.name for place in chosen(finished, 4, 2)] == ["step-00000002", "step-00000004"]
    single = weights(place_of(finished / "checkpoints", 4))
    assert all(torch.equal(single[name], two[name]) for name in two)


@pytest.mark.parametrize(
    ("step", "average", "said"),
    [(5, 1, "no complete checkpoint of step 5"), (None, 4, "3 checkpoints; the mean of 4")],
)
def test_checkpoints_that_are_not_there(
    finished: Path, step: int | None, average: int, said: str
) -> None:
    with pytest.raises(CheckpointError, match=said):
        weights(finished, step, average)


def test_what_others_put_beside_checkpoints_is_none_of_them(tmp_path: Path) -> None:
    for name in ("step-00000002", "step-00000002.bak", "step-old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / checkpoint.MARKER).touch()
    assert complete(tmp_path) == [2]
    assert checkpoint._places(tmp_path) == [tmp_path / "step-00000002"]
