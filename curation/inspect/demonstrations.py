"""What the demonstration models of a run did not judge.

What may live here: the note under the table of a run. A stage with such a model has the signal
`judged`, which is null wherever the model may only annotate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from curation.engine.plan import Plan
from curation.inspect.signals import batches
from curation.models import card


def notes(plan: Plan) -> Iterator[str]:
    """A line for each stage whose demonstration model scored documents that it may not judge."""
    for segment in plan.maps:
        for spec in segment.stages:
            names = [name for name in plan.types if name.startswith(f"{spec.name}.")]
            judged = f"{spec.name}.judged"
            if judged not in names or not (shown := _demonstrations(spec.stage.files())):
                continue
            scores = [n for n in names if n != judged and plan.types[n] == "double"]
            counts = {name: 0 for name in (judged, *scores)}
            for table in batches(plan, segment, list(counts)):
                for name in counts:
                    counts[name] += len(table) - table[name].null_count
            scored = max(counts.values())
            if counts[judged] < scored:
                yield (
                    f"{spec.name}: {', '.join(shown)} is a demonstration: it judged "
                    f"{counts[judged]:,} of {scored:,} documents and only annotated the others "
                    "(curation models list)"
                )


def _demonstrations(files: Mapping[str, Path]) -> list[str]:
    cards = {name: path for name, path in files.items() if (path / card.NAME).is_file()}
    return [name for name, path in cards.items() if card.read(path).demonstration]
