"""The command line as a user types it: exit codes, one line on stderr, JSON on stdout."""

from __future__ import annotations

import functools
import gzip
import http.server
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit import page, recipe, write_jsonl
from zygote import curation

import curation as gristmill
from curation import cli

ROOT = Path(__file__).resolve().parent.parent
RECIPE = str(ROOT / "pipelines" / "crawl-filter.yaml")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a finished run of the sample crawl."""
    folder = tmp_path_factory.mktemp("home")
    done = curation("run", RECIPE, "--input", "sample", "--quiet", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder


def as_json(*arguments: object, cwd: Path) -> Any:
    done = curation(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


WRONG: list[tuple[list[str], str]] = [
    (["run"], "the following arguments are required: RECIPE"),
    (["rum", RECIPE], "invalid choice: 'rum'"),
    (["run", "missing.yaml"], "missing.yaml: cannot read the recipe"),
    (["run", RECIPE], "input.paths: no input given"),
    (["run", RECIPE, "--input", "missing.warc.gz"], "no such file: missing.warc.gz"),
    (["run", RECIPE, "--input", "empty"], "empty"),
    (["run", RECIPE, "--input", "sample", "--set", "language.kep=[en]"], "did you mean 'keep'?"),
    (["run", RECIPE, "--input", "sample", "--set", "seed=x"], "seed: input should be a valid"),
    (["run", RECIPE, "--input", "sample", "--output", "taken"], "not empty and holds no run"),
    (["run", RECIPE, "--input", "sample", "--output", "taken/file"], "taken/file"),
    (["run", RECIPE, "--input", "sample", "--workers", "0"], "at least 1"),
    (["run", RECIPE, "--input", "sample", "--workers", "x"], "at least 1"),
    (["run", RECIPE, "--input", "sample", "--base", "empty"], "no run lies here"),
    (["stats", "missing"], "missing: no run lies here"),
    (["inspect", "runs/latest", "--stage", "languag"], "did you mean 'language'?"),
    (["inspect", "runs/latest", "--reason", "few_stop_word"], "did you mean 'few_stop_words'?"),
    (["whatif", "runs/latest", "--set", "gopher_quality.min_words"], "VALUE is wanted"),
    (["whatif", "runs/latest", "--set", "extract.engine=x"], "not a threshold"),
    (["whatif", "runs/latest", "--set", "gopher_quality.min_words=-1"], "min_words"),
    (["whatif", "runs/latest", "--set", "gopher_quality.min_words={"], "min_words:1: "),
    (["plan", RECIPE, "--input", "sample", "--set", "name=2024-99-99"], "month must be in 1..12"),
    (
        ["plan", RECIPE, "--input", "sample", "--set", "stages=5", "--set", "a.b=1"],
        "a list is wanted",
    ),
    (["plan", RECIPE, "--input", "dangling/x.warc"], "x.warc"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), WRONG, ids=[" ".join(a[:5])[-60:] for a, _ in WRONG]
)
def test_wrong_usage_is_one_line_and_exit_2(home: Path, arguments: list[str], message: str) -> None:
    (home / "empty").mkdir(exist_ok=True)
    (home / "taken").mkdir(exist_ok=True)
    (home / "dangling").mkdir(exist_ok=True)
    if not (home / "dangling" / "x.warc").is_symlink():
        (home / "dangling" / "x.warc").symlink_to("nowhere")
    (home / "taken" / "file").write_text("mine")
    done = curation(*arguments, cwd=home)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and message in done.stderr
    assert (home / "taken" / "file").read_text() == "mine"
    assert os.listdir(home / "empty") == []


def test_run_prints_the_table_and_where_things_lie(home: Path) -> None:
    done = curation("run", RECIPE, "--input", "sample", cwd=home)  # finds everything done
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith(" ") and lines[0].split()[0] == "documents"
    names = [line.split()[0] for line in lines if line and not line.startswith((" ", "-"))]
    assert names == [
        "records", "documents", "url_filter", "extract", "language", "gopher_repetition",
        "gopher_quality", "c4", "fineweb", "perplexity", "quality", "toxicity", "exact_dedup",
        "minhash_dedup", "pii", "output", "documents", "ledger", "look",
    ]  # fmt: skip
    widths = {len(line) for line in lines[1:2]}
    assert all(len(line) <= max(widths) for line in lines[: lines.index("")])
    shown = next(line.split()[1] for line in lines if line.startswith("documents  runs"))
    assert (home / shown).is_dir()
    assert (home / "runs" / "latest").resolve() == (home / shown).resolve().parent


def test_the_numbers_of_the_table_add_up(home: Path) -> None:
    """As by eye: what a stage kept is what the line above it kept, plus its own negative lines."""
    lines = curation("stats", "runs/latest", cwd=home).stdout.splitlines()
    ends = [lines[0].index(title) + len(title) for title in ("documents", "words")]

    def numbers(line: str) -> list[int | None]:
        """What stands in the columns of documents and of words."""
        cells = [line[:end].rpartition("  ")[2] if len(line) >= end else "" for end in ends]
        return [int(c.replace(",", "")) if c.strip() else None for c in cells]

    rows: list[tuple[str, list[int | None], list[list[int | None]]]] = []  # with lines below
    for line in lines[2:]:
        if line.startswith("  "):
            rows[-1][2].append(numbers(line))
        elif not line.startswith("-"):
            rows.append((line.split()[0], numbers(line), []))
    (_, records, skipped), *stages = rows
    assert records[0] and records[0] - sum(n[0] or 0 for n in skipped) == stages[0][1][0]
    for (_, before, _), (name, kept, lost) in itertools.pairwise(stages):
        for column in (0, 1):
            if before[column] is not None:
                assert kept[column] == before[column] + sum(n[column] or 0 for n in lost), name
    assert [name for name, _, lost in stages for n in lost if n[0] is None] == ["c4", "pii"]
    assert stages[-1][0] == "output" and stages[-1][1] == stages[-2][1]


def test_json_of_every_reading_verb(home: Path) -> None:
    stats = as_json("stats", "runs/latest", cwd=home)
    assert stats == json.loads((home / "runs/latest/stats.json").read_bytes())
    assert stats["schema"] == 1 and stats["complete"] is True
    assert {
        "name",
        "in",
        "kept",
        "failed",
        "edited",
        "dropped",
        "failures",
        "removed",
        "inserted",
    } <= (stats["stages"][0].keys())
    assert stats["stages"][0]["in"]["words"] is None
    plan = as_json("plan", RECIPE, "--input", "sample", cwd=home)
    assert Path(plan["run"]).name == (home / "runs/latest").resolve().name
    kinds = ["read", "exchange", "exchange", "documents"]
    assert [segment["kind"] for segment in plan["segments"]] == kinds
    assert as_json("verify", "runs/latest", "--replay", 2, cwd=home)["holds"] is True
    samples = as_json("inspect", "runs/latest", "--stage", "language", cwd=home)
    assert {row["stage"] for row in samples} == {"language"}
    assert {row["reason"] for row in samples} == {"other_language", "low_score"}


def test_stats_by_adds_up_to_the_whole(home: Path) -> None:
    whole = as_json("stats", "runs/latest", cwd=home)
    for by in ("language", "domain", "source", "crawl"):
        rows = as_json("stats", "runs/latest", "--by", by, cwd=home)
        assert sum(row["documents"] for row in rows) == whole["reader"]["documents"]
        assert sum(row["kept"] for row in rows) == whole["output"]["documents"]
        assert sum(row["words"] for row in rows) == whole["output"]["words"]
        assert curation("stats", "runs/latest", "--by", by, cwd=home).stdout.startswith(by)


def test_inspect_near_threshold_shows_the_value_beside_the_threshold(home: Path) -> None:
    rows = as_json("inspect", "runs/latest", "--near-threshold", "-n", 20, cwd=home)
    assert rows
    for row in rows:
        assert (
            abs(float(row["value"]) - float(row["threshold"]))
            <= 0.1 * float(row["threshold"]) + 1e-6
        )
    text = curation("inspect", "runs/latest", "--near-threshold", cwd=home).stdout
    assert "(threshold " in text


def test_trace_doc_by_id_and_by_url(home: Path) -> None:
    row = pq.read_table(home / "runs/latest/documents").to_pylist()[0]
    [by_id] = as_json("trace", "doc", row["id"], "--in", "runs/latest", cwd=home)
    assert row["id"] in [
        e["id"] for e in as_json("trace", "doc", row["url"], "--in", "runs/latest", cwd=home)
    ]
    assert by_id["outcome"] == "kept" and by_id["text"] == row["text"]
    assert by_id["warc_offset"] == row["warc_offset"]
    assert by_id["file"] == "documents/part-00000.parquet"
    assert by_id["segments"][0]["signals"]["language.label"] == "en"
    dropped = as_json("inspect", "runs/latest", "--stage", "gopher_quality", cwd=home)[0]
    [entry] = as_json("trace", "doc", dropped["id"], "--in", "runs/latest", cwd=home)
    assert entry["outcome"] == f"dropped gopher_quality:{dropped['reason']}"
    missing = curation("trace", "doc", "0" * 32, "--in", "runs/latest", cwd=home)
    assert missing.returncode == 1 and "no document" in missing.stdout


def test_verify_says_what_does_not_hold(home: Path, tmp_path: Path) -> None:
    shutil.copytree((home / "runs/latest").resolve(), tmp_path / "run")
    part = tmp_path / "run" / "documents" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    done = curation("verify", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert "documents/part-00000.parquet: its bytes are not those of the receipt" in done.stdout


def test_whatif_agrees_with_a_run_of_those_thresholds(home: Path, tmp_path: Path) -> None:
    """The simulation up to the global step equals the drop counts of a real run."""
    settings = ["gopher_quality.min_words=200", "language.min_score=0.9"]
    flags = [flag for setting in settings for flag in ("--set", setting)]
    found = as_json("whatif", "runs/latest", *flags, cwd=home)
    done = curation(
        "run", RECIPE, "--input", home / "runs/sample-crawl.warc.gz", *flags, "--output", "r",
        "--json", "--quiet", cwd=tmp_path,
    )  # fmt: skip
    real = json.loads(done.stdout)
    drops = {
        f"{stage['name']}:{reason}": amount["documents"]
        for stage in real["stages"]
        if not stage["name"].endswith("_dedup")
        for reason, amount in stage["dropped"].items()
    }
    drops.pop("extract:empty")
    assert {r["rule"]: r["drops"] for r in found["rules"] if r["drops"]} == drops
    assert found["not_simulated"] == [
        *("extract", "c4", "exact_dedup", "minhash_dedup", "pii"),
    ]
    before = found["before"]["kept"]["documents"]
    assert before == as_json("stats", "runs/latest", cwd=home)["output"]["documents"]
    # Stricter thresholds: nothing new comes to the global step, so nothing is unknown.
    assert found["after"]["unknown"]["documents"] == 0
    assert (
        found["flips"]["now_dropped"]["documents"]
        == before - found["after"]["kept"]["documents"]
        > 0
    )
    assert len(found["flips"]["now_dropped"]["samples"]) == 3


def test_whatif_calls_unknown_what_later_stages_never_saw(home: Path) -> None:
    found = as_json("whatif", "runs/latest", "--set", "language.keep=[en, de, fr]", cwd=home)
    assert found["after"]["kept"]["documents"] == found["before"]["kept"]["documents"]
    flips = found["flips"]["now_kept_or_unknown"]
    assert flips["documents"] == found["after"]["unknown"]["documents"] > 0
    assert {sample["after"] for sample in flips["samples"]} == {"unknown"}
    text = curation("whatif", "runs/latest", "--set", "language.keep=[en, de, fr]", cwd=home).stdout
    assert "not simulated: extract, c4, exact_dedup, minhash_dedup" in text


def test_an_archive_cut_short_gives_exit_3_and_names_the_place(home: Path, tmp_path: Path) -> None:
    whole = (home / "runs/sample-crawl.warc.gz").read_bytes()
    (tmp_path / "cut.warc.gz").write_bytes(whole[: len(whole) // 2])
    done = curation(
        "run", RECIPE, "--input", "cut.warc.gz", "--output", "r", "--quiet", cwd=tmp_path
    )
    assert done.returncode == 3
    assert "cut.warc.gz: incomplete: " in done.stderr and " at offset " in done.stderr
    stats = as_json("stats", "r", cwd=tmp_path)
    assert stats["complete"] is False and stats["units"]["incomplete"] == 1
    assert stats["output"]["documents"] > 50
    assert curation("verify", "r", "--replay", "1", cwd=tmp_path).returncode == 0


def test_a_file_that_is_no_archive_gives_exit_3(tmp_path: Path) -> None:
    (tmp_path / "x.warc.gz").write_bytes(gzip.compress(b"not an archive"))
    done = curation("run", RECIPE, "--input", "x.warc.gz", "--output", "r", "--quiet", cwd=tmp_path)
    assert done.returncode == 3
    assert "incomplete" in done.stderr


def test_interrupted_runs_end_with_75_and_go_on(home: Path, tmp_path: Path) -> None:
    import signal
    import time

    files = []
    for number in range(8):
        files.append(tmp_path / f"{number}.warc.gz")
        shutil.copy(home / "runs/sample-crawl.warc.gz", files[-1])
    for number, run in ((signal.SIGTERM, "r"), (signal.SIGINT, "s")):
        command = [sys.executable, "-m", "curation", "run", RECIPE, "--input", *map(str, files),
                   "--output", run, "--quiet"]  # fmt: skip
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while process.poll() is None and not list(
            tmp_path.glob(f"{run}/segments/*/receipts/*.json")
        ):
            time.sleep(0.01)
        process.send_signal(number)
        line = process.stderr.readline()  # everything has ended; Python itself has not yet
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        err = line + err
        assert (process.returncode, out) == (75, "")
        assert err == "curation: interrupted; the same command goes on from here\n"
        assert curation(*command[3:], cwd=tmp_path).returncode == 0
        assert curation("verify", run, cwd=tmp_path).returncode == 0


def test_an_interrupt_that_python_would_ignore_is_not_lost() -> None:
    """It comes while a finaliser runs, whose errors Python prints and forgets."""
    code = """if True:
        import signal, sys, time
        from curation import cli

        class Held:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)

        def run(arguments):
            Held()
            time.sleep(60)

        cli._main = run
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(cli.main([]))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr == "curation: interrupted; the same command goes on from here\n"


