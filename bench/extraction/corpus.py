"""The labelled pages of the extraction model: blocks, labels, sites.

What may live here: reading the four labelled sets, aligning blocks with what should be extracted,
and the folds. Labels of blocks, by set:

- article-extraction-benchmark (`aeb`): the share of a block's tokens that an alignment with
  articleBody covers.
- trafilatura's evaluation (`traf`): 1 for blocks with a segment of `with`, 0 for those with one of
  `without`, unknown (NaN) for all others; `opinion` is the share that trafilatura's own output
  covers, of which training makes soft labels.
- Readability's test pages (`read`) and WebMainBench's sample (`wmb`): as aeb, with the text of
  expected.html and the Markdown.

Folds are by registered domain, so that no site is in two folds, whatever the set.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curation.extract.blocks.extract import parse
from curation.extract.blocks.page import SOFT_HYPHEN, Page
from curation.extract.decode import decode

FOLDS = 5
GRAM = 4  # tokens that must follow each other to count as aligned
_TOKEN = re.compile(r"\w+")
_SINGLES = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]")
_ADDRESS = (
    r"""<link[^>]+rel=["']?canonical["']?[^>]*href=["']?(https?://[^"'> ]+)""",
    r"""<link[^>]+href=["']?(https?://[^"'> ]+)["']?[^>]*rel=["']?canonical""",
    r"""og:url["']?[^>]*content=["']?(https?://[^"'> ]+)""",
    r"""content=["']?(https?://[^"'> ]+)["']?[^>]*og:url""",
)


@dataclass(frozen=True)
class Sample:
    """A labelled page. `name` begins with its set: `aeb:`, `traf:`, `read:` or `wmb:`.

    `labels` (float, one a block): the share to keep, NaN where unknown. `opinion`: trafilatura's,
    on the pages of `traf` only. `truth`: articleBody, or the segments.
    """

    name: str
    site: str
    html: str
    page: Page
    labels: NDArray[np.float64]
    opinion: NDArray[np.float64] | None
    truth: Any

    @property
    def fold(self) -> int:
        return fold(self.site)


