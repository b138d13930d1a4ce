"""Transfers over HTTP and from object stores: the same bytes as undisturbed, or an error."""

import random
import socket
import threading
from dataclasses import replace

import fsspec
import pytest
from crawl_server import Fault, crawl_server

from curation.storage import InputError, list_inputs, open_input, same_input
from curation.transfer import Patience, user_agent

DATA = random.Random(5).randbytes(300_000)
FILES = {"a.warc.gz": DATA, "b.warc.gz": DATA[:1000], "empty": b""}


class Waits(list):
    """Where the pauses go that nobody makes; `patience` is that of a reader without chance."""

    def __init__(self, **changes):
        super().__init__()
        self.patience = Patience(sleep=self.append, chance=lambda: 1.0, stall=10, **changes)


@pytest.fixture
def waits():
    return Waits()


def content(url, patience, start=0, size=70_000):
    """What is read from a URL, piece by piece, and the error that ended it, if any."""
    parts = []
    try:
        with open_input(url, start, patience) as stream:
            while piece := stream.read(size):
                parts.append(piece)
    except OSError as error:
        return b"".join(parts), error
    return b"".join(parts), None


BORNE = {
    "busy": [Fault("status", times=3)],
    "too many requests": [Fault("status", status=429, headers={"Retry-After": "7"})],
    "forbidden for a while": [Fault("status", status=403, times=2)],
    "bad gateway": [Fault("status", status=502), Fault("status", status=504, skip=1)],
    "reset at once": [Fault("reset", times=2)],
    "reset in the middle": [Fault("reset", after=100_000, times=4)],
    "short": [Fault("short", after=131_072, times=2)],
    "short before the first byte": [Fault("short")],
    "bytes after the end": [Fault("long")],
    "no ranges": [Fault("short", after=50_000), Fault("no_range", skip=1)],
    "no ranges, then short": [
        Fault("short", after=50_000),
        Fault("no_range", skip=1, times=9),
        Fault("short", skip=1, after=20_000),
        Fault("short", skip=2, after=90_000),
    ],
    "no length": [Fault("chunked")],
    "everything": [
        Fault("status", times=2),
        Fault("reset", skip=2, after=70_000),
        Fault("status", skip=3, status=429),
        Fault("short", skip=4, after=1),
    ],
}


@pytest.mark.parametrize("faults", BORNE.values(), ids=BORNE)
@pytest.mark.parametrize("size", [7_000, 1 << 20, -1])
def test_what_passes_costs_no_byte(waits, faults, size):
    faults = [replace(fault, seen=0) for fault in faults]
    with crawl_server(FILES, faults) as server:
        found, error = content(server.url + "a.warc.gz", waits.patience, size=size)
        again, _ = content(server.url + "b.warc.gz", waits.patience)
    assert error is None and found == DATA and again == DATA[:1000]


FINAL = {
    "gone": ([Fault("short", after=9_000), Fault("status", status=404, skip=1)], "status 404"),
    "changed": ([Fault("short", after=9_000), Fault("changed", skip=1, times=9)], "changed"),
    "wrong range": ([Fault("short", after=9_000), Fault("wrong_range", skip=1)], "asked from 9000"),
    "endless": ([Fault("chunked", skip=1, extra=1), Fault("short", after=9_000)], "longer"),
    "busy for good": ([Fault("status", skip=1, times=99), Fault("short", after=9_000)], "8 times"),
    "reset for good": ([Fault("short", after=9_000), Fault("reset", skip=1, times=99)], "8 times"),
}


@pytest.mark.parametrize(("faults", "message"), FINAL.values(), ids=FINAL)
def test_what_does_not_pass_is_an_error_after_the_bytes_before_it(waits, faults, message):
    faults = [replace(fault, seen=0) for fault in faults]
    if message == "longer":  # the second answer is whole, and has a byte more than the first said
        faults.append(Fault("no_range", skip=1))
    with crawl_server(FILES, faults) as server:
        found, error = content(server.url + "a.warc.gz", waits.patience)
    assert error is not None and message in str(error) and "a.warc.gz" in str(error)
    assert "\n" not in str(error)
    assert DATA.startswith(found) and len(found) >= 9_000


