"""The ground between the two wings: records of runs, and what refers to them.

What may live here: canonical JSON and digests, run records and receipts, (later) token manifests,
sample order, verification and traces. Standard library, numpy, pyarrow and pyyaml only; imports
neither `curation` nor `training`.
"""
