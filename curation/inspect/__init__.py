"""Looking at runs: the drop table, documents, what-if, traces, verification.

What may live here: read-only views of a run for a person or, as JSON, for a program.
"""
