"""Held-out loss, tasks and text of a model, against what they are said to be."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from manifests.reader import open_reader
from manifests.tokens import Manifest
from tests.trainers import config
from training import config as knobs
from training import tasks
from training.config import ConfigError
from training.evaluate import validation
from training.generate import generate
from training.layout import IGNORED, layout_of
from training.model import Shape, Transformer, initial
from training.objectives import Objective
from training.trained import Trained, bytes_of_tokens, open_trained, tokenizer_of
from training.validate import held_out, scores


def model_of(own: knobs.Config, manifest: Manifest) -> Trained:
    """A model with its first values, larger ones, so that it has opinions."""
    objective = Objective(own.objective, manifest.tokenizer, own.seed)
    shape = Shape.of(own.model, manifest.tokenizer.size, manifest.sequence_length)
    model = Transformer(shape, own.model, own.train).requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.copy_(initial(name, parameter.shape, own.model, own.seed, "cpu"))
    return Trained(model.eval(), own, manifest, objective, 0, torch.device("cpu"))


@pytest.fixture(scope="module")
def trained(toy_manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    own = config(toy_manifest, tmp_path_factory.mktemp("run"), "model.init_std=0.3")
    return model_of(own, Manifest.load(toy_manifest))


def log_probabilities(trained: Trained, tokens: list[int]) -> Tensor:
    """Of every token after the first, alone in its row: (tokens - 1,)."""
    layout = layout_of([[len(tokens) - 1]], len(tokens) - 1, "causal")
    logits = trained.model(torch.tensor([tokens[:-1]]), layout)
    assert isinstance(logits, Tensor)
    chances = logits[0].double().log_softmax(-1)
    return chances[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]


def test_a_run_is_looked_at_with_a_kernel_that_can(
    toy_manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever `model.attention` it was trained with: weights are fp32 here."""
    own = config(toy_manifest, tmp_path, "model.attention=varlen", "parallel.precision=bf16")
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "config.yaml").write_text(knobs.dump(own))
    tensors = model_of(own, Manifest.load(toy_manifest)).model.state_dict()
    monkeypatch.setattr("training.trained.weights", lambda *_: tensors)
    monkeypatch.setattr("training.trained.chosen", lambda *_: [Path("step-00000006")])
    assert validation(open_trained(tmp_path, device="cpu"), 1)[-1].labels > 0
    with pytest.raises(ConfigError, match="--device gpu: "):
        open_trained(tmp_path, device="gpu")


# ---------------------------------------------------------------- held out


def test_held_out_loss_is_that_of_every_piece_by_itself(trained: Trained) -> None:
    names, losses, labels = trained.manifest.names, {}, {}
    read = open_reader(trained.manifest)
    for name in names:
        found = []
        for rows in read.validation(name):
            for row in range(len(rows)):
                own = rows.lengths[rows.starts[row] : rows.starts[row + 1]]
                ends = np.cumsum(own)
                for begin, end in zip(ends - own, ends, strict=True):
                    if end - begin > 1:
                        piece = rows.tokens[row, begin:end].tolist()
                        found += (-log_probabilities(trained, piece)).tolist()
        losses[name], labels[name] = sum(found), len(found)
    told = {score.source: score for score in validation(trained, None)}
    for name in names:
        assert told[name].labels == labels[name]
        assert told[name].loss == pytest.approx(losses[name] / labels[name], rel=1e-5)
    whole = sum(losses.values()) / sum(labels.values())
    assert told["all"].loss == pytest.approx(whole, rel=1e-5)
    assert told["all"].perplexity == pytest.approx(math.exp(whole), rel=1e-4)


def test_bits_per_byte_count_the_bytes_of_what_is_predicted(trained: Trained) -> None:
    """A token of the toy is a byte, and the end of a document is none."""
    own = {score.source: score for score in validation(trained, None)}["web"]
    bytes_ = 0
    for rows in open_reader(trained.manifest).validation("web"):
        for row in range(len(rows)):
            lengths = rows.lengths[rows.starts[row] : rows.starts[row + 1]]
            ends = np.cumsum(lengths)
            for begin, end in zip(ends - lengths, ends, strict=True):
                bytes_ += int((rows.tokens[row, begin + 1 : end] != 256).sum())
    assert own.bits_per_byte == pytest.approx(own.loss * own.labels / math.log(2) / bytes_)


