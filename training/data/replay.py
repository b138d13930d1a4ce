"""Whether a step that is run again gets the batch that it had before.

What may live here: the digests that earlier starts have written to `batches.jsonl`, and holding
those of this start against them.
"""

from __future__ import annotations

import json
from array import array
from pathlib import Path

from manifests.tokens import ManifestError


class Replay:
    """Digests and keys of the steps done so far, 16 bytes a step. `key`: what decides a batch, so
    that a step has the same digest wherever it has the same key."""

    def __init__(self) -> None:
        self.digests, self.keys = array("Q"), array("Q")

    @staticmethod
    def read(run: Path) -> Replay:
        """What batches.jsonl says, of each step the last; lines that are torn say nothing."""
        found = Replay()
        place = run / "batches.jsonl"
        if place.exists():
            with place.open("rb") as lines:
                for line in lines:
                    try:
                        entry = json.loads(line)
                        step, digest, key = (entry[name] for name in ("step", "digest", "key"))
                        found._put(int(step), int(digest, 16), int(key, 16))
                    except (ValueError, KeyError, TypeError):
                        continue
        return found

    def check(self, step: int, digest: str, key: str) -> None:
        """Holds a step, counted from 1, against what it was, and notes it. Raises ManifestError,
        in one line, where the same step has another batch."""
        now, decided = int(digest, 16), int(key, 16)
        if step < len(self.keys) and self.keys[step] == decided and self.digests[step] != now:
            raise ManifestError(
                f"step {step}: batch {digest}, and {self.digests[step]:016x} when it was run "
                "before: a file of the manifest is not what it was then"
            )
        self._put(step, now, decided)

    def _put(self, step: int, digest: int, key: int) -> None:
        missing = step + 1 - len(self.keys)
        if missing > 0:
            self.digests.extend([0] * missing)
            self.keys.extend([0] * missing)
        self.digests[step], self.keys[step] = digest, key
