"""Listing and opening of inputs: local, over HTTP, and in object stores."""

import gzip
import hashlib
import os
import sys

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crawl_server import Fault, crawl_server

from curation.read import SUFFIXES, Tally, read
from curation.storage import HashingReader, InputError, list_inputs, open_input

WARC = SUFFIXES["warc"]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (
        "b.warc",
        "a.warc.gz",
        "d/c.warc.gz",
        "d/.hidden.warc",
        "d/x.warc.wet.gz",
        ".h/e.warc",
        "notes.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


def paths(*patterns, suffixes=WARC):
    return [file.path for file in list_inputs(patterns, suffixes)]


def test_directories_globs_and_files_are_resolved_sorted_and_each_once(tree):
    assert paths("d", "b.warc", "*.warc*") == ["a.warc.gz", "b.warc", "d/c.warc.gz"]
    assert paths(".") == ["a.warc.gz", "b.warc", "d/c.warc.gz"]
    assert paths("./b.warc", "b.warc", str(tree / "b.warc")) in (["b.warc"], [str(tree / "b.warc")])
    assert paths("**/c.*") == ["d/c.warc.gz"]
    assert paths((tree / "b.warc").as_uri()) == [str(tree / "b.warc")]
    assert paths("notes.txt") == ["notes.txt"]  # named, so read
    assert paths("d", suffixes=SUFFIXES["wet"]) == ["d/x.warc.wet.gz"]


def test_the_order_of_patterns_does_not_matter(tree):
    patterns = ["./b.warc", str(tree / "b.warc"), "d", "a*"]
    assert list_inputs(patterns, WARC) == list_inputs(patterns[::-1], WARC)


def test_size_and_version_are_those_of_the_file(tree):
    (file,) = list_inputs(["b.warc"], WARC)
    assert (file.size, file.version) == (6, str(os.stat("b.warc").st_mtime_ns))


@pytest.mark.parametrize("missing", ["gone.warc", "gone/*.warc", "empty", "memory://gone.warc"])
def test_what_is_missing_or_matches_nothing_is_named(tree, missing):
    (tree / "empty").mkdir()
    with pytest.raises(InputError, match=missing.replace("*", ".")) as error:
        list_inputs(["b.warc", missing], WARC)
    assert "\n" not in str(error.value)


def test_a_local_file_that_is_gone_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="gone"):
        open_input(str(tmp_path / "gone"))


def test_object_stores_through_fsspec():
    store = fsspec.filesystem("memory")
    try:
        for name in ("/crawl/b.warc.gz", "/crawl/a.warc", "/crawl/.h/c.warc", "/crawl/x.txt"):
            store.pipe(name, name.encode())
        found = paths("memory://crawl")
        assert [path.split("crawl/")[1] for path in found] == ["a.warc", "b.warc.gz"]
        assert paths("memory://crawl/*.warc", "memory://crawl/a.warc") == found[:1]
        (file,) = list_inputs(["memory://crawl/a.warc"], WARC)
        assert file.size == len("/crawl/a.warc") and file.version
        with open_input(file.path) as stream:
            assert stream.read() == b"/crawl/a.warc"
        with pytest.raises(InputError, match="gone"):
            open_input("memory://crawl/gone")
    finally:
        store.rm("/crawl", recursive=True)


@pytest.mark.parametrize("url", ["http://me:s3cret@h/a.warc", "ftp://me:s3@cret@h/a.paths"])
def test_a_password_in_a_url_is_refused_and_not_repeated(tmp_path, url):
    (tmp_path / "l.paths").write_text(f"{url}\n")
    asks = (
        open_input,
        lambda url: list_inputs([url], ()),
        lambda url: list_inputs([str(tmp_path / "l.paths")], ()),
    )
    for ask in asks:
        with pytest.raises(InputError, match="no password in a URL") as error:
            ask(url)
        assert "cret" not in str(error.value) and "h/a." in str(error.value)


def test_an_unknown_store_is_named():
    with pytest.raises(InputError, match="nosuch://x"):
        list_inputs(["nosuch://x/y.warc"], WARC)


def test_files_over_http():
    content = b'{"text": "a"}\n' * 1000
    with crawl_server({"a.jsonl": content}) as server:
        (file,) = list_inputs([server.url + "a.jsonl", server.url + "a.jsonl"], ())
        assert file.size == len(content) and file.version.startswith('"')
        tally = Tally()
        assert len(list(read("jsonl", file.path, tally))) == 1000
        assert tally.bytes == len(content) and not tally.incomplete
        for function in (open_input, lambda url: list_inputs([url], ())):
            with pytest.raises(InputError, match="/gone: HTTP status 404"):
                function(server.url + "gone")


