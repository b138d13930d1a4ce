"""The editor pii: each kind by example, replacements, and what never happens to other text."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import recipe, write_jsonl

from curation import run
from curation.document import Documents
from curation.redact import fakes, numbers, secrets
from curation.redact.addresses import fineweb_emails
from curation.redact.pii import FINEWEB, KINDS, Pii
from curation.redact.spans import Span, merge, replace
from curation.sample.pages import load_pages
from curation.stage import Edited

REPLACE = ("placeholder", "fake", "fineweb")
KEY = "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"  # 36 characters that are no key of anybody


def edit(*texts: str, **parameters: Any) -> Edited:
    return Pii(**parameters).edit(Documents({"text": pa.array(texts, pa.large_string())}))


def found(text: str, kind: str, **parameters: Any) -> list[str]:
    spans = Pii(kinds=(kind,), **parameters).find(text)
    return [text[span.start : span.stop] for span in spans]


def numbers_of(edited: Edited) -> dict[str, int]:
    counts = {name: values[0].item() for name, values in edited.signals.items()}  # type: ignore[union-attr]
    return {name: count for name, count in counts.items() if count}


# --- kinds: what is found, and what stays ------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Write to Ann.Lee+mill@grain-store.co.uk.", "Ann.Lee+mill@grain-store.co.uk"),
        ("(ann@grain.org), now", "ann@grain.org"),
        ("hey,ann@grain.org", "ann@grain.org"),
        ("mailto:ann@grain.org?subject=x", "ann@grain.org"),
        ("'ann@grain.org'", "ann@grain.org"),
        ("m\u00fcller@m\u00fchle.de", "m\u00fcller@m\u00fchle.de"),
        ("\u9023\u7d61\u5148ann@grain.jp\u307e\u3067", "ann@grain.jp"),
        ("ann@xn--mhle-0ra.de", "ann@xn--mhle-0ra.de"),
        ("a@b.example", "a@b.example"),
        ("|ann@grain.org|", "ann@grain.org"),
        ("ann@grain.org_ -", "ann@grain.org"),
        ("password@8.8.8.8 ann@grain.museum", "ann@grain.museum"),
    ],
)
def test_email_addresses_are_found(text: str, wanted: str) -> None:
    assert found(text, "email") == [wanted]


@pytest.mark.parametrize(
    "text",
    [
        "icon@2x.png",
        "@app.route",
        "user@localhost",
        "info@mill.",
        "git@github.com:grain/mill.git",
        "ann@grain.notatoplevelname",
        "a@b@c",
        "me @ the mill.com",
        "ann@@grain.org",
        "ann@-grain.org",
        "@" * 50,
    ],
)
def test_what_only_has_an_at_sign_stays(text: str) -> None:
    assert found(text, "email") == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("from 34.107.221.82, twice", "34.107.221.82"),
        ("(34.107.221.82)", "34.107.221.82"),
        ("http://34.107.221.82:8080/x", "34.107.221.82"),
        ("nameserver 8.8.8.8", "8.8.8.8"),
        ("ends with 34.107.221.82.", "34.107.221.82"),
        ("2345:0425:2CA1:0000:0000:0567:5673:23b5", "2345:0425:2CA1:0000:0000:0567:5673:23b5"),
        ("[2606:4700::6810:84e5]:443", "2606:4700::6810:84e5"),
    ],
)
def test_global_addresses_are_found(text: str, wanted: str) -> None:
    assert found(text, "ip") == [wanted]


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1 127.0.0.1 192.168.1.77 172.16.4.44 169.254.99.99",
        "192.0.2.44 198.51.100.17 203.0.113.99 2001:db8::20",
        "224.0.0.251 ff02::fb",
        "999.107.221.82 34.107.221 108.0.0.01",
        "v34.107.221.82 version 34.107.221.82, Version: 34.107.221.82",
        "Chrome/120.0.6099.71 Mozilla/34.107.221.82",
        "1.3.6.1.4.1.311.60 and 1.3.6.1",
        "12.4.1.2. Configuring the Grinder",
        "section 34.107.221.82",
        "34.107.221.82.in-addr.arpa 34.107.221.82-beta",
        "std::vector :: Ada:: dead:: face::cafe a::b",
        "fe80::1%eth0 ::1 ::",
        "12:30:45 1:2:3:4 00:1A:2B:3C:4D:5E",
        "aa:bb:cc:dd:ee:ff:00:11",  # eight groups, of a fingerprint
        "2001::db8::1 gggg:hhhh::1234",
    ],
)
def test_versions_sections_scopes_and_local_addresses_stay(text: str) -> None:
    assert found(text, "ip") == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("(415) 555-2671", "(415) 555-2671"),
        ("415-555-2671", "415-555-2671"),
        ("Tel.415.555.2671", "415.555.2671"),
        ("Phone:415-555-2671.", "415-555-2671"),
        ("+1 415 555 2671", "+1 415 555 2671"),
        ("+44 20 7946 0958", "+44 20 7946 0958"),
        ("0044 20 7946 0958", "0044 20 7946 0958"),
        ("call 4155552671 now", "4155552671"),
        ("4155552671 (fax)", "4155552671"),
        ("ring the office on 555-0163", "555-0163"),
        ("415-555-2671 ext. 44", "415-555-2671 ext. 44"),
    ],
)
def test_telephone_numbers_are_found(text: str, wanted: str) -> None:
    assert found(text, "phone") == [wanted]


@pytest.mark.parametrize(
    "text",
    [
        "4155552671",
        "555-0163",
        "1914-1918 and 1939-1945",
        "in 2012 2013 45",
        "3.14159265359 and 1.4142135624",
        "order no. 415-555-2671",
        "ISBN 978-0-306-40615-7",
        "ISBN: 0-306-40615-2",
        "doi:10.1000/415-555-2671",
        "$415 555 2671",
        "2026-11-28 12:30:45",
        "id=415-555-2671",
        "IPv4Address(3232235521)",
        "SELECT 1, 20, 300, 4000, 50000",
        "margin: 0 0 10 20 30 40 50px",
        "000-000-0000",
    ],
)
def test_other_numbers_are_no_telephone_numbers(text: str) -> None:
    assert found(text, "phone") == []


def test_regions_say_whose_national_numbers_are_meant() -> None:
    assert found("Telefon 030 1234567", "phone") == []
    assert found("Telefon 030 1234567", "phone", regions=("DE",)) == ["030 1234567"]
    dates = "24.01.2020, 2023-11-03 09 and 3.11.2021 / 06:00, doi:10.1073/pnas.95.15.9047"
    assert found(dates, "phone", regions=("DE", "FR", "JP")) == []
    assert found("24.01.2020 Tel 030 1234567", "phone", regions=("DE",)) == ["030 1234567"]
    assert found("2023-11-03 415-555-2671", "phone") == ["415-555-2671"]


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        ("card", "4539 1488 0343 6467", ["4539 1488 0343 6467"]),
        ("card", "4539-1488-0343-6467.", ["4539-1488-0343-6467"]),
        ("card", "378282246310005", ["378282246310005"]),
        ("card", "my card 30569309025904", ["30569309025904"]),
        ("card", "30569309025904", []),  # Diners: only beside a word
        ("card", "4539 1488 0343 6468", []),  # Luhn
        ("card", "9539148803436467", []),  # no issuer
        ("card", "0000 0000 0000 0000", []),
        ("card", "45-39-14-88-03-43-64-67", []),
        ("card", "/4539148803436467/", []),
        ("iban", "GB29 NWBK 6016 1331 9268 19", ["GB29 NWBK 6016 1331 9268 19"]),
        ("iban", "DE89370400440532013000 to", ["DE89370400440532013000"]),
        ("iban", "NO9386011117947", ["NO9386011117947"]),
        ("iban", "GB29 NWBK 6016 1331 9268 18", []),
        ("iban", "DE893704004405320130001", []),  # one too many
        ("iban", "ZZ89370400440532013000", []),
        ("ssn", "514-69-0360", ["514-69-0360"]),
        ("ssn", "SSN 514690360", ["514690360"]),
        ("ssn", "ITIN: 911-70-1234", ["911-70-1234"]),
        ("ssn", "514690360 514 69 0360", []),
        ("ssn", "000-69-0360 666-69-0360 514-00-0360 514-69-0000 911-40-1234", []),
        ("ssn", "078-05-1120 987-65-4320", []),  # advertisements
        ("ssn", "514-69-03601 5514-69-0360 514-69.0360", []),
        ("wallet", "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2", ["1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2"]),
        ("wallet", "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN3", []),
        ("wallet", f"x {fakes.WALLETS[0].upper()}", [fakes.WALLETS[0].upper()]),
        ("wallet", fakes.WALLETS[0][:-1] + "5", []),
        ("mac", "00:1A:2B:3C:4D:5E or 0012.3456.789A", ["00:1A:2B:3C:4D:5E", "0012.3456.789A"]),
        ("mac", "00:00:00:00:00:00 FF-FF-FF-FF-FF-FF 00:1A:2B:3C:4D 00:00:5E:00:53:AF", []),
        ("nhs", "NHS 401 023 2137", ["401 023 2137"]),
        ("nhs", "NHS 401 023 2138", []),
        ("nhs", "401 023 2137", []),
        ("nif", "12345678Z and X1234567L", ["12345678Z", "X1234567L"]),
        ("nif", "12345678A 00000000T", []),
    ],
)
def test_numbers_are_told_by_their_checksums(kind: str, text: str, wanted: list[str]) -> None:
    assert found(text, kind) == wanted


@pytest.mark.parametrize(
    "key",
    [
        "AKIA" + "ABCDEFGH234567QW",
        "ghp_" + KEY,
        "github_pat_" + (KEY * 3)[:82],
        "glpat-" + KEY[:20],
        "xoxb-" + KEY,
        "hooks.slack.com/services/T0ABCDEFG/B0ABCDEFG/" + KEY[:24],
        "AIza" + KEY[:35],
        "sk_live_" + KEY[:24],
        "sk-" + KEY,
        "sk-proj-" + KEY,
        "hf_" + KEY[:34],
        "npm_" + KEY,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ." + KEY,
    ],
)
def test_keys_are_found_by_their_published_form(key: str) -> None:
    assert found(f"token {key}, and", "secret") == [key]
    assert found(f"x{key}", "secret") == []  # in the middle of something


def test_private_keys_and_assigned_values_are_found() -> None:
    lines = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}{KEY}\n-----END RSA PRIVATE KEY-----"
    assert found(f"keep {lines} safe", "secret") == [lines]
    for before in ('api_key = "', "'secret' : '", 'PASSWORD=>"', 'client_token := "'):
        assert found(f"{before}{KEY}{before[-1]}", "secret") == [KEY]


@pytest.mark.parametrize("space", [c for c in map(chr, range(0x3001)) if c.isspace()])
def test_any_white_space_may_stand_around_an_assignment(space: str) -> None:
    text = pa.array([f"password{space}={space}'{KEY}'"], pa.large_string())
    [[_, kinds]] = Pii(kinds=("secret",)).candidates(text)  # what RE2 lets through to `re`
    assert kinds == ["secret"]
    assert found(text[0].as_py(), "secret") == [KEY]


@pytest.mark.parametrize(
    "text",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "-----BEGIN CERTIFICATE-----",
        "sk-fading-circle-loader-animation-of-the-page",
        'api_key = "your-api-key-1234567890"',
        'key = "the_name_of_the_column_in_it"',
        'password = "aaaaaaaaaaaaaaaa1"',
        "password: hunter2",
    ],
)
def test_what_stands_for_a_key_stays(text: str) -> None:
    assert found(text, "secret") == []


def test_checksums_hold_for_published_examples() -> None:
    assert all(map(numbers.luhn, fakes.CARDS))
    assert all(numbers.mod97(iban) == 1 for iban in fakes.IBANS)
    assert all(len(iban) == numbers.IBAN_LENGTHS[iban[:2]] for iban in fakes.IBANS)
    assert all(map(numbers.bech32, fakes.WALLETS))
    assert numbers.bech32(
        "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0"
    )  # BIP 350
    assert secrets.entropy("abcd") == 2


# --- replacements ------------------------------------------------------------------------------


def test_overlapping_spans_are_merged_before_anything_is_replaced() -> None:
    edited = edit("mailto:eric@eric.com/eric@eric.com 8.8.8.8@x.org")
    mail = "|||EMAIL_ADDRESS|||"
    assert edited.text[0].as_py() == f"mailto:{mail}/{mail} {mail}"
    assert numbers_of(edited) == {"spans": 3, "email": 3}


def test_merged_spans_take_the_kind_of_the_longest() -> None:
    spans = [Span(5, 9, "b"), Span(0, 6, "a"), Span(9, 10, "d"), Span(8, 9, "c")]
    assert merge(spans) == [Span(0, 9, "a"), Span(9, 10, "d")]
    assert replace("0123456789", merge(spans), lambda kind, _: kind) == "ad"


def test_a_number_that_may_be_two_things_is_the_one_with_the_stricter_form() -> None:
    stage = Pii(regions=("US", "FI", "JP", "FR"))
    assert [span.kind for span in stage.find("my SSN: 054-28-6917")] == ["ssn"]


def test_fakes_are_the_same_for_equal_values_in_any_order() -> None:
    texts = ("ann@grain.org", "bob@grain.org, ann@grain.org", "bob@grain.org")
    one, both, other = edit(*texts, replace="fake").text.to_pylist()
    assert both == f"{other}, {one}"
    assert one != other
    assert one.endswith(fakes.DOMAINS)
    assert edit(*texts[::-1], replace="fake").text.to_pylist() == [other, both, one]
    assert [edit(text, replace="fake").text[0].as_py() for text in texts] == [one, both, other]


def test_what_is_nobodys_stays_in_place_of_a_fake() -> None:
    text = "ann@example.com, call 555-0142 or (415) 555-0132; 4111111111111111"
    assert edit(text, replace="fake").text[0].as_py() == text
    assert numbers_of(edit(text)) == {"spans": 4, "email": 1, "phone": 2, "card": 1}


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(value=st.text(max_size=20))
def test_no_fake_is_found(kind: str, value: str) -> None:
    stage = Pii(kinds=tuple(KINDS), replace="fake")
    fake = fakes.fake(kind, value)
    for text in (fake, f"call {fake}", f"card, NHS, SSN: {fake}."):
        assert stage.find(text) == []


def test_annotations_leave_the_text_alone() -> None:
    docs = Documents({"text": pa.array(["ann@grain.org", "x"], pa.large_string())})
    edited = Pii(action="annotate").edit(docs)
    assert edited.text is docs.text
    assert list(edited.signals["email"]) == [1, 0]


def test_fineweb_replaces_by_its_own_values_only() -> None:
    edited = edit("x@a.b 8.8.8.81 10.0.0.1 v34.1.1.1 call 415-555-2671", replace="fineweb")
    mail, quad, *rest = edited.text[0].as_py().split(" ", 2)
    assert mail in fakes.FINEWEB["email"]
    assert quad in fakes.FINEWEB["ip"]
    assert rest[0].startswith("10.0.0.1 v")
    assert rest[0].endswith(" call 415-555-2671")
    assert numbers_of(edited) == {"spans": 3, "email": 1, "ip": 2}


def test_fineweb_addresses_begin_at_the_earliest_border() -> None:
    text = "..a@b.c@d.e \u00e9!x.y@z.w"
    assert [text[start:stop] for start, stop in fineweb_emails(text)] == ["a@b.c", "!x.y@z.w"]


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.sampled_from("aZ9\u00e9.@-!\u201d[]: 12580"), max_size=60))
def test_fineweb_finds_what_datatrove_replaces(text: str) -> None:
    formatters = pytest.importorskip("datatrove.pipeline.formatters.pii")
    peer = formatters.PIIFormatter(email_replacement="E", ip_replacement="I")
    spans = Pii(replace="fineweb").find(text)
    assert replace(text, spans, lambda kind, _: kind[0].upper()) == peer.format(text)


# --- what always holds -------------------------------------------------------------------------

PIECES = [
    *("ann@grain.org", "8.8.8.8", "34.107.221.82", "415-555-2671", "555-0142", "+44 20 7946 0958"),
    *("4539 1488 0343 6467", "GB29NWBK60161331926819", "514-69-0360", "call ", "version ", "isbn "),
    *("2606:4700::6810:84e5", "::", "@", ".", ":", " ", "\n", "x", "1", "|||", "-", "(", "/", "'"),
    *("SSN ", "card ", "server ", 'key = "', KEY, '"', "ghp_" + KEY, "@example.com", "555-01"),
    *(
        "00:1A:2B:3C:4D:5E",
        "12345678Z",
        "NHS 401 023 2137",
        "\u200b",
        "\u200f",
        "\uff11\uff12",
        "\0",
    ),
    *("mill", "\U0001f33e", "\u00e9", "@x.org", "a@b.com", "email@example.com", "22.214.171.124"),
    *("|||EMAIL_ADDRESS|||", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "9" * 12),
]
#: Each is the worst for some pattern.
RUNS = [
    *("@", "1", ":", ".", "a", "-", "a@", "1.", "a:", "1 ", "a.", "(", "+1", "a-", "|", "1-"),
    *("1:1:", "::", "aB3", "a!", "'", "eyJ", "key='", "-----BEGIN PRIVATE KEY-----", "%", "key\n"),
    *("555-0142 ", "1.1.1.1", "GB29", "bc1q", "\u00e9", "4539", "call ", "a@b."),
]
SOUP = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=14).map("".join)


@pytest.mark.parametrize("how", REPLACE)
@settings(max_examples=100, deadline=None)
@given(text=SOUP | st.text(st.sampled_from("0123458.:@a -+(|"), max_size=50))
def test_a_second_run_changes_nothing(how: str, text: str) -> None:
    kinds = None if how == "fineweb" else tuple(KINDS)
    once = edit(text, replace=how, kinds=kinds)
    assert not once.failures
    twice = edit(once.text[0].as_py(), replace=how, kinds=kinds)
    assert twice.text == once.text
    assert numbers_of(twice) == {}


@settings(max_examples=100, deadline=None)
@given(text=SOUP)
def test_text_outside_of_spans_stays_byte_by_byte(text: str) -> None:
    stage = Pii(kinds=tuple(KINDS))
    spans = stage.find(text)
    assert all(0 <= span.start < span.stop <= len(text) for span in spans)
    assert all(a.stop <= b.start for a, b in pairwise(spans))
    marked = replace(text, spans, lambda kind, value: f"\1{value}\2")
    assert marked.replace("\1", "").replace("\2", "") == text.replace("\1", "").replace("\2", "")


@settings(max_examples=100, deadline=None)
@given(text=SOUP)
def test_every_text_with_a_find_has_its_hint(text: str) -> None:
    column = pa.array([text], pa.large_string())
    for how in REPLACE:
        stage = Pii(kinds=tuple(FINEWEB if how == "fineweb" else KINDS), replace=how)
        hinted = {kind for _, kinds in stage.candidates(column) for kind in kinds}
        for name, kind in stage.finders.items():
            assert name in hinted or not list(kind.find(text)), name


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(SOUP, min_size=1, max_size=6), cut=st.integers(0, 6))
def test_batches_may_be_cut_anywhere(texts: list[str], cut: int) -> None:
    whole = edit(*texts)
    parts = [edit(*some) for some in (texts[:cut], texts[cut:]) if some]
    assert whole.text.to_pylist() == [t for part in parts for t in part.text.to_pylist()]
    for name, counts in whole.signals.items():
        assert list(counts) == [n for part in parts for n in part.signals[name]]


@pytest.mark.parametrize("how", ("placeholder", "fineweb"))
def test_long_runs_take_linear_time(how: str) -> None:
    """A pattern that is quadratic in these would not come back."""
    for piece in RUNS:
        assert not edit(piece * (40_000 // len(piece)), replace=how).failures


@pytest.mark.parametrize("text", ["", " ", "\0", "\u200e\u202e", "\uff11" * 20, "a\0@\0b.org"])
def test_odd_texts_stay(text: str) -> None:
    edited = edit(text)
    assert edited.text[0].as_py() == text
    assert numbers_of(edited) == {}


def test_places_are_right_after_characters_of_many_bytes() -> None:
    text = "\U0001f33e\u200f\u00e9 ann@grain.org \u200b415-555-2671\u3002"
    wanted = "\U0001f33e\u200f\u00e9 |||EMAIL_ADDRESS||| \u200b|||PHONE_NUMBER|||\u3002"
    assert edit(text).text[0].as_py() == wanted


def test_pages_of_the_sample_are_edited_as_their_fates_say() -> None:
    for slug, page in load_pages().items():
        text = "\n\n".join(page.blocks)
        edited = edit(text)
        new = edited.text[0].as_py()
        assert (new != text) == (page.fate == "edit:pii"), slug
        assert not re.search(r"\w@\w|555-01", new), slug
        assert not re.search("203|192|2001:", text) or "|||IP" not in new, slug
        assert numbers_of(edited).get("spans", 0) <= 5, slug


def test_a_document_with_many_spans_is_dropped_in_a_run(tmp_path: Path) -> None:
    mails = [f"{name}@grain.org" for name in ("ann", "bob", "cleo", "dan", "eve", "fay")]
    texts = ["The mill turns.", " ".join(mails[:5]), " ".join(mails), mails[0]]
    path = write_jsonl(tmp_path / "a.jsonl", texts)
    done = run(recipe({"pii": {}}), inputs=[path], output=tmp_path / "r", workers=1)
    (stage,) = done.stats["stages"]
    assert stage["dropped"] == {"many_spans": stage["dropped"]["many_spans"]}
    assert stage["dropped"]["many_spans"]["documents"] == 1
    assert stage["edited"]["documents"] == 2
    kept = pq.read_table(tmp_path / "r" / "documents")["text"].to_pylist()
    mail = "|||EMAIL_ADDRESS|||"
    assert sorted(kept) == ["The mill turns.", mail, " ".join([mail] * 5)]


# --- parameters --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"kinds": []}, "leave the stage out"),
        ({"kinds": ["phone"], "replace": "fineweb"}, "FineWeb has no phone"),
        ({"regions": ["XX"]}, "'XX' is none of phonenumbers"),
    ],
)
def test_parameters_that_cannot_be_are_refused(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Pii(**parameters)


def test_libraries_of_tables_are_named_where_they_decide() -> None:
    assert set(Pii().depends()) == {"phonenumbers", "publicsuffixlist", "python"}
    assert set(Pii(kinds=("card",)).depends()) == set()
    assert set(Pii(replace="fineweb").depends()) == {"python"}


def test_annotation_drops_nothing_unless_it_is_asked_to() -> None:
    assert Pii(action="annotate").max_spans is None
    assert Pii(action="annotate", max_spans=2).max_spans == 2
    assert Pii().max_spans == 5