def test_a_failed_stream_goes_on_failing(waits):
    faults = [Fault("short", after=9_000), Fault("status", status=404, skip=1)]
    with crawl_server(FILES, faults) as server:
        stream = open_input(server.url + "a.warc.gz", patience=waits.patience)
        assert stream.read(9_000) == DATA[:9_000]
        for _ in range(2):
            with pytest.raises(OSError, match="404"):
                stream.read(1)
        with (
            open_input(server.url + "a.warc.gz", patience=waits.patience) as other,
            pytest.raises(InputError, match="gone"),
        ):
            assert other.read() == DATA
            open_input(server.url + "gone", patience=waits.patience)
    assert waits == [0.5]  # what is missing is not waited for


def test_a_stalled_connection_is_given_up_and_the_rest_asked_for():
    waits = Waits()
    patience = replace(waits.patience, stall=0.2)
    with crawl_server(FILES, [Fault("stall", after=60_000)]) as server:
        found, error = content(server.url + "a.warc.gz", patience)
        assert server.ranges() == ["", "bytes=60000-"]
    assert error is None and found == DATA and waits == [0.5]


def test_only_what_is_missing_is_asked_for_again(waits):
    with crawl_server(FILES, [Fault("short", after=100_000, times=2)]) as server:
        found, _ = content(server.url + "a.warc.gz", waits.patience)
        assert server.ranges() == ["", "bytes=100000-", "bytes=200000-"]
    assert found == DATA
    assert waits == [0.5, 0.5]  # progress makes patient again


def test_pauses_double_up_to_a_bound_and_a_server_that_asks_for_more_gets_it_within_a_bound():
    waits = Waits(failures=6, longest=4)
    with crawl_server(FILES, [Fault("status", times=9)]) as server, pytest.raises(InputError):
        open_input(server.url + "a.warc.gz", patience=waits.patience)
    assert waits == [0.5, 1, 2, 4, 4]
    later = "Fri, 01 Jan 2100 00:00:00 GMT"
    for header, wait in (("7", 7), ("999999", 300), (later, 300), ("nonsense", 0.5), ("0", 0.5)):
        waits.clear()
        fault = Fault("status", status=429, headers={"Retry-After": header})
        with crawl_server(FILES, [fault]) as server:
            assert content(server.url + "a.warc.gz", waits.patience) == (DATA, None)
        assert waits == [wait]
    assert Patience(chance=lambda: 0.0).pause(3, 0) == 1  # half of it is chance


@pytest.mark.parametrize("start", [0, 1, 299_999, 300_000, 300_001])
@pytest.mark.parametrize("ranges", [True, False])
def test_reading_from_an_offset(waits, tmp_path, start, ranges):
    (tmp_path / "a").write_bytes(DATA)
    with crawl_server(FILES, [] if ranges else [Fault("no_range", times=9)]) as server:
        assert content(server.url + "a.warc.gz", waits.patience, start) == (DATA[start:], None)
    assert content(str(tmp_path / "a"), waits.patience, start) == (DATA[start:], None)


def test_an_empty_object(waits):
    with crawl_server(FILES) as server:
        (file,) = list_inputs([server.url + "empty"], ())
        assert file.size == 0 and same_input(file)
        assert content(file.path, waits.patience) == (b"", None)


def test_connections_are_kept_and_say_who_asks(waits, monkeypatch):
    monkeypatch.setenv("GRISTMILL_CONTACT", "mail\r\nto: crawl@example.org ")
    with crawl_server(FILES) as server:
        for name in ("b.warc.gz", "a.warc.gz", "b.warc.gz"):
            content(server.url + name, waits.patience)
            (file,) = list_inputs([server.url + name], ())
            assert same_input(file)
        # The probes of a listing run in a thread of their own, but from the same pool.
        assert len(server.connections) == 1
        assert server.agents == {user_agent()}
    assert user_agent().endswith(" (+mailto: crawl@example.org)")


def test_an_input_that_is_another_one_and_one_that_cannot_be_asked_for_are_told_apart(waits):
    files = dict(FILES)
    faults = [Fault("status", times=2, skip=1, probes=True)]
    with crawl_server(files, faults) as server:
        (file,) = list_inputs([server.url + "a.warc.gz"], (), patience=waits.patience)
        assert same_input(file, waits.patience) and len(waits) == 2
        files["a.warc.gz"] = DATA + b"x"
        assert not same_input(file, waits.patience)
        del files["a.warc.gz"]
        assert not same_input(file, waits.patience)
        faults.append(Fault("status", times=99, probes=True))
        with pytest.raises(InputError, match="status 503"):
            same_input(file, waits.patience)
    with pytest.raises(InputError, match=r"refused \(8 times\)"):
        same_input(file, waits.patience)


