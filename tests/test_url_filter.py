"""The filter `url_filter`: lists of domains in all their forms, words, allow and opt-out lists."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from warcio.archiveiterator import ArchiveIterator

from bench.urls import of_pages
from curation import cli, models, run
from curation.document import Documents
from curation.engine.chain import as_column
from curation.engine.plan import open_plan
from curation.filters.url_filter import UrlFilter
from curation.filters.urls import lists, reference, words


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where lists are compiled to."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lists._load_once.cache_clear()
    return tmp_path / "cache" / "gristmill" / "lists"


def score(stage: UrlFilter, *urls: str | None) -> list[dict[str, Any]]:
    signals = stage.score(Documents({"url": pa.array(urls, pa.string())}))
    columns = {name: as_column(values).to_pylist() for name, values in signals.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def reasons(stage: UrlFilter, *urls: str | None) -> list[str | None]:
    """The first rule that drops each URL."""
    signals = stage.score(Documents({"url": pa.array(urls, pa.string())}))
    found: list[str | None] = [None] * len(urls)
    for rule in reversed(stage.rules):
        violated = rule.violated(
            as_column(signals[rule.signal]), rule.threshold(stage, pa.nulls(len(urls), pa.string()))
        )
        found = [rule.name if hit else old for hit, old in zip(violated, found, strict=True)]
    return found


def categories(listed: Path | str, *urls: str) -> list[str | None]:
    stage = UrlFilter(domains=(str(listed),), words=None)
    return [row["category"] for row in score(stage, *urls)]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# --- what falls under a list ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "url", "hit"),
    [
        ("bad.example", "http://bad.example/", True),
        ("bad.example", "https://BAD.example.:8443/x?y", True),
        ("bad.example", "http://user@www.bad.example", True),
        ("bad.example", "http://a.b.bad.example/", True),
        ("bad.example", "http://notbad.example/", False),
        ("bad.example", "http://example/?bad.example", False),
        ("b.bad.example", "http://bad.example/", False),
        ("b.bad.example", "http://a.b.bad.example/", True),
        ("www.Bad.example.", "http://bad.example/", True),
        ("http://bad.example/", "http://bad.example/x", True),
        ("b\u00fccher.example", "http://xn--bcher-kva.example/", True),
        ("xn--bcher-kva.example", "http://b\u00fccher.example/", True),
        # A public suffix is itself alone, unless it says otherwise.
        ("co.uk", "http://mill.co.uk/", False),
        ("co.uk", "http://co.uk/", True),
        ("github.io", "http://mill.github.io/", False),
        ("github.io", "http://github.io/", True),
        (".github.io", "http://mill.github.io/", True),
        ("*.github.io", "http://a.mill.github.io/", True),
        (".github.io", "http://github.io/", True),
        ("xxx", "http://mill.xxx/", False),
        (".xxx", "http://mill.xxx/", True),
        # An IP address has no parents.
        ("192.168.0.1", "http://192.168.0.1/", True),
        ("168.0.1", "http://192.168.0.1/", False),
        # The beginning of an address, on this host.
        ("site.example/~bad", "http://www.site.example/~BAD/page", True),
        ("site.example/~bad/", "http://site.example/~bad?x", True),
        ("site.example/~bad", "http://site.example/~badger", False),
        ("site.example/~bad", "http://site.example/", False),
        ("site.example/~bad", "http://a.site.example/~bad", False),
        ("site.example?id=1", "http://site.example?id=1&x", True),
    ],
)
def test_what_falls_under_an_entry(tmp_path: Path, entry: str, url: str, hit: bool) -> None:
    listed = write(tmp_path / "mine.txt", f"{entry}\n")
    assert categories(listed, url) == ["mine" if hit else None]


def test_the_most_specific_entry_names_the_category(tmp_path: Path) -> None:
    write(tmp_path / "ut1/adult/domains", "a.example\nboth.example\n")
    write(tmp_path / "ut1/gambling/domains", "b.a.example\nboth.example\n")
    write(tmp_path / "ut1/gambling/urls", "a.example/bets\n")
    found = categories(
        tmp_path / "ut1",
        *("http://a.example/", "http://c.b.a.example/", "http://a.example/bets/1"),
        "http://both.example",
    )
    assert found == ["adult", "gambling", "gambling", "adult"]


# --- the forms of lists ---------------------------------------------------------------------------

HOSTS_FILE = """\ufeff# a hosts file
127.0.0.1\tlocalhost
0.0.0.0 one.example two.example # why
::1 ip6-localhost

  three.example  # here
