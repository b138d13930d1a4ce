"""From texts to tokens: pure functions on batches, which the engine's tasks call.

What may live here: tokenizers, encoding, packing, and the arithmetic around them. Nothing of the
engine: no tasks, receipts or recipes.
"""
