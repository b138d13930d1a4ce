"""Tasks by log-likelihood: the last word (LAMBADA), and multiple choice.

What may live here: reading tasks, scoring continuations, and the figures. A line of JSON is one
question:

    {"text": "..."}                                   the last word, from what is before it
    {"context": "...", "continuation": " ..."}        the same with another cut
    {"context": "...", "choices": ["...", ...], "answer": 1}     one of several continuations

A choice is put after the context with a space between, unless one of the two brings one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from training.config import ConfigError
from training.layout import IGNORED, layout_of
from training.trained import Trained

_TOKENS_AT_ONCE = 16384


@dataclass(frozen=True)
class Question:
    """A context, what may follow, and which of these is right (0 where there is one only)."""

    context: str
    choices: tuple[str, ...]
    answer: int


@dataclass(frozen=True)
class Likelihood:
    """Of a continuation: its log-probability (nats), whether it is what the model would have said
    (greedily), its tokens and its bytes."""

    total: float
    greedy: bool
    tokens: int
    bytes: int


@dataclass(frozen=True)
class Outcome:
    """Of a file of questions. `accuracy`: of multiple choice by log-likelihood, of others the share
    whose continuation is the model's own; `normalised`: by log-likelihood per byte; `perplexity`:
    of the right continuations, per continuation (as LAMBADA's), not per token."""

    task: str
    questions: int
    accuracy: float
    normalised: float | None
    perplexity: float


def read(path: Path) -> list[Question]:
    """The questions of a file. Raises ConfigError, which names the line."""
    found = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or 'no text'}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(_question(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            said = f"no {error}" if isinstance(error, KeyError) else str(error).split("\n")[0]
            raise ConfigError(f"{path}, line {number}: {said}") from None
    if not found:
        raise ConfigError(f"{path}: no questions")
    return found


def _question(record: dict[str, Any]) -> Question:
    if "text" in record:
        context, space, word = record["text"].rstrip().rpartition(" ")
        if not context:
            raise ValueError("a text of two words at least is wanted")
        return Question(context, (space + word,), 0)
    context = record["context"]
    if "continuation" in record:
        return Question(context, (record["continuation"],), 0)
    choices, answer = record["choices"], record["answer"]
    if not (isinstance(answer, int) and 0 <= answer < len(choices) and len(choices) > 1):
        raise ValueError(f"answer {answer!r} of {len(choices)} choices")
    return Question(context, tuple(_joined(context, choice) for choice in choices), answer)


def _joined(context: str, choice: str) -> str:
    return choice if context[-1:].isspace() or choice[:1].isspace() else f" {choice}"


def evaluate(trained: Trained, tokenizer: Any, path: Path) -> Outcome:
    """Scores a file of questions."""
    questions = read(path)
    pairs = [(q.context, choice) for q in questions for choice in q.choices]
    likelihoods = iter(score(trained, tokenizer, pairs))
    right, normalised, nats, many = 0, 0, 0.0, False
    for question in questions:
        own = [next(likelihoods) for _ in question.choices]
        nats -= own[question.answer].total
        if len(own) == 1:
            right += own[0].greedy
            continue
        many = True
        right += _best([each.total for each in own]) == question.answer
        normalised += _best([each.total / max(1, each.bytes) for each in own]) == question.answer
    number = len(questions)
    mean = nats / number
    return Outcome(
        task=path.stem,
        questions=number,
        accuracy=right / number,
        normalised=normalised / number if many else None,
        perplexity=math.exp(mean) if mean < 700 else math.inf,
    )


def _best(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda place: values[place])


def score(trained: Trained, tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> list[Likelihood]:
    """The log-likelihood of each continuation after its context, in order.

    Both are encoded together and cut where the context alone ends, with white space at the end of a
    context moved to the continuation, so that words are cut as they were in training. What is too
    long for the model loses the beginning of its context.
    """
    encoded = []
    for place, (context, continuation) in enumerate(pairs):
        stripped = context.rstrip()
        moved = context[len(stripped) :] + continuation
        before = tokenizer.encode(stripped, add_special_tokens=False).ids
        whole = tokenizer.encode(stripped + moved, add_special_tokens=False).ids
        after = whole[len(before) :] or whole[-1:]
        most = trained.model.shape.context + 1
        if len(after) >= most:
            raise ConfigError(f"a continuation of {len(after)} tokens; the context has {most - 1}")
        bos = trained.manifest.tokenizer.bos
        head = [bos] if bos is not None else []
        tokens = [*head, *whole][-most:]
        if len(tokens) == len(after):  # nothing before the first token of it
            raise ConfigError("an empty context, and the tokenizer has no token to begin with")
        encoded.append((place, tokens, len(after), len(continuation.encode())))
    found: dict[int, Likelihood] = {}
    for batch in _batches(sorted(encoded, key=lambda one: -len(one[1]))):
        found |= _passed(trained, batch)
    return [found[place] for place in range(len(pairs))]


_Encoded = tuple[int, list[int], int, int]  # place, tokens, tokens of the continuation, its bytes


def _batches(encoded: Sequence[_Encoded]) -> Iterator[list[_Encoded]]:
    """Longest first, as many as fit at that length."""
    begin = 0
    while begin < len(encoded):
        most = max(1, _TOKENS_AT_ONCE // len(encoded[begin][1]))
        yield list(encoded[begin : begin + most])
        begin += most


def _passed(trained: Trained, batch: list[_Encoded]) -> dict[int, Likelihood]:
    longest = max(len(tokens) for _, tokens, _, _ in batch) - 1
    tokens = torch.zeros((len(batch), longest), dtype=torch.int64)
    labels = torch.full((len(batch), longest), IGNORED)
    lengths = []
    for row, (_, own, after, _) in enumerate(batch):
        tokens[row, : len(own) - 1] = torch.tensor(own[:-1])
        labels[row, len(own) - 1 - after : len(own) - 1] = torch.tensor(own[-after:])
        lengths.append([len(own) - 1])
    layout = layout_of(lengths, longest, "causal").to(trained.device)
    labels = labels.to(trained.device)
    logits = trained.model(tokens.to(trained.device), layout)
    assert isinstance(logits, torch.Tensor)
    valid = labels != IGNORED
    chosen = logits.float().log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    totals = chosen.double().where(valid, 0.0).sum(1).tolist()
    greedy = ((logits.argmax(-1) == labels) | ~valid).all(1).tolist()
    return {
        place: Likelihood(total, agreed, after, bytes_)
        for (place, _, after, bytes_), total, agreed in zip(batch, totals, greedy, strict=True)
    }
