"""`python -m training.generate RUN --prompt TEXT`: what a model goes on with.

What may live here: sampling, and the command. Every token is one pass over what there is: simple,
the same as in training, and fast enough to look at a model with. To serve one, export it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from manifests.tokens import ManifestError
from training.checkpoint import CheckpointError
from training.commands import leave
from training.config import ConfigError
from training.layout import Layout, layout_of
from training.trained import Trained, open_trained, tokenizer_of


def generate(
    trained: Trained,
    prompt: Sequence[int],
    most: int,
    *,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
) -> Iterator[int]:
    """Tokens after the prompt, until the end of the document or `most`.

    `temperature` 0 takes the likeliest; `top_k` and `top_p` (nucleus: A. Holtzman et al., 2020)
    leave only the likeliest to be drawn. The same seed gives the same tokens on the same machine.
    Special tokens other than EOS are never drawn.
    """
    tokenizer, context = trained.manifest.tokenizer, trained.model.shape.context
    generator = torch.Generator().manual_seed(seed)
    barred = torch.tensor(sorted(set(tokenizer.special.values()) - {tokenizer.eos}))
    tokens = list(prompt)
    for _ in range(most):
        window = torch.tensor([tokens[-context:]], device=trained.device)
        logits = trained.model(window, _layout(trained, len(prompt), len(tokens), context))
        assert isinstance(logits, Tensor)
        last = logits[0, -1].float().cpu()
        last[barred] = -torch.inf
        token = _draw(last, temperature, top_k, top_p, generator)
        if token == tokenizer.eos:
            return
        tokens.append(token)
        yield token


def _layout(trained: Trained, prompt: int, length: int, context: int) -> Layout:
    """One document; with a bidirectional prefix where the model was trained with one."""
    size = min(length, context)
    kind = "causal" if trained.config.objective.kind == "causal" else "prefix"
    layout = layout_of([[size]], size, kind)  # type: ignore[arg-type]
    if kind == "prefix":
        inside = torch.arange(size)[None] < prompt - (length - size)
        layout = replace(layout, prefix=inside)
    return layout.to(trained.device)


def _draw(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float, generator: torch.Generator
) -> int:
    if temperature == 0:
        return int(logits.argmax())
    logits = logits / temperature
    if top_k is not None:
        least = logits.topk(min(top_k, len(logits))).values[-1]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p < 1:
        chances, order = logits.softmax(-1).sort(descending=True)
        beyond = chances.cumsum(-1) - chances >= top_p  # the one that reaches it stays
        logits = logits.index_fill(0, order[beyond], -torch.inf)
    return int(torch.multinomial(logits.softmax(-1), 1, generator=generator))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; gives its exit code."""
    parser = argparse.ArgumentParser(prog="training.generate", description="Text of a model.")
    parser.add_argument("run", type=Path, help="the directory of a training run")
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="may be repeated")
    parser.add_argument("--tokens", type=int, default=100, help="at most so many (100)")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", type=int, help="the checkpoint; the newest without it")
    parser.add_argument("--average", type=int, default=1, help="mean of the last N checkpoints")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        _run(given)
    except (CheckpointError, ConfigError, ManifestError) as error:
        print(f"training.generate: {error}", file=sys.stderr)
        return 2
    return 0


def _run(given: argparse.Namespace) -> None:
    if given.temperature < 0 or not 0 < given.top_p <= 1 or (given.top_k or 1) < 1:
        raise ConfigError("--temperature from 0, --top-k from 1, --top-p above 0 and up to 1")
    trained = open_trained(given.run, given.step, given.average, given.device)
    if (kind := trained.config.objective.kind) in ("mlm", "span"):
        raise ConfigError(f"a model of objective.kind={kind} does not go on with a text")
    tokenizer = tokenizer_of(trained.manifest)
    bos = trained.manifest.tokenizer.bos
    for prompt in given.prompt or [""]:
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        ids = ids if bos is None else [bos, *ids]
        if not ids:
            raise ConfigError(
                "--prompt: a text is wanted; the tokenizer has no token to begin with"
            )
        with torch.no_grad():
            new = list(
                generate(
                    trained,
                    ids,
                    given.tokens,
                    temperature=given.temperature,
                    top_k=given.top_k,
                    top_p=given.top_p,
                    seed=given.seed,
                )
            )
        # Whole, so that a character of several tokens is one again.
        told = tokenizer.decode([*ids, *new])
        print(json.dumps({"prompt": prompt, "text": told, "tokens": new}) if given.json else told)


if __name__ == "__main__":
    leave(main)
