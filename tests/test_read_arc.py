"""ARC files, versions 1 and 2. Expected values are what was written; warcio is the oracle."""

import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator

from curation.read import Tally, read

HTML = b"<html><body><p>hello</p></body></html>"


def http(body: bytes = HTML, kind: str = "text/html") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n\r\n%b" % (kind.encode(), body)


def record(
    block: bytes,
    uri: str = "http://example.org/",
    date: str = "20080430204825",
    delta: int = 0,
    fields: str = "text/html",
) -> bytes:
    line = f"{uri} 192.0.2.1 {date} {fields} {len(block) + delta}\n"
    return line.encode() + block + b"\n"


def version(number: int = 1) -> bytes:
    names = b"URL IP-address Archive-date Content-type Archive-length"
    if number == 2:
        names = names.replace(
            b"Archive-length", b"Result-code Checksum Location Offset Filename Archive-length"
        )
    block = b"%d 0 Example\n%b\n" % (number, names)
    kind = "text/plain" if number == 1 else "text/plain 200 - - 0 x.arc"
    return record(block, "filedesc://x.arc", fields=kind)


def run(tmp_path, records: list[bytes], pack: str = "plain", **options):
    path = tmp_path / "x.arc"
    if pack == "members":
        records = [gzip.compress(r) for r in records]
    data = b"".join(records)
    path.write_bytes(gzip.compress(data) if pack == "whole" else data)
    tally = Tally()
    documents = list(read("warc", str(path), tally, options))
    assert tally.records == tally.documents + sum(tally.skipped.values())
    return documents, tally


PACKS = pytest.mark.parametrize("pack", ["plain", "members", "whole"])


@PACKS
@pytest.mark.parametrize("number", [1, 2])
def test_a_capture_becomes_a_document_that_can_be_traced(tmp_path, pack, number):
    more = "text/html" if number == 1 else "text/html 200 abcdef - 123 x.arc"
    page = record(http(), "http://example.org/a b?c=d e", fields=more)
    (document,), tally = run(tmp_path, [version(number), page], pack)
    assert document.content == HTML and document.media_type == "text/html"
    assert document.url == "http://example.org/a b?c=d e"
    assert document.date == "2008-04-30T20:48:25Z"
    assert tally.skipped == {"warcinfo": 1}
    assert not tally.incomplete and not tally.problems
    data = (tmp_path / "x.arc").read_bytes()
    assert document.warc_file == str(tmp_path / "x.arc")
    if pack == "whole":
        assert (document.warc_offset, document.warc_length) == (0, None)
    else:
        cut = data[document.warc_offset : document.warc_offset + document.warc_length]
        assert (gzip.decompress(cut) if pack == "members" else cut) == page


def test_the_identity_is_of_address_date_and_content(tmp_path):
    pages = [
        record(http()),
        record(http()),
        record(http(b"<p>other")),
        record(http(), uri="http://example.org/b"),
        record(http(), date="20080430204826"),
    ]
    ids = [document.id for document in run(tmp_path, [version(), *pages])[0]]
    assert ids[0] == ids[1] and len(set(ids)) == 4


@pytest.mark.parametrize(
    ("digits", "date"),
    [
        ("200804302048", "2008-04-30T20:48:00Z"),
        ("200804302048251234", "2008-04-30T20:48:25Z"),
        ("20081399204825", None),
    ],
)
def test_dates_become_those_of_warc(tmp_path, digits, date):
    (document,), _ = run(tmp_path, [version(), record(http(), date=digits)])
    assert document.date == date


def test_what_is_no_page_is_skipped_under_the_names_of_warc(tmp_path):
    records = [
        version(),
        record(b"20080430204825\nexample.org. 60 IN A 192.0.2.1", "dns:example.org"),
        record(b"no status line"),
        record(http(kind="image/png")),
        record(b"HTTP/1.0 404 Not Found\r\n\r\nx"),
    ]
    _, tally = run(tmp_path, records)
    assert tally.skipped == {
        "warcinfo": 1,
        "not_http": 1,
        "bad_http_header": 1,
        "content_type": 1,
        "status_4xx": 1,
    }


