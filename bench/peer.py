"""Gristmill beside datatrove on the same archive, in the same call.

    python bench/peer.py ARCHIVE.warc.gz --peer-python PATH [--pages 6619] [--workers 2]

The chain on both sides: read, extract, language (English, 0.65), Gopher repetition and quality, C4
without its rule of terminal marks, FineWeb's rules (datatrove's words and numbers on both sides),
write. First each with its own extractor (Resiliparse here, trafilatura there), then both on
Resiliparse and both on trafilatura (each in the version that its environment has). The archive is
dealt into as many files as there are workers. Wall seconds of whole processes, start-up included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from curation import models
from curation.read.framing import Frame, Frames


def deal(archive: Path, folder: Path, parts: int, pages: int) -> int:
    """Writes the archive's first records into `parts` files, one after the other; how many."""
    folder.mkdir()
    files = [(folder / f"{part}.warc.gz").open("wb") for part in range(parts)]
    data = archive.read_bytes()
    count = 0
    with archive.open("rb") as stream:
        for frame in Frames(stream):
            if isinstance(frame, Frame) and b"WARC-Type: response" in frame.header:
                assert frame.length is not None
                files[count % parts].write(data[frame.offset : frame.offset + frame.length])
                count += 1
                if count == pages:
                    break
    for file in files:
        file.close()
    return count


def ours(folder: Path, output: Path, engine: str, workers: int) -> tuple[float, int]:
    recipe: dict[str, Any] = {
        "kind": "documents",
        "name": "peer",
        "input": {"kind": "warc"},
        "stages": [
            {"extract": {"engine": engine}},
            {"language": {"keep": ["en"]}},
            {"gopher_repetition": {"words": "datatrove"}},
            {"gopher_quality": {"words": "datatrove"}},
            {"c4": {"words": "datatrove", "terminal_punctuation": False}},
            {"fineweb": {"words": "datatrove", "max_dup_line_chars": 0.01}},
        ],
    }
    path = output.with_suffix(".yaml")
    path.write_text(json.dumps(recipe))
    command = [sys.executable, "-m", "curation", "run", str(path), "--input", str(folder), "--json"]
    start = time.monotonic()
    done = subprocess.run(
        [*command, "--output", str(output), "--workers", str(workers), "--quiet"],
        check=True,
        capture_output=True,
        text=True,
    )
    return time.monotonic() - start, json.loads(done.stdout)["output"]["documents"]


def theirs(python: str, folder: Path, output: Path, engine: str) -> tuple[float, int]:
    script = Path(__file__).with_name("datatrove_peer.py")
    model = str(models.find("lid.176.ftz"))
    start = time.monotonic()
    subprocess.run(
        [python, str(script), str(folder), str(output), model, engine],
        check=True,
        capture_output=True,
        text=True,
    )
    wall = time.monotonic() - start
    kept = 0
    for path in output.glob("*.jsonl.gz"):
        kept += int(subprocess.run(f"zcat {path} | wc -l", shell=True, capture_output=True).stdout)
    return wall, kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("--peer-python", required=True, help="of an environment with datatrove")
    parser.add_argument("--pages", type=int, default=10**9)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pages = deal(options.archive, root / "archives", options.workers, options.pages)
        print(f"{pages} pages, {options.workers} workers; pages/s by the clock, documents kept")
        runs = (
            ("each with its defaults", "resiliparse", "trafilatura"),
            ("both on resiliparse", "resiliparse", "resiliparse"),
            ("both on trafilatura", "trafilatura", "trafilatura"),
        )
        for number, (name, mine, peers) in enumerate(runs):
            wall, kept = ours(root / "archives", root / f"ours{number}", mine, options.workers)
            peer_wall, peer_kept = theirs(
                options.peer_python, root / "archives", root / f"theirs{number}", peers
            )
            print(
                f"{name:<24} gristmill {pages / wall:8.1f} ({kept})   "
                f"datatrove {pages / peer_wall:8.1f} ({peer_kept})   ratio {peer_wall / wall:6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
