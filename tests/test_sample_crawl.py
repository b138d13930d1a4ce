"""The first end-to-end test: what the command does with the sample crawl is what its fates say.

Every record of the sample carries its fate (`curation/sample/fates.py`). Fates of stages that the
recipe does not have mean that the document survives it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from warcio.archiveiterator import ArchiveIterator
from zygote import curation

from curation.api import run_tokens
from curation.engine.plan import open_plan

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "pipelines" / "crawl-filter.yaml"
SHORT = {"https://wobbly.example/open": "gopher_quality:too_few_words"}
NEAR = "minhash_dedup:near_duplicate"


@dataclass(frozen=True)
class Fate:
    """A record of the archive: what kind it is and what should become of it."""

    kind: str
    url: str
    fate: str
    group: str


@pytest.fixture(scope="module")
def fates(sample_crawl: Path) -> list[Fate]:
    with sample_crawl.open("rb") as file:
        return [
            Fate(
                record.rec_type,
                record.rec_headers.get_header("WARC-Target-URI") or "",
                record.rec_headers.get_header("Gristmill-Fate"),
                record.rec_headers.get_header("Gristmill-Group") or "",
            )
            for record in ArchiveIterator(file)
        ]


@pytest.fixture(scope="module")
def finished(sample_crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as a user starts it."""
    folder = tmp_path_factory.mktemp("crawl")
    done = curation("run", RECIPE, "--input", sample_crawl, "--output", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == [
        "documents", "of", "input", "of", "before", "words", "text",
    ]  # fmt: skip
    return folder / "out"


def decisions(run: Path) -> dict[str, list[str]]:
    """URL -> what became of its captures: `kept`, or `<stage>:<reason>`."""
    found: dict[tuple[int, int], tuple[str, str]] = {}
    for segment in sorted((run / "segments").iterdir()):
        if not (segment / "signals").is_dir():
            continue
        for row in pq.read_table(segment / "signals").to_pylist():
            end = "kept" if row["decision"] == "kept" else f"{row['reached']}:{row['reason']}"
            found[row["unit"], row["row"]] = (row["url"], end)
    by_url = defaultdict(list)
    for url, end in found.values():
        by_url[url].append(end)
    return by_url


def test_the_reader_skips_what_is_no_document(finished: Path, fates: list[Fate]) -> None:
    reader = json.loads((finished / "stats.json").read_bytes())["reader"]
    expected = Counter(f.fate.removeprefix("skip:") for f in fates if f.fate.startswith("skip:"))
    del expected["truncated"]  # kept by default
    assert reader["records"] == len(fates)
    assert reader["skipped"] == dict(expected)


def test_truncated_captures_can_be_dropped(sample_crawl: Path, tmp_path: Path) -> None:
    from curation import run

    result = run(
        RECIPE, inputs=[str(sample_crawl)], output=tmp_path / "r",
        settings=["input.truncated=drop"], workers=1,
    )  # fmt: skip
    skipped = result.stats["reader"]["skipped"]
    assert sum(count for reason, count in skipped.items() if reason.startswith("truncated")) == 2


def test_every_document_meets_its_fate(finished: Path, fates: list[Fate]) -> None:
    found = decisions(finished)
    for fate in fates:
        if fate.fate.startswith("drop:"):
            expected = fate.fate.removeprefix("drop:")
            expected += "" if ":" in expected else ":"
            # `blocks` gives no empty text of a page that has any.
            expected = expected.replace("extract:empty", SHORT.get(fate.url, "extract:empty"))
        elif fate.fate in ("keep", "edit:pii", "skip:truncated"):
            expected = "kept"
        else:
            continue
        ends = found[fate.url]
        met = any(end.startswith(expected) for end in ends)  # without a rule: any of the stage
        assert met, (fate, ends)


def test_the_pages_with_personal_data_are_edited_and_no_others(
    finished: Path, fates: list[Fate]
) -> None:
    last = open_plan(finished).segments[-1]
    found = pq.read_table(finished / last.directory / "signals", columns=["url", "pii.spans"])
    edited = {row["url"] for row in found.to_pylist() if row["pii.spans"]}
    assert edited == {fate.url for fate in fates if fate.fate == "edit:pii"}
    texts = pq.read_table(finished / "documents", columns=["url", "text"]).to_pylist()
    assert {row["url"] for row in texts if "|||" in row["text"]} == edited


def test_of_each_group_one_document_is_kept(finished: Path, fates: list[Fate]) -> None:
    found = decisions(finished)
    groups: dict[str, list[str]] = defaultdict(list)
    for fate in fates:
        if fate.fate in ("group", "near_group"):
            groups[fate.group].append(fate.url)
    seen: set[str] = set()
    assert len(groups) > 15 and any(name.startswith("near/") for name in groups)
    for name, urls in groups.items():
        ends = [end for url in set(urls) for end in found[url]]
        reason = name.partition("/")[0]
        allowed = {"near": {NEAR}, "text": {"exact_dedup:text", NEAR}, "url": {"exact_dedup:url"}}
        ends.remove("kept")
        # Of one article on two sites a model may take the headline here and leave it there.
        assert len(ends) == len(urls) - 1 and set(ends) <= allowed[reason], name
        seen |= set(ends)
    assert seen == {"exact_dedup:text", "exact_dedup:url", NEAR}


def test_the_documents_load_elsewhere_and_are_clean_text(finished: Path) -> None:
    path = finished / "documents" / "*.parquet"
    rows = duckdb.sql(f"select id, text, language, duplicate_count, warc_offset from '{path}'")
    table = rows.fetchall()
    stats = json.loads((finished / "stats.json").read_bytes())
    assert len(table) == stats["output"]["documents"] == len({row[0] for row in table})
    for name, text, language, count, offset in table:
        assert len(name) == 32 and language == "en" and count >= 1 and offset >= 0
        assert "\x00" not in text and not text.endswith("�") and "\r" not in text
        text.encode()  # no lone surrogates


def test_a_document_leads_back_to_its_record(finished: Path, sample_crawl: Path) -> None:
    archive = sample_crawl.read_bytes()
    rows = pq.read_table(
        finished / "documents", columns=["url", "warc_file", "warc_offset", "warc_length"]
    ).to_pylist()
    for row in rows:
        assert row["warc_file"] == str(sample_crawl)
        start = row["warc_offset"]
        record = gzip.decompress(archive[start : start + row["warc_length"]])
        assert f"WARC-Target-URI: {row['url']}".encode() in record.partition(b"\r\n\r\n")[0]


def test_the_table_in_the_readme_is_what_is_printed(finished: Path) -> None:
    from curation.inspect.droptable import render

    stats = json.loads((finished / "stats.json").read_bytes())
    assert f"```text\n{render(stats)}\n```" in (ROOT / "README.md").read_text()


def test_the_trace_in_the_readme_is_what_is_printed(finished: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    url = re.search(r"curation trace doc (\S+)", readme)
    assert url
    printed = curation("trace", "doc", url[1], "--in", finished, cwd=ROOT).stdout
    [shown] = [b for b in re.findall(r"```text\n(.*?)```", readme, re.DOTALL) if url[1] in b]
    for line in shown.splitlines():
        if line.strip() != "..." and not line.startswith("  input "):
            assert f"{line}\n" in printed, line


def test_the_tokens_in_the_readme_are_what_is_printed(finished: Path, tmp_path: Path) -> None:
    """The table of `make tokens`, and the sample that is traced there."""
    readme = (ROOT / "README.md").read_text()
    recipe = ROOT / "pipelines" / "tokens-sample.yaml"
    made = run_tokens(recipe, inputs=finished, output=tmp_path / "t", workers=1)
    assert f"```text\n{made.table()}\n```" in readme
    number = re.search(r"trace sequence \S+ (\d+)", readme)
    assert number
    printed = curation("trace", "sequence", made.path, number[1], cwd=ROOT).stdout
    [shown] = [b for b in re.findall(r"```text\n(.*?)```", readme, re.DOTALL) if "sample " in b[:9]]
    for line in shown.splitlines():
        if not line.startswith("  warc_file ") and not line.endswith(" ..."):  # as wide as it is
            assert f"{line}\n" in printed, line
