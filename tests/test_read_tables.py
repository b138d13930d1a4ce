"""JSONL, Parquet and text files as documents."""

import gzip
import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curation.document import DOCUMENT_SCHEMA, RawBatch
from curation.read import Tally, read, read_raw
from curation.read import parquet as parquet_reader
from curation.storage import InputError

PACKERS = {"plain": bytes, "gz": gzip.compress, "zst": zstandard.compress}


def run(path, kind, **options):
    tally = Tally()
    documents = list(read(kind, str(path), tally, options))
    assert tally.records == tally.documents + sum(tally.skipped.values())
    assert tally.documents == len(documents)
    assert tally.bytes == path.stat().st_size
    assert tally.digest == hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    return documents, tally


def jsonl(tmp_path, *lines, pack="plain", **options):
    rows = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path = tmp_path / "x"
    path.write_bytes(PACKERS[pack](b"\n".join(rows) + b"\n"))
    return run(path, "jsonl", **options)


@pytest.mark.parametrize("pack", PACKERS)
def test_jsonl_fields(tmp_path, pack):
    line = {
        "text": "größe",
        "id": 7,
        "url": "u",
        "date": "2024",
        "source": "s",
        "metadata": {"a": [1, {"b": None}]},
    }
    (document,), tally = jsonl(tmp_path, line, pack=pack)
    assert (document.text, document.content) == ("größe", None)
    assert (document.url, document.date, document.source) == ("u", "2024", "s")
    assert document.metadata == {"a": [1, {"b": None}]}
    assert not tally.problems and not tally.incomplete


def test_jsonl_field_names_are_options(tmp_path):
    line = {"content": "t", "key": "k", "link": "u", "text": None}
    (document,), _ = jsonl(tmp_path, line, text="content", id="key", url="link")
    assert (document.text, document.url) == ("t", "u")
    assert document.id == jsonl(tmp_path, {"text": "other", "id": "k"})[0][0].id


def test_ids_are_of_source_and_native_id_else_of_path_and_row(tmp_path):
    lines = [{"text": "a", "id": "1"}, {"text": "b", "id": "1", "source": "s"}, {"text": "c"}]
    first = [d.id for d in jsonl(tmp_path, *lines)[0]]
    assert len(set(first)) == 3 and all(len(i) == 32 for i in first)
    other = tmp_path / "other"
    other.mkdir()
    second = [d.id for d in jsonl(other, *reversed(lines))[0]][::-1]
    assert first[:2] == second[:2] and first[2] != second[2]
    assert jsonl(tmp_path, lines[0], source="s")[0][0].id == first[1]


def test_bad_lines_are_counted_and_located(tmp_path):
    good = b'{"text": "ok"}'
    deep = b'{"text":' + b"[" * 100_000
    documents, tally = jsonl(
        tmp_path,
        good,
        b"{broken",
        b"",
        b"   ",
        b"[1]",
        {"text": 5},
        {"no": "text"},
        b"\xff",
        deep,
        good,
    )
    assert [d.text for d in documents] == ["ok", "ok"]
    assert tally.skipped == {"bad_json": 3, "no_text": 3}
    assert (tally.problems[0].reason, tally.problems[0].offset) == ("bad_json", len(good) + 1)
    assert not tally.incomplete


def test_lone_surrogates_become_replacement_characters(tmp_path):  # questdb 7191
    line = rb'{"text": "a\ud83db \ud83d\ude00 \\ud83d", "metadata": {"\udc00": ["\udfff"]}}'
    (document,), tally = jsonl(tmp_path, line)
    assert document.text == "a\ufffdb \U0001f600 \\ud83d"
    assert document.metadata == {"\ufffd": ["\ufffd"]}
    assert tally.notes == {"surrogates": 1}
    (document,), tally = jsonl(tmp_path, rb'{"text": "\ud83d\ude00\u0000\ufffe"}')
    assert document.text == "\U0001f600\0\ufffe" and not tally.notes


