"""A step of a run leads to the samples, documents and URLs that it was made of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from manifests.logs import Logs, Skip
from manifests.order import BLOCK
from manifests.tokens import Manifest
from manifests.trace import sequence
from tests.trainers import config
from training.config import dump
from training.data.batches import Batches, digest
from training.data.logs import append, change
from training.trace import main

DONE = 200  # steps of 8: 1,600 samples


@pytest.fixture(scope="module")
def run(toy_manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run of two ranks, then four, leaves: a hole, and another mixture from a block on."""
    run = tmp_path_factory.mktemp("run")
    manifest = Manifest.load(toy_manifest)
    said = config(toy_manifest, run, "train.micro_batch=1", "parallel.tensor=2")
    (run / "run.json").write_text(json.dumps({"manifest": manifest.digest}))
    (run / "config.yaml").write_text(dump(said))
    (run / "configs").mkdir()
    first = replace(said, parallel=replace(said.parallel, tensor=1))
    (run / "configs" / "00001.yaml").write_text(dump(first))
    append(run, [Skip(16, 24, "loss 35 at step 3")])
    entry = change(manifest, Logs.read(run), {"code": 1, "books": 1}, 100)
    assert entry is not None
    append(run, [entry])
    batches = Batches(manifest, said.data, Logs.read(run), 8, DONE)
    with (run / "batches.jsonl").open("w") as file:
        for step in range(DONE):
            found = digest(*batches.rows(step, 0, 8)) & (1 << 64) - 1
            line = {"step": step + 1, "digest": f"{found:016x}", "key": batches.key(step)}
            file.write(json.dumps(line) + "\n")
    starts = [{"step": 0, "ranks": 2, "start": 1}, {"step": 100, "ranks": 4, "start": 2}]
    events = [json.dumps({"event": "start", **start}) + "\n" for start in starts]
    (run / "events.jsonl").write_text("".join(events))
    return run


