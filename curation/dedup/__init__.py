"""Deduplication: global steps that decide which documents repeat an earlier one.

What may live here: what is hashed, how candidates meet, how survivors are chosen. A removal always
names the kept document that it repeats.
"""
