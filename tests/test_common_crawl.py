"""Common Crawl as an input: the choice of archives, and a run over a network that misbehaves."""

import gzip
import io
import itertools
import json
import random
import subprocess
import sys
from collections import Counter

import pyarrow.parquet as pq
import pytest
import yaml
from crawl_server import Fault, crawl_server

from curation.engine.plan import build, segment_key
from curation.engine.recipe import RecipeError, load
from curation.read.common_crawl import archives, crawl_of, sample
from curation.read.framing import Frames
from curation.storage import InputError
from curation.transfer import Patience

CRAWL = "CC-MAIN-2026-05"
PATHS = [f"crawl-data/{CRAWL}/segments/{i // 20}/warc/part-{i:05}.warc.gz" for i in range(100)]
GIVEN_UP = Patience(failures=1, silent=1)


def test_a_larger_choice_holds_the_smaller_whatever_the_order_of_the_list():
    shuffled = random.Random(3).sample(PATHS, len(PATHS))
    choices = [sample(PATHS, files, 7) for files in range(101)]
    assert [sample(shuffled, files, 7) for files in range(101)] == choices
    assert [len(set(choice)) for choice in choices] == list(range(101))
    assert all(set(a) < set(b) for a, b in itertools.pairwise(choices))
    assert set(choices[100]) == set(PATHS)


def test_every_file_has_the_same_chance():
    counts = Counter(path for seed in range(400) for path in sample(PATHS, 25, seed))
    assert len(counts) == 100
    # Binomial, 400 trials of 1/4: the standard deviation is 8.7, and 4.5 of them are ample.
    assert all(abs(count - 100) < 39 for count in counts.values())


def archive(tmp_path, lines=PATHS, crawl=CRAWL, subset="warc"):
    """A folder with the list of a crawl."""
    folder = tmp_path / "crawl-data" / crawl
    folder.mkdir(parents=True)
    (folder / f"{subset}.paths.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return str(tmp_path)


def test_all_files_of_several_crawls(tmp_path):
    other = [path.replace("2026-05", "2025-51") for path in PATHS]
    archive(tmp_path, other, "CC-MAIN-2025-51")
    base = archive(tmp_path)
    found = archives(base, [CRAWL, "CC-MAIN-2025-51"], "warc", None, 1)
    assert found == [f"{base}/{path}" for path in [*PATHS, *other]]
    assert {crawl_of(path) for path in found} == {CRAWL, "CC-MAIN-2025-51"}
    assert len(archives(f"{base}/", [CRAWL, "CC-MAIN-2025-51"], "warc", 3, 1)) == 6
    assert crawl_of("elsewhere/a.warc.gz") is None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*PATHS, "crawl-data/CC-MAIN-2026-06/x"], "warc.paths.gz:101: no file of CC-MAIN-2026-05"),
        ([f"crawl-data/{CRAWL}/../../x"], "warc.paths.gz:1: no file of"),
        (["", ""], "names no file"),
        (PATHS[:3], "has 3 warc files, and 4 are asked for"),
        (["crawl-data/\0"], "warc.paths.gz:1: no path"),
    ],
)
def test_a_list_that_cannot_be_used_is_one_line(tmp_path, lines, message):
    with pytest.raises(InputError, match=message) as error:
        archives(archive(tmp_path, lines), [CRAWL], "warc", 4, 1)
    assert "\n" not in str(error.value)


def test_a_crawl_that_is_not_there_is_named(tmp_path):
    with crawl_server({}) as server:
        for base in (server.url, str(tmp_path), f"memory://{tmp_path}"):
            with pytest.raises(InputError, match=f"there is no crawl {CRAWL}: .*warc.paths.gz"):
                archives(base, [CRAWL], "warc", 1, 1)
    with pytest.raises(InputError, match="refused") as error:  # not known to be missing
        archives(server.url, [CRAWL], "warc", 1, 1, GIVEN_UP)
    assert "there is no crawl" not in str(error.value) and CRAWL in str(error.value)


def recipe(**changes):
    source = {"kind": "common_crawl", "crawl": CRAWL, "files": 2, **changes}
    return {
        "kind": "documents",
        "name": "crawl",
        "input": {name: value for name, value in source.items() if value is not None},
        "stages": ["extract"],
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"crawl": "CC-2026"}, "input.crawl: 'CC-2026' is no crawl"),
        ({"crawl": [CRAWL, "CC-MAIN-2026-05/.."]}, "input.crawl: 'CC-MAIN-2026-05/..' is no crawl"),
        ({"crawl": [CRAWL, CRAWL]}, "input.crawl: a crawl is named twice"),
        ({"crawl": []}, "input.crawl: the name of a crawl"),
        ({"crawl": None}, "input.crawl: this key is missing"),
        ({"files": 0}, "input.files: a number of at least 1, or all, is wanted"),
        ({"files": "some"}, "input.files: a number of at least 1, or all, is wanted"),
        ({"files": True}, "input.files: a number of at least 1, or all, is wanted"),
        ({"files": None}, "input.files: this key is missing"),
        ({"subset": "wat"}, "input.subset: input should be 'warc' or 'wet'"),
        ({"paths": ["x.warc"]}, "input.paths: kind common_crawl finds its files"),
        ({"sed": 1}, "input.sed: unknown key; did you mean 'seed'?"),
    ],
)
def test_wrong_inputs_are_one_line(changes, message):
    with pytest.raises(RecipeError) as error:
        load(recipe(**changes))
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_paths_on_the_command_line_are_refused():
    with pytest.raises(RecipeError, match="kind common_crawl finds its files"):
        load(recipe(), inputs=["x.warc.gz"])