four.example#not a comment
"""


def test_comments_and_hosts_files(tmp_path: Path) -> None:
    listed = write(tmp_path / "hosts", HOSTS_FILE)
    hosts = ("localhost", "one", "two", "three", "four", "why", "here")
    urls = [
        f"http://{host}.example" if host != "localhost" else "http://localhost" for host in hosts
    ]
    assert [bool(found) for found in categories(listed, *urls)] == [True] * 5 + [False] * 2


def tar(path: Path, members: dict[str, bytes], mode: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_all_forms_of_a_list_say_the_same(tmp_path: Path) -> None:
    content = "".join(f"site-{i}.example\n" for i in range(1000)).encode()
    plain = tmp_path / "adult"
    plain.write_bytes(content)
    packed = tmp_path / "adult.gz"
    packed.write_bytes(gzip.compress(content))
    folder = tmp_path / "folder" / "adult"
    write(folder / "domains", content[: len(content) // 2].decode())
    (folder / "domains.24733").write_bytes(gzip.compress(content[len(content) // 2 - 15 :]))
    write(folder / "domains.db", "not read")
    write(folder / "very_restrictive_expression", "not read")
    write(tmp_path / "folder" / "news" / "domains", "not.asked.example\n")
    members = {"blacklists/adult/domains": content, "blacklists/news/domains": b"not.asked.example"}
    forms = [
        *(plain, packed, folder, folder.parent),
        tar(tmp_path / "ut1.tar.gz", members, "w:gz"),
        tar(tmp_path / "ut1.tar", members, "w"),
        tar(tmp_path / "adult.tgz", {"domains": content, "urls": b"x.example/y"}, "w:gz"),
    ]
    urls = ["http://site-0.example", "http://a.site-999.example/", "http://site-1000.example"]
    for form in forms:
        found = categories(form, *urls, "http://not.asked.example")
        assert found == ["adult", "adult", None, None], form


def test_a_line_is_read_whole_wherever_chunks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"n{i}.example" for i in range(50)]
    listed = write(tmp_path / "mine", "\n".join(names))
    for size in (1, 7, 64):
        monkeypatch.setattr(lists, "_CHUNK", size * 16)
        lists._load_once.cache_clear()
        assert categories(listed, *(f"http://{name}" for name in names)) == ["mine"] * 50


def test_categories_that_are_asked_for(tmp_path: Path) -> None:
    for category in ("adult", "news"):
        write(tmp_path / "ut1" / category / "domains", f"{category}.example\n")
    urls = ("http://adult.example", "http://news.example")
    stage = UrlFilter(domains=(str(tmp_path / "ut1"),), categories=("news",), words=None)
    assert [row["category"] for row in score(stage, *urls)] == [None, "news"]
    wrong = UrlFilter(domains=(str(tmp_path / "ut1"),), categories=("news", "porn"))
    with pytest.raises(lists.ListError, match=r"no category porn \(has adult, news\)"):
        wrong.files()
    archive = tar(tmp_path / "a.tar", {"x/news/domains": b"news.example"}, "w")
    with pytest.raises(lists.ListError, match=r"no category adult, .* \(has news\)"):
        categories(archive, "http://news.example")


@pytest.mark.parametrize(
    "content", ["||ads.example^\n||bad.example^$third-party\n", "\x00\x01 ||\n<p>"]
)
def test_what_is_no_list_of_domains_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(lists.ListError, match="mine: of 2 lines 0 have a domain or URL"):
        categories(write(tmp_path / "mine", content), "http://a.example")


def test_an_empty_list_lists_nothing(tmp_path: Path) -> None:
    assert categories(write(tmp_path / "mine", "# nothing\n"), "http://a.example") == [None]
    assert categories(write(tmp_path / "none", ""), "http://a.example") == [None]


def test_a_list_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(models.ModelNotFound, match="model url/none not found"):
        UrlFilter(domains=("url/none",)).files()


# --- compiled once --------------------------------------------------------------------------------


def test_a_list_is_compiled_once_and_again_when_it_changes(tmp_path: Path, cache: Path) -> None:
    listed = write(tmp_path / "mine", "a.example\n")
    assert categories(listed, "http://a.example") == ["mine"]
    [compiled] = cache.iterdir()
    content = compiled.read_bytes()
    lists._load_once.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "_compile", None)  # not called
        assert categories(listed, "http://a.example", "http://b.example") == ["mine", None]
    compiled.write_bytes(content[: len(content) // 2])
    lists._load_once.cache_clear()
    assert categories(listed, "http://a.example") == ["mine"]
    assert compiled.read_bytes() == content
    write(listed, "b.example\nc.example\n")
    assert categories(listed, "http://a.example", "http://b.example") == [None, "mine"]


def test_the_same_archive_under_two_names_has_a_label_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tar(tmp_path / "models" / "ut1.tar.gz", {"domains": b"a.example"}, "w:gz")
    (archive.parent / "mine.tar.gz").hardlink_to(archive)
    monkeypatch.setenv("GRISTMILL_MODELS", str(archive.parent))
    assert categories("mine.tar.gz", "http://a.example") == ["mine"]
    assert categories("ut1.tar.gz", "http://a.example") == ["ut1"]


def test_without_a_cache_lists_are_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(write(tmp_path / "file", "")))
    assert categories(write(tmp_path / "mine", "a.example"), "http://a.example") == ["mine"]


# --- words ----------------------------------------------------------------------------------------


def folder_of_words(folder: Path, names: tuple[str, str, str]) -> Path:
    for name, content in zip(
        names, ("Bad Words\n# no\n", "hard\n", "one\ntwo\nhard\n"), strict=True
    ):
        write(folder / name, content)
    return folder


@pytest.mark.parametrize("names", words._FILES)
def test_words(tmp_path: Path, names: tuple[str, str, str]) -> None:
    stage = UrlFilter(words=str(folder_of_words(tmp_path / "w", names)))
    urls = {
        "http://my-BAD.words.example/": "strict_word",
        "http://ba.example/dwords": None,
        "http://a.example/x_HARD.html": "hard_word",
        "http://hardly.example/": None,
        "http://one.example/Two": "soft_words",
        "http://one.example/one": None,
        "http://one.example/two2": None,
        "http://no.example/": None,
    }
    assert dict(zip(urls, reasons(stage, *urls), strict=True)) == urls


@pytest.mark.parametrize("name", ["mine.gz", "mine.tar", "mine.tar.gz"])
def test_a_damaged_list_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"bad.example\n" * 1000)[:30])
    with pytest.raises(lists.ListError, match=f"{name}: damaged"):
        categories(tmp_path / name, "http://a.example")


def test_words_that_cannot_be_found_are_refused(tmp_path: Path) -> None:
    folder = folder_of_words(tmp_path / "w", words._FILES[0])
    write(folder / "soft.txt", "one\n\n\u0447\u0442\u043e\n")
    with pytest.raises(words.WordsError, match=r"soft\.txt, line 3: .* has no ASCII letter"):
        score(UrlFilter(words=str(folder)), "http://a.example")
    with pytest.raises(words.WordsError, match="no lists of words"):
        UrlFilter(words=str(tmp_path)).files()


@pytest.mark.parametrize(
    "url",
    [
        *("http://essex.example/middlesex/sussex-videos", "http://a.example/more-shots-expected"),
        *("http://a.example/olives-extract", "http://a.example/super-bowl-xxx"),
        *("http://a.example/canal-sexton", "http://a.example/and-then-taipei"),
        *("http://a.example/linux-videos", "http://a.example/young-adult-books-for-teens"),
        *(
            "http://birds.example/blue-tits",
            "http://a.example/poker-face",
            "http://scunthorpe.example",
        ),
    ],
)
def test_harmless_addresses_stay(url: str) -> None:
    assert reasons(UrlFilter(), url) == [None]


def test_our_lists_have_no_word_twice_and_in_order() -> None:
    for path in words.files(words.BUILT_IN):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert lines == sorted(set(lines)) and len(lines) == len(words.read(path)) > 10


# --- allow and opt out ----------------------------------------------------------------------------


def test_allowed_pages_are_not_judged_and_opting_out_wins(tmp_path: Path) -> None:
    listed = write(tmp_path / "mine", "bad.example\n")
    stage = UrlFilter(
        domains=(str(listed),),
        allow=("good.bad.example", "porn.example"),
        opt_out=("porn.example/private", "out.example"),
    )
    urls = {
        "http://bad.example/": "listed",
        "http://good.bad.example/": None,
        "http://porn.example/": None,
        "http://www.porn.example/private/x": "opted_out",
        "http://out.example/": "opted_out",
        "http://in.example/": None,
    }
    assert dict(zip(urls, reasons(stage, *urls), strict=True)) == urls
    [row] = score(stage, "http://porn.example/")
    assert row == {
        **{"domain": "porn.example", "allowed": True, "opted_out": False, "category": None},
        **{"strict_words": None, "hard_words": None, "soft_words": None},
    }


def test_allow_and_opt_out_may_be_files(tmp_path: Path) -> None:
    out = write(tmp_path / "out.txt", "# asked by mail\nout.example\n")
    stage = UrlFilter(opt_out=str(out))
    assert reasons(stage, "http://a.out.example/x", "http://a.example") == ["opted_out", None]
    assert stage.files()[str(out)] == out


@pytest.mark.parametrize(
    "entry", ["", "# x", "mailto:a@b.example", "a b", "a.example\nb.example", "x" * 5000]
)
def test_entries_that_are_no_addresses_are_refused(entry: str) -> None:
    with pytest.raises(ValidationError, match="neither a domain nor a URL"):
        UrlFilter(opt_out=("fine.example", entry))


def test_a_file_among_entries_is_refused(tmp_path: Path) -> None:
    out = write(tmp_path / "out.txt", "out.example\n")
    with pytest.raises(ValidationError, match="is a file: give it alone"):
        UrlFilter(opt_out=(str(out),))


# --- as a stage -----------------------------------------------------------------------------------


def test_without_an_address_nothing_is_scored() -> None:
    nothing = dict.fromkeys(UrlFilter.types)
    assert score(UrlFilter(), None, "", "javascript:porn()", "http://a b/") == [nothing] * 4


def test_types_hold_for_batches_in_which_all_is_null() -> None:
    for stage in (UrlFilter(), UrlFilter(words=None)):
        signals = stage.score(Documents({"url": pa.nulls(2)}))
        assert {name: str(as_column(v).type) for name, v in signals.items()} == dict(stage.types)


def test_the_key_knows_the_lists(tmp_path: Path) -> None:
    write(tmp_path / "ut1/adult/domains", "a.example\n")
    write(tmp_path / "ut1/adult/urls", "a.example/b\n")
    stage = UrlFilter(domains=(str(tmp_path / "ut1"),))
    root = f"{tmp_path}/ut1/adult"
    assert set(stage.files()) == {
        *(f"{root}/domains", f"{root}/urls"),
        *("built-in/strict.txt", "built-in/hard.txt", "built-in/soft.txt"),
    }
    assert set(stage.depends()) == {"idna", "publicsuffixlist"}
    assert UrlFilter(words=None).files() == {}


@pytest.fixture(scope="module")
def finished(sample_crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("urls")
    listed = write(folder / "mine", "hotsex.example\n")
    recipe = {
        **{"kind": "documents", "name": "urls", "input": {"kind": "warc"}},
        "stages": [{"url_filter": {"domains": [str(listed)]}}, "extract"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        return run(recipe, inputs=[sample_crawl], output=folder / "r", workers=1).path


def test_pages_of_the_sample_crawl_meet_their_fates(finished: Path, sample_crawl: Path) -> None:
    with sample_crawl.open("rb") as file:
        wanted = {
            record.rec_headers.get_header("WARC-Target-URI")
            for record in ArchiveIterator(file)
            if record.rec_headers.get_header("Gristmill-Fate") == "drop:url_filter"
        }
    plan = open_plan(finished)
    rows = pq.read_table(finished / plan.segments[0].directory / "signals").to_pylist()
    dropped = {row["url"] for row in rows if row["reached"] == "url_filter"}
    assert dropped == wanted and len(wanted) == 6


def test_thresholds_are_tried_from_signals(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--set", "url_filter.max_soft_words=null", "--json"]
    assert cli.main(["whatif", str(finished), *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    rules = {row.pop("rule").partition(":")[2]: row for row in found["rules"]}
    assert rules["listed"] == {"drops": 1, "would_drop": 1, "only_it": 0}
    assert rules["soft_words"]["drops"] == 0
    assert found["flips"]["now_kept_or_unknown"]["documents"] == 3


# --- real lists and addresses ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def addresses(shared_data: Path) -> list[str]:
    """Some of the addresses of real pages, and of what these link to."""
    return of_pages(shared_data)[::20]


@pytest.mark.real
def test_decisions_of_data_prep_kit(shared_data: Path) -> None:
    """Its test of a blocklist in UT1's form: seven URLs, three of them listed."""
    folder = shared_data / "filters" / "dpk-blocklist"
    expected = pq.read_table(folder / "expected" / "test1.parquet").to_pylist()
    for listed in (folder / "domains" / "arjel", folder / "domains"):
        found = categories(listed, *(row["title"] for row in expected))
        assert [bool(category) for category in found] == [
            bool(row["blocklisted"]) for row in expected
        ]
    names = ["triple-a-casino.com", "twoplustwo.com", "000777triplewin.com", "www.abcsunbeam.com"]
    found = categories(folder / "domains", *(f"http://{name}/" for name in names))
    assert found == ["gambling", "gambling", "gambling", "phishing"]