def test_many_urls_are_asked_for_and_counted(waits):
    files = {f"{i:03}.warc": b"x" * i for i in range(60)}
    counted = []
    with crawl_server(files, [Fault("status", times=10, skip=20, probes=True)]) as server:
        urls = [server.url + name for name in files]
        found = list_inputs(
            urls[::-1], (), patience=waits.patience, progress=lambda *now: counted.append(now)
        )
        assert [file.size for file in found] == list(range(60))
        assert counted == [(i, 60) for i in range(1, 61)]
        server.requests.clear()
        assert list_inputs(urls[::-1], (), limit=3) == found[:3]
        assert len(server.requests) == 3
        with pytest.raises(InputError, match="nothing: HTTP status 404"):
            list_inputs([*urls, server.url + "nothing"], ())


@pytest.mark.parametrize(
    "url",
    ["http://", "http://[::1", "http://127.0.0.1:99999/x", "https://127.0.0.1:1/x", "http://a b/"],
)
def test_urls_that_lead_nowhere_are_one_line(waits, url):
    with pytest.raises(InputError) as error:
        open_input(url, patience=waits.patience)
    assert url in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("length", ["9" * 30, "9" * 5_000, "-5", "many"])
def test_a_length_that_can_be_none_is_not_known(length):
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nbody".encode()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with server.accept()[0] as client:
                client.recv(10_000)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        (file,) = list_inputs([f"http://127.0.0.1:{server.getsockname()[1]}/a.warc"], ())
        thread.join()
        assert file.size is None


# ---------------------------------------------------------------- object stores


class Flaky:
    """A file system whose answers a test may spoil: `spoil(method, call number)` for each call."""

    def __init__(self, spoil):
        self.inner = fsspec.filesystem("memory")
        self.spoil = spoil
        self.calls = 0

    def _call(self, name, *arguments, **options):
        self.calls += 1
        spoiled = self.spoil(name, self.calls)
        if isinstance(spoiled, Exception):
            raise spoiled
        found = getattr(self.inner, name)(*arguments, **options)
        return spoiled(found) if spoiled else found

    def info(self, path):
        return self._call("info", path)

    def cat_file(self, path, start, end):
        return self._call("cat_file", path, start=start, end=end)


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr("curation.transfer.PIECE", 40_000)
    memory = fsspec.filesystem("memory")
    memory.pipe("/flaky/a", DATA)

    def use(spoil):
        flaky = Flaky(spoil)
        monkeypatch.setattr("curation.storage._filesystem", lambda url: (flaky, "/flaky/a"))
        return flaky

    yield use
    memory.rm("/flaky", recursive=True)


@pytest.mark.parametrize("size", [7_000, 90_000, -1])
def test_an_object_store_that_stumbles_costs_no_byte(store, waits, size):
    def spoil(method, call):
        if call % 3 == 0:
            return [ConnectionResetError("reset"), TimeoutError(), RuntimeError("driver")][
                call % 9 // 3
            ]
        return (lambda data: data[:-5]) if method == "cat_file" and call % 5 == 0 else None

    store(spoil)
    assert content("flaky://a", waits.patience, size=size) == (DATA, None)
    assert content("flaky://a", waits.patience, start=123_456) == (DATA[123_456:], None)
    assert content("flaky://a", waits.patience, start=300_001) == (b"", None)
    assert waits


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        (FileNotFoundError(), "no such file"),
        (PermissionError("no credentials"), "no credentials"),
        (OSError("down"), "down"),
        (lambda data: data + b"x" if isinstance(data, bytes) else data, "longer"),
        (lambda info: info | {"created": "later"} if isinstance(info, dict) else info, "changed"),
    ],
)
def test_an_object_store_that_fails_is_an_error_after_the_bytes_before_it(
    store, waits, spoiled, message
):
    def spoil(method, call):
        if message == "changed" and call == 4:
            return OSError("look again")
        return spoiled if call > 3 else None

    store(spoil)
    found, error = content("flaky://a", waits.patience)
    assert error is not None and message in str(error) and "flaky://a" in str(error)
    assert DATA.startswith(found) and found
