"""Archives of other projects, against the counts that warcio and FastWARC gave for them."""

import csv

import pytest

from curation.read import Tally, read

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
    assert len(sound) > 10
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
