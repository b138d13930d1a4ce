"""Recipes: what is read, and the one line that a wrong one gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from curation.engine.plan import build, cut
from curation.engine.recipe import RecipeError, load

ROOT = Path(__file__).resolve().parent.parent
GOOD: dict[str, Any] = {
    "kind": "documents",
    "name": "r",
    "input": {"kind": "warc", "paths": ["x.warc.gz"]},
    "stages": [{"extract": {}}, {"gopher_quality": {}}, {"exact_dedup": {}}],
}


def test_a_resolved_recipe_loads_to_itself() -> None:
    resolved = load(GOOD).resolved()
    assert load(resolved).resolved() == resolved
    assert resolved["stages"][1]["gopher_quality"]["min_words"] == 50


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kine": "documents"}, r"kine: unknown key; did you mean 'kind'\?"),
    ({"name": "no spaces"}, "name: string should match pattern"),
    ({"seed": -1}, "seed: input should be greater than or equal to 0"),
    ({"seed": "x"}, "seed: input should be a valid integer"),
    ({"store": "some"}, "store: input should be 'all' or 'kept'"),
    ({"failure_ceiling": 2}, "failure_ceiling: input should be less than or equal to 1"),
    (
        {"input": {"kind": "warx"}},
        "input.kind: 'warx' is none of warc, wet, jsonl, datatrove, parquet",
    ),
    ({"input": {"paths": []}}, "input.kind: this key is missing"),
    ({"input": {"kind": "warc", "path": []}}, r"input.path: unknown key; did you mean 'paths'\?"),
    ({"input": "x.warc"}, "input: "),
    ({"output": {"file_size": "12 potatoes"}}, "output.file_size: a size such as 512MB"),
    ({"output": {"size": 3}}, r"output.size: unknown key; did you mean 'file_size'\?"),
    ({"stages": [{"gopher_qualty": {}}]}, r"stages\[0\]: no stage is called 'gopher_qualty'; did"),
    ({"stages": [{"extract": {}, "c4": {}}]}, "a stage is written"),
    ({"stages": [7]}, "a stage is written"),
    ({"stages": [{"extract": {"engin": 1}}]}, r"stages\[0\].extract.engin: unknown key; did you"),
    ({"stages": [{"extract": {"engine": "x"}}]}, r"stages\[0\].extract.engine: input should be"),
    ({"stages": [{"exact_dedup": {}}]}, "input of kind warc needs the stage `extract`"),
    (
        {"stages": [{"exact_dedup": {}}, {"extract": {}}]},
        "exact_dedup reads text and stands before",
    ),
    ({"stages": [{"gopher_quality": {}}]}, "input of kind warc needs the stage `extract`"),
    (
        {"stages": [{"extract": {}}, {"gopher_quality": {"min_words": 9, "max_words": 3}}]},
        r"min_words \(9\) is above max_words \(3\)",
    ),
    (
        {"stages": [{"extract": {}}, {"language": {}}, {"language": {}}]},
        "two stages are called 'language'; name one with `as:`",
    ),
    ({"stages": [{"language": {}}, {"extract": {}}]}, "language reads text and stands before"),
    ({"stages": [{"extract": {"as": "a b"}}]}, r"stages\[0\].as: 'a b' is no name"),
    ({"stages": [{"no_such_module:X": {}}]}, "No module named 'no_such_module'"),
    ({"stages": [{"json:loads": {}}]}, "json:loads is not a stage"),
    ({"stages": [{"extract": {}}, {"language": {"model": "no/such.bin"}}]}, "no/such.bin"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[str(c)[:40] for c, _ in WRONG])
def test_a_wrong_recipe_gets_one_line(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    wrong = {**GOOD, **change}
    with pytest.raises(RecipeError, match=message) as caught:
        cut(load(wrong))
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_key_is_named() -> None:
    with pytest.raises(RecipeError, match="name: this key is missing"):
        load({k: v for k, v in GOOD.items() if k != "name"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: [", r"r.yaml:\d+: "),
        ("- a\n- b\n", "a recipe is a mapping"),
        ("\xff", "cannot read the recipe|a recipe is a mapping"),
    ],
)
def test_a_file_that_is_no_recipe(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RecipeError, match=message):
        load(path)


def test_settings_reach_fields_and_stages() -> None:
    changed = load(
        GOOD,
        settings=[
            "seed=3",
            "gopher_quality.min_words=40",
            "input.truncated=drop",
            "extract.max_depth=9",
        ],
    ).resolved()
    assert changed["seed"] == 3 and changed["input"]["truncated"] == "drop"
    assert changed["stages"][0]["extract"]["max_depth"] == 9
    assert changed["stages"][1]["gopher_quality"]["min_words"] == 40
    assert "max_depth" not in GOOD["stages"][0]["extract"], "the caller's recipe is not changed"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seed", "key.key=value is wanted"),
        ("gopher.min_words=1", r"no such field or stage; did you mean 'gopher_quality'\?"),
        ("gopher_quality.min_word=1", r"min_word: unknown key; did you mean 'min_words'\?"),
        ("seed.x=1", "seed is not a mapping"),
        ("name=2024-99-99", "name: month must be in"),
        ("name=&a [*a]", "name: Circular reference"),
        ("name={", "name:1: "),
        ("failure_ceiling=.inf", "failure_ceiling: "),
        ("gopher_quality.max_hash_ratio=.inf", "max_hash_ratio: "),
    ],
)
def test_a_wrong_setting_is_named(setting: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load(GOOD | {"seed": 1}, settings=[setting])


def test_a_stage_used_twice_has_two_names() -> None:
    stages = [{"extract": {}}, {"gopher_quality": {}}, {"gopher_quality": {"as": "again"}}]
    specs = load({**GOOD, "stages": stages}).stages
    assert [spec.name for spec in specs] == ["extract", "gopher_quality", "again"]


def test_segments_are_cut_at_global_steps() -> None:
    stages = [
        {"extract": {}},
        {"gopher_quality": {}},
        {"exact_dedup": {"as": "one"}},
        {"exact_dedup": {"as": "two"}},
        {"gopher_quality": {"as": "again"}},
        {"exact_dedup": {"as": "three"}},
    ]
    segments = cut(load({**GOOD, "stages": stages}))
    assert [
        (
            s.kind,
            [x.name for x in s.removals],
            [x.name for x in s.stages],
            [x.name for x in s.prepares],
        )
        for s in segments
    ] == [
        ("read", [], ["extract", "gopher_quality"], ["one", "two"]),
        ("exchange", [], [], []),
        ("exchange", [], [], []),
        ("filter", ["one", "two"], ["again"], ["three"]),
        ("exchange", [], [], []),
        ("documents", ["three"], [], []),
    ]


def test_keys_change_with_what_decides_the_output_and_with_nothing_else() -> None:
    def keys(change: dict[str, Any]) -> list[str]:
        return [segment.key for segment in cut(load({**GOOD, **change}))]

    same = keys({})
    assert keys({"name": "other"}) == same
    assert keys({"failure_ceiling": 0.5}) == same
    assert keys({"input": {"kind": "warc", "paths": ["y.warc"]}}) == same
    tuned = keys(
        {"stages": [{"extract": {}}, {"gopher_quality": {"min_words": 40}}, "exact_dedup"]}
    )
    assert tuned[0] != same[0] and tuned[1:] == same[1:]
    assert keys({"seed": 3})[0] != same[0]
    assert keys({"output": {"file_size": "1MB"}})[-1] != same[-1]
    assert keys({"output": {"file_size": "1MB"}})[:-1] == same[:-1]


def test_the_listing_does_not_depend_on_how_it_was_asked_for(tmp_path: Path) -> None:
    for name in ("b.warc", "a.warc.gz", "c.txt"):
        (tmp_path / name).write_bytes(b"")
    ways = [
        [str(tmp_path)],
        [f"{tmp_path}/b.warc", f"{tmp_path}/a.warc.gz"],
        [f"{tmp_path}/*.warc*"] * 2,
    ]
    plans = [build(load(GOOD, inputs=way), None) for way in ways]
    assert len({plan.run for plan in plans}) == 1
    assert [unit.input.path for unit in plans[0].units] == [
        f"{tmp_path}/a.warc.gz", f"{tmp_path}/b.warc",
    ]  # fmt: skip


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "name", "input", "stages", "x"]), children)
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a machine with other work
@given(st.dictionaries(st.sampled_from([*GOOD, "seed", "store", "output", "x"]), json_values))
@example({"stages": ["\r:a"]})
def test_any_mapping_is_a_recipe_or_a_one_line_error(change: dict[str, Any]) -> None:
    try:
        load({**GOOD, **change})
    except RecipeError as error:
        assert len(str(error).splitlines()) == 1


def test_yaml_lists_and_whole_numbers_do_for_tuples_and_floats() -> None:
    text = "stages: [extract, {language: {keep: [en, de], min_score: 1}}]"
    recipe = load({**GOOD, **yaml.safe_load(text)})
    parameters = recipe.stages[1].parameters()
    assert parameters["keep"] == ["en", "de"] and parameters["min_score"] == 1.0
