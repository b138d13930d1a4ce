"""Archives of other projects, against the counts that warcio and FastWARC gave for them."""

import csv
import io

import pytest
from warcio.archiveiterator import ArchiveIterator

from curation.read import Entry, Span, Tally, read
from curation.read.framing import Frames, read_head

pytestmark = pytest.mark.real

TYPES = ("continuation", "conversion", "metadata", "request", "resource", "revisit", "warcinfo")


@pytest.fixture(scope="module")
def archives(shared_data):
    folder = shared_data / "warc"
    if not (folder / "MANIFEST.tsv").exists():
        pytest.skip(f"no archives in {folder}")
    return folder


@pytest.fixture(scope="module")
def manifest(archives):
    with open(archives / "MANIFEST.tsv", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def types(path) -> dict[str, int]:
    """Records by type: responses are what a WET reader skips under that name."""
    warc, wet = Tally(), Tally()
    list(read("warc", str(path), warc))
    list(read("wet", str(path), wet))
    found = {name: warc.skipped[name] for name in TYPES} | {"response": wet.skipped["response"]}
    return {name: count for name, count in found.items() if count}


def test_archives_without_faults_read_as_others_read_them(archives, manifest):
    sound = [r for r in manifest if r["warcio_error"] == r["fastwarc_error"] == "-"]
    sound += [r for r in manifest if r["file"].endswith(("/example.arc", "/example.arc.gz"))]
    assert len(sound) > 13
    for row in sound:
        path = archives / row["file"]
        tally = Tally()
        documents = list(read("warc", str(path), tally))
        expected = [pair.split("=") for pair in row["warcio_types"].split(",") if pair]
        assert tally.records == int(row["warcio_records"]), row["file"]
        assert types(path) == {name: int(count) for name, count in expected}, row["file"]
        assert len(documents) == int(row["warcio_200_html"]), row["file"]
        assert tally.digest and not tally.incomplete and not tally.problems, row["file"]


def test_archives_with_faults_are_read_to_their_end(archives, manifest):
    for row in manifest:
        tally = Tally()
        documents = list(read("warc", str(archives / row["file"]), tally))
        assert tally.records == len(documents) + sum(tally.skipped.values()), row["file"]
        assert tally.bytes == int(row["bytes"]), row["file"]
        if row["file"].endswith((".warc", ".warc.gz")):
            assert tally.records >= int(row["fastwarc_records"]), row["file"]
            assert not tally.incomplete, row["file"]


def test_the_plain_and_the_gzip_form_give_the_same_documents(archives):
    for name in (
        "webarchive-commons/IAH-urls-wget.warc",
        "daft/example.warc",
        "whirlwind/whirlwind.warc",
    ):
        plain, packed = (
            [(d.id, d.url, d.content) for d in read("warc", str(archives / f), Tally())]
            for f in (name, name + ".gz")
        )
        assert plain == packed and plain


def test_arc_and_warc_of_one_crawl_give_the_same_pages(archives):
    pages = []
    for name in ("example.arc.gz", "example.warc.gz"):
        found = read("warc", str(archives / "aut-archiveit" / name), Tally())
        pages.append([(d.url, d.date, d.content) for d in found])
    assert pages[0] == pages[1] and len(pages[0]) == 94


def test_arc_bodies_are_those_that_warcio_decodes(archives):
    for name in ("warcio/example.arc", "warcio/example.arc.gz", "aut-archiveit/example.arc.gz"):
        documents = list(read("warc", str(archives / name), Tally()))
        with open(archives / name, "rb") as stream:
            oracle = {}
            for record in ArchiveIterator(stream, arc2warc=True):
                if record.rec_type == "response":
                    url = record.rec_headers.get_header("WARC-Target-URI")
                    oracle.setdefault(url, []).append(record.content_stream().read())
        assert documents
        for document in documents:
            assert document.content in oracle[document.url], (name, document.url)


@pytest.mark.parametrize(
    ("name", "records", "documents", "problems"),
    [
        # all lie in one member, and the last two are cut: warcio gives up after the first
        ("aut-archiveit/badexample.arc.gz", 5, 0, {"bad_length": 3}),
        # lengths -1, -1 and abc
        ("warcio/bad.arc", 4, 0, {"bad_header": 3}),
        # line ends were changed after writing: the length reaches beyond the end of the file
        ("warcio/example-space-in-url.arc", 2, 0, {"truncated": 1}),
        # no line feed after the version block: warcio takes the next record line for it
        ("webarchive-commons/IAH-20080430204825-00000-blackbook-truncated.arc", 9, 2, {}),
        # a record that is spread over two members: warcio gives up after the first
        ("warcio/example-wrong-chunks.warc.gz", 2, 1, {}),
        # bare line feeds, and lengths that are wrong by one
        ("ccnet-wet/sample.warc.wet", 4, 3, {"bad_length": 4}),
    ],
)
def test_faults_that_others_stumble_over(archives, name, records, documents, problems):
    tally = Tally()
    kind = "wet" if name.endswith(".wet") else "warc"
    assert len(list(read(kind, str(archives / name), tally))) == documents
    assert (tally.records, tally.problem_counts) == (records, problems)


@pytest.mark.parametrize("size", [1, 7, 1000, 65536])
def test_ranges_of_every_file_are_the_file(archives, manifest, size):
    for row in manifest:
        data = (archives / row["file"]).read_bytes()
        if len(data) > size * 1500:
            continue
        whole = Frames(io.BytesIO(data))
        items = list(whole)
        found, expected = [], Entry(0)
        for start in range(0, len(data), size):
            stop = min(start + size, len(data))
            for entry in (None, expected):
                stream = io.BytesIO(data)
                stream.seek(start)
                span = Span(start, stop, entry)
                part = Frames(stream, span=span, head=read_head(io.BytesIO(data))[0])
                own = list(part)
                if part.first == expected or (part.first is None and expected.offset >= stop):
                    break
            found += own
            expected = part.next or expected
        assert found == items and expected == whole.next, row["file"]
