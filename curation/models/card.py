"""The card of a model: what belongs to it, and how text is prepared for it.

What may live here: reading and writing `card.json`, and which documents a model may judge by what
its card says. A model that needs more than one file (weights, a tokenizer) or a rule of its own (a
normaliser, a threshold) is a directory with a card; without one it is refused, since weights on
text prepared otherwise give numbers that mean nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from manifests.files import sha256

NAME = "card.json"
SCHEMA = 1


class CardError(ValueError):
    """A model's directory is not one; the message is one line."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a model's directory says of itself.

    `kind`: what reads it (`kenlm`, `classifier`). `files`: name -> SHA-256 in hex. `settings`: what
    its kind needs to know (tokenizer, normaliser, labels, thresholds). `demonstration`: trained on
    too little to judge real pages: it may drop only those of the sample crawl.
    """

    kind: str
    files: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    language: str | None = None  # BCP-47
    license: str = ""
    source: str = ""  # where it came from or what it was trained on, for a person
    demonstration: bool = False


def read(directory: Path, kind: str | None = None) -> Card:
    """The card of a model's directory. Raises CardError where there is none, or of another kind."""
    path = directory / NAME
    if not path.is_file():
        raise CardError(f"{directory}: no model lies here (no {NAME})")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise CardError(f"{path}: damaged") from None
    known = {item.name for item in fields(Card)}
    if not isinstance(found, dict) or found.pop("schema", None) != SCHEMA or not known >= {*found}:
        raise CardError(f"{path}: not a card of schema {SCHEMA}")
    try:
        card = Card(**found)
    except TypeError:
        raise CardError(f"{path}: kind and files are wanted") from None
    if wrong := [name for name, good in _well_formed(card).items() if not good]:
        raise CardError(f"{path}: damaged: {', '.join(wrong)}")
    if kind is not None and card.kind != kind:
        raise CardError(f"{directory}: a model of kind {card.kind!r}, not {kind!r}")
    return card


def _well_formed(card: Card) -> dict[str, bool]:
    names = [*card.files] if isinstance(card.files, dict) else [""]
    return {
        "files": all(name and "\0" not in name for name in names),
        "settings": isinstance(card.settings, dict),
        "language": card.language is None or isinstance(card.language, str),
        "demonstration": isinstance(card.demonstration, bool),
    }


def check_target(target: Path) -> None:
    """Raises CardError where something lies that is no model: it is never replaced by one."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise CardError(f"{target}: something else lies here, not a model to be replaced")
    if target.is_dir() and any(target.iterdir()) and not (target / NAME).is_file():
        raise CardError(f"{target}: the directory is not empty, and no model to be replaced")


@contextmanager
def new(target: Path, **said: Any) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Makes a model: an empty directory to fill, and settings to fill.

    `said`: fields of the card. When the block ends, the card is written with the digests of all
    files there, and the directory takes the place of `target`: whole, or not at all. Raises
    CardError where something other than a model lies at `target`.
    """
    target = Path(os.path.abspath(target))
    check_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        settings: dict[str, Any] = {}
        yield place, settings
        files = {
            str(file.relative_to(place)): sha256(file)
            for file in sorted(place.rglob("*"))
            if file.is_file()
        }
        card = Card(files=files, settings=settings, **said)
        text = json.dumps({"schema": SCHEMA, **asdict(card)}, indent=1, sort_keys=True)
        (place / NAME).write_text(text + "\n", encoding="utf-8")
        place.chmod(0o755)
        if target.exists():
            old = place.with_name(place.name + ".old")
            target.rename(old)
            place.rename(target)
            shutil.rmtree(old)
        else:
            place.rename(target)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def may_judge(card: Card, urls: pa.Array) -> np.ndarray:
    """Which documents a model may drop, by their URLs: bool, one per document.

    All of them; of a demonstration, those on the invented sites of the sample crawl, whose names
    nobody can register. A document without a URL, or with one that has no such host, is none.
    """
    if not card.demonstration:
        return np.ones(len(urls), bool)
    sites = _sample_hosts()
    return np.array([_host(url) in sites for url in urls.to_pylist()], bool)


@cache
def _sample_hosts() -> frozenset[str]:
    from curation.sample.sites import SITES  # which reads all its pages

    return frozenset(site.host for site in SITES)


def _host(url: str | None) -> str:
    try:
        host = urlsplit(url or "").hostname or ""
    except ValueError:  # brackets that hold no address
        return ""
    return host.removesuffix(".").removeprefix("www.")
