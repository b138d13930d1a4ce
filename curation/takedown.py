"""Takedown: a new run without the documents that a list names.

What may live here: what `curation takedown LIST RUN` does. Reading with a list (`takedown:` of a
recipe) is the engine's.
"""

from __future__ import annotations

from curation.engine.listed import Listed, ListError, read_list

__all__ = ["ListError", "Listed", "read_list"]
