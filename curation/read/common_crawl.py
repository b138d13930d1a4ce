"""Common Crawl: which archives a crawl has, and a fair choice of some of them.

What may live here: the names of crawls, where their lists lie, and the choice. How archives are
read does not depend on who made them: that is the business of `warc`.

Layout: https://commoncrawl.org/get-started. A crawl has `crawl-data/<crawl>/<subset>.paths.gz`, a
list of paths below the same root.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Sequence

from curation.storage import LISTING, InputError, MissingInput, read_list
from curation.transfer import Patience

CRAWL = re.compile(r"CC-MAIN-\d{4}-\d{2}")
_CRAWL_OF = re.compile(rf"(?:^|/)crawl-data/({CRAWL.pattern})/")


def archives(
    base: str,
    crawls: Sequence[str],
    subset: str,
    files: int | None,
    seed: int,
    patience: Patience = LISTING,
) -> list[str]:
    """The archives of some crawls: `files` of each, or all of them (None), as paths below `base`.

    The choice is by the smallest keyed hashes of the paths in the list: a function of the seed and
    of nothing else, so that a larger choice holds the smaller one. Raises InputError for a crawl
    that is not there or has fewer.
    """
    root = base if base.endswith("/") else base + "/"
    chosen: list[str] = []
    for crawl in crawls:
        paths = _listed(root, crawl, subset, patience)
        if files is not None and files > len(paths):
            raise InputError(f"{crawl} has {len(paths)} {subset} files, and {files} are asked for")
        chosen += sorted(paths) if files is None else sample(paths, files, seed)
    return [root + path for path in chosen]


def sample(paths: Sequence[str], files: int, seed: int) -> list[str]:
    """`files` of the paths, whatever their order."""
    key = seed.to_bytes(8, "big")

    def rank(path: str) -> tuple[bytes, str]:
        return hashlib.blake2b(path.encode(), digest_size=16, key=key).digest(), path

    return heapq.nsmallest(files, paths, key=rank)


def crawl_of(path: str) -> str | None:
    """The crawl that an archive belongs to, by its path; None where the path does not tell."""
    found = _CRAWL_OF.search(path)
    return found[1] if found else None


def _listed(root: str, crawl: str, subset: str, patience: Patience) -> list[str]:
    listing = f"{root}crawl-data/{crawl}/{subset}.paths.gz"
    try:
        lines = read_list(listing, patience)
    except MissingInput as error:
        raise InputError(f"there is no crawl {crawl}: {error}") from None
    for path, place in lines:
        if not path.startswith(f"crawl-data/{crawl}/") or ".." in path.split("/"):
            raise InputError(f"{place}: no file of {crawl}: {path[:200]}")
    return sorted({path for path, _ in lines})