@pytest.mark.real
@pytest.mark.filterwarnings("ignore:The .registered_domain. property:DeprecationWarning")
def test_decisions_of_datatrove(shared_data: Path, addresses: list[str]) -> None:
    """Its words on addresses of real pages, in lower case: hard and soft words in capitals are what
    it misses, and nothing else."""
    for package in ("tldextract", "ahocorasick", "fasteners"):
        pytest.importorskip(package, reason=f"datatrove's URLFilter needs {package}")
    from datatrove.data import Document
    from datatrove.pipeline.filters import URLFilter as Theirs

    folder = shared_data / "toxicity" / "datatrove-url-words"
    strict, hard, soft = (path.read_text().splitlines() for path in words.files(str(folder)))
    listed = ["youtube.com", "edition.cnn.com", "nytimes.com"]
    given = [
        *addresses,
        *(f"http://a.example/{first}-{second}" for first, second in itertools.pairwise(soft)),
        *(f"http://my{word.replace(' ', '-')}.example/" for word in strict),
        *(f"http://a.example/{word}/x{word}" for word in (*hard, *soft)),
    ]
    given = [url.lower() for url in given]
    theirs = Theirs(
        use_integrated_lists=False,
        extra_domains=listed,
        banned_words=hard,
        banned_subwords=strict,
        soft_banned_words=soft,
    )
    kept = [theirs.filter(Document("", url, metadata={"url": url})) is True for url in given]
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(listed))
        file.flush()
        ours = reasons(UrlFilter(words=str(folder), domains=(file.name,)), *given)
    assert [reason is None for reason in ours] == kept
    assert 0.02 < kept.count(False) / len(kept) < 0.2


