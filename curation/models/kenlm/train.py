"""Training a language model: from texts to a directory with a card.

What may live here: what `curation models train-kenlm` does. The steps are CCNet's (Wenzek et al.,
arXiv 1911.00359, 3.3; facebookresearch/cc_net, Makefile): normalise, SentencePiece, KenLM; then
the percentiles of perplexity, on documents that were held out. Each step reads a file of lines that
the one before has written, so that memory does not grow with the text.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np

from curation.models import card
from curation.models.kenlm import KIND, LanguageModel, arpa, binary
from curation.models.kenlm.estimate import (
    FALLBACK,
    MAX_ORDER,
    MAX_WORDS,
    TOO_MANY,
    Corpus,
    Estimate,
    EstimationError,
)
from curation.models.kenlm.normalise import NORMALISERS

#: Lines that SentencePiece learns from: CCNet gives it a million openings of Wikipedia.
SAMPLE = 1_000_000

#: Of SentencePiece's training; another number sums in another order and gives other bytes.
THREADS = 4
FEW = 100  # held-out documents below which their percentiles are called rough: as many as there are

_LONGEST = 1 << 20  # bytes of a line that SentencePiece learns from; it passes over longer ones
_BATCH = 1024  # lines that are encoded at a time

TOKENIZERS = ("sentencepiece", "words")

Say = Callable[[str], None]


class TrainingError(ValueError):
    """A model that cannot be trained; the message is one line."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a model is trained.

    `vocabulary`: pieces; CCNet tries 65,536, then 40,000, here the text decides how many fewer.
    `coverage`: the share of characters that get pieces. `tokenizer`: or the path of a SentencePiece
    model. `fallback`: use lmplz's fallback discounts where the text gives none (CCNet does).
    `held_out`: share of documents. `documents`, `words`: read no more of them to train on.
    `form`: of the weights; KenLM's binary is loaded at once, ARPA is smaller and text.
    """

    order: int = 5
    vocabulary: int = 65_536
    coverage: float = 0.9995
    tokenizer: str = "sentencepiece"  # or "words"
    normaliser: str = "ccnet-lines"
    estimator: Literal["auto", "lmplz", "own"] = "auto"
    fallback: bool = False
    held_out: float = 0.05
    documents: int | None = None
    words: int | None = None
    seed: int = 20
    form: Literal["binary", "arpa"] = "binary"


def train(
    texts: Iterable[str], target: Path, options: Options, say: Say, **said: Any
) -> dict[str, Any]:
    """Trains a model and puts it at `target`; returns what was done.

    `said`: fields of the card. Raises TrainingError and EstimationError; then nothing is at
    `target` that was not there before.
    """
    lmplz = _lmplz(options.estimator)
    _check(options)
    with tempfile.TemporaryDirectory(prefix="gristmill-kenlm-") as folder:
        scratch = Path(folder)
        lines, pieces, held_out = (scratch / name for name in ("lines", "pieces", "held_out"))
        counts = _divide(texts, lines, held_out, options, say)
        if not lmplz and counts["words"] > MAX_WORDS:
            raise EstimationError(TOO_MANY)
        made = scratch / "model"
        with card.new(made, kind=KIND, **said) as (place, settings):
            encode, settings["tokenizer"] = _tokenizer(lines, counts["lines"], place, options, say)
            counts["pieces"] = _write(pieces, map(" ".join, encode(_read(lines))))
            say(f"estimating order {options.order} on {counts['pieces']:,} pieces")
            settings["model"] = "model.binary" if options.form == "binary" else "model.arpa.gz"
            weights = place / settings["model"]
            sizes = (_by_lmplz if lmplz else _here)(pieces, weights, scratch, options)
            settings.update(order=options.order, normaliser=options.normaliser)
            settings["trained"] = {
                "estimator": "lmplz" if lmplz else "own",
                **{name: counts[name] for name in ("documents", "words", "pieces")},
            }
        say(f"perplexity of {counts['held_out']:,} documents held out")
        perplexities = _perplexities(made, held_out)
        percentiles = np.percentile(perplexities, range(100)).round(1).tolist()
        with card.new(target, kind=KIND, **said) as (place, final):
            final.update(settings, percentiles=percentiles)
            for name in card.read(made).files:
                shutil.move(made / name, place / name)
            size = sum(file.stat().st_size for file in place.iterdir())
    return {
        **counts,
        "estimator": settings["trained"]["estimator"],
        "ngrams": sizes,
        "percentiles": percentiles,
        "bytes": size,
    }


def _check(options: Options) -> None:
    """Says at once what would be found out late."""
    if not 2 <= options.order <= MAX_ORDER:
        raise TrainingError(f"order {options.order}: 2 to {MAX_ORDER} is wanted")
    if options.tokenizer not in TOKENIZERS and not Path(options.tokenizer).is_file():
        known = ", ".join(TOKENIZERS)
        raise TrainingError(f"tokenizer {options.tokenizer}: no file, and none of {known}")


def render(report: Mapping[str, Any]) -> str:
    """What was done, as a table."""
    rows = [
        ("documents", f"{report['documents']:,}"),
        ("words", f"{report['words']:,}"),
        ("pieces", f"{report['pieces']:,}"),
        ("held out", f"{report['held_out']:,} documents"),
        ("estimator", report["estimator"]),
        ("n-grams", " ".join(f"{size:,}" for size in report["ngrams"])),
        ("head below", f"{report['percentiles'][30]:,} (30th percentile of perplexity)"),
        ("middle below", f"{report['percentiles'][60]:,} (60th)"),
        ("size", f"{report['bytes'] / 1e6:,.1f} MB"),
    ]
    if report["held_out"] < FEW:
        rows.append(("", f"percentiles of so few documents are rough: {FEW} or more are wanted"))
    return "\n".join(f"{name:<14}{value}" for name, value in rows)


def _divide(
    texts: Iterable[str], lines: Path, held_out: Path, options: Options, say: Say
) -> Counter[str]:
    """Writes the normalised lines to train on, and the documents held out, as JSON strings.

    Which are held out says the hash of their text, so that no twin of one is trained on.
    """
    normalise = NORMALISERS[options.normaliser]
    limit = round(options.held_out * 2**64)
    counts: Counter[str] = Counter(documents=0, held_out=0, words=0)
    with lines.open("w", encoding="utf-8") as train, held_out.open("w") as rest:
        for text in texts:
            if _hash(text, options.seed) < limit:
                counts["held_out"] += 1
                rest.write(json.dumps(text) + "\n")
                continue
            for line in normalise(text):
                counts["words"] += len(line.split())
                counts["lines"] += 1
                train.write(line + "\n")
            counts["documents"] += 1
            if counts["documents"] % 10_000 == 0:
                say(f"read {counts['documents']:,} documents, {counts['words']:,} words")
            if counts["documents"] == options.documents:
                break
            if options.words and counts["words"] >= options.words:
                break
    if not counts["words"]:
        raise TrainingError("no words to train on")
    return counts


def _hash(text: str, seed: int) -> int:
    hashed = blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(8, "big"))
    return int.from_bytes(hashed.digest(), "big")


Encode = Callable[[Iterable[str]], Iterator[list[str]]]


def _tokenizer(
    lines: Path, count: int, place: Path, options: Options, say: Say
) -> tuple[Encode, dict[str, str]]:
    """The tokenizer, its file copied to or made at `place`, and what the card says of it."""
    if options.tokenizer == "words":
        return (lambda texts: map(str.split, texts)), {"kind": "words"}
    from sentencepiece import SentencePieceProcessor

    file = place / "tokenizer.model"
    if options.tokenizer == "sentencepiece":
        say(f"learning {options.vocabulary:,} pieces from {min(count, SAMPLE):,} lines")
        file.write_bytes(_sentencepiece(lines, count, options))
    try:
        if not file.exists():
            shutil.copyfile(options.tokenizer, file)
        model = SentencePieceProcessor(model_file=str(file))
    except (OSError, RuntimeError):
        raise TrainingError(f"{options.tokenizer}: no SentencePiece model") from None

    def encode(texts: Iterable[str]) -> Iterator[list[str]]:
        rest = iter(texts)
        while batch := list(islice(rest, _BATCH)):
            yield from model.encode(batch, out_type=str, num_threads=-1)

    return encode, {"kind": "sentencepiece", "file": file.name}


def _sentencepiece(lines: Path, count: int, options: Options) -> bytes:
    """A unigram model of about `SAMPLE` lines, chosen by their hash."""
    from sentencepiece import SentencePieceTrainer

    limit = round(min(1, SAMPLE / count) * 2**64)
    sample = (line for line in _read(lines) if line and _hash(line, options.seed) < limit)
    made = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=sample,
            model_writer=made,
            model_type="unigram",
            vocab_size=options.vocabulary,
            hard_vocab_limit=False,
            character_coverage=options.coverage,
            max_sentence_length=_LONGEST,
            num_threads=THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        problem = " ".join(str(error).split()).rpartition("] ")[2]  # after file and condition
        raise TrainingError(f"SentencePiece: {problem[:200]}") from None
    return made.getvalue()


def _here(pieces: Path, weights: Path, scratch: Path, options: Options) -> list[int]:
    """Estimates in this process; returns how many n-grams of each order there are."""
    found = Estimate(
        Corpus.of(_read(pieces)), options.order, FALLBACK if options.fallback else None
    )
    with weights.open("wb") as file:
        if options.form == "binary":
            binary.write(found, file)
        else:
            with _packed(file) as packed:
                arpa.write(found, packed)
    return found.sizes


def _by_lmplz(pieces: Path, weights: Path, scratch: Path, options: Options) -> list[int]:
    """As `_here`, by KenLM's own programs."""
    text = scratch / "lm.arpa"
    command: list[Any] = [_tool("lmplz"), "-o", options.order, "--skip_symbols"]
    command += ["-S", f"{_memory(pieces)}b", "-T", f"{scratch}/", "--text", pieces, "--arpa", text]
    _call([*command, "--discount_fallback"] if options.fallback else command)
    if options.form == "binary":
        _call([_tool("build_binary"), "probing", text, weights])
    else:
        with text.open("rb") as file, weights.open("wb") as raw, _packed(raw) as packed:
            shutil.copyfileobj(file, packed, 1 << 20)
    with text.open(encoding="utf-8") as file:
        head = list(islice(file, options.order + 1))
    return [int(line.partition("=")[2]) for line in head[1:]]


