"""A tokenizer.json made ready: what it must be able to do is proved before any work.

What may live here: reading it, finding the special tokens, the checks. Two rules hold for every
tokenizer: a special token comes into a document only from us (its name inside a text is ordinary
text), and nothing that a tokenizer.json says of truncation, padding, dropout or templates is
followed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from curation.tokens import presets

#: Names of the token that ends a document, in the order in which they are looked for.
EOS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<|end|>")
#: Texts that a lossless tokenizer gives back as they are.
PROBES = (
    "Plain words, 12345 and don't  do   more.",
    "\ttabs\r\nlines\n\n\n  and blanks \n",
    " leading and trailing  ",
    "\x00\x01\x7f\x85\xa0\u200b\u2028\ufeff",
    "e\u0301 \u00e9 \u1e9b\u0323 \ufb01 \u212b",  # NFC and NFKC change these
    "日本語のテキスト。ไทย עברית العربية हिन्दी 한국어",
    "\U0001f469\u200d\U0001f52c \U00010348 \U0010ffff",
)


class TokenizerError(ValueError):
    """A tokenizer cannot be used as it is asked for: one line that names the file and the way."""


@dataclass(frozen=True, kw_only=True)
class Named:
    """Special tokens by name; eos is looked for among `EOS` where it is not named."""

    eos: str | None = None
    bos: str | None = None
    pad: str | None = None
    mask: str | None = None
    sentinels: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A tokenizer in use. Ids are of the vocabulary of the file; `size` is the highest of them + 1,
    so what an embedding needs.

    `encoder` knows no special tokens, `decoder` is the file as it is. `separable`: long texts may
    be cut (see `batches.cut`). `warnings`: what is not as one would wish, a line each.
    """

    encoder: Tokenizer
    decoder: Tokenizer
    sha256: str  # of the file as it lies there
    bytes: int
    size: int
    eos: int
    bos: int | None
    pad: int | None
    mask: int | None
    sentinels: tuple[int, ...]
    special: Mapping[str, int]  # all that the file marks so, and those named
    separable: bool
    warnings: tuple[str, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint16 where every id fits, else uint32."""
        return np.dtype(np.uint16 if self.size <= 1 << 16 else np.uint32)

    def decode(self, ids: np.ndarray) -> str:
        """The text of ids, special tokens included."""
        text: str = self.decoder.decode(np.asarray(ids).tolist(), skip_special_tokens=False)
        return text


def load(path: str | Path, named: Named | None = None) -> Loaded:
    """Reads a tokenizer.json, a .gz of one, or the one in a directory. Raises TokenizerError.

    Each special token must be exactly one id, and its name inside a text must not become it.
    """
    path, named = Path(path), named or Named()
    if path.is_dir():
        path = path / "tokenizer.json"
    raw, told = _read(path)
    decoder = _built(told, path)
    ids = {"eos": _eos(decoder, named.eos, path)} | {
        what: _id(decoder, what, getattr(named, what), path) for what in ("bos", "pad", "mask")
        if getattr(named, what) is not None
    }  # fmt: skip
    sentinels = tuple(_id(decoder, "sentinels", token, path) for token in named.sentinels)
    added = told.get("added_tokens") or ()
    marked = (str(t["content"]) for t in added if t.get("special"))
    known = {token: decoder.token_to_id(token) for token in marked}
    special = {token: i for token, i in known.items() if i is not None} | {
        str(decoder.id_to_token(i)): i for i in (*ids.values(), *sentinels)
    }
    encoder = _plain(told, special, path)
    _check_literals(encoder, special, path)
    return Loaded(
        encoder=encoder,
        decoder=decoder,
        sha256=hashlib.sha256(raw).hexdigest(),
        bytes=len(raw),
        size=max(decoder.get_vocab().values()) + 1,
        eos=ids["eos"],
        bos=ids.get("bos"),
        pad=ids.get("pad"),
        mask=ids.get("mask"),
        sentinels=sentinels,
        special=dict(sorted(special.items(), key=lambda item: item[1])),
        separable=_separable(told, special),
        warnings=_warnings(encoder, decoder, path),
    )


def _read(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The file, and what it says."""
    try:
        raw = path.read_bytes()
        told = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except FileNotFoundError:
        raise TokenizerError(f"{path}: no such file; a tokenizer.json is wanted") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise TokenizerError(f"{path}: no tokenizer.json: {error}") from None
    if not isinstance(told, dict) or not isinstance(told.get("model"), dict):
        raise TokenizerError(f"{path}: no tokenizer.json: it has no model")
    return raw, told


def _built(told: Mapping[str, Any], path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_str(json.dumps(told))
    except Exception as error:  # the library raises no narrower one
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TokenizerError(f"{path}: tokenizers cannot read it: {reason}") from None


# ---------------------------------------------------------------- special tokens


def _eos(decoder: Tokenizer, name: str | None, path: Path) -> int:
    if name is not None:
        return _id(decoder, "eos", name, path)
    for known in EOS:
        if decoder.token_to_id(known) is not None:
            return _id(decoder, "eos", known, path)
    raise TokenizerError(f"{path}: no token ends a document ({', '.join(EOS)}): name one as eos")


def _id(decoder: Tokenizer, what: str, name: str, path: Path) -> int:
    """The one id of a special token."""
    known = decoder.token_to_id(name)
    if known is None:
        ids = decoder.encode(name, add_special_tokens=False).ids
        raise TokenizerError(
            f"{path}: {what} {name!r} is no token but a text of {len(ids)} ids: "
            f"name one of the vocabulary"
        )
    return int(known)


def _plain(told: Mapping[str, Any], special: Mapping[str, int], path: Path) -> Tokenizer:
    """The same tokenizer, which knows no special tokens in a text and neither adds nor cuts
    anything. Other added tokens (runs of blanks, say) stay: texts are meant to have them."""
    added = [{**t, "special": t["content"] in special} for t in told.get("added_tokens") or ()]
    model = {**told["model"], **({"dropout": None} if "dropout" in told["model"] else {})}
    emptied = {"post_processor": None, "truncation": None, "padding": None}
    encoder = _built({**told, **emptied, "model": model, "added_tokens": added}, path)
    encoder.encode_special_tokens = True
    return encoder


def _check_literals(encoder: Tokenizer, special: Mapping[str, int], path: Path) -> None:
    for token, i in special.items():
        if i in encoder.encode(token, add_special_tokens=False).ids:
            raise TokenizerError(
                f"{path}: the text {token!r} inside a document would become the special token {i}: "
                f"name another one"
            )


# ---------------------------------------------------------------- what else is known


def _separable(told: Mapping[str, Any], special: Mapping[str, int]) -> bool:
    """Whether a long text may be cut after a letter: words are cut as by one of the presets, and no
    added token goes over such a place."""
    known = []
    for name in presets.PATTERNS:
        whole = Tokenizer.from_str('{"model": {"type": "BPE", "vocab": {}, "merges": []}}')
        whole.pre_tokenizer = presets.pre_tokenizer(name)
        known.append(json.loads(whole.to_str())["pre_tokenizer"])
    added = [t for t in told.get("added_tokens") or () if t["content"] not in special]
    return (
        told.get("pre_tokenizer") in known
        and (told.get("normalizer") or {"type": "NFC"}) == {"type": "NFC"}
        and not any(_spreads(t) for t in added)
    )


def _spreads(token: Mapping[str, Any]) -> bool:
    """Whether an added token goes over a place of cutting, or looks at what stands beside it."""
    looks = any(token.get(flag) for flag in ("lstrip", "rstrip", "single_word"))
    return looks or presets.PLACE.search(token["content"]) is not None


def _warnings(encoder: Tokenizer, decoder: Tokenizer, path: Path) -> tuple[str, ...]:
    changed = []
    for text in PROBES:
        ids = encoder.encode(text, add_special_tokens=False).ids
        if decoder.decode(ids, skip_special_tokens=False) != text:
            changed.append(text)
    if not changed:
        return ()
    return (f"{path}: not lossless: {changed[0]!r} comes back as another text",)
