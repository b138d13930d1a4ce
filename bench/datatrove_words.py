"""The oracle of `curation.text.datatrove`: what spaCy and datatrove themselves say.

Runs in datatrove's own environment (datatrove 0.10, spaCy 3.8), never in the project's:

    python bench/datatrove_words.py table                  the character table
    python bench/datatrove_words.py cases                  spaCy's special cases: lists of pieces
    python bench/datatrove_words.py words TEXTS.jsonl      per text its words by datatrove
    python bench/datatrove_words.py sentences TEXTS.jsonl  per text the sentences of each line

all but the first as JSON lines. `python bench/datatrove_words.py check CASES WORDS TEXTS.jsonl`, in
the project's environment, holds the project's special cases and kernels against these files.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from itertools import groupby
from pathlib import Path


def table() -> None:
    """Runs of code points `first..last bits` in hexadecimal; see `curation.text.datatrove`."""
    from datatrove.utils.text import PUNCTUATION_SET, TERMINAL_PUNCTUATION
    from spacy.lang import char_classes as classes
    from spacy.lang import punctuation
    from spacy.pipeline import Sentencizer

    def members(pattern: str) -> set[int]:
        compiled = re.compile(pattern)
        return {c for c in range(0x110000) if compiled.fullmatch(chr(c))}

    ascii_infixes = set(map(ord, "+-*^,:<>=/~\u2013\u2014."))
    sets = [
        {c for c in range(0x110000) if chr(c).isspace()},
        members("|".join(p for p in punctuation.TOKENIZER_PREFIXES if not p.startswith(r"\+"))),
        members("|".join(p for p in punctuation.TOKENIZER_SUFFIXES if "(?<" not in p)),
        members("|".join([*classes.LIST_ICONS, "\u2026"])),
        members(f"[{classes.ALPHA}]"),
        members(f"[{classes.ALPHA_LOWER}]"),
        members(f"[{classes.ALPHA_UPPER}]"),
        members(f"[{classes.CONCAT_QUOTES}]"),
        members(rf"[0-9{classes.ALPHA_LOWER}%²\-\+{classes.PUNCT}(?:{classes.CONCAT_QUOTES})]"),
        ascii_infixes,
        {ord(c) for c in PUNCTUATION_SET},
        {ord(c) for c in TERMINAL_PUNCTUATION},
        {c for c in range(0x110000) if unicodedata.category(chr(c)).startswith("P")},
        {ord(c) for c in Sentencizer().punct_chars},
        {c for c in range(0x110000) if chr(c).isalpha()},
        members("[A-Za-z0-9\u00a1-\uffff]"),
        members("[0-9]"),
        members(r"\w"),
    ]
    bits = [sum(1 << i for i, some in enumerate(sets) if c in some) for c in range(0x110000)]
    for kind, run in groupby(range(0x110000), key=bits.__getitem__):
        codes = list(run)
        if kind:
            print(f"{codes[0]:X}..{codes[-1]:X} {kind:X}")


def cases() -> None:
    import spacy

    rules = spacy.blank("en").tokenizer.rules
    for text in sorted(rules):
        if not text.isspace():
            print(json.dumps([piece[65] for piece in rules[text]]))  # 65: ORTH


def texts(path: str) -> list[str]:
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def words(path: str) -> None:
    from datatrove.utils.text import split_into_words

    for text in texts(path):
        print(json.dumps(split_into_words(text)))


def sentences(path: str) -> None:
    from datatrove.utils.text import split_into_sentences

    for text in texts(path):
        lines = [line.strip() for line in text.splitlines()]
        print(json.dumps([len(split_into_sentences(line)) for line in lines if line]))


def check(cases_path: str, words_path: str, texts_path: str) -> None:
    import pyarrow as pa

    from curation.text.datatrove import special_cases
    from curation.text.view import TextView

    theirs = {tuple(json.loads(line)) for line in Path(cases_path).read_text().splitlines()}
    ours = set(special_cases().values())
    print(f"special cases: {len(theirs)}; missing {theirs - ours}, too many {ours - theirs}")
    documents = texts(texts_path)
    equal = total = agreed = 0
    with open(words_path, encoding="utf-8") as lines:
        for text, line in zip(documents, lines, strict=False):
            wanted = json.loads(line)
            view = TextView(pa.array([text], pa.large_string()))
            found = view.words_of("datatrove")
            data = bytes(view.data)
            mine = [data[a:b].decode() for a, b in zip(found.starts, found.stops, strict=True)]
            equal += mine == wanted
            total += 1
            agreed += len(mine) == len(wanted)
            if mine != wanted:
                at = next(
                    (i for i, (a, b) in enumerate(zip(mine, wanted, strict=False)) if a != b),
                    min(len(mine), len(wanted)),
                )
                print("theirs", wanted[at - 1 : at + 4], "ours", mine[at - 1 : at + 4])
    print(f"documents {total}, words equal {equal}, as many words {agreed}")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