@settings(max_examples=15, deadline=None)
@given(
    micro=st.integers(1, 7), ranks=st.integers(1, 4), most=st.one_of(st.none(), st.integers(1, 9))
)
def test_ranks_share_held_out_rows_once_each(
    toy_manifest: Path, micro: int, ranks: int, most: int | None
) -> None:
    manifest = Manifest.load(toy_manifest)
    objective = Objective(knobs.Objective(), manifest.tokenizer, 1)
    counts = bytes_of_tokens(manifest)
    parts = [
        held_out(
            open_reader(manifest),
            objective,
            counts,
            micro_batch=micro,
            most=most,
            rank=rank,
            ranks=ranks,
        )
        for rank in range(ranks)
    ]
    assert len({len(part.micros) for part in parts}) == 1
    seen = []
    for part in parts:
        assert np.array_equal(part.rows, parts[0].rows)
        for one in part.micros:
            assert one.tokens.shape == (micro, manifest.sequence_length)
            told = (one.labels != IGNORED).any(1)
            seen += one.samples[told].tolist()
    assert sorted(seen) == sorted(set(seen))
    wanted = [min(s.splits["validation"].rows, most or 10**9) for s in manifest.sources]
    assert parts[0].rows.tolist() == wanted
    assert len(seen) == sum(wanted)


def test_scores_are_weighted_by_tokens(toy_manifest: Path) -> None:
    manifest = Manifest.load(toy_manifest)
    objective = Objective(knobs.Objective(), manifest.tokenizer, 1)
    held = held_out(open_reader(manifest), objective, None, micro_batch=4)
    told = scores(manifest.names, held, np.array([10.0, 0.0, 2.0]), np.array([5, 0, 4]))
    assert [(s.source, s.loss) for s in told] == [("web", 2.0), ("books", 0.5), ("all", 12 / 9)]
    assert told[0].bits_per_byte is None


# ---------------------------------------------------------------- tasks


def test_a_continuation_has_the_sum_of_its_tokens(trained: Trained) -> None:
    tokenizer = tokenizer_of(trained.manifest)
    pairs = [("every mill", " grinds grain"), ("x", " y"), ("every ", "mill"), ("grain " * 9, "a")]
    for (context, text), told in zip(pairs, tasks.score(trained, tokenizer, pairs), strict=True):
        whole = tokenizer.encode(context + text).ids
        after = len(whole) - len(tokenizer.encode(context.rstrip()).ids)
        each = log_probabilities(trained, whole)[-after:]
        assert told.tokens == after
        assert told.total == pytest.approx(float(each.sum()), rel=1e-5)
        assert told.bytes == len(text.encode())


def test_what_is_too_long_loses_the_beginning_of_its_context(trained: Trained) -> None:
    tokenizer = tokenizer_of(trained.manifest)
    context = "abcdefghij" * 20
    (told,) = tasks.score(trained, tokenizer, [(context, "klm")])
    window = tokenizer.encode(context + "klm").ids[-(trained.model.shape.context + 1) :]
    each = log_probabilities(trained, window)[-3:]
    assert told.total == pytest.approx(float(each.sum()), rel=1e-5)
    with pytest.raises(ConfigError, match="continuation"):
        tasks.score(trained, tokenizer, [("a", "b" * 65)])


def test_outcomes_of_a_file(trained: Trained, tmp_path: Path) -> None:
    """The answer of each choice is taken from the likelihoods themselves: all right, then none."""
    tokenizer = tokenizer_of(trained.manifest)
    choices = ["grain", "flour and bread", "people"]
    likely = tasks.score(trained, tokenizer, [("every mill", f" {c}") for c in choices])
    by_total = max(range(3), key=lambda n: likely[n].total)
    by_byte = max(range(3), key=lambda n: likely[n].total / likely[n].bytes)
    question = {"context": "every mill", "choices": choices}
    place = tmp_path / "mills.jsonl"
    lines = [{**question, "answer": n} for n in range(3)]
    place.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    told = tasks.evaluate(trained, tokenizer, place)
    assert (told.task, told.questions) == ("mills", 3)
    assert told.accuracy == pytest.approx(1 / 3)
    assert told.normalised == pytest.approx(1 / 3)
    assert told.perplexity == pytest.approx(math.exp(-sum(x.total for x in likely) / 3))
    for answer, right in ((by_total, "accuracy"), (by_byte, "normalised")):
        place.write_text(json.dumps({**question, "answer": answer}))
        assert getattr(tasks.evaluate(trained, tokenizer, place), right) == 1.0


