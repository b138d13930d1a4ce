"""Weights become samples: shares of tokens, the length of a run, epochs that are held to a cap."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.engine.recipe import RecipeError
from curation.engine.tokens.mixture import Mixture, Supply, mix, wanted
from curation.engine.tokens.recipe import TokensModel, load
from manifests.order import BLOCK

LENGTH = 128


def model(names: list[str], weights: list[float] | None = None, **more: Any) -> TokensModel:
    sources = [
        {"name": name, "kind": "jsonl", "paths": ["x"], **({"weight": w} if w is not None else {})}
        for name, w in zip(names, weights or [None] * len(names), strict=True)
    ]
    recipe = {"kind": "tokens", "name": "t", "sources": sources, "sequence_length": LENGTH}
    return load({**recipe, "tokenizer": {"path": "x"}, **more}).settings


def mixed(said: TokensModel, supply: dict[str, Supply]) -> Mixture:
    return mix(said, [source.name for source in said.sources], supply)


def shares(mixture: Mixture, supply: dict[str, Supply], samples: int) -> dict[str, float]:
    """Realised shares of tokens, where every row of a source is filled alike."""
    draws = mixture.order.draws(samples)
    tokens = {
        name: float(draws[i]) * supply[name].tokens / supply[name].rows
        for i, name in enumerate(mixture.order.names)
        if name in supply
    }
    return {name: n / sum(tokens.values()) for name, n in tokens.items()}


def test_weights_are_shares_of_tokens_whatever_the_rows_hold() -> None:
    """A source whose rows are half empty gets twice the rows for the same share of tokens."""
    supply = {"a": Supply(1_000 * LENGTH, 1_000), "b": Supply(1_000 * LENGTH // 2, 1_000)}
    found = mixed(model(["a", "b"], [3, 1], total_tokens=400_000), supply)
    assert found.overall == {"a": 0.75, "b": 0.25}
    blocks = found.samples // BLOCK * BLOCK  # inside a block sources are shuffled
    assert shares(found, supply, blocks)["a"] == pytest.approx(0.75, abs=2 / blocks)
    draws = found.order.draws(found.samples)
    total = draws[0] * LENGTH + draws[1] * LENGTH / 2
    assert total == pytest.approx(400_000, rel=0.01)


def test_the_textbook_mixture_sums_to_135_and_is_normalised() -> None:
    weights = {"web": 0.45, "books": 0.30, "wiki": 0.15, "code": 0.20, "papers": 0.15, "news": 0.1}
    supply = {name: Supply(10_000 * LENGTH, 10_000) for name in weights}
    [(share, found)] = wanted(model([*weights], [*weights.values()]), supply)
    assert share == 1.0
    assert found == {name: pytest.approx(weight / 1.35) for name, weight in weights.items()}


@pytest.mark.parametrize("temperature", [1.0, 2.0, 100.0])
def test_a_temperature_draws_the_sources_together(temperature: float) -> None:
    supply = {"a": Supply(16 * LENGTH, 16), "b": Supply(LENGTH, 1)}
    said = model(["a", "b"], mixture={"temperature": temperature})
    [(_, found)] = wanted(said, supply)
    assert found["a"] / found["b"] == pytest.approx(16 ** (1 / temperature))


def test_without_a_length_the_run_ends_when_a_source_has_been_seen_once() -> None:
    supply = {"a": Supply(50_000 * LENGTH, 50_000), "b": Supply(3_000 * LENGTH, 3_000)}
    found = mixed(model(["a", "b"], [1, 1]), supply)
    assert 0.98 < found.epochs["b"] <= 1 and found.epochs["a"] < 0.1


@given(
    st.lists(st.tuples(st.integers(1, 5_000), st.floats(0.01, 1)), min_size=1, max_size=5),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_without_a_length_no_row_comes_twice(have: list[tuple[int, float]], data: Any) -> None:
    names = [f"s{i}" for i in range(len(have))]
    weights = [data.draw(st.floats(0.001, 1)) for _ in have]
    supply = {
        name: Supply(max(1, int(rows * LENGTH * fill)), rows)
        for name, (rows, fill) in zip(names, have, strict=True)
    }
    found = mixed(model(names, weights), supply)
    assert found.samples >= 1
    assert max(found.epochs.values()) <= 1 or found.samples == 1


def test_a_source_that_would_be_repeated_too_often_is_named_with_what_is_possible() -> None:
    supply = {"a": Supply(10_000 * LENGTH, 10_000), "b": Supply(128 * LENGTH, 128)}
    said = model(["a", "b"], [1, 1], total_tokens=2_048 * LENGTH)
    with pytest.raises(RecipeError, match=r"sources\[b\]: 8\.00 epochs .*max_epochs is 4.*131,072"):
        mixed(said, supply)
    enough = model(["a", "b"], [1, 1], total_tokens=1_024 * LENGTH)
    assert mixed(enough, supply).epochs["b"] == 4.0


def test_an_empty_source_is_named() -> None:
    with pytest.raises(RecipeError, match=r"sources\[b\]: it has no documents to train on"):
        mixed(model(["a", "b"]), {"a": Supply(5, 1), "b": Supply(0, 0)})


def test_a_curriculum_changes_the_shares_at_a_block() -> None:
    supply = {"a": Supply(9_000 * LENGTH, 9_000), "b": Supply(9_000 * LENGTH, 9_000)}
    stages = [
        {"share": 0.5, "weights": {"a": 1}},
        {"share": 0.5, "weights": {"a": 1, "b": 3}},
    ]
    said = model(["a", "b"], mixture={"stages": stages}, total_tokens=8_192 * LENGTH)
    found = mixed(said, supply)
    assert [deal.from_sample for deal in found.order.deals] == [0, 4_096]
    assert found.order.draws(4_096).tolist() == [4_096, 0]
    assert found.order.draws(8_192).tolist() == [4_096 + 1_024, 3_072]
    assert found.overall == {"a": 0.625, "b": 0.375}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources.0.weight": 1}, r"sources\[b\]\.weight: others have one"),
        ({"sources.1.name": "a"}, "two are called 'a'"),
        ({"validation": {"source": "c"}}, "no source is called 'c'"),
        ({"validation": {}}, "either `share` or `source` is wanted"),
        (
            {"mixture": {"temperature": 2, "stages": [{"share": 1, "weights": {"a": 1}}]}},
            "only one",
        ),
        ({"mixture": {"stages": [{"share": 0.9, "weights": {"a": 1, "b": 1}}]}}, "sum to 0.9"),
        (
            {"mixture": {"stages": [{"share": 1, "weights": {"a": 1}}]}},
            "nothing of source 'b'|anything of source 'b'",
        ),
        ({"mixture": {"stages": [{"share": 1, "weights": {"z": 1}}]}}, "no source is called 'z'"),
        (
            {"packing": {"algoritm": "concat"}},
            "packing.algoritm: unknown key; did you mean 'algorithm'",
        ),
        ({"sources.0.pahts": ["x"]}, r"sources\[a\]\.pahts: unknown key; did you mean 'paths'"),
        ({"tokenizer": {}}, "either `train` or `path` is wanted"),
        ({"tokenizer": {"train": {"pretokenizer": "gpt9"}}}, "one of gpt2, llama3, qwen2"),
        ({"sequence_length": 1}, "sequence_length: input should be greater"),
        ({"dedup": ["line_dedup"]}, "neither exact_dedup nor minhash_dedup"),
        ({"dedup": [1]}, r"dedup\[0\]: the name of a stage is wanted"),
        ({"dedup": [{}]}, r"dedup\[0\]: the name of a stage is wanted"),
        ({"dedup": [{"exact_dedup": {}, "minhash_dedup": {}}]}, r"dedup\[0\]: the name of a stage"),
        ({"dedup": [{"exact_dedup": [1]}]}, "dedup.exact_dedup: a mapping of parameters"),
        ({"sources.0.max_epochs": float("inf")}, r"sources\[a\]\.max_epochs: .*finite"),
        ({"mixture": {"temperature": float("inf")}}, "mixture.temperature: .*finite"),
        (
            {"mixture": {"stages": [{"share": 1, "weights": {"a": 1e308, "b": 1e308}}]}},
            "sum is too large",
        ),
        ({"tokenizer": {"train": {"vocab_size": 258}}}, "vocab_size 258: 256 bytes and 3 special"),
        ({"tokenizer": {"train": {"vocab_size": 10**9}}}, "vocab_size: .*less than"),
        (
            {"tokenizer": {"train": {"special": {"pad": "<|endoftext|>"}}}},
            "special tokens must differ",
        ),
        ({"sources.0.repeat": [[3, 1], [2, 2]]}, "ascending"),
        ({"sources.0.paths": []}, "has `paths`"),
        ({"sources.0.options": {"paths": ["y"]}}, r"options\.paths: a key of the source"),
    ],
)
def test_what_does_not_fit_together_is_one_line_that_names_the_key(
    change: dict[str, Any], message: str
) -> None:
    sources: list[dict[str, Any]] = [
        {"name": name, "kind": "jsonl", "paths": ["x"]} for name in ("a", "b")
    ]
    recipe: dict[str, Any] = {"kind": "tokens", "name": "t", "sources": sources}
    recipe["tokenizer"] = {"path": "x"}
    for key, value in change.items():
        head, *rest = key.split(".")
        if rest:
            sources[int(rest[0])][rest[1]] = value
        else:
            recipe[head] = value
    with pytest.raises(RecipeError, match=message) as error:
        load(recipe)
    assert "\n" not in str(error.value)


def test_more_samples_than_can_be_ordered_are_refused() -> None:
    supply = {"a": Supply(9_000 * LENGTH, 9_000)}
    with pytest.raises(RecipeError, match=r"total_tokens: .* samples are wanted"):
        mixed(model(["a"], total_tokens=2**62), supply)
