"""What the default filters and deduplication make of the texts of each extraction engine.

    python -m bench.extraction.downstream PAGES [PAGES ...] [--recipe R] [--workers N] [--runs DIR]

PAGES: files, globs and folders of WARC files. The recipe (pipelines/crawl-filter.yaml) runs once
with each engine on the same pages; the models named `sample` in it judge nothing but the sample
crawl.

What may live here: these runs and their table. Numbers are those of the runs' ledgers, shares are
of the pages read; the reasons shown are those that drop most, over all engines.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curation import run
from training.tables import table

ENGINES = ("blocks", "trafilatura", "resiliparse")
RECIPE = Path(__file__).resolve().parents[2] / "pipelines" / "crawl-filter.yaml"
REASONS = 10

Stats = dict[str, Any]


def measured(engine: str, options: argparse.Namespace, folder: Path) -> Stats:
    """The ledger of a run with that engine."""
    result = run(
        options.recipe,
        inputs=options.pages,
        output=folder / engine,
        settings=[f"extract.engine={engine}"],
        workers=options.workers,
    )
    return result.stats


def drops(stats: Stats) -> Counter[str]:
    """Documents by `stage: reason`; failures are reasons."""
    found: Counter[str] = Counter()
    for stage in stats["stages"]:
        for reason, amount in stage["dropped"].items():
            found[f"{stage['name']}: {reason}"] += amount["documents"]
        for reason, count in stage["failures"].items():
            found[f"{stage['name']}: failed, {reason}"] += count
    return found


def rows(by_engine: dict[str, Stats]) -> list[list[str]]:
    """The table's rows, a cell per engine."""
    pages = {name: stats["reader"]["documents"] for name, stats in by_engine.items()}
    stages = {name: {s["name"]: s for s in stats["stages"]} for name, stats in by_engine.items()}
    lost = {name: drops(stats) for name, stats in by_engine.items()}

    def row(label: str, value: Any) -> list[str]:
        return [label, *(value(name) for name in by_engine)]

    def share(count: int, name: str) -> str:
        return f"{count:,} ({count / max(1, pages[name]):.1%})"

    whole = sum(lost.values(), Counter[str]())
    ends = ("exact_dedup: url", "exact_dedup: text", "minhash_dedup: near_duplicate")
    reasons = [reason for reason, _ in whole.most_common() if reason not in ends]
    return [
        row("pages", lambda name: f"{pages[name]:,}"),
        row("words extracted", lambda name: f"{stages[name]['extract']['kept']['words']:,}"),
        row(
            "documents kept",
            lambda name: share(by_engine[name]["output"]["documents"], name),
        ),
        row("words kept", lambda name: f"{by_engine[name]['output']['words']:,}"),
        *(
            row(reason, lambda name, reason=reason: share(lost[name][reason], name))
            for reason in (*ends, *reasons[:REASONS])
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the recipe with each engine and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="+")
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--runs", type=Path, help="where the runs are kept (default: nowhere)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.runs or Path(temporary)
        found = {engine: measured(engine, options, folder) for engine in ENGINES}
    print(table(["", *found], rows(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
