"""Lists of documents to take down, and reading with one: all but what is listed is read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit import page, recipe, write_jsonl

from curation import run
from curation.engine.plan import open_plan
from curation.engine.recipe import RecipeError
from curation.inspect import trace, verify
from curation.inspect.signals import batches
from curation.takedown import Listed, ListError, read_list


def listing(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_list_has_ids_urls_comments_and_blank_lines(tmp_path: Path) -> None:
    found = read_list(
        listing(
            tmp_path / "list",
            *("# by order of 3 May", "", "  " + "AB" * 16 + "  # an id", "https://a.org/x?b=1#y"),
        )
    )
    assert found == Listed(frozenset(["ab" * 16]), frozenset(["https://a.org/x?b=1#y"]))


@pytest.mark.parametrize("line", ["ab" * 15, "ab" * 17, "not a url", "https://", "/etc/passwd"])
def test_any_other_line_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(ListError, match=r"list:2: '.*' is neither an id"):
        read_list(listing(tmp_path / "list", "ab" * 16, line))


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"\xff\xfe\n"])
def test_a_list_that_says_nothing_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "list").write_bytes(data)
    with pytest.raises(ListError, match=r"names no document|not UTF-8"):
        read_list(tmp_path / "list")


@pytest.mark.parametrize("kind", ["plain", "sealed"])
def test_a_url_is_listed_in_every_form_that_leads_to_its_page(kind: str) -> None:
    plain = Listed(frozenset(["0" * 32]), frozenset(["https://www.a.org/x/?utm_source=q&b=1#top"]))
    listed = plain if kind == "plain" else plain.sealed()
    assert listed.holds("1" * 32, "http://a.org/x?b=1")
    assert listed.holds("1" * 32, "https://www.a.org/x/?utm_source=q&b=1#top")
    assert listed.holds("0" * 32, None)
    assert not listed.holds("1" * 32, "http://a.org/X?b=1")
    assert not listed.holds("1" * 32, "http://b.a.org/x?b=1")
    assert not listed.holds("1" * 32, None)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_reader_skips_what_is_listed_and_the_others_keep_their_rows(
    tmp_path: Path, kind: str
) -> None:
    source = tmp_path / f"a.{kind}"
    texts, urls = [page(i) for i in range(6)], [f"http://a.org/{i}" for i in range(6)]
    if kind == "jsonl":
        write_jsonl(source, texts, urls)
    else:
        pq.write_table(pa.table({"text": texts, "url": urls, "id": list("abcdef")}), source)
    more = {"input": {"kind": kind, "paths": [str(source)]}}
    whole = run(recipe("gopher_quality", **more), output=tmp_path / "whole", workers=1)
    rows = {r["url"]: r for t in batches(open_plan(whole.path), open_plan(whole.path).segments[0])
            for r in t.to_pylist()}  # fmt: skip
    path = listing(tmp_path / "list", "https://www.a.org/1", rows["http://a.org/4"]["id"])
    less = run(
        recipe("gopher_quality", **more, takedown=str(path)), output=tmp_path / "b", workers=1
    )
    reader = less.stats["reader"]
    assert (reader["records"], reader["documents"]) == (6, 4)
    assert reader["skipped"] == {"takedown": 2}
    plan = open_plan(less.path)
    left = {r["url"]: r for t in batches(plan, plan.segments[0]) for r in t.to_pylist()}
    assert left == {url: row for url, row in rows.items() if url[-1] not in "14"}
    assert trace.document(plan, "http://a.org/1") == []
    path.unlink()  # the run knows what it needs, and does not say it
    assert verify.check(plan, replay=2)["holds"]
    assert b"a.org/1" not in plan.path.read_bytes()


def test_another_list_is_another_run_and_takes_no_text_of_the_old_one(tmp_path: Path) -> None:
    source = write_jsonl(
        tmp_path / "a.jsonl", [page(0), page(1)], ["http://a.org/0", "http://b.de"]
    )
    old = run(recipe("gopher_quality"), inputs=source, output=tmp_path / "old", workers=1)
    path = listing(tmp_path / "list", "http://b.de")
    wanted = recipe("gopher_quality", takedown=str(path))
    with pytest.raises(RecipeError, match="holds another run: takedown"):
        run(wanted, inputs=source, output=old.path, workers=1)
    new = run(
        *(wanted,), inputs=source, output=tmp_path / "new", base=old.path, workers=1,
        settings=["gopher_quality.min_words=10"],
    )  # fmt: skip
    assert new.stats["reader"]["skipped"] == {"takedown": 1}


def test_a_list_that_is_not_there_is_a_wrong_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"takedown: .*nowhere: cannot read the list"):
        run(recipe(takedown=str(tmp_path / "nowhere")), output=tmp_path / "run")


def test_a_list_whose_name_no_file_can_have_is_an_error_of_one_line() -> None:
    with pytest.raises(ListError, match="cannot read the list"):
        read_list("a\0b")