@pytest.mark.real
def test_words_of_datatrove_on_real_addresses(shared_data: Path, addresses: list[str]) -> None:
    """Counted as by the reference; words alone drop less than 0.1 % of what pages link to."""
    folder = str(shared_data / "toxicity" / "datatrove-url-words")
    strict, hard, soft = map(words.read, words.files(folder))
    found = score(UrlFilter(words=folder), *addresses)
    names = ("strict_words", "hard_words", "soft_words")
    for url, row in zip(addresses, found, strict=True):
        if row["opted_out"] is not None:
            expected = reference.count_words(url, strict, hard, soft)
            assert tuple(row[name] for name in names) == expected, url
    for stage in (UrlFilter(words=folder), UrlFilter()):
        dropped = [reason for reason in reasons(stage, *addresses) if reason]
        assert 0 < len(dropped) / len(addresses) < 0.001


@pytest.mark.parametrize("categories", [(), ("adult",)])
def test_categories_of_nothing_are_refused(categories: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError, match="categories"):
        UrlFilter(categories=categories)


def test_an_entry_that_is_not_in_a_list_is_told_from_a_missing_file() -> None:
    with pytest.raises(models.ModelNotFound, match=r"a single entry is written \[mine\.example\]"):
        UrlFilter(opt_out="mine.example").files()
