"""How fast `url_filter` is, beside datatrove's URLFilter, and what its lists take to load.

    python bench/judges_url.py DATA [--peer-python PATH]

DATA: the folder of labelled data, whose pages' addresses are judged (see `scores_url.py`). CPU
seconds of one process, the best of five; datatrove's once, in the same minute. Lists are loaded
each in a process of its own, compiled and then from the cache: seconds, and the most MiB of memory
above what the process had before (Linux). They are datatrove's archive of 4.6 million domains, and
files of made-up ones.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa

from bench import urls
from curation.document import Documents
from curation.filters.url_filter import UrlFilter
from curation.filters.urls import Addresses, lists
from curation.text import cache

BATCH = 1024


def row(*cells: object) -> None:
    print("  ".join(f"{cell:<40}" if i == 0 else f"{cell:>12}" for i, cell in enumerate(cells)))


def seconds(stage: UrlFilter, batches: list[Documents]) -> float:
    """CPU seconds of all batches, the best of five."""
    stage.score(batches[0])  # compiles, loads
    found = []
    for _ in range(5):
        start = time.process_time()
        for batch in batches:
            stage.score(batch)
        found.append(time.process_time() - start)
    return min(found)


def most_memory() -> float:
    """MiB that this process had at the most; of its own, unlike `getrusage` after a fork."""
    [kib] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kib) / 1024


def load(path: str) -> tuple[int, float, float]:
    """Names of a list, CPU seconds to load it and MiB that it took at the most."""
    addresses = Addresses.of(pa.array(["http://example.com"]))
    lists.inline(("example.com",)).find(addresses)  # compiles
    before = most_memory()
    start = time.process_time()
    names = lists.load(lists.sources(path, None), None)
    names.find(addresses)
    took = time.process_time() - start
    return len(names.keys), took, most_memory() - before


def show_loading(paths: list[Path]) -> None:
    print("\nloading a list of domains")
    row("", "names", "seconds", "MiB")
    for path in paths:
        for how in ("compiled", "from the cache"):
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                names, took, mib = pool.submit(load, str(path)).result()
            row(f"{path.name}, {how}", f"{names:,}", f"{took:.2f}", f"{mib:.0f}")


def show_judging(given: list[str], python: str | None) -> None:
    column = pa.array(given)
    batches = [Documents({"url": column[i : i + BATCH]}) for i in range(0, len(given), BATCH)]
    print(f"{len(given):,} addresses, one core")
    row("", "URLs/s", "datatrove")
    assets, archive = str(urls.assets()), (str(urls.archive()),)
    cases = {
        "built-in words": (UrlFilter(), None),
        "datatrove's words": (UrlFilter(words=assets), False),
        "and its 4.6 million domains": (UrlFilter(words=assets, domains=archive), True),
        "the domains alone": (UrlFilter(words=None, domains=archive), None),
    }
    for name, (stage, integrated) in cases.items():
        ours = len(given) / seconds(stage, batches)
        theirs = ""
        if python and integrated is not None:
            said = urls.datatrove(python, given, integrated)
            theirs = f"{len(given) / said['seconds']:,.0f}"
            if integrated:
                theirs += f" (loading: {said['loading']:.1f} s, {said['mib']:.0f} MiB in all)"
        row(name, f"{ours:,.0f}", theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--peer-python", help="of an environment with datatrove and tldextract")
    options = parser.parse_args()
    if kernels := cache.directory():
        os.environ["NUMBA_CACHE_DIR"] = str(kernels.parent)  # compiled code stays where it is
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        show_judging(urls.of_pages(options.data), options.peer_python)
        made_up = []
        for millions in (1, 5):
            made_up.append(Path(folder) / f"{millions} million, plain")
            with made_up[-1].open("w") as file:
                for i in range(millions * 1_000_000):
                    file.write(f"site-{i * 2654435761 % 2**32:x}.example\n")
        os.environ["XDG_CACHE_HOME"] = str(Path(folder) / "fresh")
        show_loading([*made_up, urls.archive()])


if __name__ == "__main__":
    main()