@pytest.mark.parametrize(
    ("module", "function", "taken"),
    [
        ("threading", "__enter__", False),
        ("concurrent.futures.thread", "submit", False),
        ("threading", "wait", True),  # may be for long
        ("threads", "submit", True),
    ],
)
def test_an_interrupt_leaves_no_lock_of_the_library_taken(
    module: str, function: str, taken: bool
) -> None:
    """Code of these names takes a lock, and then a signal comes."""
    code = f"""if True:
        import signal, sys, threading, time
        from curation import cli

        body = ("lock.acquire()", "signal.raise_signal(signal.SIGTERM)", "lock.release()")
        place = {{"__name__": "{module}", "signal": signal}}
        exec("def {function}(lock): " + "; ".join(body), place)

        def run(arguments):
            lock = threading.Lock()
            try:
                place["{function}"](lock)
                time.sleep(60)
            finally:
                print(lock.locked())

        cli._main = run
        sys.exit(cli.main([]))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (75, f"{taken}\n"), done.stderr


def test_parquet_jsonl_and_text_inputs(tmp_path: Path) -> None:
    text = "A line of text that says a thing.\n" * 20
    pq.write_table(
        pa.table({"text": [text, None], "url": ["https://example.org/", None]}),
        tmp_path / "a.parquet",
    )
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}) + "\nnot json\n")
    (tmp_path / "a.txt").write_text(text)
    for kind, end in (("parquet", "parquet"), ("jsonl", "jsonl"), ("text", "txt")):
        source = {"kind": kind, "paths": [f"{tmp_path}/a.{end}"]}
        stages = ["gopher_quality"] if kind != "text" else ["extract", "gopher_quality"]
        recipe = {"kind": "documents", "name": kind, "input": source, "stages": stages}
        (tmp_path / "r.yaml").write_text(json.dumps(recipe))
        done = curation("run", "r.yaml", "--output", kind, "--json", "--quiet", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        stats = json.loads(done.stdout)
        assert stats["output"]["documents"] == 1
        assert stats["reader"]["records"] == (1 if kind == "text" else 2)


def test_the_shell_can_close_the_pipe(home: Path) -> None:
    command = f"{sys.executable} -m curation inspect runs/latest -n 50 | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_an_archive_over_http_gives_the_documents_of_the_local_one(
    home: Path, tmp_path: Path
) -> None:
    handler = functools.partial(QuietHandler, directory=str(home / "runs"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/sample-crawl.warc.gz"
        done = curation("run", RECIPE, "--input", url, "--output", "r", "--quiet", cwd=tmp_path)
        missing = curation("run", RECIPE, "--input", f"{url}x", "--quiet", cwd=tmp_path)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    near = pq.read_table(home / "runs/latest/documents").drop_columns(["warc_file"])
    far = pq.read_table(tmp_path / "r/documents")
    assert set(far["warc_file"].to_pylist()) == {url}
    assert far.drop_columns(["warc_file"]).equals(near)
    assert missing.returncode == 2 and len(missing.stderr.splitlines()) == 1


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and says nothing."""

    def log_message(self, *arguments: object) -> None:
        pass


