"""Trees of files: directories, archives and single files give the same; hostile ones no harm."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import random
import tarfile
import tracemalloc
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curation.read import Tally, read, trees
from curation.storage import InputError, list_inputs, same_input

FILES = {"a.py": b"a = 1\n", "lib/b.py": b"b = 2\n", "lib/deep/c.c": "/* ü */\n".encode()}
CODINGS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def run(path: Path, kind: str = "code", **options):
    tally = Tally()
    documents = list(read(kind, str(path), tally, options))
    assert tally.records == tally.documents + sum(tally.skipped.values())
    assert tally.documents == len(documents)
    assert tally.digest
    if path.is_file():
        assert tally.digest == hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
        assert tally.bytes == path.stat().st_size
    return documents, tally


def write_tree(root: Path, files: Mapping[str, bytes] = FILES) -> Path:
    for name, data in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return root


def tar_of(files: Mapping[str, bytes] = FILES) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def zip_of(files: Mapping[str, bytes] = FILES, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def texts(path: Path) -> dict[str, str]:
    documents, tally = run(path)
    assert not tally.problems and not tally.incomplete
    return {document.metadata["path"]: document.text for document in documents}


@pytest.mark.parametrize("coding", CODINGS)
def test_a_tar_gives_what_its_directory_gives(tmp_path: Path, coding: str) -> None:
    expected = {name: data.decode() for name, data in FILES.items()}
    assert texts(write_tree(tmp_path / "tree")) == expected
    (tmp_path / "x").write_bytes(CODINGS[coding](tar_of()))
    assert texts(tmp_path / "x") == expected


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_zip_gives_what_its_directory_gives(tmp_path: Path, method: int) -> None:
    (tmp_path / "x").write_bytes(zip_of(method=method))
    assert texts(tmp_path / "x") == {name: data.decode() for name, data in FILES.items()}


@pytest.mark.parametrize("coding", CODINGS)
def test_a_file_by_itself_is_a_tree_of_one(tmp_path: Path, coding: str) -> None:
    (tmp_path / f"x.py{coding}").write_bytes(CODINGS[coding](b"x = 1\n"))
    assert texts(tmp_path / f"x.py{coding}") == {"x.py": "x = 1\n"}


def test_a_directory_is_one_input_and_any_change_in_it_is_seen(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    (listed,) = list_inputs([str(tree)], ())
    assert listed.size == sum(map(len, FILES.values()))
    assert same_input(listed)
    os.utime(tree / "lib/b.py", ns=(1, 1))
    assert not same_input(listed)
    assert [f.path for f in list_inputs([str(tree / "*")], ())] == [
        str(tree / "a.py"),
        str(tree / "lib"),
    ]
    with pytest.raises(InputError):
        list_inputs([str(tmp_path / "nothing")], ())


def test_the_digest_of_a_directory_is_that_of_its_content(tmp_path: Path) -> None:
    one = run(write_tree(tmp_path / "one"))[1].digest
    assert run(write_tree(tmp_path / "two"))[1].digest == one
    (tmp_path / "two/a.py").write_bytes(b"a = 2\n")
    assert run(tmp_path / "two")[1].digest != one


def test_links_are_not_followed_and_hidden_files_not_read(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", {"a.py": b"a = 1\n", ".git/x.py": b"", ".b.py": b""})
    (tree / "loop").symlink_to(tree, target_is_directory=True)
    (tree / "out.py").symlink_to("/etc/passwd")
    os.mkfifo(tree / "pipe.py")
    documents, tally = run(tree)
    assert [d.metadata["path"] for d in documents] == ["a.py"]
    assert tally.skipped == {"link": 2, "hidden": 2, "not_a_file": 1}


def test_links_in_archives_are_skipped(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"{kind!r}.py")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert run(tmp_path / "x")[1].skipped == {"link": 3}


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_names_lead_nowhere_and_may_hold_anything(tmp_path: Path, pack) -> None:
    names = ["../../evil.py", "/etc/evil.py", "a\nb.py", "C:\\evil.py"]
    (tmp_path / "x").write_bytes(pack({name: b"x = 1\n" for name in names}))
    documents, _ = run(tmp_path / "x")
    assert len(documents) == len({d.id for d in documents}) == len(names)
    assert os.listdir(tmp_path) == ["x"]


def test_a_name_that_is_not_utf8_is_readable_and_has_an_id_of_its_own(tmp_path: Path) -> None:
    names = [b"caf\xe9.py", b"caf\xe8.py"]
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in names:
        (Path(os.fsdecode(os.fsencode(tree) + b"/" + name))).write_bytes(b"x = 1\n")
    (tmp_path / "x").write_bytes(tar_of({os.fsdecode(name): b"x = 1\n" for name in names}))
    for place in (tree, tmp_path / "x"):
        documents, _ = run(place)
        assert [d.metadata["path"] for d in documents] == ["caf\ufffd.py"] * 2
        assert len({d.id for d in documents}) == 2


def test_of_files_with_one_name_the_first_is_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(tar_of({"a.py": b"1\n"})[:1024] + tar_of({"a.py": b"2\n"}))
    documents, tally = run(tmp_path / "x")
    assert [d.text for d in documents] == ["1\n"]
    assert tally.skipped == {"repeated": 1}


@pytest.mark.parametrize("coding", CODINGS)
def test_a_cut_archive_is_incomplete_wherever_it_is_cut(tmp_path: Path, coding: str) -> None:
    noise = random.Random(1).randbytes(3000).hex().encode()
    whole = CODINGS[coding](tar_of({"a.py": b"a = 1\n", "b.py": noise, "c.py": b"c = 1\n"}))
    # Of a plain archive one block of the zeros at its end is enough.
    last = whole.rstrip(b"\0") if coding == "" else whole
    for cut in (*range(600, len(last) - 600, 199), len(last) - 5):
        (tmp_path / "x").write_bytes(whole[:cut])
        _, tally = run(tmp_path / "x")
        assert tally.incomplete, cut
        assert set(tally.problem_counts) <= {"truncated", "bad_member", "bad_archive"}


def test_garbage_between_files_is_no_quiet_end(tmp_path: Path) -> None:
    data = bytearray(tar_of())
    data[1024:1536] = b"x" * 512
    (tmp_path / "x").write_bytes(data)
    documents, tally = run(tmp_path / "x")
    assert len(documents) == 1
    assert tally.incomplete and tally.problem_counts == {"bad_archive": 1}
    assert "a.py" in tally.problems[0].detail


def test_a_damaged_file_of_a_zip_is_named_and_costs_itself(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a.py": b"a" * 500, "b.py": b"b = 1\n"}, zipfile.ZIP_STORED))
    data[100:110] = b"0123456789"
    (tmp_path / "x").write_bytes(data)
    documents, tally = run(tmp_path / "x")
    assert [d.text for d in documents] == ["b = 1\n"]
    assert tally.skipped == {"bad_member": 1} and not tally.incomplete
    assert tally.problems[0].detail.startswith("a.py")
    (tmp_path / "x").write_bytes(data[:-30])
    assert run(tmp_path / "x")[1].incomplete


def test_a_file_of_a_zip_without_a_name_costs_itself(tmp_path: Path) -> None:
    nameless = zipfile.ZipInfo("x")
    nameless.filename = ""
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr(nameless, b"x = 1\n")
        archive.writestr("b.py", b"b = 1\n")
    documents, tally = run(tmp_path / "x")
    assert [d.text for d in documents] == ["b = 1\n"] and not tally.incomplete


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x1f\x8b", bytes(512), bytes(1024)])
def test_what_is_hardly_a_file_is_read_without_harm(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(data)
    assert run(tmp_path / "x.tar")[0] == []


def test_an_archive_that_expands_without_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "MAX_ALWAYS", 1 << 20)
    files = {f"{i}.py": bytes(1 << 19) for i in range(8)}
    for data in (gzip.compress(tar_of(files)), bz2.compress(tar_of(files)), zip_of(files)):
        (tmp_path / "x").write_bytes(data)
        _, tally = run(tmp_path / "x")
        assert tally.problem_counts == {"expands_too_far": 1} and tally.incomplete


def test_fields_of_any_size_take_no_memory(tmp_path: Path) -> None:
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, 8 << 30
    (tmp_path / "x").write_bytes(member.tobuf() + bytes(10_240))
    assert run(tmp_path / "x")[1].incomplete
    many = tarfile.TarInfo("x")
    many.type = tarfile.XHDTYPE
    (tmp_path / "x").write_bytes(many.tobuf() * 5_000 + bytes(10_240))
    assert run(tmp_path / "x")[1].incomplete


def test_archives_in_archives_are_no_code(tmp_path: Path) -> None:
    data = tar_of()
    for _ in range(5):
        data = tar_of({"inner.tar": data, "a.py": b"a = 1\n"})
    (tmp_path / "x").write_bytes(data)
    documents, tally = run(tmp_path / "x")
    assert len(documents) == 1
    assert tally.skipped == {"no_code": 1}


def test_many_small_files_are_read_one_by_one(tmp_path: Path) -> None:
    """Each is given when it is read, and none is kept."""
    header = tarfile.TarInfo("0000000.py")
    header.size = 2
    with open(tmp_path / "x", "wb") as file:
        for i in range(20_000):
            header.name = f"{i}.py"
            file.write(header.tobuf() + b"1\n".ljust(512, b"\0"))
        file.write(bytes(1024))
    tally = Tally()
    found = read("code", str(tmp_path / "x"), tally)
    tracemalloc.start()
    for _ in range(3_000):
        next(found)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    found.close()
    assert tally.documents == 3_000
    assert peak < 12 << 20


SEEDS = [
    tar_of(),
    zip_of(),
    gzip.compress(tar_of()),
    tar_of({"p.tar.gz": gzip.compress(tar_of({"a.tex": rb"\documentclass{a} x"})), "b.txt": b"x"}),
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 255)), max_size=8),
    st.sampled_from(["code", "latex", "books"]),
)
def test_any_damage_is_counted_and_none_is_raised(
    tmp_path: Path, data: bytes, changes: list[tuple[int, int]], kind: str
) -> None:
    damaged = bytearray(data)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    (tmp_path / "x").write_bytes(damaged)
    run(tmp_path / "x", kind)
