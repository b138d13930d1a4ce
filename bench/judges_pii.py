"""How fast personal data is replaced, beside datatrove's formatter and the bare library.

    python bench/judges_pii.py TEXTS.jsonl [--limit 3000] [--repeat 3]

Everything on one core, in CPU time of this process, the best of the repetitions; datatrove and ours
by turns in each. `phonenumbers` sees an even sample of the texts, as its matcher takes long.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from curation.document import Documents
from curation.redact.pii import DEFAULT, Pii

BATCH = 256
SAMPLE = 40


def seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("texts", type=Path, help="JSONL with `text`")
    parser.add_argument("--limit", type=int, default=3000, help="documents, an even sample")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with options.texts.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    texts = texts[:: max(1, len(texts) // options.limit)][: options.limit]
    columns = [texts[i : i + BATCH] for i in range(0, len(texts), BATCH)]
    batches = [Documents({"text": pa.array(c, pa.large_string())}) for c in columns]
    size = sum(len(text.encode()) for text in texts) / len(texts)
    print(f"{len(texts)} documents, {size:.0f} bytes on average")

    from datatrove.pipeline.formatters.pii import PIIFormatter
    from phonenumbers import PhoneNumberMatcher

    stages: Mapping[str, Pii] = {
        "email, ip": Pii(kinds=("email", "ip")),
        "fineweb": Pii(replace="fineweb"),
        **{kind: Pii(kinds=(kind,)) for kind in DEFAULT},
        "all of the default": Pii(),
    }
    peer = PIIFormatter()
    some = texts[:: max(1, len(texts) // SAMPLE)]
    best: dict[str, float] = {}
    for _ in range(options.repeat):
        works: dict[str, tuple[int, Callable[[], Any]]] = {
            "datatrove PIIFormatter": (len(texts), lambda: [peer.format(text) for text in texts])
        }
        for name, stage in stages.items():
            works[name] = (len(texts), lambda stage=stage: [stage.edit(docs) for docs in batches])
        works["phonenumbers alone"] = (
            len(some),
            lambda: [list(PhoneNumberMatcher(text, "US")) for text in some],
        )
        for name, (count, work) in works.items():
            best[name] = max(best.get(name, 0.0), count / seconds(work))
    print(f"{'':<24}{'documents/s':>12}{'to datatrove':>14}")
    for name, rate in best.items():
        print(f"{name:<24}{rate:>12,.0f}{rate / best['datatrove PIIFormatter']:>14.2f}")


if __name__ == "__main__":
    main()
