"""URLs of real pages, and what datatrove says of them: for the scripts on `url_filter`.

What may live here: helpers of `scores_url.py` and `judges_url.py`.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from curation.document import Documents
from curation.engine.chain import as_column
from curation.filters.url_filter import UrlFilter

_URL = re.compile(rb"""https?://[^\s"'<>\\\x00-\x20\x7f-\xff]+""")


def of_pages(data: Path) -> list[str]:
    """The different URLs that occur in the archives and pages of the data folder: their own, and
    those that they link to."""
    found = set()
    for folder in ("warc", "html_extraction"):
        for path in sorted((data / folder).rglob("*")):
            if path.is_file():
                for content in _contents(path):
                    found.update(_URL.findall(content))
    return sorted(url.decode() for url in found)


def _contents(path: Path) -> Iterator[bytes]:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            return  # damaged on purpose
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            yield from map(archive.read, archive.namelist())
    else:
        yield content


def assets() -> Path:
    """The folder with the lists that come with datatrove, which has to be installed."""
    spec = find_spec("datatrove")
    if spec is None or spec.origin is None:
        raise SystemExit("datatrove is not installed, whose lists are wanted")
    return Path(spec.origin).parent / "assets"


def archive() -> Path:
    """datatrove's list of domains, made of UT1's."""
    [path] = assets().glob("url_filterblacklists*.tar.gz")
    return path


def reasons(stage: UrlFilter, urls: list[str]) -> list[str | None]:
    """The first rule that drops each URL."""
    signals = stage.score(Documents({"url": pa.array(urls, pa.string())}))
    found: list[str | None] = [None] * len(urls)
    for rule in reversed(stage.rules):
        threshold = rule.threshold(stage, pa.nulls(len(urls), pa.string()))
        hits = rule.violated(as_column(signals[rule.signal]), threshold)
        found = [rule.name if hit else old for hit, old in zip(hits, found, strict=True)]
    return found


def datatrove(python: str, urls: list[str], integrated: bool) -> dict[str, Any]:
    """What `bench/datatrove_urls.py` prints."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"urls": urls, "integrated": integrated}, file)
        file.flush()
        script = Path(__file__).parent / "datatrove_urls.py"
        done = subprocess.run([python, str(script), file.name], check=True, capture_output=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
