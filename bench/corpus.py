"""A large WARC from real pages, for the other benchmarks.

    python bench/corpus.py OUT.warc.gz --records 20000 ARCHIVE.warc.gz PAGES_FOLDER ...

A source is an archive (its HTML responses) or a folder of the extraction benchmarks
(`article-extraction-benchmark`, `trafilatura-eval`: gzipped pages with their URLs). The pages are
written one gzip member each, over and over with new ids and addresses until there are enough.
"""

from __future__ import annotations

import argparse
import gzip
import io
import itertools
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

from fastwarc.warc import ArchiveIterator, WarcRecordType
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

Page = tuple[str, str, bytes]  # URL, Content-Type, body


def from_archive(path: Path) -> Iterator[Page]:
    for record in ArchiveIterator(str(path), record_types=WarcRecordType.response):
        if record.http_content_type == "text/html":
            kind = record.http_headers.get("Content-Type")
            yield record.headers.get("WARC-Target-URI"), kind, record.reader.read()


def from_benchmarks(folder: Path) -> Iterator[Page]:
    articles = folder / "article-extraction-benchmark"
    for key, item in json.loads((articles / "ground-truth.json").read_text()).items():
        body = gzip.decompress((articles / "html" / f"{key}.html.gz").read_bytes())
        yield item.get("url") or f"https://articles.example/{key}", "text/html", body
    cached = folder / "trafilatura-eval"
    for url, item in json.loads((cached / "evaldata.json").read_text()).items():
        yield url, "text/html", gzip.decompress((cached / "html" / item["file"]).read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--records", type=int, default=20_000, help="at least (whole rounds)")
    parser.add_argument("--bytes", type=int, default=0, help="of the archive, at least")
    options = parser.parse_args()
    pages: list[Page] = []
    for source in options.sources:
        pages += from_benchmarks(source) if source.is_dir() else from_archive(source)
    written = 0
    with options.output.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        for turn in itertools.count():
            for url, kind, body in pages:
                headers = StatusAndHeaders("200 OK", [("Content-Type", kind)], protocol="HTTP/1.1")
                address = f"{url}{'&' if '?' in url else '?'}copy={turn}"
                name = uuid.uuid5(uuid.NAMESPACE_URL, address)
                record = writer.create_warc_record(
                    address,
                    "response",
                    payload=io.BytesIO(body),
                    http_headers=headers,
                    warc_headers_dict={
                        "WARC-Record-ID": f"<urn:uuid:{name}>",
                        "WARC-Date": "2026-01-01T00:00:00Z",
                    },
                )
                writer.write_record(record)
                written += 1
            if written >= options.records and file.tell() >= options.bytes:
                break
    size = options.output.stat().st_size
    print(f"{len(pages)} pages, {written} records, {size / 1e6:.1f} MB: {options.output}")


if __name__ == "__main__":
    main()
