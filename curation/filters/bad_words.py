"""Lists of bad words, in the form of LDNOOBW: where they lie, and which is a document's.

What may live here: finding and reading lists, the exceptions of mC4, and counting by language.

The List of Dirty, Naughty, Obscene, and Otherwise Bad Words has a file for each language, named by
its tag, with an entry on each line in UTF-8. Lines that begin with "#" are comments here; LDNOOBW
has none. An entry counts between characters that are not of words, or anywhere in languages without
spaces, as mC4 (Xue et al. 2021, 3.1) has it (`curation.text.phrases`). To mC4 the same case is what
`str.lower` gives, which makes a difference only for letters such as the long s and the final sigma.
"""

from __future__ import annotations

import re
from functools import lru_cache
from glob import escape, glob
from pathlib import Path

import numpy as np
import pyarrow as pa

from curation import models
from curation.document import Documents
from curation.text import phrases
from curation.text.phrases import Phrases
from curation.text.view import TextView

#: The name of the list that is part of this package: short, English, of our own making.
BUILT_IN = "built-in"

#: What stands for a document's language in the path of a list.
LANGUAGE = "{language}"

#: Languages in whose texts a bad word counts wherever it occurs, for want of spaces.
SPACELESS = ("ja", "th", "zh")

#: Not counted, since they are parts of common words: each would drop more than a tenth of the pages
#: of its language (mC4).
ALLOWED = {"ja": {"sm", "グロ", "女の子"}, "zh": {"性"}}

_TAG = "[a-z]{2,3}(?:-[A-Za-z0-9]+)*"


def files(name: str) -> dict[str, Path]:
    """The lists that a parameter means, by their file names.

    `name`: `built-in`; a path with `{language}`; the name (`curation.models`) or path of a
    directory with a file for each language; or that of one list for every language. None are there
    where a path with `{language}` means nothing. Raises ModelNotFound.
    """
    place = _place(name)
    if LANGUAGE not in place:
        return {Path(place).name: Path(place)}
    meant = re.compile(re.escape(place).replace(re.escape(LANGUAGE), _TAG))
    found = filter(meant.fullmatch, glob(escape(place).replace(LANGUAGE, "*")))
    return {path.name: path for path in map(Path, sorted(found)) if path.is_file()}


def check(parameter: str, name: str) -> None:
    """Raises ValueError where a path means no file, or a list is not UTF-8.

    A model that is not there is refused later, by whoever needs it.
    """
    try:
        found = files(name)
    except models.ModelNotFound:
        return
    if not found:
        raise ValueError(f"{parameter}: no such file: {name}")
    for path in found.values():
        try:
            entries(path)
        except UnicodeDecodeError:
            raise ValueError(f"{parameter}: {path} is not UTF-8") from None


def by_language(name: str) -> bool:
    """Whether a parameter means lists by language."""
    try:
        return LANGUAGE in _place(name)
    except models.ModelNotFound:
        return False  # said by whoever needs the list


def count(name: str, view: TextView, docs: Documents) -> tuple[pa.Array, pa.Array]:
    """How often bad words occur in the texts of a view, and how many different ones (int64).

    Each text is held against the list of its document's language: of `zh-Hant` its own, else that
    of `zh`; null where there is none.
    """
    languages = np.full(len(docs), None, object)
    if "language" in docs:
        languages[:] = docs["language"].to_pylist()
    hits, distinct = np.zeros(len(docs), np.int64), np.zeros(len(docs), np.int64)
    scored = np.zeros(len(docs), bool)
    for language in set(languages.tolist()):
        if (found := of_language(name, language)) is not None:
            at = np.flatnonzero(languages == language)
            hits[at], distinct[at] = phrases.count(view, found, at)
            scored[at] = True
    return pa.array(hits, mask=~scored), pa.array(distinct, mask=~scored)


def of_language(name: str, language: str | None) -> Phrases | None:
    """The list of a language (BCP-47), without what is allowed; None where there is none."""
    place, tag = _place(name), language or ""
    base = tag.split("-")[0]
    paths = [place.replace(LANGUAGE, t) for t in (tag, base) if t or LANGUAGE not in place]
    path = next((path for path in paths if Path(path).is_file()), None)
    return None if path is None else _read(path, models.digest(path), base)


def entries(path: str | Path) -> list[str]:
    """The entries of a list, in lower case."""
    lines = map(str.strip, Path(path).read_text(encoding="utf-8").lower().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _place(name: str) -> str:
    """The path of a list, with `{language}` where there is one for each."""
    if LANGUAGE in name:
        return name
    place = Path(__file__).with_name("toxic_words") if name == BUILT_IN else models.find(name)
    return str(place / LANGUAGE) if place.is_dir() else str(place)


@lru_cache(maxsize=256)
def _read(path: str, digest: str, base: str) -> Phrases | None:
    words = set(entries(path)) - ALLOWED.get(base, set())
    return phrases.prepare(words, base not in SPACELESS) if words else None
