"""How text is cut before byte-pair encoding: the presets that a tokenizer is trained with.

What may live here: patterns, and what is made of them for the library `tokenizers` and for
`regex`. The patterns are those of the tokenizers that they are named after, as everybody who
re-implements these writes them: GPT-2 (Radford et al. 2019), Llama 3 (that of GPT-4's cl100k, with
at most three digits), Qwen 2 (the same with one digit).
"""

from __future__ import annotations

import re

import regex  # type: ignore[import-untyped]
from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

#: Name -> pattern, of which each match is a word.
PATTERNS = {
    "gpt2": _GPT2,
    "llama3": _LLAMA3,
    "qwen2": _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),
}

#: A place between two words whatever stands around it: a letter, and then what no preset joins to
#: one. Letters that every version of Unicode knows, and no composition (NFC) goes over it.
PLACE = re.compile(
    "[A-Za-zÀ-ÖØ-öø-ÿ\u0391-\u03a1\u03a3-\u03c9\u0410-\u044f\u05d0-\u05ea\u0621-\u063a\u0641-\u064a"
    "\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3](?=[ \n.,\u3001\u3002])"
)


def pre_tokenizer(name: str) -> PreTokenizer:
    """The preset, for `tokenizers`: words, then the bytes of each as letters of an alphabet of 256.

    GPT-2's is written as everybody writes it: its pattern is that of `ByteLevel` itself.
    """
    if name == "gpt2":
        return ByteLevel(add_prefix_space=False)
    split = Split(Regex(PATTERNS[name]), "isolated")
    return Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])


def words(name: str) -> regex.Pattern[str]:
    """The preset, for counting words: the same pattern. Which letters are known differs with the
    version of Unicode, so this is for training alone."""
    return regex.compile(PATTERNS[name])
