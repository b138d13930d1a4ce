"""The vocabulary of `Gristmill-Fate`, the header that says what the engine should do.

The fates assume this chain: url_filter, extract (any engine that finds the pages' prose; with
resiliparse they hold to the letter, others may put a headline or a menu on the other side),
language (keep en, from 0.65), gopher_repetition, gopher_quality, c4 without the rule on terminal
punctuation, fineweb, perplexity (kenlm/sample, at most 250), toxicity, exact_dedup, minhash_dedup,
pii. Without one of them, the pages that it would drop are kept.

A stage without a rule means that several of its rules hold, so that the first one decides.
"""

KEPT = ("keep", "edit:pii")

GROUPS = {"group": "exact_dedup", "near_group": "minhash_dedup"}
"""Exactly one document of the group named in `Gristmill-Group` is kept, this stage drops the rest.
The first word of the group's name is what its members share: `url`, `text` or `near`."""

SKIPS = (
    "warcinfo",
    "request",
    "metadata",
    "revisit",
    "resource",
    "status_3xx",
    "status_4xx",
    "status_5xx",
    "content_type",
    "empty",
    "content_encoding",
    "truncated",
)
"""Reasons for which the reader makes no document of a record."""

DROPS = (
    "url_filter",
    "extract:empty",
    "language:other_language",
    "language:low_score",
    "gopher_repetition",
    "gopher_quality:too_few_words",
    "gopher_quality:too_many_words",
    "gopher_quality:short_words",
    "gopher_quality:long_words",
    "gopher_quality:many_hashes",
    "gopher_quality:many_ellipses",
    "gopher_quality:many_bullets",
    "gopher_quality:many_ellipsis_lines",
    "gopher_quality:few_alphabetic",
    "gopher_quality:few_stop_words",
    "c4:curly_bracket",
    "c4:lorem_ipsum",
    "c4:too_few_sentences",
    "fineweb:few_punctuated_lines",
    "fineweb:many_short_lines",
    "perplexity:high_perplexity",
    "toxicity",
)
"""Stages and rules that drop a document by itself, in the order of the chain."""

FATES = frozenset(
    [*KEPT, *GROUPS, *(f"skip:{reason}" for reason in SKIPS), *(f"drop:{rule}" for rule in DROPS)]
)