def traced(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main([*map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("step", [1, 3, 190])
def test_a_step_leads_to_its_rows_and_their_text(
    run: Path, toy_manifest: Path, capsys: pytest.CaptureFixture[str], step: int
) -> None:
    manifest = Manifest.load(toy_manifest)
    tokenizer = Tokenizer.from_file(str(toy_manifest / manifest.tokenizer.path))
    batches = Batches(manifest, config(toy_manifest, run).data, Logs.read(run), 8, DONE)
    rows, samples = batches.rows(step - 1, 0, 8)
    found = traced(capsys, run, "--step", step)
    assert [one["sample"] for one in found["traced"]] == found["samples"] == samples.tolist()
    for row, one in enumerate(found["traced"]):
        assert one["source"] == manifest.names[rows.sources[row]]
        tokens = rows.tokens[row].tolist()
        for piece in one["pieces"]:
            assert piece["url"].startswith(f"https://{one['source']}.example/")
            assert piece["warc_file"] == f"{one['source']}.warc.gz"
            if piece["offset"] == 0:
                own = tokens[piece["start"] : piece["start"] + piece["length"]]
                text = tokenizer.decode(own, skip_special_tokens=True)
                assert text.startswith(piece["text"]) or piece["text"].startswith(text)
        assert (one["shard"] is None) == (step == 190)  # of another mixture than the shards'


def test_ranks_are_those_of_the_start_that_ran_the_step(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = traced(capsys, run, "--step", 3)
    halves = [traced(capsys, run, "--step", 3, "--rank", rank)["traced"] for rank in (0, 1)]
    assert halves[0] + halves[1] == whole["traced"] and len(halves[0]) == 4
    assert [one["ranks"] for one in whole["traced"]] == [[0]] * 4 + [[1]] * 4
    later = traced(capsys, run, "--step", 101)["traced"]  # four ranks, two of which share rows
    assert [one["ranks"] for one in later] == [[0, 1]] * 4 + [[2, 3]] * 4
    other = traced(capsys, run, "--step", 101, "--ranks", 8, "--rank", 7)["traced"]
    assert [one["sample"] for one in other] == whole_samples(later)[6:]


def whole_samples(found: list[dict[str, Any]]) -> list[int]:
    return [one["sample"] for one in found]


def test_a_sample_leads_to_its_step(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = traced(capsys, run, "--sample", 24)  # the hole before it is as long as a batch
    assert found["step"] == 3 and whole_samples(found["traced"]) == [24]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step", "0"], "--step 0: the run has done 200 steps, from 1 on"),
        (["--step", "201"], "--step 201: the run has done 200 steps"),
        (["--sample", "17"], "--sample 17: was skipped: loss 35 at step 3"),
        (["--sample", "-1"], "--sample -1: there is no such sample"),
        (["--sample", "99999"], "--step 12499: the run has done"),
        (["--sample", "24", "--step", "9"], "--sample 24: is of step 3, not 9"),
        (["--step", "3", "--rank", "2"], "--rank 2: there were 2, from 0 on"),
    ],
)
def test_what_cannot_be_answered_is_said(
    run: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main([str(run), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_other_directories_and_manifests_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--step", "1"]) == 2
    assert "no training run" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main([str(run)])
    assert stopped.value.code == 2
    for path in ("run.json", "config.yaml"):
        (tmp_path / path).write_bytes((run / path).read_bytes())
    (tmp_path / "run.json").write_text(json.dumps({"manifest": "0" * 32}))
    assert main([str(tmp_path), "--step", "1"]) == 2
    assert f"the run was of {'0' * 32}" in capsys.readouterr().err


def test_a_batch_that_is_not_what_was_logged_is_not_explained(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("run.json", "config.yaml", "mixture.jsonl", "skips.jsonl", "batches.jsonl"):
        (tmp_path / path).write_bytes((run / path).read_bytes())
    lines = (run / "batches.jsonl").read_text().splitlines()
    wrong = {**json.loads(lines[4]), "digest": "0" * 16}
    (tmp_path / "batches.jsonl").write_text("\n".join([*lines[:4], json.dumps(wrong)]) + "\n")
    assert main([str(tmp_path), "--step", "5"]) == 1
    assert "step 5: batch" in capsys.readouterr().err


def test_the_text_for_people_is_aligned(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), "--step", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step 3: 8 samples, digest ") and lines[0].endswith(" as logged")
    urls = [line for line in lines if "https://" in line]
    beginnings = {line.index("https://") for line in urls}
    assert urls and len(beginnings) <= 2 and max(map(len, lines)) <= 130


def test_samples_of_another_order_are_found_in_the_packed_files(toy_manifest: Path) -> None:
    manifest = Manifest.load(toy_manifest)
    entry = change(manifest, Logs(), {"books": 1}, 1)
    assert entry is not None and entry.from_sample == BLOCK
    order = Logs((entry,)).order(manifest)
    before, after = (sequence(manifest, sample, order) for sample in (BLOCK - 1, BLOCK))
    assert before.shard == sequence(manifest, BLOCK - 1).shard is not None
    assert np.array_equal(before.tokens, sequence(manifest, BLOCK - 1).tokens)
    assert after.source == "books"
    assert sequence(manifest, 10 * manifest.samples, order).shard is None


def test_a_takedown_names_the_steps_that_have_seen_what_goes(
    run: Path, toy_manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against a scan of all batches; with another manifest's run beside it."""
    from curation import cli

    manifest = Manifest.load(toy_manifest)
    batches = Batches(manifest, config(toy_manifest, run).data, Logs.read(run), 8, DONE)
    wanted = sequence(manifest, 24).pieces[0].id
    words = [int(wanted[:16], 16), int(wanted[16:], 16)]
    seen = [
        step + 1
        for step in range(DONE)
        if (batches.rows(step, 0, 8)[0].ids == np.array(words, np.uint64)).all(axis=1).any()
    ]
    other = tmp_path / "other"
    other.mkdir()
    record = {"manifest": "0" * 32, "identity": {"batch": 8}}
    (other / "run.json").write_text(json.dumps(record))
    (run / "run.json").write_text(json.dumps({**record, "manifest": manifest.digest}))
    (tmp_path / "list").write_text(f"{wanted}\n")
    command = ["takedown", str(tmp_path / "list"), str(toy_manifest)]
    command += ["--output", str(tmp_path / "new"), "--trained", str(run), str(other)]
    assert cli.main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["trained"]
    assert found == [{"run": str(run), "steps": seen}, {"run": str(other), "steps": None}]
    assert 3 in seen and cli.main(command) == 0
    out = capsys.readouterr().out
    assert f"{run}: has seen them in {len(seen)} steps: {seen[0]}, " in out
    assert f"{other}: trained on another manifest" in out
    assert cli.main([*command, str(tmp_path / "nowhere")]) == 1
    assert "nowhere: no training run" in capsys.readouterr().err
