"""What an ARC record line says, in the terms of WARC.

What may live here: types and fields of ARC records. How they are cut out of a file lies in
`grammar`; what becomes of them, in `warc`.
"""

from __future__ import annotations

import re
from datetime import datetime

from curation.read.http import Fields

#: Address, IP, date, the rest. The address may hold spaces.
_LINE = re.compile(r"(.*?) ([0-9A-Fa-f.:]{2,45}|-) (\d{12,18}) ([^ ]*)")


def record_type(line: bytes) -> str:
    """The WARC type that fits: the version block at the beginning of a file is `warcinfo`."""
    return "warcinfo" if line.startswith(b"filedesc:") else "response"


def record_fields(line: bytes) -> Fields:
    """The fields of a WARC response with the same capture, by lower-case name.

    There is no record id. Only responses to http and https are `application/http`.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        text = line.decode("latin-1")
    found = _LINE.match(text)
    if found is None:
        return {}
    uri, address, date, kind = found.groups()
    http = uri.lower().startswith(("http:", "https:"))
    fields = {
        "warc-target-uri": uri,
        "warc-ip-address": address,
        "content-type": "application/http; msgtype=response" if http else kind,
    }
    if moment := _iso_date(date):
        fields["warc-date"] = moment
    return fields


def _iso_date(digits: str) -> str | None:
    """`YYYY-MM-DDThh:mm:ssZ` of the first 14 digits, seconds 0 if missing; None if no date."""
    try:
        moment = datetime.strptime(digits[:14].ljust(14, "0"), "%Y%m%d%H%M%S")
    except ValueError:
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
