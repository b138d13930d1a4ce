"""Batches are a function of manifest, logs and step: nothing lost, repeated, or unlike before."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manifests.logs import MIXTURE, SKIPS, Logs, Skip
from manifests.order import BLOCK
from manifests.tokens import Manifest, ManifestError
from tests.make_tokens import same
from tests.ranks import run_ranks
from tests.trainers import config, lines, train
from training.config import Config, ConfigError, Data, load
from training.data import consumption as eaten
from training.data.batches import Batches, digest
from training.data.files import VERIFIED, Check
from training.data.loader import Loader
from training.data.logs import append, change
from training.data.replay import Replay
from training.objectives import Objective
from training.world import World

SIZE = 16


@pytest.fixture(scope="module")
def manifest(toy_manifest: Path) -> Manifest:
    return Manifest.load(toy_manifest)


def opened(manifest: Manifest, logs: Logs, read: str = "auto", steps: int = 1) -> Batches:
    return Batches(manifest, Data(read=read), logs, SIZE, steps)  # type: ignore[arg-type]


# ---------------------------------------------------------------- logs

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=6)


def _holes(ranges: list[tuple[int, int]]) -> tuple[Logs, list[int]]:
    """Skips of the ranges that overlap none before, and the live samples below 200."""
    skipped: set[int] = set()
    skips = []
    for begin, length in ranges:
        own = set(range(begin, begin + length))
        if not own & skipped:
            skips.append(Skip(begin, begin + length, "test"))
            skipped |= own
    return Logs(skips=tuple(skips)), [n for n in range(200) if n not in skipped]


@given(RANGES, st.integers(0, 80), st.integers(0, 20))
def test_live_samples_are_those_that_are_not_skipped(
    ranges: list[tuple[int, int]], first: int, count: int
) -> None:
    logs, live = _holes(ranges)
    assert logs.samples(first, count).tolist() == live[first : first + count]
    numbers = {sample: number for number, sample in enumerate(live)}
    assert logs.live(np.arange(150)).tolist() == [numbers.get(n, -1) for n in range(150)]
    assert logs.consumed(first) == (live[first - 1] + 1 if first else 0)


@given(RANGES, st.integers(1, 40), st.integers(0, 30), st.integers(1, 9))
def test_a_later_hole_leaves_the_prefix_as_it_was_and_an_earlier_one_does_not(
    manifest: Manifest, ranges: list[tuple[int, int]], live: int, after: int, length: int
) -> None:
    logs, samples = _holes(ranges)
    begin = samples[live + after]
    later = Logs(skips=(*logs.skips, Skip(begin, begin + 1, "later")))
    seen = samples[live - 1]
    earlier = Logs(skips=(*logs.skips, Skip(seen, seen + 1, "earlier")))
    before = logs.prefix(manifest, live)
    assert later.prefix(manifest, live) == before != earlier.prefix(manifest, live)


def test_a_torn_line_counts_for_nothing_and_goes_with_the_next(tmp_path: Path) -> None:
    append(tmp_path, [Skip(8, 16, "a")])
    for torn in (b'{"begin": 24, "e', b'{"begin": 24, "end": 32, "reason": "b"}', b"\0\0"):
        place = tmp_path / SKIPS
        place.write_bytes(place.read_bytes() + torn)
        before = Logs.read(tmp_path).skips
        fresh = Skip(before[-1].end, before[-1].end + 8, "c")
        append(tmp_path, [fresh])
        assert Logs.read(tmp_path).skips == (*before, fresh)


SKIPPED = '{"begin": 8, "end": 16, "reason": "a"}\n'


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (SKIPS, SKIPPED + "{\n" + SKIPPED, "line 2: damaged: no JSON"),
        (SKIPS, SKIPPED + '{"begin": 15, "end": 17, "reason": ""}\n', "line 2: 15 to 17 overlap"),
        (SKIPS, '{"begin": 8, "end": 8, "reason": "a"}\n', "line 1: samples 8 to 8 are no range"),
        (SKIPS, '{"begin": "8", "end": 9, "reason": "a"}\n', "line 1: damaged: begin"),
        (MIXTURE, '{"from_sample": 5, "weights": {}, "parts": {}}\n', "line 1: .* sample 5, no"),
        (MIXTURE, '{"from_sample": 0, "weights": {}, "parts": {"web": 3}}\n', "line 1: parts"),
    ],
)
def test_a_damaged_log_is_named_with_its_line(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ManifestError, match=rf"{name}, {said}") as error:
        Logs.read(tmp_path)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- batches


def test_shards_and_packed_files_give_the_same_batches_around_holes(manifest: Manifest) -> None:
    logs = Logs(skips=(Skip(20, 36, "a"), Skip(1030, 1031, "b")))
    shards, live = (opened(manifest, logs, read) for read in ("shards", "live"))
    assert not shards.live and live.live
    for step in (0, 1, 2, 62, 63, 64):
        (one, samples), (other, _) = shards.rows(step, 0, SIZE), live.rows(step, 0, SIZE)
        assert same(one, other)
        assert digest(one, samples) == digest(other, samples)


def test_a_batch_does_not_depend_on_what_was_read_before(manifest: Manifest) -> None:
    batches = opened(manifest, Logs(), "live")
    forwards = [batches.rows(step, 0, SIZE)[0] for step in range(6)]
    again = opened(manifest, Logs(), "live")
    for step in (3, 5, 0, 3):
        assert same(again.rows(step, 0, SIZE)[0], forwards[step])


@given(st.integers(1, SIZE - 1))
def test_parts_of_a_batch_have_digests_that_add_up(manifest: Manifest, cut: int) -> None:
    batches = opened(manifest, Logs())
    parts = [batches.rows(3, 0, cut), batches.rows(3, cut, SIZE)]
    assert sum(digest(*part) for part in parts) % 2**64 == digest(*batches.rows(3, 0, SIZE)) % 2**64


def test_the_digest_sees_every_column_and_no_padding(manifest: Manifest) -> None:
    rows, samples = opened(manifest, Logs()).rows(0, 0, SIZE)
    before = digest(rows, samples)
    for name in ("lengths", "offsets", "ids", "sources"):
        column = getattr(rows, name).copy()
        column.reshape(-1)[-1] += 1
        if name != "lengths":
            assert digest(replace(rows, **{name: column}), samples) != before
    filled = rows.filled()
    row = int(np.argmin(filled))
    tokens = rows.tokens.copy()
    tokens[row, filled[row] :] += 1
    assert filled[row] < tokens.shape[1] and digest(replace(rows, tokens=tokens), samples) == before
    tokens[row, filled[row] - 1] += 1
    assert digest(replace(rows, tokens=tokens), samples) != before
    assert digest(rows, samples + 1) != before


def test_shards_are_taken_while_they_suffice_with_skips_and_mixture(manifest: Manifest) -> None:
    steps = manifest.samples // SIZE
    assert not opened(manifest, Logs(), steps=steps).live
    assert opened(manifest, Logs(), steps=steps + 1).live
    hole = Logs(skips=(Skip(0, SIZE, "x"),))
    assert not opened(manifest, hole, steps=steps - 1).live
    assert opened(manifest, hole, steps=steps).live
    entry = change(manifest, Logs(), {"code": 1}, 0)
    assert entry is not None and opened(manifest, Logs((entry,))).live
    assert opened(replace(manifest, shards=()), Logs()).live
    with pytest.raises(ConfigError, match=r"data.read: the shards have 2,148 samples, the run"):
        opened(manifest, Logs(), "shards", steps + 1)
    with pytest.raises(ConfigError, match=r"data.read: the mixture"):
        opened(manifest, Logs((entry,)), "shards")


# ---------------------------------------------------------------- mixture


def test_a_change_of_mixture_loses_and_repeats_no_row(manifest: Manifest) -> None:
    """Whatever the mixture does, a source's rows come epoch after epoch, each once in an epoch."""
    logs = Logs(skips=(Skip(40, 48, "x"),))
    first = change(manifest, logs, {"web": 1, "books": 3}, 1000)
    assert first is not None and first.from_sample == BLOCK
    logs = Logs((first,), logs.skips)
    second = change(manifest, logs, {"code": 5, "books": 0.1}, 2 * BLOCK)
    assert second is not None and second.from_sample == 3 * BLOCK  # 8 samples are skipped before
    changed = Logs((first, second), logs.skips)
    until = 4 * BLOCK
    drawn = Counter(
        zip(*(c.tolist() for c in changed.order(manifest).locate(np.arange(until))), strict=True)
    )
    assert max(drawn.values()) == 1
    for ordinal, source in enumerate(manifest.sources):
        own = sorted((epoch, row) for s, epoch, row in drawn if s == ordinal)
        whole, rest = divmod(len(own), source.train.rows)
        epochs = Counter(epoch for epoch, _ in own)
        assert [epochs[e] for e in range(whole)] == [source.train.rows] * whole
        assert epochs[whole] == rest
    plain, mixed = (each.order(manifest).locate(np.arange(BLOCK)) for each in (Logs(), changed))
    assert all(np.array_equal(a, b) for a, b in zip(plain, mixed, strict=True))
    tokens = Counter[str]()
    batches = opened(manifest, changed)
    for step in range(3 * BLOCK // SIZE, 4 * BLOCK // SIZE - 1):
        rows = batches.rows(step, 0, SIZE)[0]
        for ordinal, filled in zip(rows.sources.tolist(), rows.filled().tolist(), strict=True):
            tokens[manifest.names[ordinal]] += filled
    assert tokens["web"] == 0
    assert tokens["code"] / tokens.total() == pytest.approx(5 / 5.1, abs=0.01)


def test_a_mixture_that_is_in_force_makes_no_entry(manifest: Manifest) -> None:
    weights = dict(manifest.dealing.mixture[0].weights)
    assert change(manifest, Logs(), {name: 7 * w for name, w in weights.items()}, 0) is None
    entry = change(manifest, Logs(), {"web": 1}, 5 * BLOCK)
    assert entry is not None
    assert change(manifest, Logs((entry,)), {"web": 2}, BLOCK) is None  # resumed from before it
    back = change(manifest, Logs((entry,)), weights, BLOCK)
    assert back is not None and back.from_sample == BLOCK
    assert [d.from_sample for d in Logs((entry, back)).deals(manifest)] == [0, BLOCK]


def test_wrong_mixtures_are_refused_by_name(manifest: Manifest) -> None:
    with pytest.raises(ConfigError, match=r"data.mixture: no source 'wiki'; there are web, code"):
        change(manifest, Logs(), {"wiki": 1}, 0)
    web = manifest.source("web")
    empty = replace(web.train, rows=0, tokens=0, fill=0.0)
    without = replace(web, splits={**web.splits, "train": empty})
    hollow = replace(manifest, sources=(without, *manifest.sources[1:]))
    with pytest.raises(ConfigError, match=r"data.mixture: source 'web' has no rows"):
        change(hollow, Logs(), {"web": 1, "code": 1}, 0)
    for said, key in (
        ("{web: -1}", "data.mixture.web: -1"),
        ("{web: .nan}", "data.mixture.web"),
        ("{web: 0}", "data.mixture: no source"),
    ):
        with pytest.raises(ConfigError, match=key):
            load(None, [f"data.mixture={said}", "train.steps=1", "schedule.warmup=0"])


# ---------------------------------------------------------------- caps


def test_consumption_is_what_the_batches_hold(manifest: Manifest) -> None:
    batches = opened(manifest, Logs())
    rows = [0] * len(manifest.sources)
    for step in range(30):
        for ordinal in batches.rows(step, 0, SIZE)[0].sources.tolist():
            rows[ordinal] += 1
    found = eaten.consumption(batches, 30)
    assert [one.rows for one in found] == rows
    assert [one.epochs for one in found] == [
        count / source.train.rows for count, source in zip(rows, manifest.sources, strict=True)
    ]


def test_no_source_is_gone_through_more_often_than_its_cap(manifest: Manifest) -> None:
    batches = opened(manifest, Logs(skips=(Skip(16, 64, "x"),)))
    steps = eaten.most_steps(batches, 4)
    assert steps > 0
    assert not any(one.over for one in eaten.consumption(batches, steps, 4))
    worst = max(eaten.consumption(batches, steps + 1, 4), key=lambda one: one.epochs)
    assert worst.over
    eaten.refuse_repetition(batches, steps, 4)
    with pytest.raises(ConfigError) as error:
        eaten.refuse_repetition(batches, steps + 1, 4)
    said = str(error.value)
    assert said.startswith("data.max_epochs: ") and "\n" not in said
    assert repr(worst.source) in said and f"{steps:,} steps are possible" in said


# ---------------------------------------------------------------- files


def test_bytes_are_looked_at_once_and_again_when_a_file_changes(
    toy_manifest: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(toy_manifest, copy)
    manifest = Manifest.load(copy)
    files = opened(manifest, Logs()).files()
    first = Check(manifest, files, True, tmp_path)
    assert first.wait(60) == "" and first.files == len(files) > 5
    again = Check(manifest, files, True, tmp_path)
    assert again.files == 0 and again.wait(0) == ""
    place = copy / files[0].path
    data = bytearray(place.read_bytes())
    data[len(data) // 2] ^= 1
    place.write_bytes(data)
    changed = Check(manifest, files, True, tmp_path)
    assert changed.files == 1 and f"{files[0].path}: its bytes" in str(changed.wait(60))
    assert Check(manifest, files, False, tmp_path).wait(0) == ""
    place.unlink()
    assert files[0].path in str(Check(manifest, files, False, tmp_path).wait(0))
    other = Check(Manifest.load(toy_manifest), files, True, tmp_path)  # the cache is of a directory
    assert other.files == len(files) and other.wait(60) == ""


# ---------------------------------------------------------------- loader


def _loader(manifest: Manifest, prefetch: int, read: str = "auto") -> Loader:
    world = World(0, 1, torch.device("cpu"), None, 0, 1)  # type: ignore[arg-type]
    objective = Objective(Config().objective, manifest.tokenizer, 1)
    batches = opened(manifest, Logs(), read, 1 if read == "shards" else 20)
    return Loader(batches, objective, world, 4, prefetch)


def test_the_loader_gives_the_batch_that_is_asked_for_whatever_was_read_ahead(
    manifest: Manifest,
) -> None:
    plain, ahead = _loader(manifest, 0), _loader(manifest, 3)
    for step in (0, 1, 2, 7, 8, 3, 3, 4):
        one, other = plain.get(step), ahead.get(step)
        assert one.digest == other.digest and len(one.micros) == SIZE // 4
        for a, b in zip(one.micros, other.micros, strict=True):
            assert torch.equal(a.tokens, b.tokens) and torch.equal(a.samples, b.samples)
        assert len(plain._ahead) == 0 and len(ahead._ahead) == 3
        assert other.waited >= 0
    plain.close()
    ahead.close()


def test_nothing_is_read_ahead_of_the_last_step(manifest: Manifest) -> None:
    loader = _loader(manifest, 10**9)
    loader.get(17)
    assert list(loader._ahead) == [18, 19]
    loader.close()


def test_errors_come_with_the_step_that_has_them(manifest: Manifest) -> None:
    loader = _loader(manifest, 2, "shards")
    last = manifest.samples // SIZE - 1
    loader.get(last)
    with pytest.raises(ManifestError, match="is wanted"):
        loader.get(last + 1)
    loader.get(0)
    loader.close()


# ---------------------------------------------------------------- runs


def test_a_step_with_the_same_key_has_the_same_batch(tmp_path: Path) -> None:
    place = tmp_path / "batches.jsonl"
    one = {"step": 1, "digest": "0a", "key": "01"}
    two = {"step": 2, "digest": "0b", "key": "02"}
    place.write_text(f"{json.dumps(one)}\n{json.dumps(two)}\n" + '{"step": 3, "dig')
    replay = Replay.read(tmp_path)
    replay.check(1, "0a", "01")
    replay.check(2, "0c", "03")  # another key: the logs say otherwise now
    replay.check(3, "0d", "04")
    with pytest.raises(ManifestError, match=r"^step 1: batch 0f"):
        replay.check(1, "0f", "01")
    with pytest.raises(ManifestError, match=r"^step 2: "):
        replay.check(2, "0b", "03")


def test_a_resumed_run_stops_at_a_batch_that_is_not_what_it_was(
    toy_manifest: Path, tmp_path: Path
) -> None:
    """A tampered log of digests stands for a file that reads otherwise now."""
    run_ranks(1, train, config(toy_manifest, tmp_path, "train.steps=5", "log.every=100"))
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000005")
    place = tmp_path / "batches.jsonl"
    entries = lines(tmp_path, "batches")
    entries[4]["digest"] = f"{int(entries[4]['digest'], 16) ^ 1:016x}"
    place.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    with pytest.raises(RuntimeError, match=r"ManifestError: step 5: batch"):
        run_ranks(2, train, config(toy_manifest, tmp_path, "train.micro_batch=4"))


def test_a_log_changed_behind_a_checkpoint_is_refused_and_one_ahead_is_not(
    toy_manifest: Path, tmp_path: Path
) -> None:
    run_ranks(1, train, config(toy_manifest, tmp_path, "train.steps=3"))
    append(tmp_path, [Skip(32, 40, "a batch to come")])
    run_ranks(1, train, config(toy_manifest, tmp_path, "train.steps=6"))
    logs = Logs.read(tmp_path)
    manifest = Manifest.load(toy_manifest)
    expected = [digest(*Batches(manifest, Data(), logs, 8).rows(n, 0, 8)) for n in range(6)]
    found = [int(line["digest"], 16) for line in lines(tmp_path, "batches")]
    assert found == [number % 2**64 for number in expected]
    append(tmp_path, [Skip(8, 16, "too late")])
    with pytest.raises(RuntimeError, match=r"ManifestError: .*changed for samples of the first 6"):
        run_ranks(1, train, config(toy_manifest, tmp_path, "train.steps=8"))


def test_a_mixture_is_changed_by_a_start_and_stays(toy_manifest: Path, tmp_path: Path) -> None:
    run_ranks(1, train, config(toy_manifest, tmp_path, "train.steps=3"))
    assert not (tmp_path / MIXTURE).exists()
    for steps in (4, 5):
        other = config(toy_manifest, tmp_path, f"train.steps={steps}", "data.mixture={code: 2}")
        run_ranks(2, train, config_of(other, micro_batch=4))
    (entry,) = Logs.read(tmp_path).mixtures
    assert entry.from_sample == BLOCK and entry.weights == {"code": 2}


def config_of(one: Config, **train_knobs: int) -> Config:
    return replace(one, train=replace(one.train, **train_knobs))


def test_a_faulty_file_and_a_cap_stop_all_ranks_before_the_first_step(
    toy_manifest: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(toy_manifest, copy)
    (copy / Manifest.load(copy).shards[0].path).write_bytes(b"")
    run = tmp_path / "run"
    with pytest.raises(RuntimeError, match=r"ManifestError: shards.*: 0 bytes, the manifest says"):
        run_ranks(2, train, config(copy, run, "train.micro_batch=4"))
    with pytest.raises(RuntimeError, match=r"ConfigError: data.max_epochs: 6 steps go .* 'books'"):
        over = ("train.micro_batch=4", "data.max_epochs=0.1")
        run_ranks(2, train, config(toy_manifest, run, *over))
    assert not (run / "batches.jsonl").exists() and (run / VERIFIED).exists()
