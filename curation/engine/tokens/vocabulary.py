"""The tokenizer of a run: the file, and what tasks and manifest need to know of it.

What may live here: adopting a tokenizer that is given, opening the one of a run.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from curation.engine.tokens.plan import TokensPlan
from curation.engine.tokens.recipe import SpecialModel, TokenizerModel
from curation.tokens.encoding.loaded import Loaded, Named, load
from manifests.files import AtomicFile
from manifests.records import Output
from manifests.tokens import Tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """An opened tokenizer. `fill` is the token that stands after the last piece of a row."""

    loaded: Loaded
    facts: Tokenizer

    @property
    def fill(self) -> int:
        return self.facts.eos if self.facts.pad is None else self.facts.pad

    @property
    def dtype(self) -> Literal["uint16", "uint32"]:
        return "uint16" if self.loaded.dtype.itemsize == 2 else "uint32"

    @property
    def itemsize(self) -> int:
        """Bytes of a token."""
        return int(self.loaded.dtype.itemsize)


def of(plan: TokensPlan) -> Vocabulary:
    """The tokenizer of a run whose training has ended. Opened once per process."""
    return _of(plan, plan.trained.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _of(plan: TokensPlan, version: int) -> Vocabulary:
    said = plan.recipe.settings.tokenizer
    if said.train is not None:
        special = said.train.special
        sentinels = [f"<|sentinel_{i}|>" for i in range(special.sentinels)]
        named = Named(
            eos=special.eos,
            bos=special.bos,
            pad=special.pad,
            mask=special.mask,
            sentinels=sentinels,
        )
    else:
        named = given(said, plan.trained)
    full = load(plan.trained, named)
    facts = Tokenizer(
        path=str(plan.trained.relative_to(plan.run)),
        sha256=full.sha256,
        bytes=full.bytes,
        size=full.size,
        eos=full.eos,
        bos=full.bos,
        pad=full.pad,
        mask=full.mask,
        sentinels=full.sentinels,
        special=full.special,
    )
    return Vocabulary(full if said.add_bos else replace(full, bos=None), facts)


def given(said: TokenizerModel, path: Path) -> Named:
    """The special tokens of a tokenizer that a recipe names: those that it names, and those which
    have the names that ours have."""
    told = json.loads(path.read_bytes()).get("added_tokens") or ()
    own = {token["content"] for token in told if token.get("special")}
    usual = SpecialModel()
    sentinels: list[str] = []
    while (name := f"<|sentinel_{len(sentinels)}|>") in own:
        sentinels.append(name)
    return Named(
        eos=said.eos,
        bos=said.bos,
        pad=said.pad or (usual.pad if usual.pad in own else None),
        mask=said.mask or (usual.mask if usual.mask in own else None),
        sentinels=sentinels,
    )


def adopt(plan: TokensPlan) -> Output:
    """Copies the tokenizer that the recipe names into the run."""
    path = Path(plan.tokenizer["path"])
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    with AtomicFile(plan.trained) as file:
        file.write(raw)
    return Output(str(plan.trained.relative_to(plan.run)), file.size, 1, file.digest)
