"""Filters: one small file per judge.

What may live here: a class with its parameters, its rules and its `score`. Nothing is counted,
stored or dropped here: the engine does that.
"""