def test_closed_streams_are_no_fault(home: Path) -> None:
    for closing in ("1>&-", "2>&-", "1>&- 2>&-"):
        command = f"{sys.executable} -m curation stats runs/latest {closing}"
        done = subprocess.run(["bash", "-c", command], cwd=home, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), closing


def test_what_no_document_passes_can_still_be_looked_at(home: Path, tmp_path: Path) -> None:
    flags = ["--set", "gopher_quality.min_words=100000"]
    archive = home / "runs/sample-crawl.warc.gz"
    done = curation("run", RECIPE, "--input", archive, *flags, "--output", "r", cwd=tmp_path)
    assert done.returncode == 0 and "output" in done.stdout
    for verb in (["stats"], ["verify"], ["inspect"], ["stats", "--by", "domain"]):
        assert curation(verb[0], "r", *verb[1:], cwd=tmp_path).returncode == 0
    found = as_json("whatif", "r", "--set", "gopher_quality.min_words=50", cwd=tmp_path)
    assert found["after"]["unknown"]["documents"] > 200
    (tmp_path / "none.warc").write_bytes(b"")
    assert (
        curation("run", RECIPE, "--input", "none.warc", "--output", "n", cwd=tmp_path).returncode
        == 0
    )
    nothing = as_json("whatif", "n", "--set", "language.min_score=0.1", cwd=tmp_path)
    assert nothing["after"]["kept"] == {"documents": 0, "words": 0}


