"""Global steps that edit texts, end to end: what goes, its books, and the same bytes always.

What may live here: runs of `line_dedup` on the engine. Which lines go is in test_line_dedup.py.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kit import contents, recipe, write_jsonl
from test_faults import drive_with, kind_of
from zygote import Zygote

from curation import run
from curation.dedup.line_hashes import reference
from curation.engine.plan import cut, open_plan
from curation.engine.recipe import load
from curation.engine.retry import TaskFailed
from curation.inspect import verify, whatif
from curation.text.reference import words as words_of

JUDGED = {"min_chars": 12, "min_words": None, "max_symbols": None}
#: Removals before the edits in one segment, an edit after edits, removals after them, and a rule
#: that runs again.
STAGES = (
    {"basic": JUDGED},
    {"exact_dedup": {"by": ["text"]}},
    {"line_dedup": {}},
    {"line_dedup": {"above": 2, "keep": "none", "window": 20, "as": "frequent"}},
    {"exact_dedup": {"by": ["text"], "as": "once_more"}},
    {"basic": {**JUDGED, "min_chars": None, "min_words": 10, "as": "again"}},
)
SEGMENTS = ("read", "exact_dedup", "line_dedup", "filter2", "frequent", "filter3", "once_more")


def text(number: int) -> str:
    """Lines of its own, between some that all have and one that a few have."""
    name = "abcdefghij"[number % 10] * (2 + number // 10)
    own = [f"{mark} — {name}" for mark in "stuvwxyz"[: 2 + number % 5]]
    some = f"Of {'abcdefg'[number % 7]} kind"
    return "\n".join(["Home | About", *own, "", some, f"© {1990 + number} The Mill"])


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts with lines in common, copies of texts, and texts without a line of their own."""
    folder = tmp_path_factory.mktemp("inputs")
    for name in range(4):
        texts = [text(name * 8 + i) for i in range(11)]
        texts += [
            "Home | About\n© 2001 The Mill, or so",
            "too short",
            f"Page of part {name}\n\nHome",
        ]
        write_jsonl(folder / f"part{name}.jsonl", texts)
    return folder


