"""Estimating a 5-gram model: our own estimator beside lmplz, on the same words.

    python bench/judges_estimator.py TEXTS.jsonl [--words N ...] [--order N]

TEXTS has a text under `text` in each line; lines of it, lower-cased, are sentences, white space
divides words. Both write ARPA; lmplz (make lmplz) may use 2 GB. Seconds are of the whole process,
`difference` is the largest between the log10 probabilities and backoffs of all n-grams.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

OURS = """
import sys
from curation.models.kenlm import arpa
from curation.models.kenlm.estimate import Corpus, Estimate
with open(sys.argv[1], encoding="utf-8", newline="\\n") as lines, open(sys.argv[2], "wb") as file:
    arpa.write(Estimate(Corpus.of(lines), int(sys.argv[3])), file)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--words", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--order", type=int, default=5)
    options = parser.parse_args()
    lmplz = shutil.which("lmplz") or shutil.which("lmplz", path=str(Path(sys.executable).parent))
    print(f"{'words':>12}{'n-grams':>13}{'':3}{'own':>16}{'lmplz':>18}{'difference':>13}")
    for words in options.words:
        with tempfile.TemporaryDirectory() as folder:
            text, ours, theirs = (Path(folder) / name for name in ("text", "ours", "theirs"))
            count = write(options.texts, words, text)
            order = str(options.order)
            own = timed([sys.executable, "-c", OURS, str(text), str(ours), order])
            row, difference = "not here", ""
            if lmplz:
                command = [lmplz, "-o", order, "--skip_symbols", "-S", "2G", "-T", folder + "/"]
                other = timed([*command, "--text", str(text), "--arpa", str(theirs)])
                row, difference = shown(other), f"{compared(ours, theirs):.1e}"
            print(f"{count:12,}{sizes(ours):13,}   {shown(own):>16}{row:>18}{difference:>13}")


def write(texts: Path, words: int, target: Path) -> int:
    """Writes about so many words, the texts over again where there are fewer, with marks on every
    third word then: what is only repeated has no discounts."""
    count = 0
    with target.open("w", encoding="utf-8") as file:
        for line in endless(texts):
            found = line.lower().split()
            count += len(found)
            file.write(" ".join(found) + "\n")
            if count >= words:
                break
    return count


def endless(texts: Path) -> Iterator[str]:
    turn = 0
    while True:
        with texts.open(encoding="utf-8") as lines:
            for line in lines:
                for paragraph in json.loads(line)["text"].split("\n"):
                    words = paragraph.split()
                    if turn:
                        words[turn % 3 :: 3] = [f"{word}'{turn}" for word in words[turn % 3 :: 3]]
                    yield " ".join(words)
        turn += 1


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds, and MB at the peak, of a command."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command[0]} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def shown(run: tuple[float, float]) -> str:
    return f"{run[0]:.1f} s {run[1]:,.0f} MB"


def sizes(path: Path) -> int:
    with path.open(encoding="utf-8") as lines:
        next(lines)
        heads = iter(lambda: next(lines).strip(), "")
        return sum(int(head.partition("=")[2]) for head in heads)


def compared(ours: Path, theirs: Path) -> float:
    """The largest difference of two ARPA files, which must have the same n-grams in order."""
    largest = 0.0
    with open(ours, newline="\n") as first, open(theirs, newline="\n") as second:
        for one, other in zip(first, second, strict=True):
            a, b = one.rstrip("\n").split("\t"), other.rstrip("\n").split("\t")
            if a[1:2] != b[1:2] or len(a) != len(b):
                raise SystemExit(f"different n-grams: {one!r}, {other!r}")
            for x, y in zip(a[::2], b[::2], strict=True):
                if len(a) > 1:
                    largest = max(largest, abs(float(x) - float(y)))
    return largest


if __name__ == "__main__":
    main()