def test_s3_without_its_driver_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for function in (open_input, lambda url: list_inputs([url], ())):
        with pytest.raises(InputError, match=r"^cannot open s3://.*pip install 'gristmill\[s3\]'$"):
            function("s3://commoncrawl/crawl-data/x.warc.gz")


def test_a_remote_table_is_transferred_once(tmp_path):
    pq.write_table(pa.table({"text": ["a", "b"] * 500}), tmp_path / "t.parquet")
    data = (tmp_path / "t.parquet").read_bytes()
    with crawl_server({"t.parquet": data}, [Fault("short", after=len(data) // 2)]) as server:
        tally = Tally()
        documents = list(read("parquet", server.url + "t.parquet", tally))
        assert server.ranges() == ["", f"bytes={len(data) // 2}-"]
    assert [document.text for document in documents] == ["a", "b"] * 500
    assert tally.digest == hashlib.blake2b(data, digest_size=16).hexdigest()
    assert tally.bytes == len(data)


def test_a_list_of_paths_stands_for_what_its_lines_name(tree, monkeypatch):
    files = {"x/c.warc": b"c", "lists/a.paths": b"x/c.warc\n/x/c.warc\n", "d.warc": b"dd"}
    with crawl_server(files) as server:
        monkeypatch.setattr("curation.storage.COMMON_CRAWL", server.url)
        lines = f"../b.warc\r\n\n  x/c.warc\n{tree}/notes.txt\n{server.url}d.warc\n../b.warc"
        (tree / "d/my.paths.gz").write_bytes(gzip.compress(lines.encode()))
        (tree / "d/my.paths").write_bytes(lines.encode())
        expected = ["b.warc", f"{server.url}d.warc", f"{server.url}x/c.warc", f"{tree}/notes.txt"]
        assert sorted(paths("d/my.paths.gz")) == sorted(expected)
        assert paths("d/my.paths.gz", "d/my.paths") == paths("d/my.paths")
        assert paths(server.url + "lists/a.paths") == [f"{server.url}x/c.warc"]
    store = fsspec.filesystem("memory")
    store.pipe("/bucket/l.paths", b"crawl/c.warc\nmemory://bucket/crawl/c.warc\n")
    store.pipe("/bucket/crawl/c.warc", b"ccc")
    try:
        (file,) = list_inputs(["memory://bucket/l.paths", "memory://bucket/crawl"], WARC)
        assert file.path.endswith("bucket/crawl/c.warc") and file.size == 3
    finally:
        store.rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"b.warc\n/gone.warc\n", "l.paths:2: no such file: /gone.warc"),
        (b"\n\nmissing.warc\n", "l.paths:3: cannot read .*missing.warc: HTTP status 404"),
        (b"b.warc\nb\xff.warc\n", "l.paths:2: not UTF-8"),
        (b"b.warc\na\tb\n", "l.paths:2: no path"),
        (b" \n\n", "l.paths: this list names no file"),
        (gzip.compress(b"b.warc")[:-9], "l.paths: damaged"),
    ],
)
def test_what_is_wrong_in_a_list_is_named_by_its_line(tree, monkeypatch, content, message):
    (tree / "l.paths").write_bytes(content)
    with crawl_server({"l.paths": content}) as server:
        monkeypatch.setattr("curation.storage.COMMON_CRAWL", server.url)
        with pytest.raises(InputError, match=message) as error:
            paths("l.paths")
    assert "\n" not in str(error.value)


def test_a_list_from_elsewhere_names_no_local_file(tree):
    for line in (f"{tree}/b.warc", (tree / "b.warc").as_uri(), f"local://{tree}/b.warc"):
        with (
            crawl_server({"l.paths": line.encode()}) as server,
            pytest.raises(InputError, match=r"l.paths:1: "),
        ):
            paths(server.url + "l.paths")
    assert paths("b.warc") == ["b.warc"]


def test_only_the_first_are_looked_at_where_no_more_are_wanted(tree):
    assert list_inputs(["."], WARC, 2) == list_inputs(["."], WARC)[:2]


def test_hashing_reader_takes_what_was_read(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 1000)
    reader = HashingReader(open_input(str(path)))
    assert reader.read(3) == b"abc"
    reader.drain()
    reader.close()
    assert reader.bytes == 3000
    assert reader.digest == hashlib.blake2b(b"abc" * 1000, digest_size=16).hexdigest()