def test_last_words(trained: Trained, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(trained.manifest)
    place = tmp_path / "lambada.jsonl"
    place.write_text(json.dumps({"text": "every mill grinds grain"}))
    told = tasks.evaluate(trained, tokenizer, place)
    (own,) = tasks.score(trained, tokenizer, [("every mill grinds", " grain")])
    assert told.perplexity == pytest.approx(math.exp(-own.total))
    assert told.normalised is None
    prompt = tokenizer.encode("every").ids
    said = list(generate(trained, prompt, 3, temperature=0))
    text = tokenizer.decode(said)
    place.write_text(json.dumps({"context": "every", "continuation": text}))
    if tokenizer.encode("every" + text).ids == [
        *prompt,
        *said,
    ]:  # the model's own is the greedy one
        assert tasks.evaluate(trained, tokenizer, place).accuracy == 1.0


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"text": "word"}',
        '{"context": "a"}',
        '{"context": "a", "choices": ["b"], "answer": 0}',
        '{"context": "a", "choices": ["b", "c"], "answer": 2}',
        "[]",
        '{"text": 3}',
    ],
)
def test_wrong_questions_are_named_by_their_line(line: str, tmp_path: Path) -> None:
    place = tmp_path / "wrong.jsonl"
    place.write_text('{"text": "two words"}\n' + line)
    with pytest.raises(ConfigError, match="line 2") as caught:
        tasks.read(place)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- text


def test_the_likeliest_token_each_time(trained: Trained) -> None:
    tokens = [1, 2, 3]
    for token in generate(trained, tokens, 5, temperature=0):
        layout = layout_of([[len(tokens)]], len(tokens), "causal")
        logits = trained.model(torch.tensor([tokens]), layout)
        assert isinstance(logits, Tensor)
        last = logits[0, -1].clone()
        last[257] = -torch.inf  # padding is never drawn
        assert token == int(last.argmax())
        tokens.append(token)


def test_draws_follow_the_chances_and_the_seed(trained: Trained) -> None:
    drawn = [next(generate(trained, [5], 1, temperature=1.0, seed=n), 256) for n in range(400)]
    again = [next(generate(trained, [5], 1, temperature=1.0, seed=n), 256) for n in range(5)]
    assert again == drawn[:5]
    logits = trained.model(torch.tensor([[5]]), layout_of([[1]], 1, "causal"))
    assert isinstance(logits, Tensor)
    chances = logits[0, 0].double().index_fill(0, torch.tensor([257]), -torch.inf).softmax(-1)
    counts = np.bincount(drawn, minlength=258)
    likeliest = int(chances.argmax())
    chance = float(chances[likeliest])
    spread = math.sqrt(400 * chance * (1 - chance))
    assert abs(counts[likeliest] - 400 * chance) < 5 * spread + 1
    few = {
        next(generate(trained, [5], 1, top_k=2, temperature=1.0, seed=n), 256) for n in range(60)
    }
    assert few <= set(chances.topk(2).indices.tolist())
    one = {
        next(generate(trained, [5], 1, top_p=1e-6, temperature=1.0, seed=n), 256) for n in range(9)
    }
    assert one == {likeliest}


def test_text_ends_with_the_document(trained: Trained) -> None:
    own = replace(trained.manifest.tokenizer, eos=next(generate(trained, [7], 1, temperature=0)))
    ended = replace(trained, manifest=replace(trained.manifest, tokenizer=own))
    assert list(generate(ended, [7], 9, temperature=0)) == []


def test_bytes_of_tokens(toy_manifest: Path) -> None:
    counts = bytes_of_tokens(Manifest.load(toy_manifest))
    assert counts is not None
    assert counts[:256].tolist() == [1] * 256
    assert counts[256:].tolist() == [0, 0]