@PACKS
@pytest.mark.parametrize("delta", [-30, -5, 7, 60, 1000, 10**9])
def test_a_wrong_length_costs_nothing(tmp_path, pack, delta):
    pages = [http(b"<p>page %d" % i + b"." * 50) for i in range(4)]
    records = [record(page, delta=delta if i == 1 else 0) for i, page in enumerate(pages)]
    documents, tally = run(tmp_path, [version(), *records], pack)
    assert [d.content for d in documents] == [page.partition(b"\r\n\r\n")[2] for page in pages]
    assert tally.problem_counts == {"bad_length": 1} and not tally.incomplete


@PACKS
def test_a_length_that_is_no_number_costs_its_record(tmp_path, pack):
    bad = record(http()).replace(b" %d\n" % len(http()), b" -1\n")
    documents, tally = run(tmp_path, [version(), record(http()), bad, record(http())], pack)
    assert len(documents) == 2
    assert tally.skipped == {"warcinfo": 1, "bad_header": 1} and not tally.incomplete


def test_lengths_that_count_the_line_feed_and_second_line_feeds_are_accepted(tmp_path):
    pages = [record(http(), delta=1), record(http()) + b"\n", record(http())[:-1], record(http())]
    documents, tally = run(tmp_path, [version(), *pages])
    assert [d.content.rstrip(b"\n") for d in documents] == [HTML] * 4
    assert not tally.problems


def test_a_chopped_file_is_incomplete(tmp_path):
    records = [version(), record(http()), record(http())]
    for pack in ("plain", "members"):
        run(tmp_path, records, pack)
        path = tmp_path / "x.arc"
        path.write_bytes(path.read_bytes()[:-20])
        tally = Tally()
        assert len(list(read("warc", str(path), tally))) == 1
        assert tally.skipped == {"warcinfo": 1, "truncated": 1} and tally.incomplete


def test_damage_costs_the_damaged_record_alone(tmp_path):
    members = [gzip.compress(r) for r in (version(), *[record(http())] * 3)]
    bad = bytearray(members[2])
    bad[20:40] = b"\xff" * 20
    documents, tally = run(tmp_path, [*members[:2], bytes(bad), *members[3:]])
    assert len(documents) == 2
    assert tally.skipped == {"warcinfo": 1, "bad_member": 1}
    documents, tally = run(tmp_path, [version(), b"\0" * 99 + b"\n", record(http())])
    assert len(documents) == 1
    assert tally.problem_counts


def test_a_damaged_beginning_does_not_hide_the_format(tmp_path):
    for pack in ("plain", "members"):
        documents, _ = run(tmp_path, [b"\0" * 50 + b"\n", record(http()), record(http())], pack)
        assert len(documents) == 2


@pytest.mark.parametrize(
    "url", ["http://[", "HTTP://EXAMPLE.ORG/%zz", "https://e.org/" + "a" * 7000]
)
def test_odd_addresses_are_kept_as_they_are(tmp_path, url):
    (document,), _ = run(tmp_path, [version(), record(http(), uri=url)])
    assert document.url == url


bodies = st.lists(
    st.binary(min_size=1, max_size=200).filter(lambda b: not b.startswith(b"\x1f\x8b\x08")),
    min_size=1,
    max_size=5,
)


@given(bodies, st.booleans())
def test_whole_files_read_as_warcio_reads_them(tmp_path_factory, bodies, packed):
    records = [version(), *(record(http(body)) for body in bodies)]
    path = tmp_path_factory.mktemp("arc")
    documents, tally = run(path, records, "members" if packed else "plain")
    data = (path / "x.arc").read_bytes()
    oracle = [
        (r.rec_headers.get_header("WARC-Target-URI"), r.content_stream().read())
        for r in ArchiveIterator(io.BytesIO(data), arc2warc=True)
        if r.rec_type == "response"
    ]
    assert tally.records == len(oracle) + 1
    assert [(d.url, d.content) for d in documents] == oracle


@given(bodies, st.data())
def test_every_record_is_accounted_for_whatever_the_bytes(tmp_path_factory, bodies, data):
    content = bytearray(version() + b"".join(record(http(body)) for body in bodies))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    run(tmp_path_factory.mktemp("arc"), [cut], data.draw(st.sampled_from(["plain", "whole"])))
