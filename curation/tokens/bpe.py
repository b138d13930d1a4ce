"""Training a byte-level BPE tokenizer: which texts, which words of them, and the tokenizer.

What may live here: the draw of the sample, the options, and the call of the trainer of the library
`tokenizers`. It gives the same file for the same sample in any order, on any number of threads.

Memory: the library's trainer takes 100 to 135 bytes for each byte of distinct words (measured:
docs), so a sample with many unique long words would take a hundred times its size. Words are
therefore counted here first, on disk where there are many, and the trainer is given as many of
them, the most frequent ones, as the memory that is allowed has room for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as Decoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

from curation.tokens import presets
from curation.tokens.words import Words
from manifests.hashing import below, keys, salt

#: Bytes of memory that the trainer takes for each byte of distinct words, at most.
PER_BYTE = 140
#: Characters of one string that the trainer is fed.
FEED = 1 << 16
#: Ends each word that the trainer is fed; a word that has it already would be cut, so NUL, which
#: no text that is worth learning from has.
END = "\0"


class TrainingError(ValueError):
    """A tokenizer cannot be trained as it is asked for: one line."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What is trained. Special tokens have the first ids, in this order: eos, bos, pad, mask, then
    `<|sentinel_0|>` and so on; None: there is no such token. The 256 bytes come next.

    `vocab_size`: entries in all, special tokens included; fewer where the sample is too small.
    `nfc`: texts are brought to Unicode's NFC before encoding, which then is not lossless.
    `min_frequency`: how often a pair must occur to be merged. `memory`: bytes that training may
    take, beside 0.5 GB for counting.
    """

    vocab_size: int = 32_000
    pretokenizer: str = "gpt2"
    eos: str = "<|endoftext|>"
    bos: str | None = None
    pad: str | None = "<|pad|>"
    mask: str | None = None
    sentinels: int = 0
    min_frequency: int = 2
    nfc: bool = False
    memory: int = 4 << 30

    def __post_init__(self) -> None:
        if self.pretokenizer not in presets.PATTERNS:
            known = ", ".join(presets.PATTERNS)
            raise TrainingError(f"no pretokenizer is called {self.pretokenizer!r}: {known}")
        special = self.special()
        if len(set(special)) < len(special) or "" in special:
            raise TrainingError(f"special tokens must differ and not be empty: {special}")
        if self.vocab_size < 256 + len(special):
            raise TrainingError(
                f"vocab_size {self.vocab_size}: 256 bytes and {len(special)} special tokens "
                f"are {256 + len(special)} already"
            )
        if self.sentinels < 0 or self.min_frequency < 1 or self.memory < PER_BYTE:
            raise TrainingError("sentinels from 0, min_frequency from 1 and some memory are wanted")

    def special(self) -> list[str]:
        """The special tokens in the order of their ids."""
        named = [self.eos, self.bos, self.pad, self.mask]
        return [token for token in named if token is not None] + [
            f"<|sentinel_{i}|>" for i in range(self.sentinels)
        ]


def train(texts: Iterable[str], options: TrainOptions, scratch: Path | None = None) -> Tokenizer:
    """A tokenizer trained on texts; `to_str()` of it is `tokenizer.json`.

    The texts are read once. `scratch`: where the directory of counts is made, and removed (the
    system's place for temporary files). The special tokens of the texts are ordinary text.
    """
    find = presets.words(options.pretokenizer).findall
    if options.nfc:
        texts = map(NFC().normalize_str, texts)
    with tempfile.TemporaryDirectory(prefix=".words-", dir=scratch) as folder:
        words = Words(Path(folder))
        for text in texts:
            words.add(find(text))
        tokenizer = Tokenizer(BPE())
        tokenizer.pre_tokenizer = Sequence(
            [Split(END, "removed"), ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        trainer = BpeTrainer(
            vocab_size=options.vocab_size,
            min_frequency=options.min_frequency,
            special_tokens=options.special(),
            initial_alphabet=ByteLevel.alphabet(),
            show_progress=False,
        )
        chosen = words.chosen(options.memory // PER_BYTE)
        tokenizer.train_from_iterator(_fed(chosen), trainer)
    tokenizer.pre_tokenizer = presets.pre_tokenizer(options.pretokenizer)
    tokenizer.decoder = Decoder()
    if options.nfc:
        tokenizer.normalizer = NFC()
    return tokenizer


def _fed(words: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Each word as often as it was counted, for the trainer takes no counts: strings of FEED."""
    parts: list[str] = []
    size = 0
    for word, times in words:
        ended = word + END
        while times:
            now = min(times, FEED // len(ended))
            parts.append(ended * now)
            size += len(parts[-1])
            times -= now
            if size >= FEED:
                yield "".join(parts)
                parts, size = [], 0
    yield "".join(parts)


# ---------------------------------------------------------------- the sample


def drawn(ids: np.ndarray, seed: int, share: float) -> np.ndarray:
    """Which documents (`ids`: (n, 2) uint64) are of the sample: a mask. A larger share has all that
    a smaller one has."""
    mask: np.ndarray = keys(salt(seed, "tokenizer"), ids) < below(share)
    return mask


def shares_of(
    sample: int, weights: Mapping[str, float], available: Mapping[str, int]
) -> dict[str, float]:
    """The share of each source's bytes that is drawn, so that the sample is mixed by weight.

    `sample`: bytes wanted in all; `available`: bytes of train documents of each source. A source
    that has less than its part is taken whole, and what it lacks is spread over the others by
    their weights; where all have less, all is taken.
    """
    left = float(sample)
    open_ = [name for name in sorted(weights) if weights[name] > 0 and available[name]]
    shares = dict.fromkeys(weights, 0.0) | dict.fromkeys(open_, 1.0)
    while open_:
        total = sum(weights[name] for name in open_)
        part = {name: left * weights[name] / total / available[name] for name in open_}
        whole = [name for name in open_ if part[name] >= 1]
        if not whole:
            return shares | part
        left -= sum(available[name] for name in whole)
        open_ = [name for name in open_ if name not in whole]
    return shares