@pytest.mark.parametrize("pack", ["gz", "zst"])
def test_a_compressed_file_that_is_cut_gives_what_is_before(tmp_path, pack):
    rows = [json.dumps({"text": hashlib.sha256(b"%d" % i).hexdigest()}) for i in range(9000)]
    data = PACKERS[pack]("\n".join(rows).encode())
    path = tmp_path / "x"
    path.write_bytes(data[: len(data) // 2])
    documents, tally = run(path, "jsonl")
    assert [d.text for d in documents] == [json.loads(r)["text"] for r in rows[: len(documents)]]
    assert len(documents) > 1000
    assert tally.problem_counts == {"truncated": 1} and tally.incomplete
    assert set(tally.skipped) <= {"truncated"}


def test_a_compressed_file_that_is_damaged_gives_what_is_before(tmp_path):
    member = gzip.compress(b'{"text": "a"}\n')
    path = tmp_path / "x"
    path.write_bytes(member + member[:-8] + b"\0" * 8)
    documents, tally = run(path, "jsonl")
    assert documents[0].text == "a" and tally.incomplete
    assert tally.problem_counts == {"bad_member": 1}


def test_a_line_that_is_too_large_is_passed_over(tmp_path):
    documents, tally = jsonl(
        tmp_path, {"text": "a"}, {"text": "x" * 4_000_000}, {"text": "b"}, max_record=1000
    )
    assert [d.text for d in documents] == ["a", "b"]
    assert tally.skipped == {"too_large": 1}


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.text(max_size=9).map(lambda t: json.dumps({"text": t}).encode()),
        )
    ),
    st.sampled_from(list(PACKERS)),
    st.data(),
)
def test_every_line_is_accounted_for(tmp_path_factory, rows, pack, data):
    content = PACKERS[pack](b"\n".join(rows))
    path = tmp_path_factory.mktemp("jsonl") / "x"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    run(path, "jsonl")
    for per in ("file", "paragraph", "line"):
        run(path, "text", per=per)


def parquet(tmp_path, table, **options):
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, row_group_size=2)
    return run(path, "parquet", **options)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_parquet_text_columns(tmp_path, kind):
    texts = pa.array(["a", None, "ü", "", "e"], pa.string()).cast(kind)
    documents, tally = parquet(tmp_path, pa.table({"text": texts}))
    assert [d.text for d in documents] == ["a", "ü", "", "e"]
    assert tally.skipped == {"no_text": 1}
    assert len({d.id for d in documents}) == 4


def test_parquet_keeps_the_columns_of_documents(tmp_path):
    row = {
        "id": "0" * 31 + "1",
        "text": "t",
        "url": "u",
        "date": "d",
        "source": "s",
        "crawl": "c",
        "license": "l",
        "language": "en",
        "language_score": 0.5,
        "duplicate_count": 2,
        "warc_file": "w",
        "warc_offset": 3,
        "warc_length": 4,
        "metadata": '{"a": 1}',
    }
    (document,), _ = parquet(tmp_path, pa.Table.from_pylist([row], DOCUMENT_SCHEMA))
    for name in set(row) - {"language_score", "duplicate_count", "metadata"}:
        assert getattr(document, name) == row[name]
    assert document.metadata == {"a": 1}


def test_parquet_of_others(tmp_path):
    table = pa.table(
        {
            "body": ["t"],
            "key": [12],
            "metadata": [{"x": 1}],
            "date": pa.array([0], pa.timestamp("s")),
            "unknown": [1],
        }
    )
    (document,), _ = parquet(tmp_path, table, text="body", id="key", source="s")
    assert (document.text, document.source, document.metadata) == ("t", "s", {"x": 1})
    assert document.date == "1970-01-01T00:00:00"
    (same,), _ = jsonl(tmp_path, {"text": "t", "id": "12", "source": "s"})
    assert document.id == same.id


def test_parquet_without_a_usable_text_column_is_an_error(tmp_path):
    with pytest.raises(InputError, match="text"):
        parquet(tmp_path, pa.table({"words": ["a"]}))
    with pytest.raises(InputError, match="int64"):
        parquet(tmp_path, pa.table({"text": [1]}))
    schema = pa.schema([("text", pa.string())], {"gristmill.schema": "documents/99"})
    with pytest.raises(InputError, match="documents/99"):
        parquet(tmp_path, pa.table({"text": ["a"]}, schema))


def test_parquet_strings_that_are_not_utf8(tmp_path):
    column = pa.array([b"a\xffb", b"ok"]).view(pa.string())
    documents, tally = parquet(tmp_path, pa.table({"text": column}))
    assert [d.text for d in documents] == ["a\ufffdb", "ok"]
    assert tally.notes == {"invalid_utf8": 1}


