"""What `url_filter` says of addresses of real pages, beside datatrove's URLFilter.

    python bench/scores_url.py DATA [--peer-python PATH]

DATA: the folder of labelled data (`warc/` and `html_extraction/` in it); the addresses are those of
its pages and of all that these link to. With datatrove's words on both sides, then with its list of
4.6 million domains, too. `case`: differences that are gone when the addresses are in lower case.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from bench import urls
from curation.filters.url_filter import UrlFilter


def row(*cells: object) -> None:
    print("  ".join(f"{cell:<34}" if i == 0 else f"{cell:>12}" for i, cell in enumerate(cells)))


def share(reasons: list[str | None]) -> str:
    return f"{1 - reasons.count(None) / len(reasons):.3%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--peer-python", help="of an environment with datatrove and tldextract")
    options = parser.parse_args()

    given = urls.of_pages(options.data)
    lower = [url.lower() for url in given]
    assets = urls.assets()
    print(f"{len(given):,} addresses\n")
    row("lists", "dropped", "datatrove", "differences", "case")
    row("built-in", share(urls.reasons(UrlFilter(), given)))
    for name, domains in (("datatrove's words", ()), ("and its domains", (str(urls.archive()),))):
        stage = UrlFilter(words=str(assets), domains=domains)
        ours = urls.reasons(stage, given)
        if not options.peer_python:
            row(name, share(ours))
            continue
        theirs = urls.datatrove(options.peer_python, given, bool(domains))["reasons"]
        again = urls.datatrove(options.peer_python, lower, bool(domains))["reasons"]
        differing = [(a is None) != (b is None) for a, b in zip(ours, theirs, strict=True)]
        left = [(a is None) != (b is None) for a, b in zip(ours, again, strict=True)]
        row(name, share(ours), share(theirs), sum(differing), sum(differing) - sum(left))
        print("   ", dict(Counter(filter(None, ours))), dict(Counter(filter(None, theirs))))


if __name__ == "__main__":
    main()