def test_damaged_run_records_are_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    for content in ("[]", "null", "5", '"x"', "{}", "{", '{"schema": 99}'):
        (tmp_path / "r" / "run.json").write_text(content)
        done = curation("stats", "r", cwd=tmp_path)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, content


def test_parquet_with_columns_of_other_types_is_read(tmp_path: Path) -> None:
    import datetime
    import decimal

    text = "A line of text that says a thing and is to be kept.\n" * 20
    rows = [
        {
            "text": text,
            "warc_offset": "12",
            "metadata": {
                "when": datetime.datetime(2026, 1, 2),
                "price": decimal.Decimal("1.5"),
                "raw": b"\xff\x00",
            },
        }
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": [1]}), tmp_path / "b.parquet")
    recipe = {"kind": "documents", "name": "p", "input": {"kind": "parquet"}, "stages": []}
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    done = curation(
        "run", "r.yaml", "--input", "a.parquet", "b.parquet", "--output", "r", cwd=tmp_path
    )
    assert done.returncode == 3
    assert "b.parquet: incomplete: unreadable" in done.stderr
    assert "is int64, not string" in done.stderr
    [row] = pq.read_table(tmp_path / "r/documents").to_pylist()
    assert row["warc_offset"] == 12
    assert json.loads(row["metadata"])["price"] == "1.5"


def test_the_python_interface_refuses_what_the_command_refuses(tmp_path: Path) -> None:
    from curation import run
    from curation.engine.recipe import RecipeError

    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "a"}\n')
    recipe = {"kind": "documents", "name": "p", "input": {"kind": "jsonl"}, "stages": []}
    assert run(recipe, inputs=str(source), output=tmp_path / "r").complete
    for wrong in ({"limit": 0}, {"workers": -1}, {"executor": "foo"}):
        with pytest.raises(RecipeError):
            run(recipe, inputs=[source], output=tmp_path / "x", **wrong)  # type: ignore[arg-type]


