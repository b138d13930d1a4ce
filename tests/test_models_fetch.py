"""Fetching models: whole and verified, or one line that says why not."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from crawl_server import Fault, Server, crawl_server

from curation import cli, models
from curation.models import card, fetch, table
from curation.models.table import Entry, File
from curation.transfer import Patience, TransferError

DATA = random.Random(7).randbytes(3_000_000)
TOKENIZER = b"pieces" * 100
CCNET = {"cc_net/lm/is.arpa.bin": DATA, "cc_net/lm/is.sp.model": TOKENIZER}
NOW = Patience(failures=4, silent=2, sleep=lambda seconds: None, stall=10)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def plain(data: bytes = DATA, **said: object) -> Entry:
    """An entry of one plain file, at `/m/plain.bin` of some server."""
    file = File(name="plain.bin", url="https://models.example/m/plain.bin", sha256=sha256(data))
    return Entry(
        name="a/plain",
        kind="lid",
        purpose="",
        license="",
        source="",
        files=(replace(file, **said),),  # type: ignore[arg-type]
    )


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRISTMILL_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # not what its user has
    return tmp_path / "models"


Mirror = Callable[..., AbstractContextManager[Server]]


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """`mirror(files, faults)` serves files in place of those who publish them."""

    @contextmanager
    def serve(files: dict[str, bytes], faults: Sequence[Fault] = ()) -> Iterator[Server]:
        with crawl_server(files, [replace(fault, seen=0) for fault in faults]) as server:
            monkeypatch.setenv("GRISTMILL_MODELS_MIRROR", server.url)
            yield server

    return serve


def leftovers(shelf: Path) -> list[Path]:
    """What lies in hidden directories of the shelf."""
    return [path for path in shelf.rglob("*") if "/." in str(path.relative_to(shelf.parent))]


# --- what is fetched ------------------------------------------------------------------------------


def test_a_model_of_several_files_becomes_a_directory_with_a_card(
    shelf: Path, mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    with mirror(CCNET) as server:
        assert cli.main(["models", "fetch", "kenlm/ccnet-is"]) == 0
        assert cli.main(["models", "fetch", "kenlm/ccnet-is"]) == 0  # is here
        assert len(server.requests) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == [str(shelf / "kenlm" / "ccnet-is")] * 2
    assert "no digest of https://dl.fbaipublicfiles.com/cc_net/lm/is.arpa.bin is published" in err
    found = card.read(shelf / "kenlm" / "ccnet-is", "kenlm")
    assert dict(found.files) == {"is.arpa.bin": sha256(DATA), "is.sp.model": sha256(TOKENIZER)}
    assert found.language == "is" and found.settings["normaliser"] == "ccnet"
    assert "dl.fbaipublicfiles.com/cc_net/lm/is.arpa.bin" in found.source
    assert models.find("kenlm/ccnet-is") == shelf / "kenlm" / "ccnet-is"
    assert (shelf / "kenlm" / "ccnet-is" / "is.arpa.bin").read_bytes() == DATA
    assert leftovers(shelf) == []


def test_a_plain_file_goes_where_it_is_wanted(tmp_path: Path, mirror: Mirror) -> None:
    with mirror({"m/plain.bin": DATA}) as server:
        path = fetch.fetch(plain(), tmp_path / "to", patience=NOW)
        again = fetch.fetch(plain(), tmp_path / "to", patience=NOW)
        assert len(server.requests) == 1
        fetch.fetch(plain(), tmp_path / "to", force=True, patience=NOW)
        assert len(server.requests) == 2
    assert path == again == tmp_path / "to" / "a" / "plain"
    assert path.read_bytes() == DATA and leftovers(tmp_path) == []


def test_what_is_here_but_is_another_file_is_said_and_replaced_by_force(
    shelf: Path, mirror: Mirror
) -> None:
    (shelf / "a").mkdir(parents=True)
    (shelf / "a" / "plain").write_bytes(b"other")
    with mirror({"m/plain.bin": DATA}):
        with pytest.raises(fetch.FetchFailed, match=r"sha256 .* is known; --force"):
            fetch.fetch(plain(), patience=NOW)
        assert fetch.fetch(plain(), force=True, patience=NOW).read_bytes() == DATA
    with mirror(CCNET):
        path = fetch.fetch(table.entry("kenlm/ccnet-is"), patience=NOW)
        (path / "is.sp.model").write_bytes(b"other")
        with pytest.raises(fetch.FetchFailed, match=r"is\.sp\.model: not the file .*--force"):
            fetch.fetch(table.entry("kenlm/ccnet-is"), patience=NOW)
        left = path.parent / ".ccnet-is.fetch" / "old" / "card.json"  # by one that was killed
        left.parent.mkdir(parents=True)
        left.touch()
        fetch.fetch(table.entry("kenlm/ccnet-is"), force=True, patience=NOW)
    assert (path / "is.sp.model").read_bytes() == TOKENIZER and leftovers(shelf) == []


# --- what goes wrong on the way -------------------------------------------------------------------

BORNE = {
    "cut": [Fault("short", after=1_000_000, times=2)],
    "reset": [Fault("reset", after=2_000_000)],
    "busy": [Fault("status", times=3)],
    "no ranges": [Fault("short", after=1_000_000), Fault("no_range", skip=1, times=9)],
    "changed": [Fault("short", after=1_000_000), Fault("changed", skip=1, times=9)],
    "no length": [Fault("chunked")],
}


@pytest.mark.parametrize("faults", BORNE.values(), ids=BORNE)
def test_what_passes_costs_no_byte(shelf: Path, mirror: Mirror, faults: list[Fault]) -> None:
    with mirror({"m/plain.bin": DATA}, faults):
        assert fetch.fetch(plain(), patience=NOW).read_bytes() == DATA
    assert leftovers(shelf) == []


def test_a_stopped_fetch_is_gone_on_with_unless_the_file_is_another_one_by_now(
    shelf: Path, mirror: Mirror
) -> None:
    cut = [Fault("short", after=1_500_000), Fault("status", status=404, skip=1)]
    for data, ranges in ((DATA, ["bytes=1500000-"]), (DATA[::-1], ["bytes=1500000-", ""])):
        files = {"m/plain.bin": DATA}
        with mirror(files, cut) as server:
            with pytest.raises(TransferError, match="404"):
                fetch.fetch(plain(data), patience=NOW)
            assert not (shelf / "a" / "plain").exists() and leftovers(shelf)
            files["m/plain.bin"] = data
            server.requests.clear()
            assert fetch.fetch(plain(data), patience=NOW).read_bytes() == data
            assert server.ranges() == ranges
        (shelf / "a" / "plain").unlink()
        assert leftovers(shelf) == []


def test_a_server_without_ranges_is_asked_for_all_of_it(
    shelf: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curation.transfer.SKIP", 1000)  # more than it passes over
    faults = [Fault("short", after=1_500_000), Fault("no_range", skip=1, times=9)]
    with mirror({"m/plain.bin": DATA}, faults) as server:
        assert fetch.fetch(plain(), patience=NOW).read_bytes() == DATA
        assert server.ranges() == ["", "bytes=1500000-", ""]


def test_a_wrong_digest_or_size_leaves_nothing(shelf: Path, mirror: Mirror) -> None:
    files = {"m/plain.bin": DATA[:-1] + b"!"}
    with mirror(files) as server:
        with pytest.raises(fetch.FetchFailed, match=r"plain\.bin: sha256 .* is known$"):
            fetch.fetch(plain(), patience=NOW)
        with pytest.raises(fetch.FetchFailed, match="3000000 bytes, not the 5 that are known"):
            fetch.fetch(plain(size=5), patience=NOW)
        assert not (shelf / "a" / "plain").exists()
        files["m/plain.bin"] = DATA
        server.requests.clear()
        assert fetch.fetch(plain(), patience=NOW).read_bytes() == DATA
        assert server.ranges() == [""]  # from its beginning
    assert leftovers(shelf) == []


def test_a_failure_is_one_line_and_the_others_are_fetched(
    shelf: Path,
    mirror: Mirror,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with mirror(CCNET):
        assert cli.main(["models", "fetch", "kenlm/ccnet-af", "kenlm/ccnet-is"]) == 1
        out, err = capsys.readouterr()
        assert out == f"{shelf}/kenlm/ccnet-is\n"
        first = err.splitlines()[0]
        assert first.startswith("curation: kenlm/ccnet-af: ") and "af.arpa.bin" in first
        assert "status 404" in first
        usage = SimpleNamespace(free=1_000_000)
        monkeypatch.setattr(fetch.shutil, "disk_usage", lambda path: usage)
        assert cli.main(["models", "fetch", "--force", "kenlm/ccnet-is"]) == 1
        assert "3.0 MB are wanted, 1.0 MB are free" in capsys.readouterr().err
        assert cli.main(["models", "fetch", "kenlm/ccnet-xx"]) == 2
        assert "no model is called 'kenlm/ccnet-xx'; did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 75)])
def test_a_killed_fetch_is_gone_on_with_by_the_same_command(
    shelf: Path, mirror: Mirror, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-m", "curation", "models", "fetch", "kenlm/ccnet-is"]
    part = shelf / "kenlm" / ".ccnet-is.fetch" / "is.arpa.bin"
    with mirror(CCNET, [Fault("stall", match="arpa", after=2_000_000)]) as server:
        process = subprocess.Popen(command, env=dict(os.environ), stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not (part.exists() and part.stat().st_size > 1_000_000):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        error = process.communicate(timeout=60)[1]
        assert process.returncode == code
        assert number == signal.SIGKILL or b"the same command goes on" in error
        there = part.stat().st_size
        server.requests.clear()
        assert fetch.fetch(table.entry("kenlm/ccnet-is"), patience=NOW).is_dir()
        assert server.ranges("arpa") == [f"bytes={there}-"]
    assert (shelf / "kenlm" / "ccnet-is" / "is.arpa.bin").read_bytes() == DATA
    assert leftovers(shelf) == []


def test_of_two_fetches_at_once_one_waits_and_finds_the_model(
    shelf: Path, mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    entry, found = table.entry("kenlm/ccnet-is"), []
    with mirror(CCNET, [Fault("status", match="arpa", headers={"Retry-After": "1"})]) as server:
        patience = replace(NOW, sleep=time.sleep, first=0.01)
        workers = [
            threading.Thread(target=lambda: found.append(fetch.fetch(entry, patience=patience)))
            for _ in range(2)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert len(server.ranges("arpa")) == 2 and len(server.ranges("sp.model")) == 1
    assert found == [shelf / "kenlm" / "ccnet-is"] * 2 and leftovers(shelf) == []
    assert "another process fetches it; waiting" in capsys.readouterr().err


# --- archives -------------------------------------------------------------------------------------


def tar(*members: tuple[str, bytes | tarfile.TarInfo]) -> bytes:
    """A tar.gz of files by name and content, and of members of other kinds."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def other(name: str, kind: bytes, target: str = "") -> tuple[str, tarfile.TarInfo]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return name, info


