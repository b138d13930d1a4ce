"""Fixtures that all tests share: where real data lies, runs in a temporary folder, a small Ray."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

ROOT = Path(__file__).resolve().parent.parent

#: Property tests draw the same examples every time, so that a change is judged by what it changes;
#: `make explore` draws others.
settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False, print_blob=True)
settings.load_profile("same")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `gpu` skip without one."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no GPU")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real archives and labelled pages; the tests that need them skip where they are not."""
    path = Path(os.environ.get("GRISTMILL_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no real data at {path} (set GRISTMILL_DATA)")
    return path


@pytest.fixture(scope="session")
def golden(shared_data: Path) -> list[dict[str, Any]]:
    """357 real documents, and what datatrove and Dolma say of each."""
    path = shared_data / "filters" / "golden-filter-values" / "golden.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def toy_manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tokens directory of three sources (tests/make_tokens.py), not to be changed."""
    from tests.make_tokens import make

    directory = tmp_path_factory.mktemp("toy")
    make(directory)
    return directory


@pytest.fixture(scope="session")
def sample_crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded sample crawl, written once."""
    from curation.sample import write_sample

    path = tmp_path_factory.mktemp("sample") / "sample.warc.gz"
    write_sample(path)
    return path


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One small local cluster for the whole session."""
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 << 20,
    )
    yield
    ray.shutdown()