def test_the_rules_of_a_group_tell_what_they_drop_and_what_they_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both of all documents that came to the group, also of those that an earlier stage drops."""
    texts = ["the and\n" * 10, "too few words, and the rest is silence", page(1), page(2)]
    path = write_jsonl(tmp_path / "in.jsonl", texts)
    stages = ("gopher_repetition", {"gopher_quality": {"max_words": None}})
    done = gristmill.run(recipe(*stages), inputs=[path], output=tmp_path / "r", workers=1)
    assert cli.main(["stats", str(done.path), "--rules", "--json"]) == 0
    rules = {rule["rule"]: rule for rule in json.loads(capsys.readouterr().out)}
    lines = rules["gopher_repetition:dup_lines"]
    assert (lines["parameter"], lines["threshold"]) == ("max_dup_line_fraction", 0.3)
    assert (lines["drops"], lines["would_drop"]) == (1, 1)
    words = rules["gopher_quality:too_few_words"]
    assert (words["drops"], words["would_drop"]) == (1, 2)
    off = rules["gopher_quality:too_many_words"]
    assert (off["threshold"], off["would_drop"]) == (None, 0)
    assert cli.main(["stats", str(done.path), "--rules"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["rule", "threshold", "drops", "would", "drop"]
    [line] = [line for line in shown if line.startswith("gopher_quality:too_few_words ")]
    assert line.split() == ["gopher_quality:too_few_words", "min_words", "50", "1", "2"]