ADULT = ("blacklists/adult/domains", b"bad.example\n")
UT1 = "blacklists/download/blacklists.tar.gz"


@pytest.fixture
def ut1(monkeypatch: pytest.MonkeyPatch) -> Entry:
    return replace(table.entry("url/ut1"), package=None, name="lists/ut1")


def test_an_archive_becomes_a_directory_with_a_card_and_its_links_are_left_out(
    shelf: Path, mirror: Mirror, ut1: Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tar(
        other("blacklists", tarfile.DIRTYPE),
        ADULT,
        ("blacklists/ads/urls", b"a.example/b\n"),
        ("elsewhere/domains", b"not of the list\n"),
        other("blacklists/porn", tarfile.SYMTYPE, "adult"),
        other("blacklists/hard", tarfile.LNKTYPE, "/etc/passwd"),
    )
    with mirror({UT1: archive}):
        path = fetch.fetch(ut1, patience=NOW)
    assert "2 links left out" in capsys.readouterr().err
    found = card.read(path, "domains")
    assert sorted(found.files) == ["ads/urls", "adult/domains"]
    assert found.settings["archive"] == sha256(archive)
    assert (path / "adult" / "domains").read_bytes() == ADULT[1]
    assert models.digest(path) and leftovers(shelf) == []


EVIL = {
    "up": (tar(ADULT, ("blacklists/../../out", b"x")), "leads out"),
    "absolute": (tar(ADULT, ("/tmp/out", b"x")), "leads out"),
    "through a link": (
        tar(ADULT, other("blacklists/in", tarfile.SYMTYPE, ".."), ("blacklists/in/../../x", b"x")),
        "leads out",
    ),
    "device": (tar(ADULT, other("blacklists/null", tarfile.CHRTYPE)), "is no file"),
    "fifo": (tar(ADULT, other("blacklists/pipe", tarfile.FIFOTYPE)), "is no file"),
    "twice": (tar(ADULT, ADULT), "the name is taken"),
    "in a file": (tar(ADULT, ("blacklists/adult/domains/x", b"x")), "damaged"),
    "our card": (tar(ADULT, ("blacklists/card.json", b"{}")), "the name is taken"),
    "bomb": (tar(("blacklists/zeros", bytes(3_000_000))), "more than any list has"),
    "many": (tar(*((f"blacklists/{i}", b"") for i in range(60))), "more than 50 members"),
    "cut": (tar(ADULT, ("blacklists/x", DATA[:100_000]))[:-50_000], "damaged"),
    "no gzip": (b"<html>come back later</html>", "damaged"),
    "no tar": (gzip.compress(b"come back later" * 100), "damaged"),
    "empty": (tar(("other/x", b"")), "no files in blacklists/"),
}


@pytest.mark.parametrize(("archive", "message"), EVIL.values(), ids=EVIL)
def test_a_hostile_or_damaged_archive_is_refused_and_nothing_of_it_stays(
    shelf: Path,
    mirror: Mirror,
    ut1: Entry,
    monkeypatch: pytest.MonkeyPatch,
    archive: bytes,
    message: str,
) -> None:
    monkeypatch.setattr(fetch, "UNPACKED", 2_000_000)
    monkeypatch.setattr(fetch, "MEMBERS", 50)
    refused = pytest.raises(fetch.FetchFailed, match=rf"blacklists\.tar\.gz: .*{message}")
    with mirror({UT1: archive}), refused:
        fetch.fetch(ut1, patience=NOW)
    there = {path.name for path in shelf.parent.rglob("*")}
    assert there == {"models", "lists", ".ut1.fetch"}
    with mirror({UT1: tar(ADULT)}):  # and stands in nobody's way
        assert fetch.fetch(ut1, patience=NOW).is_dir()
    assert leftovers(shelf) == []


# --- the table, the list --------------------------------------------------------------------------


def test_the_table_names_what_can_be_verified_and_fetched() -> None:
    for entry in table.entries():
        assert entry.files or entry.package or entry.shipped, entry.name
        assert all(file.url.startswith("https://") for file in entry.files)
        if entry.files and entry.settings is None:  # without a card to note its digest in
            assert len(entry.files) == 1 and entry.files[0].sha256, entry.name
        assert all(len(file.sha256 or "0" * 64) == 64 for file in entry.files)
        assert entry.kind in {"lid", "kenlm", "classifier", "words", "domains", "tokenizer"}
        names = [file.name for file in entry.files]
        assert len(set(names)) == len(names) and not {"ready", "old", card.NAME} & {*names}
    assert sum(name.startswith("kenlm/ccnet-") for name in table.names()) == 48


def test_the_list_says_what_is_here_and_what_brings_the_rest(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with card.new(shelf / "kenlm" / "mine", kind="kenlm", license="MIT") as (place, _):
        (place / "w").write_bytes(b"weights")
    (shelf / "quality" / "dclm").mkdir(parents=True)  # without a card
    assert cli.main(["models", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["lid.176.ftz"]["path"] and rows["lid.176.ftz"]["bytes"] == 938_013
    assert rows["lid.176.bin"]["path"] is None
    assert rows["lid.176.bin"]["command"] == "curation models fetch lid.176.bin"
    assert (rows["kenlm/mine"]["bytes"], rows["kenlm/mine"]["license"]) == (7, "MIT")
    assert "no model lies here" in rows["quality/dclm"]["problem"]
    assert cli.main(["models", "list"]) == 0
    out = capsys.readouterr().out
    assert "not here: curation models fetch lid.176.bin" in out
    assert out.count("kenlm/ccnet-") == 2 and f"{shelf}/kenlm/mine" in out


def test_where_names_the_path_and_the_digest_that_a_run_records(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["models", "where", "lid.176.ftz", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sha256"] == table.entry("lid.176.ftz").files[0].sha256
    assert found["path"] == str(models.find("lid.176.ftz"))
    for name, said in {
        "lid.176.bin": "curation models fetch lid.176.bin",
        "kenlm/fr": "curation models train-kenlm --language fr --input",
        "quality/mine": "curation models train-classifier --positive",
        "lid.176.fzt": "did you mean 'lid.176.ftz'?",
    }.items():
        assert cli.main(["models", "where", name]) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert said in line
    with pytest.raises(models.ModelNotFound) as error:
        models.find("lid.176.bin")
    assert pickle.loads(pickle.dumps(error.value)).command == "curation models fetch lid.176.bin"


@pytest.mark.real
def test_ccnets_cutoffs_are_its_30th_and_60th_percentiles(shared_data: Path) -> None:
    path = shared_data / "filters" / "ccnet-cases" / "cutoff.csv"
    languages, *rows = [line.split(",") for line in path.read_text().splitlines()]
    by_percentile = {row[0]: dict(zip(languages[1:], row[1:], strict=True)) for row in rows}
    for language in languages[1:]:
        settings = table.entry(f"kenlm/ccnet-{language}").settings
        assert settings is not None and settings["cutoffs"] == {
            "head": int(by_percentile["30"][language]),
            "middle": int(by_percentile["60"][language]),
        }


@pytest.mark.real
def test_the_digests_of_ldnoobw_are_those_of_its_files(shared_data: Path) -> None:
    folder = shared_data / "toxicity" / "ldnoobw"
    files = {file.name: file for file in table.entry("words/ldnoobw").files}
    assert {path.name for path in folder.iterdir()} == {*files, "PROVENANCE.md"}
    for name, file in files.items():
        data = (folder / name).read_bytes()
        assert (file.size, file.sha256) == (len(data), sha256(data))
