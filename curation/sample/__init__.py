"""The embedded sample crawl: a small WARC whose every record says what should become of it.

    pages/       the texts, one file each            templates/   the site templates
    pages.py     from text files to HTML             sites.py     who serves them
    delivery.py  charsets and codings                plan.py      from pages to captures
    captures.py  what the sample holds               fates.py     what should become of it
    framing.py   compressed formats, uncompressed    warc.py      the record format
    build.py     from captures to the file

Everything is a function of the files here and a seed: no clock, no random module, no compressor
whose output could change with its version. All names, addresses and numbers are reserved ones.

Each record has a header `Gristmill-Fate` (the vocabulary is in `fates.py`); a document of a
duplicate group also has `Gristmill-Group`, and exactly one document of each group survives.
"""

from curation.sample.build import write_sample

__all__ = ["write_sample"]