@pytest.fixture(scope="module")
def finished(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "a"
    return run(recipe(*STAGES), inputs=[str(inputs)], output=path, workers=1).path


def texts_of(path: Path, name: str) -> dict[str, str]:
    """The texts that a segment kept, by id."""
    [segment] = [s for s in open_plan(path).maps if s.name == name]
    place = "documents" if segment.kind == "documents" else f"{segment.directory}/text"
    rows = pq.read_table(path / place).to_pylist()
    return {row["id"]: row["text"] for row in rows if row.get("kept", True)}


def signals(path: Path, name: str) -> list[dict[str, Any]]:
    [segment] = [s for s in open_plan(path).maps if s.name == name]
    return pq.read_table(path / segment.directory / "signals").to_pylist()  # type: ignore[no-any-return]


def test_the_first_occurrence_of_every_line_stays(finished: Path) -> None:
    """Among the documents that the step right before it has left; blank lines count for nothing."""
    before = texts_of(finished, "read")
    first: dict[str, str] = {}
    for name in sorted(before):
        first.setdefault(" ".join(before[name].lower().split()), name)
    seen: set[str] = set()
    expected = {}
    for name in sorted(first.values()):
        lines = []
        for line in before[name].split("\n"):
            key = reference.key(line)
            if key is None or key not in seen:
                lines.append(line)
            seen |= {key} - {None}
        if "\n".join(lines).strip():
            expected[name] = "\n".join(lines)
    assert len(expected) < len(first) < len(before)
    assert texts_of(finished, "filter2") == expected


def test_edits_are_accounted_for(finished: Path) -> None:
    """Documents, words and bytes: in = kept + dropped + removed, and what was edited."""
    stats = json.loads((finished / "stats.json").read_bytes())
    [stage] = [s for s in stats["stages"] if s["name"] == "line_dedup"]
    before, after = texts_of(finished, "read"), texts_of(finished, "filter2")
    edited = [name for name in after if after[name] != before[name]]
    assert stage["edited"]["documents"] == len(edited) > 0
    assert stage["edited"]["bytes"] == sum(len(after[name].encode()) for name in edited)
    removed = sum(len(before[n].encode()) - len(after[n].encode()) for n in edited)
    assert stage["removed"]["bytes"] == removed > 0 and stage["removed"]["words"] > 0
    assert stage["inserted"] == {"words": 0, "bytes": 0}
    for unit in ("words", "bytes"):
        dropped = stage["dropped"]["empty"][unit]
        assert stage["in"][unit] == stage["kept"][unit] + dropped + stage["removed"][unit]
    said = {row["id"]: row["line_dedup.removed_bytes"] for row in signals(finished, "filter2")}
    for name in after:
        assert said[name] == len(before[name].encode()) - len(after[name].encode())
    reasons = Counter(row["reason"] for row in signals(finished, "filter2"))
    assert stage["dropped"]["empty"]["documents"] == reasons["empty"] > 0
    assert verify.check(open_plan(finished), replay=4)["holds"]


def test_rules_see_the_edited_text_when_they_run_again(finished: Path) -> None:
    said = [row for row in signals(finished, "documents") if row["reached"] == "again"]
    left = texts_of(finished, "filter3")
    assert {row["reason"] for row in said} == {None, "too_few_words"}
    for row in said:
        words = len(list(words_of(left[row["id"]])))
        assert row["again.words"] == words
        assert (row["decision"] == "kept") == (words >= 10)


def test_whatever_follows_an_edit_gets_a_segment_of_its_own() -> None:
    plan = cut(load(recipe(*STAGES), ["x"]))
    assert [segment.name for segment in plan] == [*SEGMENTS, "documents"]
    assert [
        [s.name for s in segment.removals] for segment in plan if segment.kind != "exchange"
    ] == [
        [],
        ["exact_dedup", "line_dedup"],
        ["frequent"],
        ["once_more"],
    ]


def test_order_of_files_and_workers_do_not_change_the_bytes(
    finished: Path, inputs: Path, tmp_path: Path
) -> None:
    files = [str(path) for path in sorted(inputs.iterdir(), reverse=True)]
    other = run(recipe(*STAGES), inputs=files, output=tmp_path / "b", workers=2)
    assert contents(other.path) == contents(finished)


def test_batches_groups_and_ranges_do_not_change_what_is_left(
    finished: Path, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curation.engine.unit.BATCH_DOCUMENTS", 3)
    monkeypatch.setattr("curation.engine.exchange.BATCH_DOCUMENTS", 2)
    monkeypatch.setattr("curation.engine.driver.GROUP_UNITS", 2)
    monkeypatch.setattr("curation.engine.driver.EXCHANGE_BYTES", 1000)
    other = run(recipe(*STAGES), inputs=[str(inputs)], output=tmp_path / "b", workers=1)
    assert len(list(other.path.glob("segments/2-*/work/repeated-*"))) > 2

    def left(path: Path) -> dict[str, bytes]:
        return {name: data for name, data in contents(path).items() if "/work/" not in name}

    assert left(other.path) == left(finished)


def test_pieces_of_an_edited_unit_rejoin(finished: Path, inputs: Path, tmp_path: Path) -> None:
    def fails(task: Any) -> TaskFailed | None:
        chosen = task.segment in (3, 5) and task.name.startswith("part2") and not task.pieces
        return TaskFailed("OutOfMemory", "memory") if chosen else None

    drive_with(fails, recipe(*STAGES), inputs, tmp_path / "r")
    assert contents(tmp_path / "r") == contents(finished)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    server = Zygote()
    yield server
    server.close()


def test_a_driver_killed_at_any_step_of_an_edit_loses_nothing(
    inputs: Path, zygote: Zygote, tmp_path: Path
) -> None:
    """One death before and one after every kind of file of the exchange."""
    file, output = tmp_path / "r.yaml", tmp_path / "r"
    file.write_text(json.dumps(recipe(STAGES[0], STAGES[2])))
    command = ["run", str(file), "--input", str(inputs / "part[01].jsonl")]
    command += ["--output", str(output), "--workers", "1", "--quiet"]
    points = zygote.points(command)
    undisturbed = contents(output)
    kinds = {kind for kind in map(kind_of, points) if "1-line_dedup" in kind}
    assert {f"{when} 1-line_dedup/edits" for when in ("before", "after")} <= kinds
    chance = random.Random(20)
    for kind in sorted(kinds):
        shutil.rmtree(output)
        places = [i for i, point in enumerate(points, 1) if kind_of(point) == kind]
        assert zygote.run(command, die_at=chance.choice(places)) == -signal.SIGKILL, kind
        assert zygote.run(command) == 0, kind
        assert contents(output) == undisturbed, kind


def test_a_damaged_edit_is_decided_again(finished: Path, inputs: Path, tmp_path: Path) -> None:
    path = tmp_path / "r"
    shutil.copytree(finished, path)
    edits = sorted(path.glob("segments/2-*/edits/*"))[1]
    edits.write_bytes(edits.read_bytes()[:-1] + b"x")
    for receipt in path.glob("segments/3-*/receipts/*"):
        receipt.unlink()  # so that they are read again
    run(recipe(*STAGES), inputs=[str(inputs)], output=path, workers=1)
    assert contents(path) == contents(finished)


def test_a_unit_takes_its_own_slice_of_the_edits(inputs: Path, tmp_path: Path) -> None:
    """A file more, whose lines nobody else has: what is edited of the others is not done again."""
    stages = (
        *STAGES[:3],
        {"basic": {**JUDGED, "as": "again"}},
        {"exact_dedup": {"as": "once_more"}},
    )
    folder = tmp_path / "in"
    shutil.copytree(inputs, folder)
    old = run(recipe(*stages), inputs=[str(folder)], output=tmp_path / "old", workers=1)
    write_jsonl(
        folder / "part9.jsonl", [f"Nobody has {'q' * i} these words of mine" for i in (4, 7)]
    )
    new = run(
        recipe(*stages), inputs=[str(folder)], output=tmp_path / "new", base=old.path, workers=1
    )
    done = [path.name for path in new.path.glob("segments/3-*/text/*")]
    assert len(done) == 1 and done[0].startswith("part9")


def test_whatif_takes_an_edit_as_it_was(finished: Path) -> None:
    found = whatif.simulate(open_plan(finished), ["again.min_words=null"])
    once_more = len(texts_of(finished, "filter3"))
    assert found["before"]["kept"]["documents"] < found["after"]["kept"]["documents"] == once_more
    assert [step["more"] for step in found["global_steps"]] == [0] * 4
