"""N-gram models and what belongs to them.

What may live here: how text is normalised for them, how they are estimated, written, trained and
read. The stage that uses them is in `curation.filters`.
"""
