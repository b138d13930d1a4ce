"""What `whatif` says, held against the run that really has the new thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judges import STAGES, THRESHOLDS, flags, write_documents
from kit import recipe, write_jsonl

from curation import run
from curation.engine.plan import open_plan
from curation.engine.recipe import RecipeError
from curation.inspect import whatif


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def finished(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "old"
    more = {"failure_ceiling": 1}
    return run(recipe(*STAGES, **more), inputs=[str(inputs)], output=path, workers=1).path


def fates(path: Path) -> dict[str, tuple[str, str]]:
    """Of every document by id: kept, dropped or failed, and where (`stage:reason`)."""
    plan = open_plan(path)
    found: dict[str, tuple[str, str]] = {}
    for segment in plan.maps:
        for row in pq.read_table(path / segment.directory / "signals").to_pylist():
            where = f"{row['reached']}:{row['reason']}" if row["reason"] else ""
            found[row["id"]] = (row["decision"], where)
    return found


def simulated(path: Path, changes: list[str]) -> dict[str, tuple[str, str]]:
    """The same as `whatif` has it, whose output tells single documents only as samples."""
    plan = open_plan(path)
    simulation = whatif._Simulation(plan, whatif._changed(plan, changes))
    for segment in plan.maps:
        simulation.pass_through(segment)
    numbered = simulation.fates.all()
    ids = []
    for table in whatif.batches(plan, plan.segments[0], ["id"]):
        ids += table["id"].to_pylist()
    return {
        name: (numbered[number].outcome, numbered[number].where or "")
        for name, number in zip(ids, simulation.new.tolist(), strict=True)
    }


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(st.sampled_from(THRESHOLDS), st.none() | st.integers(0, 10), min_size=1),
)
def test_where_whatif_is_sure_the_run_agrees(
    finished: Path,
    inputs: Path,
    tmp_path_factory: pytest.TempPathFactory,
    values: dict[str, int | None],
) -> None:
    """Kept, dropped and failed for the same first reason. Whom the dedup removes may differ where
    other documents come to it, and there alone; unknown may turn out as anything."""
    changes = flags(values)
    other = run(
        recipe(*STAGES, failure_ceiling=1),
        inputs=[str(inputs)],
        output=tmp_path_factory.mktemp("new") / "run",
        settings=changes,
        workers=1,
    )
    found, real = simulated(finished, changes), fates(other.path)
    assert found.keys() == real.keys()
    said = whatif.simulate(open_plan(finished), changes)
    [step] = said["global_steps"]
    same = not (step["more"] or step["fewer"] or step["unknown"])
    for name, fate in found.items():
        if fate[0] == "unknown" or fate == real[name]:
            continue
        decided_by_dedup = any(f[1].startswith("exact_dedup:") for f in (fate, real[name]))
        assert decided_by_dedup and not same, (name, fate, real[name], changes)
    for outcome in ("kept", "dropped", "failed", "unknown"):
        number = sum(fate[0] == outcome for fate in found.values())
        assert said["after"][outcome]["documents"] == number


def test_nothing_changed_is_the_run_itself(finished: Path) -> None:
    changes = ["first.least=3"]
    assert simulated(finished, changes) == fates(finished)
    found = whatif.simulate(open_plan(finished), changes)
    assert found["before"] == found["after"]
    assert all(stage["before"] == stage["after"] for stage in found["stages"])
    assert "what it decided stands" in whatif.render(found)


def test_totals_per_stage_are_those_of_the_ledger(finished: Path, inputs: Path) -> None:
    found = whatif.simulate(open_plan(finished), ["first.least=3"])
    stats = run(
        recipe(*STAGES, failure_ceiling=1), inputs=[str(inputs)], output=finished, workers=1
    ).stats
    for stage, said in zip(stats["stages"], found["stages"], strict=True):
        assert said["stage"] == stage["name"]
        assert said["before"] == {
            "in": stage["in"]["documents"],
            "dropped": sum(amount["documents"] for amount in stage["dropped"].values()),
            "failed": stage["failed"]["documents"],
            "unknown": 0,
        }
    assert found["before"]["kept"]["documents"] == stats["output"]["documents"]
    assert found["before"]["kept"]["words"] == stats["output"]["words"]


def single(tmp_path: Path, texts: list[str], *stages: Any) -> Path:
    source = write_jsonl(tmp_path / "x.jsonl", texts)
    return run(recipe(*stages), inputs=[str(source)], output=tmp_path / "r", workers=1).path


def test_what_a_rule_drops_alone_and_with_another(tmp_path: Path) -> None:
    """One text violates `low` alone, one both rules, one both and `second` too, one nothing."""
    texts = ["a=1 b=5 c=5", "a=1 b=9 c=5", "a=1 b=9 c=0", "a=5 b=5 c=5"]
    path = single(tmp_path, texts, STAGES[0], STAGES[1])
    found = whatif.simulate(open_plan(path), ["first.least=3"])
    counts = {r["rule"]: (r["drops"], r["would_drop"], r["only_it"]) for r in found["rules"]}
    assert counts == {"first:low": (3, 3, 1), "first:high": (0, 2, 0), "second:low": (0, 1, 0)}
    pairs = {tuple(p["rules"]): (p["would_drop"], p["only_both"]) for p in found["pairs"]}
    assert pairs == {
        ("first:low", "first:high"): (2, 1),
        ("first:low", "second:low"): (1, 0),
        ("first:high", "second:low"): (1, 0),
    }
    assert "first:low and first:high" in whatif.render(found)


def test_a_score_that_failed_behind_another_rule_is_unknown(tmp_path: Path) -> None:
    """The filter behind could not score it, but nobody was told: the one before had dropped it."""
    path = single(tmp_path, ["a=1 b=5 c=!", "a=5 b=5 c=5"], STAGES[0], STAGES[1])
    found = whatif.simulate(open_plan(path), ["first.least=0"])
    assert found["after"]["unknown"]["documents"] == 1
    assert found["stages"][1]["after"] == {"in": 2, "dropped": 0, "failed": 0, "unknown": 1}


def test_the_rules_of_an_editor_are_tuned_exactly(tmp_path: Path) -> None:
    """What it noted of an edit is enough for its own rules, but not for those after it."""
    texts = ["a=5 cut cut cut", "a=5 cut", "cut"]
    path = single(tmp_path, texts, STAGES[2], STAGES[3])
    stricter = whatif.simulate(open_plan(path), ["cutter.most=0", "alone.least=0"])
    assert {r["rule"]: r["drops"] for r in stricter["rules"]} == {
        "cutter:much_cut": 2,
        "alone:short": 0,
    }
    assert stricter["after"]["dropped"]["documents"] == 3  # one was emptied
    looser = whatif.simulate(open_plan(path), ["cutter.most=3"])
    assert looser["stages"][1]["after"]["unknown"] == 1


def test_a_duplicate_of_what_is_dropped_now_is_unknown(tmp_path: Path) -> None:
    source = write_jsonl(
        tmp_path / "x.jsonl", ["a=4 b=5", "a=6 b=6"], ["https://x.example/", "https://x.example/"]
    )
    stages = (STAGES[0], STAGES[4])
    path = run(recipe(*stages), inputs=[str(source)], output=tmp_path / "r", workers=1).path
    survivor = pq.read_table(path / "documents").to_pylist()[0]
    against = {"a=4 b=5": "first.least=5", "a=6 b=6": "first.most=5"}  # text -> what drops it
    for text, change in against.items():
        found = simulated(path, [change])
        survives = found.pop(survivor["id"])[0]
        [duplicate] = [fate[0] for fate in found.values()]
        if text == survivor["text"]:
            assert (survives, duplicate) == ("dropped", "unknown")
        else:
            assert (survives, duplicate) == ("kept", "dropped")


def test_a_run_that_has_not_ended_is_unknown_where_it_stops(finished: Path, tmp_path: Path) -> None:
    import shutil

    path = tmp_path / "r"
    shutil.copytree(finished, path)
    plan = open_plan(path)
    shutil.rmtree(path / plan.segments[-1].directory)
    found = whatif.simulate(plan, ["first.least=3"])
    assert found["before"] == found["after"]
    assert found["before"]["kept"]["documents"] == 0 < found["before"]["unknown"]["documents"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("first.leest=3", "did you mean"),
        ("cutter.word=x", "not a threshold"),
        ("nobody.least=3", "no such stage"),
        ("first.least=x", "least"),
    ],
)
def test_a_setting_that_is_no_threshold_is_refused(
    finished: Path, change: str, problem: str
) -> None:
    with pytest.raises(RecipeError, match=problem):
        whatif.simulate(open_plan(finished), [change])
