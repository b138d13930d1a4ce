"""Ranks over a whole run: exact for any division of the work, and judged by rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from curation import run
from curation.document import Documents
from curation.engine.plan import open_plan
from curation.engine.recipe import RecipeError
from curation.filters import percentile
from curation.filters.percentile import Percentile, ordered
from curation.inspect.whatif import simulate
from curation.stage import Scores
from tests.exchange import decide

VALUES = st.one_of(
    st.none(),
    st.integers(-3, 3).map(float),
    st.sampled_from([0.0, -0.0, float("inf"), -float("inf"), 5e-324]),
    st.floats(allow_nan=False, width=16),
)
UNITS = st.lists(
    st.lists(st.tuples(VALUES, st.sampled_from(["en", "de", None])), max_size=12),
    min_size=1,
    max_size=5,
)
Units = list[list[tuple[float | None, str | None]]]


def documents(unit: list[tuple[float | None, str | None]]) -> Documents:
    return Documents(
        {
            "row": pa.array(np.arange(len(unit))),
            "language": pa.array([language for _, language in unit], pa.string()),
            "s.v": pa.array([value for value, _ in unit], pa.float64()),
        }
    )


def ranks(step: Percentile, units: Units, **division: int) -> list[list[float | None]]:
    found = []
    for unit, scores in zip(
        units, decide(step, [documents(u) for u in units], **division), strict=True
    ):
        assert isinstance(scores, Scores)
        found.append(scores.onto(documents(unit))["rank"].to_pylist())
    return found


def by_definition(units: Units, best: str, by: str) -> list[list[float | None]]:
    """Of all documents of the group, how many are better, document by document."""
    everyone = [entry for unit in units for entry in unit if entry[0] is not None]

    def rank(value: float | None, language: str | None) -> float | None:
        if value is None:
            return None
        group = [v for v, other in everyone if by == "run" or other == language]
        better = [v for v in group if (v < value if best == "lowest" else v > value)]  # type: ignore[operator]
        return (1 + len(better)) / len(group)

    return [[rank(*entry) for entry in unit] for unit in units]


@settings(max_examples=150, deadline=None)
@given(UNITS, st.sampled_from(["lowest", "highest"]), st.sampled_from(["run", "language"]))
def test_a_rank_is_what_its_definition_says(units: Units, best: Any, by: Any) -> None:
    step = Percentile(signal="s.v", best=best, by=by)
    assert ranks(step, units) == by_definition(units, best, by)
    together = step.scores(documents([entry for unit in units for entry in unit]))["rank"]
    expected = [rank for unit in by_definition(units, best, by) for rank in unit]
    assert pa.array(together, from_pandas=True).to_pylist() == expected


@settings(max_examples=60, deadline=None)
@given(UNITS, st.integers(1, 4))
def test_no_division_of_the_work_changes_a_rank(units: Units, group: int) -> None:
    step = Percentile(signal="s.v", best="lowest")
    whole = by_definition(units, "lowest", "language")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(percentile, "EVERY", 2)
        patch.setattr(percentile, "RANGE_BYTES", 2 * percentile.LINE.itemsize)
        assert ranks(step, units, group=group) == whole


def test_ranges_are_about_equal_and_each_value_lies_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(percentile, "EVERY", 8)
    monkeypatch.setattr(percentile, "RANGE_BYTES", 500 * percentile.LINE.itemsize)
    values = np.random.default_rng(1).lognormal(5, 1, 20_000).round(1)
    docs = documents([(float(value), "en") for value in values])
    step = Percentile(signal="s.v", best="lowest")
    [weights] = (
        step.exchange("borders", 0, 1, sources)["weights"] for sources in [_Lines(step, docs)]
    )
    assert weights.sum() == len(docs) * percentile.LINE.itemsize
    assert len(weights) > 20 and weights.max() < 3 * percentile.RANGE_BYTES


class _Lines:
    """The sorted lines of one group of units."""

    units = (0,)

    def __init__(self, step: Percentile, docs: Documents) -> None:
        self._records = step.prepare(docs)
        self._found = step.exchange("lines", 0, 1, self)["lines"]  # type: ignore[arg-type]

    def records(self, unit: int) -> np.ndarray:
        return self._records

    def arrays(self, phase: str, name: str) -> Any:
        return iter([self._found])


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=20))
def test_numbers_and_their_keys_compare_alike(values: list[float]) -> None:
    array = np.array(values)
    keys = ordered(array)
    for i in range(1, len(array)):
        assert (keys[i - 1] < keys[i]) == (array[i - 1] < array[i])
        assert (keys[i - 1] == keys[i]) == (array[i - 1] == array[i])


def test_buckets_are_shares_from_the_best_on() -> None:
    step = Percentile(signal="s.v", best="lowest", buckets={"head": 0.3, "middle": 0.6})
    docs = Documents({"row": pa.array([0, 1, 2, 3]), "rank": pa.array([0.3, 0.31, 0.61, None])})
    assert pa.array(step.score(docs)["bucket"]).to_pylist() == ["head", "middle", None, None]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"signal": "perplexity"}, "STAGE.SIGNAL"),
        ({"keep": 1.5}, "keep"),
        ({"buckets": {"head": 0.6, "middle": 0.3}}, "shares ascend"),
        ({"best": "first"}, "best"),
        ({"keep": 0.0}, "null keeps all"),
        ({"buckets": {}}, "names and shares"),
        ({"buckets": {"": 0.5}}, "names and shares"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Percentile(**{"signal": "s.v", "best": "lowest", **parameters})


# --- in a run -------------------------------------------------------------------------------------


def recipe(folder: Path, *, keep: float = 0.25, first: Any = (), **more: Any) -> dict[str, Any]:
    step = {"signal": "basic.words", "best": "highest", "by": "source", "keep": keep, **more}
    off = dict.fromkeys(("min_chars", "max_repeated_lines", "min_words", "max_symbols"))
    return {
        "kind": "documents",
        "name": "shares",
        "input": {"kind": "jsonl", "paths": [str(folder)], "source": "all"},
        "stages": [{"basic": off}, *first, {"percentile": step}, {"exact_dedup": {"by": ["text"]}}],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """40 texts of 1 to 20 words in four files, each length twice; and one text three times more."""
    place = tmp_path / "in"
    place.mkdir()
    texts = [
        " ".join(f"w{i % 20 + 1}{'ab'[i // 20]}{n}" for n in range(i % 20 + 1)) for i in range(40)
    ]
    for part in range(4):
        lines = texts[part::4] + [texts[19]] * (part < 3)
        (place / f"{part}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in lines))
    return place


def kept(path: Path) -> list[str]:
    return sorted(pq.read_table(path / "documents")["text"].to_pylist())


def test_a_run_keeps_the_best_share_whatever_the_workers(folder: Path, tmp_path: Path) -> None:
    outcome = run(recipe(folder), output=tmp_path / "a", executor="inline")
    stage = {s["name"]: s for s in outcome.stats["stages"]}["percentile"]
    # Of 43: five of 20 words (ranks 1/43), 19, 18, 17 twice each (6, 8, 10 of 43): 11/43 > 1/4.
    assert stage["kept"]["documents"] == 11
    assert stage["dropped"] == {"beyond": stage["dropped"]["beyond"]}
    assert {len(text.split()) for text in kept(tmp_path / "a")} == {20, 19, 18, 17}
    assert len(kept(tmp_path / "a")) == 8  # then equal texts
    run(recipe(folder), output=tmp_path / "b", workers=2)
    for name in ("stats.json", *(p.relative_to(tmp_path / "a") for p in tmp_path.glob("a/doc*/*"))):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_shares_are_of_what_deduplication_left(folder: Path, tmp_path: Path) -> None:
    steps = recipe(folder, first=[{"exact_dedup": {"by": ["text"]}}])
    steps["stages"].pop()
    outcome = run(steps, output=tmp_path / "a", executor="inline")
    stage = {s["name"]: s for s in outcome.stats["stages"]}["percentile"]
    assert stage["in"]["documents"] == 40 and stage["kept"]["documents"] == 10


def test_what_if_tells_what_another_share_keeps(folder: Path, tmp_path: Path) -> None:
    run(recipe(folder), output=tmp_path / "a", executor="inline")
    told = simulate(open_plan(tmp_path / "a"), ["percentile.keep=0.1"])
    assert told["flips"]["now_dropped"]["documents"] == 8 - 2  # five of 20 words, two different
    again = run(recipe(folder, keep=0.1), output=tmp_path / "b", base=tmp_path / "a")
    assert again.stats["output"]["documents"] == 2


def test_what_if_ranks_again_what_comes_to_it(folder: Path, tmp_path: Path) -> None:
    """Fewer documents come, before and after exact duplicates are gone."""
    first = [{"gopher_quality": dict.fromkeys(GOPHER)}, {"exact_dedup": {"by": ["text"]}}]
    asked = recipe(folder, first=first)
    asked["stages"].pop()
    run(asked, output=tmp_path / "a", executor="inline")
    told = simulate(open_plan(tmp_path / "a"), ["gopher_quality.max_words=16"])
    asked["stages"][1]["gopher_quality"]["max_words"] = 16
    again = run(asked, output=tmp_path / "b", executor="inline")
    assert told["after"]["kept"]["documents"] == again.stats["output"]["documents"] == 8
    assert told["after"]["unknown"]["documents"] == 0


GOPHER = (
    *("min_words", "max_words", "min_mean_word_length", "max_mean_word_length"),
    *("min_alphabetic_words", "min_stop_words"),
)


def test_the_share_is_not_part_of_the_keys_of_what_finds_ranks(
    folder: Path, tmp_path: Path
) -> None:
    for name, keep in (("a", 0.25), ("b", 0.5)):
        run(recipe(folder, keep=keep), output=tmp_path / name, executor="inline")
    keys = [{s.name: s.key for s in open_plan(tmp_path / name).segments} for name in ("a", "b")]
    assert keys[0]["percentile"] == keys[1]["percentile"] and keys[0]["read"] == keys[1]["read"]
    assert keys[0]["filter2"] != keys[1]["filter2"]


def test_a_signal_that_nobody_gives_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"stages before it, and none has 'basic\.wordz'"):
        run(recipe(folder, signal="basic.wordz"), output=tmp_path / "a", executor="inline")


def test_a_small_share_is_no_collapse(folder: Path, tmp_path: Path) -> None:
    small = {**recipe(folder, keep=0.03), "collapse": {"source": 0.5, "documents": 1}}
    small["stages"].pop()
    outcome = run(small, output=tmp_path / "a", executor="inline")
    assert outcome.stats["output"]["documents"] == 5
