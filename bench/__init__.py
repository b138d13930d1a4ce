"""Benchmarks: what is measured, how, against whom. Not tests; docs/measured.md has the figures."""
