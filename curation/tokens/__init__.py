"""From documents to tokens, and from tokens to what others read.

What may live here: pure functions on arrays and files of a tokens run: training a tokenizer,
encoding, packing, mixing, export, takedown. Nothing of the engine, of receipts or of recipes.
"""
