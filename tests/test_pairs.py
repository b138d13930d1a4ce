"""Removed duplicates beside their survivors, from the files of a run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit import page, recipe, write_jsonl

from curation import cli, run
from curation.engine.plan import Plan, open_plan
from curation.engine.recipe import RecipeError
from curation.inspect import documents, pairs, trace
from curation.inspect.signals import batches
from curation.inspect.terminal import Terminal

WIDE = Terminal(140, False)
STEP = "exact_dedup"


def rows() -> list[dict[str, Any]]:
    """Three documents of one address, two of one text, one by itself."""
    edited = [page(1), page(1).replace("Page 1", "Blatt 1"), page(1) + "\nNoch eine Zeile."]
    same = [page(2), page(2).upper()]
    texts = [*edited, *same, page(3)]
    urls = [f"https://a.example/{'?utm_source=' * bool(i)}{i or ''}" for i in range(3)]
    urls += [f"https://b.example/{i}" for i in range(3)]
    return [
        {"id": str(i), "text": text, "url": url, "source": f"s{i}", "date": "2026-01-01T00:00:00Z"}
        for i, (text, url) in enumerate(zip(texts, urls, strict=True))
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    for number, part in enumerate((rows()[:2], rows()[2:])):
        lines = "".join(json.dumps(row) + "\n" for row in part)
        (folder / f"{number}.jsonl").write_text(lines)
    stages = recipe({"normalise": {}}, {STEP: {}})
    inputs = sorted(folder.glob("*.jsonl"))
    return run(stages, inputs=inputs, output=folder / "r", workers=1, quiet=True).path


@pytest.fixture
def plan(finished: Path) -> Plan:
    return open_plan(finished)


def sampled(plan: Plan, reason: str) -> list[dict[str, Any]]:
    return documents.sampled(plan, None, reason, near=False, count=5)


def text_of(url: str) -> str:
    return next(row["text"] for row in rows() if row["url"] == url)


def test_each_removed_document_comes_with_the_text_of_its_survivor(plan: Plan) -> None:
    found = sampled(plan, "url")
    assert len(found) == 2
    for pair in found:
        removed, survivor = pair["removed"], pair["survivor"]
        assert removed["id"] == pair["id"] and survivor["id"] == pair["value"] != removed["id"]
        assert removed["text"] == text_of(removed["url"])
        assert survivor["text"] == text_of(survivor["url"])
        assert survivor["outcome"] == "kept" and removed["date"] == "2026-01-01T00:00:00Z"
        assert removed["source"] != survivor["source"]
        assert [pair[name] for name in pairs.EVIDENCE] == [None, None, None]  # of exact_dedup
        for side in ("removed", "survivor"):
            text = pair[side]["text"]
            assert (
                "grain the road mill"
                in " ".join(text[i:j] for i, j in pair["shared"][side]).lower()
            )
    assert len({pair["survivor"]["id"] for pair in found}) == 1


def test_equal_texts_are_shared_from_end_to_end(plan: Plan) -> None:
    [pair] = sampled(plan, "text")
    for side in ("removed", "survivor"):
        [(start, stop)] = pair["shared"][side]
        assert pair[side]["text"][start:stop] == pair[side]["text"].strip(".")


def test_samples_that_no_global_step_removed_stay_as_they_are(plan: Plan) -> None:
    found = documents.sampled(plan, None, None, near=False, count=9)
    assert {row["kind"] for row in found} == {"kept", "dropped"}
    assert all(("survivor" in row) == (row["kind"] == "dropped") for row in found)


def test_a_pair_is_shown_in_two_columns(plan: Plan) -> None:
    [pair] = sampled(plan, "text")
    head, removed, survivor, titles, *body = documents.render([pair], WIDE).splitlines()
    assert head == "exact_dedup:text"
    assert pair["id"] in removed and pair["survivor"]["id"] in survivor
    assert pair["removed"]["url"] in removed and "2026-01-01" in survivor
    assert titles.split() == ["removed", "│", "survivor"]
    assert all(left.lower() == right.lower() for left, right in map(halves, body))


def halves(line: str) -> list[str]:
    return [side.strip() for side in line.split("│")]


# ---------------------------------------------------------------- what a step tells


@pytest.fixture
def told(finished: Path, tmp_path: Path) -> Plan:
    """The run as if its step told similarities and group sizes."""
    shutil.copytree(finished, tmp_path / "r")
    plan = open_plan(tmp_path / "r")
    types = {f"{STEP}.similarity": "double", f"{STEP}.jaccard": "double"}
    types[f"{STEP}.group_size"] = "int64"
    for path in sorted((tmp_path / "r").glob("segments/*-documents-*/signals/*.parquet")):
        table = pq.read_table(path)
        gone = table[f"{STEP}.survivor"].is_valid().to_pylist()
        for name, value in zip(types, (0.875, 0.9, 41), strict=True):
            kind = pa.type_for_alias(types[name])
            column = pa.array([value if g else None for g in gone], kind)
            table = table.append_column(name, column)
        pq.write_table(table, path)
    return replace(plan, types={**plan.types, **types})


def test_evidence_of_the_step_stands_in_the_head_line(told: Plan) -> None:
    [pair] = sampled(told, "text")
    assert [pair[name] for name in pairs.EVIDENCE] == [0.875, 0.9, 41]
    head = documents.render([pair], WIDE).splitlines()[0]
    assert head == "exact_dedup:text  Jaccard 0.875 estimated, 0.900 exact  group of 41"


def test_a_survivor_of_earlier_crawls_is_named_without_text(told: Plan) -> None:
    elsewhere = "f" * 32
    [pair] = sampled(told, "text")
    pair = {k: pair[k] for k in ("kind", "stage", "reason", "row", "id", "value", "text")}
    pair["value"] = elsewhere
    pairs.explain(told, [pair])
    assert pair["survivor"]["id"] == elsewhere and pair["survivor"]["text"] is None
    assert pair["shared"] == {"removed": [], "survivor": []}
    shown = pairs.render(pair, WIDE)
    assert f"{elsewhere}  (not in this run: a document of earlier crawls)" in shown
    assert "(not here)" in shown and pair["removed"]["text"].split()[0] in shown


def test_a_survivor_whose_task_is_not_done_is_known_from_the_segment_before(
    finished: Path, tmp_path: Path
) -> None:
    """Signals without the survivors, as of a task that has only the removed documents."""
    shutil.copytree(finished, tmp_path / "r")
    for path in (tmp_path / "r").glob("segments/*-documents-*/signals/*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.filter(table[f"{STEP}.survivor"].is_valid()), path)
    [pair] = sampled(open_plan(tmp_path / "r"), "text")
    assert pair["survivor"]["outcome"] == pairs.UNDECIDED
    assert pair["survivor"]["text"].lower() == pair["removed"]["text"].lower()


# ---------------------------------------------------------------- groups


def test_the_largest_groups_come_first(plan: Plan) -> None:
    first, second = pairs.largest(plan, None, None, 5)
    assert (first["group_size"], second["group_size"]) == (3, 2)
    assert len(first["removed"]) == 2 and len(second["removed"]) == 1
    assert first["survivor"]["url"].startswith("https://a.example/")
    assert [group["group_size"] for group in pairs.largest(plan, STEP, None, 1)] == [3]
    [by_text] = pairs.largest(plan, STEP, "text", 5)
    assert by_text["removed"][0]["text"].lower() == by_text["survivor"]["text"].lower()
    shown = pairs.render_groups([first], WIDE)
    assert "exact_dedup  group of 3" in shown and shown.count("  removed   ") == 2


def test_a_group_is_as_large_as_the_step_says(told: Plan) -> None:
    group = pairs.largest(told, STEP, "text", 1)[0]
    assert group["group_size"] == 41 and group["removed"][0]["jaccard"] == 0.9
    shown = pairs.render_groups([group], WIDE)
    assert "and 39 more" in shown and "Jaccard 0.875 estimated, 0.900 exact" in shown


@pytest.mark.parametrize(
    ("stage", "reason", "said"),
    [
        ("normalise", None, "no step that removes duplicates"),
        ("exact_dedupe", None, "did you mean 'exact_dedup'?"),
        (None, "texd", "did you mean 'text'?"),
    ],
)
def test_a_step_that_is_none_is_said(
    plan: Plan, stage: str | None, reason: str | None, said: str
) -> None:
    with pytest.raises(RecipeError, match=said.replace("?", r"\?")):
        pairs.largest(plan, stage, reason, 5)


# ---------------------------------------------------------------- trace


def test_trace_says_who_survived_a_duplicate(told: Plan) -> None:
    [pair] = sampled(told, "text")
    [entry] = trace.document(told, pair["id"])
    assert entry["duplicate_of"] == {
        "step": STEP,
        "reason": "text",
        "survivor": pair["survivor"]["id"],
        "url": pair["survivor"]["url"],
        "outcome": "kept",
        **{name: pair[name] for name in pairs.EVIDENCE},
        "then": None,
    }
    assert entry["stands_for"] == {}
    shown = trace.render([entry])
    assert f"survivor {pair['survivor']['id']} (kept)" in shown and "0.875 estimated" in shown


def test_trace_says_for_how_many_a_survivor_stands(plan: Plan) -> None:
    group = pairs.largest(plan, None, "url", 1)[0]
    [entry] = trace.document(plan, group["survivor"]["id"])
    assert entry["stands_for"] == {STEP: 3} and entry["duplicate_count"] == 3
    assert entry["duplicate_of"] is None
    assert "stands   for 3 documents, itself included (exact_dedup 3)" in trace.render([entry])


def test_trace_follows_a_survivor_that_a_later_step_removed(tmp_path: Path) -> None:
    """By text first, then by address: who survived the first may fall to the second."""
    lines = []
    for i in range(20):  # chances of 1 in 6 each; ids are hashes of these names
        one, other = page(2 * i), page(2 * i + 1)
        for k, (text, host) in enumerate(((one, "a"), (one, "b"), (other, "b"))):
            url = f"https://{host}{i}.example/"
            lines.append({"id": f"{i}-{k}", "source": "s", "text": text, "url": url})
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    steps = [{STEP: {"as": f"by_{by}", "by": [by]}} for by in ("text", "url")]
    stages = recipe({"normalise": {}}, *steps)
    done = run(stages, inputs=tmp_path / "x.jsonl", output=tmp_path / "r", workers=1, quiet=True)
    plan = open_plan(done.path)
    chains = [
        entry
        for line in lines
        for entry in trace.document(plan, str(line["url"]))
        if entry["duplicate_of"] and entry["duplicate_of"]["then"]
    ]
    assert chains
    for entry in chains:
        first, then = entry["duplicate_of"], entry["duplicate_of"]["then"]
        assert (first["step"], then["step"], then["then"]) == ("by_text", "by_url", None)
        assert first["outcome"] == "dropped by_url:url" and then["outcome"] == "kept"
        [kept] = trace.document(plan, then["survivor"])
        assert kept["stands_for"] == {"by_url": 2} and kept["duplicate_count"] == 3
        assert trace.render([entry]).count("  survivor ") == 2


def test_a_step_that_edits_removes_no_duplicates(tmp_path: Path) -> None:
    """What it empties is dropped, but nobody survived it."""
    texts = [page(1), page(1).splitlines()[1]]
    inputs = write_jsonl(tmp_path / "x.jsonl", texts)
    stages = recipe({"normalise": {}}, {"line_dedup": {"keep": "none"}})
    done = run(stages, inputs=inputs, output=tmp_path / "r", workers=1, quiet=True)
    plan = open_plan(done.path)
    [sample] = sampled(plan, "empty")
    assert sample["stage"] == "line_dedup" and "survivor" not in sample
    [entry] = trace.document(plan, sample["id"])
    assert entry["duplicate_of"] is None and entry["stands_for"] == {}
    with pytest.raises(RecipeError, match="no step that removes duplicates"):
        pairs.largest(plan, None, None, 5)


def test_near_duplicates_come_with_their_similarity(tmp_path: Path) -> None:
    """Of 120 different words one is another: 5 shingles of 116 in each, 111 of 121 in both."""
    words = [f"word{i}" for i in range(120)]
    edited = [*words[:60], "other", *words[61:]]
    inputs = write_jsonl(tmp_path / "x.jsonl", [" ".join(words), " ".join(edited), page(1)])
    stages = recipe({"normalise": {}}, {"minhash_dedup": {"verify": "text"}})
    done = run(stages, inputs=inputs, output=tmp_path / "r", workers=1, quiet=True)
    plan = open_plan(done.path)
    [pair] = sampled(plan, "near_duplicate")
    assert pair["jaccard"] == pytest.approx(111 / 121) and pair["group_size"] == 2
    assert abs(pair["similarity"] - pair["jaccard"]) < 0.15
    assert {pair["removed"]["text"], pair["survivor"]["text"]} == {
        " ".join(words),
        " ".join(edited),
    }
    for side in ("removed", "survivor"):
        spans = [pair[side]["text"][i:j].split() for i, j in pair["shared"][side]]
        assert spans == [words[:60], words[61:]]
    [group] = pairs.largest(plan, "minhash_dedup", None, 5)
    assert group["group_size"] == 2 and group["removed"][0]["jaccard"] == pair["jaccard"]
    [entry] = trace.document(plan, pair["survivor"]["id"])
    assert entry["stands_for"] == {"minhash_dedup": 2} and entry["duplicate_count"] == 2


def test_a_reason_that_no_sample_has_is_answered_by_those_there_are(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inspect", str(finished), "--reason", "zzz"]) == 2
    reasons = capsys.readouterr().err.partition("known: ")[2].strip().split(", ")
    assert "text" in reasons and "" not in reasons


def test_the_command_line_shows_pairs_and_groups(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inspect", str(finished), "--reason", "text", "--json"]) == 0
    [pair] = json.loads(capsys.readouterr().out)
    assert {"removed", "survivor", "shared", *pairs.EVIDENCE} <= pair.keys()
    assert cli.main(["inspect", str(finished), "--largest", "-n", "1"]) == 0
    assert "group of 3" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["inspect", str(finished), "--largest", "--near-threshold"])


def test_rows_are_found_by_a_column(plan: Plan) -> None:
    wanted = pa.array(["https://b.example/1", "https://nowhere.example/"])
    tables = list(batches(plan, plan.maps[0], ["url", "row"], where=("url", wanted)))
    assert [row for table in tables for row in table.to_pylist()] == [
        {"url": "https://b.example/1", "row": 2}
    ]
