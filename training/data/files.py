"""Whether the files of a manifest are there, and are the manifest's, before the first step.

What may live here: sizes and SHA-256 of the files that a run reads, looked at by rank 0 for all, in
threads, and `verified.json`, which keeps a restart from reading them all again.

A file whose size and time of change are as they were when its bytes were last read is taken for the
same. Ranks on other hosts see the same files only on a shared file system; copies there are not
looked at.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from manifests.files import write_bytes
from manifests.reader import changed
from manifests.tokens import File, Manifest, ManifestError
from training.world import World

VERIFIED = "verified.json"

_THREADS = 16  # at most; SHA-256 takes about 1.5 GB/s of a core
_PATIENCE = 5.0  # seconds from one word to the waiting ranks, and line of progress, to the next


def verify(
    manifest: Manifest, files: Sequence[File], digests: bool, run: Path, world: World
) -> None:
    """Looks at the sizes of files, and with `digests` at their bytes; called by all ranks, which
    hear of it at least every few seconds, so that no collective times out.

    Raises ManifestError, in one line that names the file, on all of them.
    """
    check = Check(manifest, files, digests, run) if world.first else None
    while (said := world.share(check.wait(_PATIENCE) if check else None)) is None:
        pass
    if said:
        raise ManifestError(said)


class Check:
    """Files being looked at. `keep`: write down which are good."""

    def __init__(
        self,
        manifest: Manifest,
        files: Sequence[File],
        digests: bool,
        run: Path,
        keep: bool = True,
    ) -> None:
        self.keep, self.place, self.directory = keep, run / VERIFIED, manifest.directory.resolve()
        self.known = self._read() if digests else {}
        self.seen: dict[str, list[int | str]] = {}
        self.problem = next((p for f in files if (p := changed(self.directory, f, False))), "")
        wanted = [] if self.problem or not digests else [f for f in files if not self._knows(f)]
        self.files, self.bytes = len(wanted), sum(file.bytes for file in wanted)
        threads = max(1, min(_THREADS, os.cpu_count() or 1, len(wanted)))
        self.pool = ThreadPoolExecutor(threads)
        self.pending: dict[Future[str | None], File] = {
            self.pool.submit(self._look, file): file for file in wanted
        }

    def wait(self, seconds: float) -> str | None:
        """What is wrong, in a line, or "" for nothing; None where that is not known by then."""
        until = time.monotonic() + seconds
        while self.pending and not self.problem:
            done, _ = wait(
                self.pending, max(0, until - time.monotonic()), return_when=FIRST_COMPLETED
            )
            if not done:
                self._write()
                left = sum(file.bytes for file in self.pending.values())
                said = f"{self.files - len(self.pending):,} of {self.files:,} files, "
                said += f"{(self.bytes - left) / 1e9:,.1f} of {self.bytes / 1e9:,.1f} GB"
                print(f"verifying the manifest: {said}", file=sys.stderr, flush=True)
                return None
            for future in done:
                del self.pending[future]
                self.problem = self.problem or future.result() or ""
        self.pool.shutdown(cancel_futures=True)
        if self.files:
            self._write()
        return self.problem

    def _look(self, file: File) -> str | None:
        facts = self._facts(file)  # before the bytes: a later change shows
        problem = changed(self.directory, file, digests=True)
        if problem is None:
            self.seen[file.path] = facts
        return problem

    def _facts(self, file: File) -> list[int | str]:
        status = (self.directory / file.path).stat()
        return [status.st_size, status.st_mtime_ns, file.sha256]

    def _knows(self, file: File) -> bool:
        return self.known.get(file.path) == self._facts(file)

    def _read(self) -> dict[str, list[int | str]]:
        """The files that were found good; none where they were those of another directory."""
        try:
            record = json.loads(self.place.read_bytes())
            same = record["directory"] == str(self.directory)
            return dict(record["files"]) if same else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _write(self) -> None:
        if not self.keep:
            return
        record = {"directory": str(self.directory), "files": {**self.known, **self.seen}}
        write_bytes(self.place, json.dumps(record, indent=1, sort_keys=True).encode() + b"\n")
