"""The filter `url_filter`: pages judged by their address alone.

What may live here: `UrlFilter`. Taking URLs apart, lists of domains and of words are in
`curation.filters.urls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Discriminator, Field, Tag, model_validator

from curation import models
from curation.document import Documents
from curation.filters.parameters import LIST, SINGLE, Count
from curation.filters.urls import Addresses, lists, versions
from curation.filters.urls import words as word_lists
from curation.filters.urls.lists import DomainList
from curation.stage import Filter, Rule, Signals

Names = Annotated[tuple[str, ...], Field(strict=False)]
#: A list by name or path; or its entries.
NameOrEntries = Annotated[
    Annotated[str, Tag(SINGLE)] | Annotated[Names, Tag(LIST)],
    Discriminator(lambda value: SINGLE if isinstance(value, str) else LIST),
]


class UrlFilter(Filter):
    """Drop pages whose address is listed, or speaks of adult content or gambling.

    The rules are RefinedWeb's (Penedo et al. 2023, arXiv 2306.01116, G.1), and FineWeb's
    (datatrove's URLFilter): a list of domains; then words, in any case. A strict word counts
    anywhere in the letters and digits of a URL taken together, a hard or soft one only between
    other characters; one strict or hard word drops, or two different soft ones.

    Where implementations differ: the paper takes '-' and '.' out of a URL before it looks for
    strict words, datatrove all that is no letter or digit, and so does this. datatrove looks for
    hard and soft words in the case of the URL, so that it misses those in capitals; here, as in the
    paper, case does not count. datatrove compares the whole host and the registrable domain with
    the list (the latter without the private part of the public suffix list), DCLM the host alone,
    without `www.`; here all names in between count (`lists.DomainList.find`).

    Signals, null where there is no URL with a host: `domain` (registrable, string, or null),
    `opted_out` and `allowed` (bool); and null where the page is allowed: `category` (string: the
    UT1 category, or the list's name; null of those not listed), `strict_words`, `hard_words`,
    `soft_words` (int64, different ones).
    """

    version: ClassVar[int] = 1
    needs_text: ClassVar[bool] = False
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("opted_out", signal="opted_out"),
        Rule("listed", signal="category"),
        Rule("strict_word", signal="strict_words", above="max_strict_words"),
        Rule("hard_word", signal="hard_words", above="max_hard_words"),
        Rule("soft_words", signal="soft_words", above="max_soft_words"),
    )
    types: ClassVar[Mapping[str, str]] = {
        **{"domain": "string", "opted_out": "bool", "allowed": "bool", "category": "string"},
        **{"strict_words": "int64", "hard_words": "int64", "soft_words": "int64"},
    }

    domains: Names = ()
    """Lists of domains whose pages are dropped, by name (`url/ut1`) or path: a file of names, one a
    line (plain or gzip; lines of a hosts file too), a folder in UT1's form, or a tar archive."""
    categories: Annotated[tuple[str, ...] | None, Field(strict=False)] = None
    """Categories of lists in UT1's form; None: those of RefinedWeb's ten that are there."""
    words: str | None = word_lists.BUILT_IN
    """Lists of words: `built-in` (short ones of our own), or a folder with `strict.txt`, `hard.txt`
    and `soft.txt`, or with datatrove's `banned_subwords.txt`, `banned_words.txt` and
    `soft_banned_words.txt`, by name or path; None: none."""
    max_strict_words: Count | None = 0
    """Strict words (RefinedWeb: none)."""
    max_hard_words: Count | None = 0
    """Hard words (RefinedWeb: none)."""
    max_soft_words: Count | None = 1
    """Soft words (RefinedWeb: fewer than two)."""
    allow: NameOrEntries = ()
    """Domains, or beginnings of URLs, that only `opt_out` drops: a list by name or path, or its
    entries."""
    opt_out: NameOrEntries = ()
    """Domains, or beginnings of URLs, whose owners want no use of them: always dropped, whatever
    `allow` says; a list by name or path, or its entries."""

    @model_validator(mode="after")
    def _categories_of_lists(self) -> Self:
        if self.categories is not None and not (self.categories and self.domains):
            lacks = "lists in `domains` are wanted" if self.categories else "null takes the default"
            raise ValueError(f"categories: {lacks}")
        return self

    @model_validator(mode="after")
    def _entries_are_addresses(self) -> Self:
        for name in ("allow", "opt_out"):
            entries = getattr(self, name)
            if not isinstance(entries, str):
                try:
                    lists.inline(entries)
                except lists.ListError as error:
                    raise ValueError(f"{name}: {error}") from None
        return self

    def depends(self) -> dict[str, str]:
        """The public suffix list and IDNA."""
        return versions()

    def files(self) -> dict[str, Path]:
        """The lists of domains and of words."""
        names = [name for name in (self.allow, self.opt_out) if isinstance(name, str)]
        found = [source for n in (*self.domains, *names) for source in self._sources(n)]
        own = word_lists.files(self.words) if self.words is not None else ()
        return {source.name: source.path for source in found} | {
            f"{self.words}/{path.name}": path for path in own
        }

    def memory(self) -> int:
        """Bytes of the lists of domains, loaded once per process."""
        return sum(self._list(n).nbytes for n in (self.allow, self.opt_out, *self.domains))

    def score(self, docs: Documents) -> Signals:
        """What the URL of each document says."""
        addresses = Addresses.of(docs["url"])
        allowed, opted_out = (
            np.asarray(self._list(n).find(addresses).is_valid()) for n in (self.allow, self.opt_out)
        )
        there = addresses.found
        judged = there & ~allowed
        return {
            "domain": addresses.domains(),
            "opted_out": pa.array(opted_out, mask=~there),
            "allowed": pa.array(allowed, mask=~there),
            "category": pc.if_else(pa.array(judged), self._category(addresses), None),
            **self._counts(addresses, judged),
        }

    def _sources(self, name: str) -> list[lists.Source]:
        try:
            return lists.sources(name, self.categories)
        except models.ModelNotFound as error:
            if name not in (self.allow, self.opt_out):
                raise
            entry = f"no file {name} here; a single entry is written [{name}]"
            raise models.ModelNotFound(entry, error.command) from None

    def _list(self, given: str | tuple[str, ...]) -> DomainList:
        if not isinstance(given, str):
            return lists.inline(given)
        return lists.load(self._sources(given), self.categories)

    def _category(self, addresses: Addresses) -> pa.Array:
        """The category of the first list that each address is in."""
        found = [self._list(name).find(addresses) for name in self.domains]
        return pc.coalesce(*found, pa.nulls(len(addresses), pa.string()))

    def _counts(self, addresses: Addresses, judged: np.ndarray) -> Signals:
        names = ("strict_words", "hard_words", "soft_words")
        if self.words is None:
            return dict.fromkeys(names, pa.nulls(len(addresses), pa.int64()))
        counts = word_lists.load(word_lists.files(self.words)).count(addresses)
        return {name: pa.array(counts[:, i], mask=~judged) for i, name in enumerate(names)}
