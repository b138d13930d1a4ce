"""Which of several duplicates comes first, and so survives.

What may live here: the parameter `policy` of deduplication, and the place that it gives a document.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator

from curation.document import Documents

_FORM = re.compile(r"first_id|longest|newest|highest\(([^().]+)\.([^().]+)\)")
_LAST = (1 << 64) - 1


def _policy(value: str) -> str:
    if not _FORM.fullmatch(value):
        raise ValueError("first_id, longest, newest or highest(stage.signal) is wanted")
    return value


#: `first_id`, `longest` (bytes of text), `newest` (by date) or `highest(stage.signal)` (of an
#: earlier stage); those without a date or signal come last. Ties are broken by id.
Policy = Annotated[str, AfterValidator(_policy)]


def signals_of(policy: str) -> tuple[str, ...]:
    """The signals (`<stage>.<signal>`) that a policy reads."""
    match = _FORM.fullmatch(policy)
    return (f"{match[1]}.{match[2]}",) if match and match[1] else ()


def places(policy: str, docs: Documents) -> np.ndarray:
    """The place of each document by a policy, as uint64: the smaller the earlier."""
    if policy == "longest":
        return _LAST - docs.view.byte_counts().astype(np.uint64)
    if policy == "newest":
        return _descending(_seconds(docs["date"]))
    for name in signals_of(policy):
        # Unsafe: integers above 2**53 are rounded.
        values = pc.cast(docs[name], pa.float64(), safe=False)
        return _descending(values.to_numpy(zero_copy_only=False))
    return np.zeros(len(docs), np.uint64)


def _descending(values: np.ndarray) -> np.ndarray:
    """uint64 that sort as the floats do, the highest first, NaN last."""
    bits = np.where(values == 0, 0.0, values).astype(np.float64).view(np.uint64)
    sign = np.uint64(1 << 63)
    ascending = np.where(bits & sign, ~bits, bits | sign)
    return np.where(np.isnan(values), np.uint64(_LAST), ~ascending)


def _seconds(dates: pa.Array) -> np.ndarray:
    """ISO 8601 dates as seconds since 1970, UTC where they do not say; NaN for what is none."""
    encoded = dates.dictionary_encode()
    found = [_moment(date) for date in encoded.dictionary.to_pylist()]
    places = pc.fill_null(encoded.indices, len(found)).to_numpy(zero_copy_only=False)
    return np.asarray(np.array([*found, np.nan])[places])


def _moment(date: str) -> float:
    try:
        found = datetime.fromisoformat(date.strip())
    except ValueError:
        return np.nan
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