def test_damaged_parquet_is_incomplete(tmp_path):
    path = tmp_path / "x.parquet"
    texts = [hashlib.sha256(b"%d" % i).hexdigest() for i in range(4000)]
    pq.write_table(pa.table({"text": texts}), path, row_group_size=2000, compression="zstd")
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert run(path, "parquet")[1].problem_counts == {"not_parquet": 1}
    damaged = bytearray(whole)
    damaged[100:5000] = b"\xff" * 4900
    path.write_bytes(damaged)
    documents, tally = run(path, "parquet")
    assert [d.text for d in documents] == texts[2000:]
    assert tally.skipped == {"bad_row_group": 2000} and tally.incomplete


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize(
    ("per", "expected"),
    [
        ("file", [b"one\ntwo\n\n \nthree\n"]),
        ("paragraph", [b"one\ntwo", b"three"]),
        ("line", [b"one", b"two", b"three"]),
    ],
)
def test_text_files(tmp_path, pack, per, expected):
    path = tmp_path / "x.txt"
    path.write_bytes(PACKERS[pack](b"one\ntwo\n\n \nthree\n"))
    documents, tally = run(path, "text", per=per)
    assert [d.content for d in documents] == expected
    assert {d.media_type for d in documents} == {"text/plain"}
    assert len({d.id for d in documents}) == len(expected)
    assert not tally.skipped


def test_an_empty_text_file_is_a_record_without_a_document(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b" \n")
    assert run(path, "text")[1].skipped == {"empty": 1}
    assert run(path, "text", per="line")[1].records == 0


def test_pieces_of_text_that_are_too_large_are_passed_over(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"a\n\n" + b"x" * 99 + b"\n\nb\n")
    documents, tally = run(path, "text", per="paragraph", max_body=50)
    assert [d.content for d in documents] == [b"a", b"b"]
    assert tally.skipped == {"too_large": 1}
    assert run(path, "text", max_body=50)[1].skipped == {"too_large": 1}


def test_raw_surrogates_and_bytes_that_are_no_utf8_are_replaced(tmp_path):
    lines = [b'{"text": "a\xed\xa0\x80b"}', b'{"text": "c\xffd"}', b'{"text": "e"}']
    documents, tally = jsonl(tmp_path, *lines)
    assert [set(d.text) - set("abcde") for d in documents] == [{"\ufffd"}, {"\ufffd"}, set()]
    assert tally.notes == {"invalid_utf8": 2}
    for document in documents:
        document.text.encode()


strings = st.none() | st.sampled_from(["", "a", "ünï", "\x00", "x" * 300])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.fixed_dictionaries(
            {"text": st.sampled_from(["", "some text", "ß\n"])},
            optional={name: strings for name in ("id", "url", "date", "source", "license")}
            | {"warc_offset": st.none() | st.integers(-2, 9), "warc_file": strings},
        ),
        max_size=12,
    ),
    st.none() | st.just("elsewhere"),
    st.sampled_from(["plain", "dictionary", "own"]),
)
def test_batches_are_the_documents_one_by_one(tmp_path, rows, source, form):
    """What most tables are like is read by columns: the same as value by value."""
    table = pa.Table.from_pylist(rows, pa.schema([("text", pa.string())]) if not rows else None)
    if form == "dictionary" and "source" in table.column_names:
        at = table.column_names.index("source")
        encoded = table["source"].cast(pa.string()).dictionary_encode()
        table = table.set_column(at, "source", encoded)
    if form == "own":
        full = [{**dict.fromkeys(DOCUMENT_SCHEMA.names), **row} for row in rows]
        table = pa.Table.from_pylist(full, DOCUMENT_SCHEMA)
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)

    def everything():
        tally = Tally()
        options = {} if source is None else {"source": source}
        return list(read("parquet", str(path), tally, options)), tally

    fast = everything()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_reader, "_whole_batch", lambda *_: None)
        assert everything() == fast


def test_a_table_of_strings_is_read_by_columns(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "id": ["1", None]}), path)
    [batch] = read_raw("parquet", str(path), Tally())
    assert isinstance(batch, RawBatch) and len(batch) == 2