def _memory(pieces: Path) -> int:
    """Bytes that lmplz may take: it fills all that it is given, however small the text, and works
    on disk where it is given less than it could use."""
    return min(max(1 << 28, 32 * pieces.stat().st_size), 1 << 31)


def _packed(file: BinaryIO) -> BinaryIO:
    """Gzip, without name and time: the same text gives the same bytes."""
    return cast(BinaryIO, gzip.GzipFile("", "wb", 6, file, 0))


def _lmplz(wanted: str) -> bool:
    """Whether KenLM's programs do the work. Raises TrainingError where they are wanted, missing."""
    here = all(_tool(name) for name in ("lmplz", "build_binary"))
    if wanted == "lmplz" and not here:
        raise TrainingError("lmplz and build_binary are not on the PATH: make lmplz builds them")
    return here and wanted != "own"


def _tool(name: str) -> str | None:
    """A program on the PATH, or beside the interpreter, where `make lmplz` puts it."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def _call(command: list[Any]) -> None:
    done = subprocess.run([*map(str, command)], stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        problem = " ".join(line for line in said if "rror" in line or "iscount" in line)[-300:]
        name = Path(command[0]).name
        hint = "; --discount-fallback makes some up" if "discount_fallback" in "".join(said) else ""
        raise TrainingError(f"{name} ended with {done.returncode}: {problem or said[-1:]}{hint}")


def _perplexities(model: Path, held_out: Path) -> list[float]:
    loaded = LanguageModel(model)
    with held_out.open() as lines:
        scores = loaded.score(map(json.loads, lines))
        found = [score.perplexity for score in scores if score.perplexity is not None]
    if not found:
        raise TrainingError(
            "no words in the documents held out: more text is wanted, or --held-out"
        )
    return found


def _read(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line[:-1]


def _write(path: Path, lines: Iterable[str]) -> int:
    """Writes the lines; returns the number of pieces."""
    pieces = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            pieces += line.count(" ") + 1 if line else 0
            file.write(line + "\n")
    return pieces
