"""Pages per second and core of the extraction engines and their peers, in turn on the same pages.

What may live here: this measurement. A round takes every page through every engine, the engines one
after the other; each engine's CPU time of a round counts, one process, no sandbox. Pages are
decoded before. `turbohtml` is measured where it is installed.

    python -m bench.extraction.speed PAGES [PAGES ...] [--rounds 3] [--limit N]

PAGES: directories of `*.html` and `*.html.gz`, and WARC files.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from curation.extract import engines
from curation.extract.corpus import pages as captured
from curation.extract.decode import decode
from curation.read.tally import Tally
from training.tables import table

Extract = Callable[[str], str]


def candidates() -> dict[str, Extract]:
    """Engines and peers by name."""
    found: dict[str, Extract] = {
        name: engines.load(name) for name in ("blocks", "resiliparse") if hasattr(engines, name)
    }
    found["trafilatura, as FineWeb"] = engines.load("trafilatura")
    found["trafilatura, standard"] = _trafilatura(fast=False)
    found["trafilatura, fast"] = _trafilatura(fast=True)
    if importlib.util.find_spec("turbohtml"):
        import turbohtml

        found["turbohtml"] = lambda html: turbohtml.parse(html).main_text() or ""
    return found


def _trafilatura(fast: bool) -> Extract:
    import trafilatura

    return lambda html: trafilatura.extract(html, include_comments=False, fast=fast) or ""


def texts(places: Sequence[Path]) -> Iterator[str]:
    """The pages, decoded."""
    for place in places:
        if place.is_dir():
            for path in sorted([*place.rglob("*.html"), *place.rglob("*.html.gz")]):
                data = path.read_bytes()
                yield decode(
                    gzip.decompress(data) if path.suffix == ".gz" else data, None, "text/html"
                ).text
        else:
            for page in captured([str(place)], Tally()):
                if page.content is not None and "html" in (page.media_type or ""):
                    yield decode(page.content, page.charset, page.media_type or "").text


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=int, help="pages at most, evenly chosen")
    options = parser.parse_args(arguments)
    pages = list(texts(options.pages))
    if options.limit:
        pages = pages[:: max(1, len(pages) // options.limit)][: options.limit]
    chosen = candidates()
    for extract in chosen.values():  # imports, compiled code
        extract(pages[0])
    speeds: dict[str, list[float]] = {name: [] for name in chosen}
    sizes = dict.fromkeys(chosen, 0)
    failed = dict.fromkeys(chosen, 0)
    for number in range(options.rounds):
        for name, extract in chosen.items():
            began = time.process_time()
            for page in pages:
                try:
                    size = len(extract(page))
                except Exception:
                    failed[name] += number == 0
                else:
                    sizes[name] += size if number == 0 else 0
            speeds[name].append(len(pages) / (time.process_time() - began))
    base = statistics.median(speeds["trafilatura, standard"])
    rows = []
    for name, own in speeds.items():
        middle = statistics.median(own)
        rows.append(
            [
                name,
                f"{middle:,.0f}",
                f"{min(own):,.0f}",
                f"{max(own):,.0f}",
                f"{middle / base:.1f}",
                f"{sizes[name] / len(pages):,.0f}",
                str(failed[name]),
            ]
        )
    megabytes = sum(len(page) for page in pages) / 1e6
    print(f"{len(pages):,} pages of {megabytes / len(pages) * 1e3:,.0f} k characters in the mean")
    head = ["engine", "pages/s", "least", "most", "x trafilatura", "characters a page", "failed"]
    print(table(head, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