def test_what_decides_the_bytes_of_a_file_is_in_its_key_and_what_chose_it_is_not(tmp_path):
    base = archive(tmp_path)
    for path in PATHS:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")

    def plan(**changes):
        return build(load(recipe(base=base, **changes)), None)

    def key(plan):
        return segment_key(plan.recipe, plan.segments[0])

    small, large = plan(), plan(files=30)
    units = [{unit.name for unit in p.units} for p in (small, large)]
    assert units[0] < units[1] and (len(units[0]), len(units[1])) == (2, 30)
    assert key(small) == key(large)  # so that a larger run takes over what a smaller one has done
    assert small.run != large.run
    assert small.record()["recipe"]["input"] == {
        "kind": "common_crawl",
        "crawl": [CRAWL],
        "files": 2,
        "seed": 0,
        "subset": "warc",
        "base": base,
        "source": None,
        "license": None,
        "media_types": ["text/html", "application/xhtml+xml"],
        "truncated": "keep",
        "max_body": 32 << 20,
        "split": 256 * 10**6,
    }
    assert load(small.record()["recipe"]).resolved() == small.recipe.resolved()
    for changes in ({"max_body": 1000}, {"source": "cc"}, {"truncated": "drop"}):
        assert key(plan(**changes)) != key(small)


# ---------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def files(sample_crawl):
    """Three archives with a part of the sample crawl each, and their list."""
    data = sample_crawl.read_bytes()
    offsets = [frame.offset for frame in Frames(io.BytesIO(data))]
    cuts = [0, *(offsets[len(offsets) * part // 8] for part in (1, 2, 3))]
    parts = {path: data[a:b] for path, a, b in zip(PATHS, cuts, cuts[1:], strict=False)}
    listing = gzip.compress("".join(f"{path}\n" for path in PATHS[2::-1]).encode())
    return {**parts, f"crawl-data/{CRAWL}/warc.paths.gz": listing}


def run(folder, base, output):
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe(base=base, files="all")))
    command = [sys.executable, "-m", "curation", "run", str(path), "--output", output, "--json"]
    done = subprocess.run(
        [*command, "--quiet", "--workers", "1"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.stdout, done.stderr
    return done, json.loads(done.stdout)


def documents(folder, base):
    """The final documents; the place of an archive is told without its base."""
    rows = pq.read_table(folder / "documents").to_pylist()
    for row in rows:
        assert row["warc_file"].startswith(base)
        row["warc_file"] = row["warc_file"].removeprefix(base)
    return rows


def test_a_run_over_a_bad_network_gives_what_a_local_one_gives(tmp_path, files):
    for name, data in files.items():
        path = tmp_path / "local" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    base = f"{tmp_path}/local/"
    done, near = run(tmp_path, base, "near")
    assert (done.returncode, done.stderr) == (0, "")
    undisturbed = documents(tmp_path / "near", base)
    assert len(undisturbed) > 20 and {row["crawl"] for row in undisturbed} == {CRAWL}

    faults = [
        Fault("status", match="paths.gz"),
        Fault("status", status=429, headers={"Retry-After": "0"}, probes=True),
        Fault("reset", match="00000", after=30_000),
        Fault("short", match="00001", after=9_000),
        Fault("no_range", match="00001", skip=1),
    ]
    with crawl_server(files, faults) as server:
        done, far = run(tmp_path, server.url, "far")
        assert (done.returncode, done.stderr) == (0, "")
        assert documents(tmp_path / "far", server.url) == undisturbed
        del near["run"], far["run"]
        assert far == near
        assert len(server.ranges("part-")) == 5 and all(f.seen > f.skip for f in faults)

    hopeless = [
        Fault("short", match="00001", after=len(files[PATHS[1]]) // 2),
        Fault("changed", match="00001", skip=1, times=99),
        Fault("status", match="00002", status=404, times=99),
    ]
    with crawl_server(files, hopeless) as server:
        done, part = run(tmp_path, server.url, "part")
        assert done.returncode == 3 and not part["complete"]
        lines = done.stderr.splitlines()
        assert len(lines) == 2
        assert "00001.warc.gz: incomplete" in lines[0] and "changed while it was read" in lines[0]
        assert "00002.warc.gz: incomplete" in lines[1] and "HTTP status 404" in lines[1]
        whole = {row["id"]: row["text"] for row in undisturbed if "00000" in row["warc_file"]}
        found = {row["id"]: row["text"] for row in documents(tmp_path / "part", server.url)}
        assert whole.items() <= found.items()
        assert found.items() < {row["id"]: row["text"] for row in undisturbed}.items()