def fold(site: str) -> int:
    """The fold of a site, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(site.encode(), digest_size=8).digest()) % FOLDS


def tokens(text: str) -> list[str]:
    """Words; single characters where the script has no spaces."""
    words = _TOKEN.findall(_plain(text))
    return [t for word in words for t in (word if _SINGLES.search(word) else (word,))]


def _plain(text: str) -> str:
    """The text in NFC, without soft hyphens, as trafilatura and the truths mostly have it."""
    return unicodedata.normalize("NFC", text.replace(SOFT_HYPHEN, ""))


def coverage(blocks: Iterable[str], text: str) -> NDArray[np.float64]:
    """The share of each block's tokens that a monotone alignment with `text` covers.

    The alignment is the longest increasing sequence of common 4-grams, over the borders of blocks.
    NaN: a block of fewer tokens than that which is not covered, but stands somewhere in the text,
    or one without tokens.
    """
    parts = [tokens(block) for block in blocks]
    flat = [token for part in parts for token in part]
    wanted = tokens(text)
    covered = np.zeros(len(flat) + 1, bool)
    places: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for j in range(len(wanted) - GRAM, -1, -1):
        places[tuple(wanted[j : j + GRAM])].append(j)
    ends: list[int] = []
    chain: list[tuple[int, int]] = []  # (index of the 4-gram, link to the one before)
    last: list[int] = []
    for i in range(len(flat) - GRAM + 1):
        for j in places.get(tuple(flat[i : i + GRAM]), ())[:50]:
            at = bisect_left(ends, j)
            chain.append((i, last[at - 1] if at else -1))
            if at == len(ends):
                ends.append(j)
                last.append(len(chain) - 1)
            else:
                ends[at] = j
                last[at] = len(chain) - 1
    link = last[-1] if last else -1
    while link >= 0:
        i, link = chain[link]
        covered[i : i + GRAM] = True
    joined = " " + " ".join(wanted) + " "
    shares = np.full(len(parts), np.nan)
    at = 0
    for i, part in enumerate(parts):
        if part:
            share = float(covered[at : at + len(part)].mean())
            unclear = len(part) < GRAM and share < 1 and f" {' '.join(part)} " in joined
            shares[i] = np.nan if unclear else share
        at += len(part)
    return shares


def segment_labels(
    blocks: list[str], truth: dict[str, list[str]], opinion: NDArray[np.float64]
) -> NDArray[np.float64]:
    """1 and 0 for the blocks that hold segments to keep and to drop, NaN for the rest.

    Where several blocks hold a segment to keep, those that `opinion` keeps, else all of them.
    """
    labels = np.full(len(blocks), np.nan)
    texts = [" ".join(_plain(block).split()) for block in blocks]
    for name, label in (("without", 0.0), ("with", 1.0)):
        for segment in truth[name]:
            wanted = " ".join(_plain(segment).split()).removeprefix("- ")
            if not wanted:
                continue
            hits = [
                i
                for i, text in enumerate(texts)
                if wanted in text or (len(text) > 25 and text in wanted)
            ]
            if label and len(hits) > 1:
                hits = [i for i in hits if opinion[i] > 0.5] or hits
            labels[hits] = label
    return labels


def _pages(data: Path) -> Iterator[tuple[str, str, str, Any]]:
    """Name, address (or an empty string), HTML and truth of every labelled page."""
    folder = data / "article-extraction-benchmark"
    truth = json.loads((folder / "ground-truth.json").read_text())
    for key in sorted(truth):
        html = _read(folder / f"html/{key}.html.gz")
        yield f"aeb:{key}", truth[key]["url"], html, truth[key]["articleBody"]
    folder = data / "trafilatura-eval"
    truth = json.loads((folder / "evaldata.json").read_text())
    for key in sorted(truth):
        address = key if key.startswith("http") else ""
        yield f"traf:{key}", address, _read(folder / "html" / truth[key]["file"]), truth[key]
    for folder in sorted((data / "readability-test-pages").iterdir()):
        if folder.is_dir():
            expected = _read(folder / "expected.html.gz")
            yield f"read:{folder.name}", "", _read(folder / "source.html.gz"), expected
    lines = _read(data / "webmainbench-sample/sample.jsonl.gz").splitlines()
    for record in map(json.loads, lines):
        yield f"wmb:{record['id']}", record["url"], record["html"], record["groundtruth_content"]


def _read(path: Path) -> str:
    return decode(gzip.decompress(path.read_bytes())).text


def _site(name: str, address: str, html: str) -> str:
    """The registered domain of a page; of its own name where no address is known."""
    found = (re.search(pattern, html, re.IGNORECASE) for pattern in _ADDRESS)
    address = address or next((match[1] for match in found if match), "")
    if not address and "::" in name:  # `hard::example.org-title.html`
        address = "//" + re.sub(r"(-[^.]*)?\.html?$", "", name.split("::")[1])
    host = re.sub(r"^[\w+.-]*//|^\w+://", "", address).split("/")[0].split(":")[0].lower()
    return _suffixes().privatesuffix(host) or host or name


@cache
def _suffixes() -> Any:
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList()


def load(data: Path) -> list[Sample]:
    """All labelled pages of the folder `html_extraction`, in order of name within the sets."""
    from trafilatura import extract

    samples = []
    for name, address, html, truth in _pages(data):
        page, _ = parse(html)
        texts = page.texts()
        opinion = None
        if name.startswith("traf:"):
            opinion = coverage(texts, extract(html, include_comments=False) or "")
            labels = segment_labels(texts, truth, opinion)
        else:
            wanted = "\n".join(parse(truth)[0].texts()) if name.startswith("read:") else truth
            labels = coverage(texts, wanted)
        samples.append(Sample(name, _site(name, address, html), html, page, labels, opinion, truth))
    return samples
